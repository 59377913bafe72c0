"""What some tests need and not every machine has. Such a test is skipped for a reason that begins with "needs", and the
last line of the run counts them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

import pytest

__all__ = ["PREFIX", "missing", "not_run"]

#: How the reason begins: "needs root: …", "needs a mount: …".
PREFIX = "needs "
_REASON = re.compile(rf"(?:Skipped: )?{PREFIX}([^:]+)")


def missing(what: str, reason: object) -> NoReturn:
    """Skip the test that runs: it needs what is not here."""
    pytest.skip(f"{PREFIX}{what}: {reason}")


def not_run(reasons: Iterable[str]) -> str:
    """Return the line for the reasons of all tests that were skipped; "" if none needs anything."""
    needs = Counter(found[1] for reason in reasons if (found := _REASON.match(reason)))
    parts = [f"{n} {'test that needs' if n == 1 else 'tests that need'} {what}" for what, n in sorted(needs.items())]
    return f"not run here: {', '.join(parts)}" if parts else ""
