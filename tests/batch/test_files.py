"""The files of a run under the names of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.batch.runs import filled
from transports.artifacts import ArtifactStore, LocalStore, MemoryStore
from transports.batch._batch import export_files
from transports.batch._jobs import Job, Outcome, State
from transports.batch.ledger._ledger import Ledger
from transports.batch.ledger._schema import Settlement
from transports.errors import Corrupt, StoreError, UsageError
from transports.routing import Result

JOBS = [
    Job("do", {"n": 0}, "memory:", "j1", carried={"team": "a/b"}),
    Job("do", {"n": 1}, "memory:", "j1", carried={"team": "c"}),
    Job("do", {"n": 2}, "memory:", "../up\0/.x", carried={"team": "c"}),
    Job("do", {"n": 3}, "memory:", None, carried={"team": "c"}),
    Job("do", {"n": 4}, "memory:", "two", carried={"team": "c"}),
    Job("do", {"n": 5}, "memory:", "bad", carried={"team": "c"}),
    Job("do", {"n": 0}, "memory:", "same", carried={"team": "d"}),
    Job("do", {"n": 0}, "memory:", "same", carried={"team": "e"}),
]


async def run_with_files(folder: Path, store: ArtifactStore, jobs: Sequence[Job] = JOBS) -> Ledger:
    """Each job has a file with its number; the one called ``two`` has another, ``bad`` failed."""
    ledger = await filled(str(folder), jobs)
    settled = []
    for one in await ledger.lease(99, 60):
        n = one.job.params["n"]
        refs = {"document": await store.put_bytes(f"{n}".encode(), filename="export.csv", mime_type="text/csv")}
        if one.job.id == "two":
            refs["pages.0.image"] = await store.put_bytes(b"page", filename="page.txt", mime_type="text/plain")
        state = State.FAILED if one.job.id == "bad" else State.SUCCEEDED
        outcome = Outcome(one.job, state, Result("do", None, refs), artifacts=tuple(refs.values()))
        settled.append(Settlement(one.key, outcome))
    await ledger.settle(settled)
    return ledger


def contents(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in sorted(folder.iterdir())}


async def test_exported_files_get_unique_names_from_jobs(tmp_path: Path) -> None:
    store, out = LocalStore(tmp_path / "files"), tmp_path / "out"
    async with store, await run_with_files(tmp_path, store) as ledger:
        keys = [row.key async for row in ledger.rows()]
        assert [one["field"] for row in [row async for row in ledger.rows()][4:5] for one in row.artifacts] == [
            "document",
            "pages.0.image",
        ]
        want = {
            "j1.csv": "0",
            f"j1-{keys[1][:16]}.csv": "1",
            "_up_.x.csv": "2",
            f"{keys[3][:16]}.csv": "3",
            "two-document.csv": "4",
            "two-pages.0.image.txt": "page",
            "same.csv": "0",
            f"same-{keys[0][:16]}.csv": "0",
        }
        for _ in range(2):  # again: the same, in the same places
            assert await export_files(ledger, store, out) == len(want)
            assert contents(out) == want
        assert (out / "j1.csv").samefile(out / "same.csv")  # a name of the store's file, no copy
        by_team = tmp_path / "team"
        await export_files(ledger, store, by_team, "{team}_{id}_{field}")
        assert contents(by_team)["a_b_j1_document.csv"] == "0" and contents(by_team)["d_same_document.csv"] == "0"
        with pytest.raises(UsageError, match=r"unknown field \{nam\}; job j1 has id, key, .*, team"):
            await export_files(ledger, store, out, "{nam}")
        with pytest.raises(UsageError, match="is the store itself"):
            await export_files(ledger, store, tmp_path / "files")
        await store.delete(str([row async for row in ledger.rows()][1].artifacts[0]["id"]))
        with pytest.raises(StoreError, match=r"1 file is no longer in the store, 7 in"):
            await export_files(ledger, store, out)


async def test_error_of_the_store_is_not_taken_for_missing_files(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "files")
    async with store, await run_with_files(tmp_path, store) as ledger:
        meta = tmp_path / "files/.abp/meta"
        meta.rename(tmp_path / "meta")
        meta.touch()
        with pytest.raises(StoreError, match="is not a folder"):
            await export_files(ledger, store, tmp_path / "out")


async def test_export_copies_files_from_memory_store(tmp_path: Path) -> None:
    async with MemoryStore() as store, await run_with_files(tmp_path, store) as ledger:
        assert await export_files(ledger, store, tmp_path / "out") == 8
        assert contents(tmp_path / "out")["two-document.csv"] == "4"


async def test_export_writes_file_per_line_and_removes_killed_export_leftovers(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / ".abp-0123456789abcdef").write_bytes(b"half")
    again = [Job("do", {"n": 0}, "memory:", "j") for _ in range(5)]
    store = LocalStore(tmp_path / "files")
    async with store, await run_with_files(tmp_path, store, again) as ledger:
        (key,) = {row.key[:16] async for row in ledger.rows()}
        for _ in range(2):
            assert await export_files(ledger, store, out) == 5
            names = {file.name for file in out.iterdir()}
            assert names == {"j.csv", *(f"j-{key}{end}.csv" for end in ("", "-0", "-4-0", "-5-0"))}


async def test_damaged_file_is_not_exported_even_if_named_before(tmp_path: Path) -> None:
    store, out = LocalStore(tmp_path / "files"), tmp_path / "out"
    async with store, await run_with_files(tmp_path, store, JOBS[:1]) as ledger:
        (row,) = [row async for row in ledger.rows()]
        for named in (False, True):
            ref = await store.stat(str(row.artifacts[0]["id"]))
            assert ref.path is not None
            ref.path.chmod(0o600)
            ref.path.write_bytes(b"x")  # as long as it was
            with pytest.raises(Corrupt, match="does not match its hash"):
                await export_files(ledger, store, out)
            assert named or contents(out) == {}
            ref.path.write_bytes(b"0")
            assert await export_files(ledger, store, out) == 1
