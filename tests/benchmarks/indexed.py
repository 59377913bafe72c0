"""A large store in a bucket: a page of it and its index, against reading its objects.

``ABP_BENCH_ARTIFACTS`` and ``ABP_BENCH_OBJECTS`` are other numbers of rows in the index, and of metadata objects in the
bucket. Rows are written without objects: a page reads none.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median

from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from tests.support.object_server import BUCKET, SeaweedFS, environment
from tests.support.postgres_server import postgres_server
from transports.artifacts import ArtifactStore, Query, Retention, Scope, find
from transports.artifacts._ref import Metadata, Name, artifact_id
from transports.artifacts.objects._catalog import IndexedCatalog
from transports.artifacts.objects._index import Indexed, StoreIndex
from transports.artifacts.objects._store import ObjectStore

__all__ = ["indexed_artifacts"]

_CAPABILITIES = ("export.pdf", "export.csv", "chart.render", "report.build", "page.screenshot")
_TYPES = ("application/pdf", "text/csv", "image/png", "text/html", "image/jpeg")
_FIRST = datetime(2025, 1, 1, tzinfo=UTC)
_BATCH = 5000


def _metadata(count: int) -> Iterator[Metadata]:
    """What a year of calls leaves: five capabilities, fifty apps, a session for each hundred artifacts."""
    for number in range(count):
        kind = number * 7919 % len(_CAPABILITIES)
        created = _FIRST + timedelta(seconds=number * 31)
        source: dict[str, object] = {
            "capability": _CAPABILITIES[kind],
            "app": f"app-{number % 50}",
            "created": created.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "verified": True,
        }
        scope = Scope(tenant=f"team-{number % 20}", session=f"session-{number // 100}")
        sha256 = hashlib.sha256(b"%d" % number).hexdigest()
        key = artifact_id("export", sha256, scope)
        names = (Name(f"file_{number}", ""),)
        head = key, sha256, number * 911_117 % 5_000_000, _TYPES[kind], names, source, scope
        yield Metadata(*head, created.timestamp(), f"content/{sha256}-{number:016x}")


async def indexed_artifacts(bench: Bench) -> tuple[list[Row], list[Table]]:
    """Pages of 50 from an index in PostgreSQL and in SQLite; the index built from the objects."""
    rows_wanted = int(os.environ.get("ABP_BENCH_ARTIFACTS", 1000 if bench.quick else 5000))
    objects = int(os.environ.get("ABP_BENCH_OBJECTS", 200 if bench.quick else 500))
    folder = bench.folder / "s3"
    folder.mkdir()
    with postgres_server("benchmarks") as postgres, SeaweedFS(folder) as server:
        os.environ.update(environment(server.endpoint))
        listing, rebuilds = await _from_objects(objects, postgres, bench.folder)
        places = {"PostgreSQL": postgres, "SQLite": f"sqlite://{bench.folder}/pages.sqlite"}
        cells: dict[str, dict[str, float]] = {}
        for name, index in places.items():
            cells[name] = await _pages(index, rows_wanted)
    page = cells["PostgreSQL"]["a capability since a time"] / 1000
    whole = listing / objects * rows_wanted
    built = rebuilds["PostgreSQL"]
    rows = [
        Row(
            work=f"{rows_wanted:,} artifacts in a bucket, a page of 50 by capability and time",
            baseline=f"the metadata objects listed and read, measured with {objects:,} and taken to grow with them",
            figure=whole / page,
            unit="×",
            at_least=50,
            want=100,
            measured=f"{page * 1000:.1f} ms from PostgreSQL, {cells['SQLite']['a capability since a time']:.1f} ms "
            f"from SQLite, against {whole:,.1f} s",
            wrong="" if page < 0.05 else "50 ms or more",
        ),
        Row(
            work=f"the index of {objects:,} objects built anew",
            baseline="the first list without an index, which reads the same objects",
            figure=listing / built,
            unit="×",
            at_least=0.3,
            want=0.5,
            measured=f"{objects / built:,.0f} artifacts a second into PostgreSQL, {objects / rebuilds['SQLite']:,.0f} "
            f"into SQLite; compared again, {objects / rebuilds['again']:,.0f} a second",
            reason="rows are written between two pages of the listing",
        ),
    ]
    columns = tuple(dict.fromkeys(column for row in cells.values() for column in row))
    return rows, [Table(f"Questions to an index of {rows_wanted:,} artifacts (median)", columns, cells)]


async def _from_objects(count: int, postgres: str, folder: Path) -> tuple[float, dict[str, float]]:
    """The seconds of a list without an index, and of building each index."""
    url = f"s3://{BUCKET}/objects-{os.getpid()}"
    plain = ObjectStore(url)
    slots = asyncio.Semaphore(16)

    async def put(one: Metadata) -> None:
        async with slots:
            await plain._bucket.put(f"meta/{one.id}.json", one.encode(), "application/json")

    made = [*_metadata(count)]
    for at in range(0, count, 1000):
        await asyncio.gather(*map(put, made[at : at + 1000]))
    listing = await _timed(plain)
    taken: dict[str, float] = {}
    for name, index in (("SQLite", f"sqlite://{folder}/objects.sqlite"), ("PostgreSQL", postgres)):
        async with ObjectStore(url, index=index) as store:
            for label in (name, "again"):
                started = time.perf_counter()
                report = await store.reindex()
                taken[label] = time.perf_counter() - started
                assert (report.artifacts, report.corrected) == (count, ())
            assert len((await find(store, Query(limit=None))).artifacts) == count
    return listing, taken


async def _timed(store: ArtifactStore) -> float:
    started = time.perf_counter()
    await store.list()
    return time.perf_counter() - started


async def _pages(address: str, count: int) -> dict[str, float]:
    """The milliseconds of some questions to an index of that many rows."""
    url = f"s3://{BUCKET}/pages-{os.getpid()}"
    async with ObjectStore(url, index=address) as store:
        catalog = store._catalog
        assert isinstance(catalog, IndexedCatalog)
        await _load(catalog._index, count)
        newest = _FIRST + timedelta(seconds=31 * count)
        recent, middle = newest - timedelta(seconds=31 * count // 10), _FIRST + timedelta(seconds=31 * count // 2)
        capability = _CAPABILITIES[2]
        middle_page = await find(store, Query(capability=capability, until=middle))
        session = Scope(session=f"session-{count // 200}")
        questions = {
            "a capability since a time": (store, Query(capability=capability, since=recent)),
            "the page after one": (store, Query(capability=capability, cursor=middle_page.next)),
            "an app": (store, Query(app="app-7")),
            "a kind of type, large": (store, Query(mime_type="image/", min_bytes=4_000_000)),
            "a session": (store.scoped(session), Query()),
        }
        cells: dict[str, float] = {}
        for name, (view, query) in questions.items():
            page = await find(view, query)
            assert 10 <= len(page.artifacts) <= 50 and all(map(query.matches, page.artifacts)), name
            cells[name] = await _median(partial(find, view, query))
        policy = Retention.only(ttl_seconds=1e9, max_artifacts_per_session=100)
        cells["what a retention removes"] = await _median(partial(store._list_candidates, Scope(), policy), 3)
        return cells


async def _load(index: StoreIndex, count: int) -> None:
    batch: list[Indexed] = []
    for one in _metadata(count):
        batch.append(Indexed(one, f'"{one.id}"'))
        if len(batch) == _BATCH:
            await index.correct(batch, (), {})
            batch = []
    await index.correct(batch, (), {})
    await index.mark_built((await index.state())[0])


async def _median(ask: Callable[[], Awaitable[object]], rounds: int = 9) -> float:
    taken: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        await ask()
        taken.append(time.perf_counter() - started)
    return 1000 * median(taken)
