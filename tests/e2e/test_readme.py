"""The README: short, and its commands work as they stand."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from webapp_fixture import Fixture

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TABLE = re.compile(r"^\| You have … \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
#: Commands that go on until they are ended; other tests run them.
_LASTING = ("abp fixture", "abp serve", "abp shell")


def shell_commands() -> list[str]:
    """Return the lines of the section Shell, and those of the table that call the reference app."""
    section = README.partition("## Shell\n\n```sh\n")[2].partition("```")[0]
    lines = [line for line in section.splitlines() if not line.startswith(_LASTING)]
    calls = re.findall(r"`(abp call \w+://127\.0\.0\.1:8000/.*?)`", README)
    assert len(calls) == 3
    return [*lines, *calls]


def test_readme_is_short() -> None:
    assert len(README.split()) <= 600
    assert README.count("](") <= 12


def test_docs_index_has_same_table_as_readme() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (here,), (there,) = _TABLE.findall(README), _TABLE.findall(index)
    assert here.replace("](docs/", "](") == there
    assert here.count("\n") - 1 == 9


@pytest.mark.browser
@pytest.mark.asyncio(loop_scope="session")
async def test_readme_commands_work_as_printed(fixture: Fixture, tmp_path: Path) -> None:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "ABP_OUTPUT_DIR": str(tmp_path / "out"), "PYTHONPATH": str(ROOT)}
    script = "\n".join(["set -e", *shell_commands()]).replace("127.0.0.1:8000/", fixture.url.partition("//")[2])
    ran = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "Traceback" not in ran.stderr
    assert [file.name for file in (tmp_path / "pictures").glob("*.png")]
    assert (tmp_path / "run" / "manifest.jsonl").is_file()
