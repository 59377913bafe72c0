"""What documents cite exists: tests, requirements with their tests, messages of the code."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.support.processor import untraced

ROOT = Path(__file__).parents[1]
#: A file of tests, or one test in it.
_TEST = re.compile(r"\b(tests/[\w/]+\.py)(?:::(\w+))?")


def test_tests_named_in_docs_exist() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for path in documents:
        for file, name in _TEST.findall(path.read_text(encoding="utf-8")):
            source = ROOT / file
            assert source.is_file(), f"{path.name}: {file}"
            if name:
                assert re.search(rf"def {name}\(", source.read_text(encoding="utf-8")), f"{path.name}: {file}::{name}"


def test_names_in_where_md_exist() -> None:
    """``playwright/_agent.py`` (``with_deadline``): the file, and names that stand in it."""
    text = (ROOT / "docs" / "where.md").read_text(encoding="utf-8")
    places = re.findall(r"`([\w/]+\.(?:py|js))` \(([^)]*)\)", text)
    assert len(places) > 30
    for file, names in places:
        source = (ROOT / "transports" / file).read_text(encoding="utf-8")
        for name in re.findall(r"`(?:\w+\.)*(\w+)`", names):
            assert re.search(rf"\b{name}\b", source), f"{file}: {name}"


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


_TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def texts(*wanted: str) -> list[str]:
    """Every text in the modules in which one of ``wanted`` stands, with ``…`` for each value in an f-string."""
    found = []
    for path in (ROOT / "transports").rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        joined = re.sub(r'"\s+f?"', "", source).replace('\\"', '"')
        if not any(part in joined for part in wanted):
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.JoinedStr):
                parts = (str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@pytest.mark.load
def test_troubleshooting_page_messages_exist_in_code() -> None:
    messages = re.findall(r'^### "(.+)"$', _TROUBLESHOOTING, re.MULTILINE)

    def longest(message: str) -> str:
        return max(message.split("…"), key=len)

    with untraced():
        all_texts = texts(*map(longest, messages))

    def exists(message: str) -> bool:
        pattern = re.compile(".*".join(map(re.escape, message.split("…"))), re.DOTALL)
        return any(longest(message) in text and pattern.search(text) for text in all_texts)

    missing = [message for message in messages if not exists(message)]
    assert len(messages) > 20 and missing == []
