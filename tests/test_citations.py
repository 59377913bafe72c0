"""Cited sections of the documents exist, and documents that are not in the repository are not cited."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.requirements import section

ROOT = Path(__file__).parents[1]
#: A citation such as ``docs/protocol.md 3.2``, ``docs/faults.md 13`` or ``docs/requirements.md R2-7.1c``.
_CITED = re.compile(r"docs/(protocol|faults|requirements)\.md ((?:R\d-)?[\dA-Z]+(?:\.\d+)*[a-z]?(?:\.[a-z])?)(?![\w-])")
#: Documents that are not in the repository.
_FOREIGN = re.compile(r"(?i:seed 00)|\b(?:FAULTS(?=[ :]?\d)|PROTOCOL(?![\[ ]?[=_])|DESIGN|REDESIGN|PERFORMANCE)\b")
#: A test that a document names: a file, or one test in it.
_TEST = re.compile(r"\b(tests/[\w/]+\.py)(?:::(\w+))?")
_SUFFIXES = {".py", ".js", ".md", ".html", ".json", ".yaml", ".toml"}


@cache
def sections(document: str) -> set[str]:
    text = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#{2,4} ((?:R\d-)?[\dA-Z]+(?:\.\d+)*)\b", text, re.MULTILINE))
    rows = set(re.findall(r"^\| ?(\d+) ?\|", text, re.MULTILINE))
    lines = set(re.findall(r"\b(R\d-[\dA-Z]+(?:\.\d+)*\.?[a-z])\b", text))
    return headings | rows | lines | {section(line) for line in lines}


def files() -> Iterator[Path]:
    tracked = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "transports", "tests", "webapp_fixture", "examples", "docs"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in tracked.stdout.split():
        path = ROOT / name
        if path.suffix in _SUFFIXES and path.exists() and path != Path(__file__):
            yield path


def faults(text: str) -> list[str]:
    """What is wrong with the citations of a text."""
    missing = [
        f"docs/{document}.md has no {cited}"
        for document, cited in _CITED.findall(text)
        if cited not in sections(document)
    ]
    return [*missing, *(f"{found} is not in the repository" for found in _FOREIGN.findall(text))]


@pytest.mark.load
def test_every_citation_leads_to_a_section() -> None:
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in files() for fault in faults(path.read_text("utf-8"))]
    assert found == []


def missing_tests(text: str) -> list[str]:
    """The tests that a text names and that are not there."""
    found = []
    for file, name in _TEST.findall(text):
        source = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).is_file() else None
        if source is None or (name and not re.search(rf"^ *(?:async )?def {name}\(", source, re.MULTILINE)):
            found.append(f"{file}::{name}" if name else file)
    return found


def test_every_test_that_a_document_names_is_there() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    wrong = [f"{path.name}: {test}" for path in documents for test in missing_tests(path.read_text("utf-8"))]
    assert wrong == []


def test_each_promise_of_security_names_a_test() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("| promise |")]
    promises = [line for table in tables for line in table[2:]]
    assert len(promises) > 30
    assert [line for line in promises if not _TEST.search(line)] == []


def test_a_test_that_is_not_there_is_found() -> None:
    there = "`tests/test_citations.py::test_a_test_that_is_not_there_is_found`"
    text = f"{there}, tests/gone.py, tests/test_layers.py::gone"
    assert missing_tests(text) == ["tests/gone.py", "tests/test_layers.py::gone"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("docs/protocol.md 99.1", "docs/protocol.md has no 99.1"),
        ("docs/faults.md 51", "docs/faults.md has no 51"),
        ("docs/requirements.md R2-7.9", "docs/requirements.md has no R2-7.9"),
        ("see seed 002", "seed 00 is not in the repository"),
        ('PROTOCOL "Discovery"', "PROTOCOL is not in the repository"),
    ],
)
def test_a_dead_citation_is_found(text: str, fault: str) -> None:
    assert faults(text) == [fault]


def test_a_live_citation_is_not_a_fault() -> None:
    assert faults("docs/protocol.md 3.2, docs/faults.md 13, docs/requirements.md R2-7.1, PROTOCOL_ERROR") == []
