"""The store of very many artifacts is one that the kit reads: its lists, and the content of the newest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks import __main__ as program
from tests.benchmarks.filled import SESSIONS, filled_store
from tests.benchmarks.pages import Bench
from transports import LocalStore
from transports.artifacts import Scope


@pytest.mark.load
async def test_benchmark_store_is_intact_and_built_once(tmp_path: Path) -> None:
    bench = Bench("", None, tmp_path / "one", quick=True, shared=tmp_path)
    root = await filled_store(bench, 2 * SESSIONS)
    async with LocalStore(root) as store:
        refs = await store.list()
        assert len(refs) == 2 * SESSIONS
        assert [len(await store.get(ref.id) or b"") for ref in refs] == [ref.size_bytes for ref in refs]
        assert not (await store.fsck()).problems
        assert len(await store.scoped(Scope(session="session-7")).list()) == 2
        await store.delete(refs[0].id)
        assert await filled_store(Bench("", None, tmp_path / "two", quick=True, shared=tmp_path), 2 * SESSIONS) == root
        assert len(await store.list()) == 2 * SESSIONS - 1


def test_browserless_measurements_are_registered() -> None:
    assert program._MEASUREMENTS.keys() > program.WITHOUT_BROWSER
