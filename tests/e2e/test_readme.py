"""The README: short, and its commands work as they stand."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, serving

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TABLE = re.compile(r"^\| You have … \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
#: Commands that go on until they are ended, or take long; other tests run them.
_LASTING = ("abp fixture", "abp serve", "abp shell", "abp conformance")


def shell_commands() -> list[str]:
    """Return the lines of the section Shell, and the other calls of the reference app in the table."""
    section = README.partition("## Shell\n\n```sh\n")[2].partition("```")[0]
    lines = [line for line in section.splitlines() if not line.startswith(_LASTING)]
    calls = re.findall(r"`(abp call \w+://127\.0\.0\.1:8000/.*?)`", README)
    assert len(calls) == 3
    return [*lines, *(call for call in calls if not any(line.startswith(call) for line in lines))]


def test_readme_is_short() -> None:
    assert len(README.split()) <= 600
    assert README.count("](") <= 12


def test_docs_index_has_same_table_as_readme() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (here,), (there,) = _TABLE.findall(README), _TABLE.findall(index)
    assert here.replace("](docs/", "](") == there
    assert here.count("\n") - 1 == 9


@pytest.mark.parametrize(
    "in_page", [False, pytest.param(True, marks=[pytest.mark.browser, pytest.mark.slow])], ids=["beside", "in-page"]
)
def test_readme_commands_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], in_page: bool
) -> None:
    """In a page those which only work there; the others over a WebSocket, which other tests show in a page."""
    monkeypatch.chdir(tmp_path)
    abp = CommandLine({"ABP_OUTPUT_DIR": str(tmp_path / "out")}, monkeypatch, capfdbinary)
    with serving() as app:
        for line in shell_commands():
            line = line.replace("127.0.0.1:8000/", app.url.partition("//")[2])
            program, *args = shlex.split(line, comments=True)
            if program != "abp":
                subprocess.run(["bash", "-c", line], check=True)
                continue
            needs_page = not {"generate.qrcode", "postmessage"}.isdisjoint(args)
            if needs_page != in_page:
                continue
            if not in_page:
                args = [app.ws_url if arg == app.url else arg for arg in args]
            ran = abp(*args)
            assert ran.status == 0, (line, ran)
    assert [*(tmp_path / "pictures").glob("*.png")] if in_page else (tmp_path / "run" / "manifest.jsonl").is_file()
