"""The rows of ``docs/requirements.md`` and ``docs/faults.md`` have tests, which are marked with their ids."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def rows(document: str) -> dict[str, list[str]]:
    """Return the cells of each row that begins with an id, by the id."""
    text = (ROOT / "docs" / document).read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    return {row[0]: row[1:] for row in cells if re.fullmatch(r"R\d-\S+|D\d+|\d+", row[0])}


def marked(marker: str) -> dict[str, list[str]]:
    """Return the ids that tests are marked with, each with the files of its tests."""
    files: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for arguments in re.findall(rf"pytest\.mark\.{marker}\(([^)]*)\)", path.read_text(encoding="utf-8")):
            for id in ast.literal_eval(f"[{arguments}]"):
                files.setdefault(str(id), []).append(path.name)
    return files


@pytest.mark.load
def test_each_requirement_has_a_test_or_a_note() -> None:
    page, tests = rows("requirements.md"), marked("requirement")
    requirements = {id: note for id, (_, *note) in page.items() if id.startswith("R")}
    assert {id: files for id, files in tests.items() if id not in requirements} == {}
    assert [id for id, note in requirements.items() if not note and id not in tests] == []
    notes = {note[0] for note in requirements.values() if note}
    assert [note for note in notes if note not in page and not re.match("(missing|no test): .", note)] == []


@pytest.mark.load
def test_each_fault_has_a_test() -> None:
    page, tests = rows("faults.md"), marked("fault")
    assert {id: files for id, files in tests.items() if id not in page} == {}
    assert [id for id in page if id not in tests] == []
