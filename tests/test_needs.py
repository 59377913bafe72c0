"""What did not run for want of something is told in one line at the end of a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import pytest_terminal_summary
from tests.support.needs import missing


def reason_of(what: str) -> str:
    with pytest.raises(pytest.skip.Exception) as caught:
        missing(what, "there is none: here")
    return f"Skipped: {caught.value}"


def summary(*reasons: str) -> list[str]:
    lines: list[str] = []
    reports = [SimpleNamespace(longrepr=("a.py", 1, reason)) for reason in reasons]
    reporter = SimpleNamespace(
        getreports=lambda name: reports if name == "skipped" else [], write_line=lambda line, **_: lines.append(line)
    )
    pytest_terminal_summary(cast(pytest.TerminalReporter, reporter))
    return lines


def test_the_end_of_a_run_counts_what_did_not_run() -> None:
    reasons = [reason_of("root"), reason_of("a mount"), reason_of("root"), "Skipped: memory keeps nothing"]
    assert summary(*reasons) == ["not run here: 1 test that needs a mount, 2 tests that need root"]
    assert summary("Skipped: memory keeps nothing") == []
