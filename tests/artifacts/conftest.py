"""Fixtures of the tests of stores."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.support.clock import Clock
from tests.support.limits import change_limits
from tests.support.needs import missing
from transports.artifacts import LocalStore, open_store
from transports.artifacts.objects import _catalog
from transports.artifacts.objects._store import ObjectStore

#: For tests that `make test` runs with an index in PostgreSQL, too; `make slow` runs the others.
both_indexes = pytest.mark.parametrize(
    "index", ["sqlite", pytest.param("postgresql", marks=pytest.mark.load)], indirect=True
)
#: Opens an object store with an index, or with the address that is given; ``None`` is none.
OpenIndexed: TypeAlias = Callable[..., ObjectStore]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite://{tmp_path}/index.sqlite"
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
async def open_indexed(index: str, memory_bucket: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OpenIndexed]:
    """Opens the store as another program would; each look at all artifacts looks for what the index lacks."""
    change_limits(monkeypatch, _catalog, interval=0.0)
    monkeypatch.setattr("transports.artifacts.objects._index._PAUSE", 0.0)
    stores: list[ObjectStore] = []

    def open_one(at: str | None = index, **options: Any) -> ObjectStore:
        made = open_store(memory_bucket + (f"?index={at}" if at else ""), **options)
        assert isinstance(made, ObjectStore)
        stores.append(made)
        return made

    yield open_one
    for one in stores:
        await one.aclose()


def database(root: Path) -> sqlite3.Connection:
    """The index of a local store."""
    return sqlite3.connect(root / ".abp/index.sqlite")


async def tamper(store: ObjectStore, sql: str, *values: str | float) -> None:
    """Change rows of an index; the last value of the statement is the number of the store."""
    rows = store._catalog._index  # type: ignore[attr-defined]
    await rows._run(lambda cursor, number: cursor.execute(sql, (*values, number)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        missing("a mount", done.stderr.strip())
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # lazy: also after a test that leaked a descriptor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def ticking_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is 10 ms after the one before, so that what is stored first is older."""
    readings = itertools.count()
    start = time.time()
    monkeypatch.setattr(time, "time", lambda: start + 0.01 * next(readings))
