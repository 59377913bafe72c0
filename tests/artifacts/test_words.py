"""What stores and their parts tell: retention in words, references and reports as JSON, errors with their places."""

from __future__ import annotations

import pytest

from tests.support.rows import each_row
from transports.artifacts import CheckReport, MemoryStore, NoneStore, Problem, Retention, Scope
from transports.artifacts._ref import artifact_id, candidate_ids
from transports.errors import Corrupt, StoreError, UsageError


@each_row(
    ("retention", "words"),
    [
        (Retention.only(), "kept until it is deleted"),
        (Retention.only(ttl_seconds=3600), "removed 1 hour after it was stored"),
        (
            Retention.only(ttl_seconds=90, keep_unscoped=True),
            "removed 90 seconds after it was stored, unless it belongs to no session",
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
def test_retention_is_described_in_words(retention: Retention, words: str) -> None:
    assert str(retention) == words


def test_check_report_is_json_serializable() -> None:
    report = CheckReport(1, 2, (Problem("name", "a", "b"), Problem("index", "c", "d")))
    problems = [{"kind": "name", "id": "a", "message": "b"}, {"kind": "index", "id": "c", "message": "d"}]
    assert report.as_dict() == {"artifacts": 1, "size_bytes": 2, "problems": problems}


def test_describe_returns_ref_as_if_content_were_stored() -> None:
    store = NoneStore(max_bytes=5)
    ref = store.describe(b"hello", mime_type="text/plain", namespace="n", meta={"app": "a"}, now=1.5)
    assert (ref.filename, ref.mime_type, ref.size_bytes) == ("n_1500.txt", "text/plain", 5)
    assert ref.source["created"] == "1970-01-01T00:00:01.500Z"
    assert (ref.source["app"], ref.source["preview"], ref.stored) == ("a", "hello", False)


def test_negative_retention_limit_is_rejected() -> None:
    with pytest.raises(UsageError, match="cleanup_strategy must be lru, fifo or none"):
        Retention(cleanup_strategy="random")  # type: ignore[arg-type]
    for name in ("ttl_seconds", "max_trace_bytes", "max_artifacts_per_session"):
        with pytest.raises(UsageError, match=rf"^retention: {name} must not be negative \(it is -1\)"):
            Retention.only(**{name: -1})  # type: ignore[arg-type]
        assert Retention.only(**{name: 0}) != Retention.only()  # type: ignore[arg-type]


def test_artifact_ids_are_stable_across_versions() -> None:
    assert artifact_id("n", "a" * 64) == "n_aaaaaaaaaaaa"
    assert candidate_ids("n", "a" * 64, Scope(user="ä"))[1] == "n_aaaaaaaaaaaaaaaa-f10b7ed6d6bacea1e58f"


async def test_damaged_content_in_memory_store_raises_corrupt() -> None:
    async with MemoryStore() as store:
        ref = await store.put_bytes(b"hello")
        store._blobs[ref.sha256] = b"hell"
        with pytest.raises(Corrupt, match=f"^artifact {ref.id} is damaged: it has 4 bytes"):
            await store.get(ref.id)


async def test_unreadable_staged_file_error_names_folder() -> None:
    async with MemoryStore() as store, store.stage() as staged:
        staged.path.symlink_to("elsewhere")
        with pytest.raises(StoreError, match=f"^cannot read the staged file in {staged.path.parent}: "):
            await staged.commit()
