"""Sections and tests that the code and the documents cite exist."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
#: ``docs/protocol.md 3.2``, ``docs/faults.md 13`` or ``docs/requirements.md R2-7.1c``.
_SECTION = re.compile(
    r"docs/(protocol|faults|requirements)\.md ((?:R\d-)?[\dA-Z]+(?:\.\d+)*[a-z]?(?:\.[a-z])?)(?![\w-])"
)
#: A file of tests, or one test in it.
_TEST = re.compile(r"\b(tests/[\w/]+\.py)(?:::(\w+))?")
_FOLDERS = ("transports", "tests", "webapp_fixture", "examples", "docs")


@cache
def sections(document: str) -> set[str]:
    text = (ROOT / "docs" / f"{document}.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"^#{2,4} ((?:R\d-)?[\dA-Z]+(?:\.\d+)*)\b", text, re.MULTILINE))
    rows = set(re.findall(r"^\| ?(\d+|R\d-[\dA-Z.]+[a-z]) ?\|", text, re.MULTILINE))
    return headings | rows | {row[:-1].removesuffix(".") for row in rows if row.startswith("R")}


@pytest.mark.load
def test_each_cited_section_exists() -> None:
    command = ["git", "grep", "-hoE", r"docs/(protocol|faults|requirements)\.md [R0-9][0-9A-Za-z.-]*", "--", *_FOLDERS]
    cited = set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())
    found = [match for citation in cited for match in _SECTION.findall(citation)]
    assert len(found) > 100
    assert [(document, section) for document, section in found if section not in sections(document)] == []


def test_each_test_that_a_document_names_exists() -> None:
    documents = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"]
    for path in documents:
        for file, name in _TEST.findall(path.read_text(encoding="utf-8")):
            source = ROOT / file
            assert source.is_file(), f"{path.name}: {file}"
            if name:
                assert re.search(rf"def {name}\(", source.read_text(encoding="utf-8")), f"{path.name}: {file}::{name}"
