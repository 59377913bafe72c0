"""Every rule that the contract suite and ``abp conformance`` cite can be looked up."""

from __future__ import annotations

import pydoc
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from transports.testing.conformance import CHECKS
from transports.testing.contract import BEHAVIOURS

DOCS = Path(__file__).parents[2] / "docs"
#: A document of ours and what is cited of it: "docs/protocol.md 3.2, 6.1".
CITATION = re.compile(r"docs/(\w+)\.md ((?:[\w.-]+)(?:, [\w.-]+)*)")
#: How each document marks what can be cited.
ANCHORS = {
    "protocol": re.compile(r"^#{2,3} (\d+(?:\.\d+)?) ", re.MULTILINE),
    "faults": re.compile(r"^\| (\d+) \|", re.MULTILINE),
    "requirements": re.compile(r"^(?:#{2,3} |\| )(R\d[\w.-]*) ", re.MULTILINE),
}
SOURCES = [(check.id, check.source) for check in CHECKS] + [(str(one), one.source) for one in BEHAVIOURS]


def anchors(document: str) -> set[str]:
    return set(ANCHORS[document].findall((DOCS / f"{document}.md").read_text(encoding="utf-8")))


def dead_citations(source: str) -> Iterator[str]:
    """What a source cites and nobody can find: a section, a row, a name in the code."""
    for document, cited in CITATION.findall(source):
        yield from (f"docs/{document}.md {one}" for one in cited.split(", ") if one not in anchors(document))
    for name in re.findall(r"\btransports(?:\.\w+)+", source):
        if pydoc.locate(name) is None:
            yield name


def test_the_documents_have_sections_that_can_be_cited() -> None:
    assert {"1", "3.2", "14.2"} <= anchors("protocol") and {"1", "50"} <= anchors("faults")
    assert {"R0-2", "R0-2a", "R2-6.4"} <= anchors("requirements")


@pytest.mark.parametrize("source", ["docs/protocol.md 3.2, 99.1", "docs/faults.md 51", "transports.base.Transport.x"])
def test_a_dead_citation_is_found(source: str) -> None:
    assert len([*dead_citations(source)]) == 1


@pytest.mark.parametrize(("name", "source"), SOURCES, ids=[name for name, _ in SOURCES])
def test_every_source_can_be_looked_up(name: str, source: str) -> None:
    assert [*dead_citations(source)] == []


def test_every_check_cites_the_protocol() -> None:
    assert [check.id for check in CHECKS if not CITATION.match(check.source)] == []


def test_every_behaviour_cites_a_document_an_rfc_or_the_contract_in_the_code() -> None:
    known = re.compile(rf"{CITATION.pattern}|RFC \d+|transports(\.\w+)+")
    assert [str(one) for one in BEHAVIOURS if not known.match(one.source)] == []
