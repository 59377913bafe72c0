"""``docs/performance.md`` says what its sources say: a run that writes it anew must lose nothing."""

from __future__ import annotations

from tests.benchmarks.docs import DOCUMENT
from tests.benchmarks.tried import TRIED


def test_the_document_and_its_source_tell_the_same_of_what_was_tried() -> None:
    assert TRIED in DOCUMENT.read_text(encoding="utf-8")
    assert TRIED.count("- Lost: ") > 10
