"""Retention and checks in words, and as JSON."""

from __future__ import annotations

import pytest

from transports.artifacts import CheckReport, NoneStore, Problem, Retention


@pytest.mark.parametrize(
    ("retention", "words"),
    [
        (Retention.only(), "kept until it is deleted"),
        (Retention.only(ttl_seconds=3600), "removed 1 hour after it was stored"),
        (
            Retention.only(ttl_seconds=90, keep_unscoped=True),
            "removed 90 seconds after it was stored, unless it has no owner",
        ),
        (Retention.only(max_trace_bytes=1), "removed earlier where its trace is over a limit"),
        (
            Retention.only(max_artifacts_per_session=1, max_artifacts_per_trace=1),
            "removed earlier where its trace is over a limit; removed earlier where its session is over a limit",
        ),
        (
            Retention.only(ttl_seconds=60, max_session_bytes=1),
            "removed 1 minute after it was stored; removed earlier where its session is over a limit",
        ),
        (Retention.only(max_trace_bytes=1, cleanup_strategy="none"), "kept until it is deleted"),
    ],
)
def test_a_retention_says_what_becomes_of_an_artifact(retention: Retention, words: str) -> None:
    assert str(retention) == words


def test_a_report_is_json() -> None:
    report = CheckReport(1, 2, (Problem("name", "a", "b"), Problem("index", "c", "d")))
    problems = [{"kind": "name", "id": "a", "message": "b"}, {"kind": "index", "id": "c", "message": "d"}]
    assert report.as_dict() == {"artifacts": 1, "size_bytes": 2, "problems": problems}


def test_content_is_described_as_if_it_had_been_given_to_the_store() -> None:
    store = NoneStore(max_bytes=5)
    ref = store.describe(b"hello", mime_type="text/plain", namespace="n", meta={"app": "a"}, now=1.5)
    assert (ref.filename, ref.mime_type, ref.size_bytes) == ("n_1500.txt", "text/plain", 5)
    assert ref.source["created"] == "1970-01-01T00:00:01.500Z"
    assert (ref.source["app"], ref.source["preview"], ref.stored) == ("a", "hello", False)
