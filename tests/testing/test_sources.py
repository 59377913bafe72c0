"""The source of every check and of every behaviour can be looked up: a section, a row, or a name in the code."""

from __future__ import annotations

import pydoc
import re
from collections.abc import Iterator

import pytest

from tests.test_citations import sections
from transports.testing.conformance import CHECKS
from transports.testing.contract import BEHAVIOURS

#: A document of ours and all that is cited of it: "docs/protocol.md 3.2, 6.1".
CITATION = re.compile(r"docs/(\w+)\.md ([\w.-]+(?:, [\w.-]+)*)")
SOURCES = [(check.id, check.source) for check in CHECKS] + [(str(one), one.source) for one in BEHAVIOURS]


def dead(source: str) -> Iterator[str]:
    """What a source cites and nobody can find."""
    for document, cited in CITATION.findall(source):
        yield from (f"docs/{document}.md {one}" for one in cited.split(", ") if one not in sections(document))
    for name in re.findall(r"\btransports(?:\.\w+)+", source):
        if pydoc.locate(name) is None:
            yield name


@pytest.mark.parametrize(
    "source", ["docs/protocol.md 3.2, 99.1; RFC 6455", "docs/faults.md 50, 51", "transports.base.Transport.x"]
)
def test_a_dead_citation_is_found(source: str) -> None:
    assert len([*dead(source)]) == 1


def test_every_source_can_be_looked_up() -> None:
    assert {name: found for name, source in SOURCES if (found := [*dead(source)])} == {}


def test_every_check_cites_the_protocol() -> None:
    assert [check.id for check in CHECKS if not check.source.startswith("docs/protocol.md ")] == []


def test_every_behaviour_cites_a_document_an_rfc_or_the_contract_in_the_code() -> None:
    known = re.compile(rf"{CITATION.pattern}|RFC \d+|transports(\.\w+)+")
    assert [str(one) for one in BEHAVIOURS if not known.match(one.source)] == []
