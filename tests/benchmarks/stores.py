"""The local store: a large stream against what a shell would do, and finding artifacts among very many."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from functools import partial
from statistics import median

from tests.benchmarks.filled import SESSIONS, filled_store
from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row
from transports import ArtifactRef, LocalStore
from transports.artifacts import Scope
from webapp_fixture import digest, generate

__all__ = ["large_stream", "many_artifacts"]

_PIECE = MB


async def large_stream(bench: Bench) -> list[Row]:
    """A stream into the store, against ``cp`` and ``sha256sum`` of the same content."""
    size = (50 if bench.quick else 100) * MB
    source, copy = bench.folder / "source", bench.folder / "copy"
    with source.open("wb") as file:
        for piece in generate(size):
            file.write(piece)
    expected = digest(size)
    store = LocalStore(bench.folder / "store")

    async def stream() -> AsyncIterator[bytes]:
        with source.open("rb", buffering=0) as file:
            while chunk := file.read(_PIECE):
                yield chunk

    async def kept(ref: ArtifactRef) -> None:
        assert ref.sha256 == expected, "the file is not whole"
        await store.delete(ref.id)

    def shell() -> None:
        subprocess.run(["cp", source, copy], check=True)
        done = subprocess.run(["sha256sum", copy], check=True, capture_output=True, text=True)
        assert done.stdout.startswith(expected)

    async def removed(_: object) -> None:
        copy.unlink()  # or the kit's fsync would have to write it to the disk, too

    ways = {
        "shell": timed(partial(asyncio.to_thread, shell), then=removed),
        "kit": timed(lambda: store.put_stream(stream(), size=size), then=kept),
    }
    times = await in_turns(ways, rounds=3 if bench.quick else 4, warm=False, pause=0.1)
    ours, theirs = min(times["kit"]), min(times["shell"])
    row = Row(
        work=f"stream of {size // MB} MB → artifact",
        baseline="cp, then sha256sum, of the same file",
        figure=theirs / ours,
        at_least=0.77,
        want=1,
        measured=f"{size / MB / ours:.0f} MB/s against {size / MB / theirs:.0f} MB/s "
        f"(medians: {median(times['shell']) / median(times['kit']):.2f}×)",
        reason="the kit also has the file on the disk (fsync) when it returns, which cp does not wait for",
    )
    return [row]


async def many_artifacts(bench: Bench) -> list[Row]:
    """Listing the artifacts of one session, and all, against reading one small file for each."""
    count = 5_000 if bench.quick else 20_000
    root = await filled_store(bench, count)
    written = (root / ".abp" / "meta").stat().st_mtime
    # What was stored just now may change again in the same tick of the clock.
    await asyncio.sleep(max(written + 3 - time.time(), 0))
    store = LocalStore(root)
    one = store.scoped(Scope(session="session-7"))
    found = whole = 0

    def read_files() -> None:
        folder = root / ".abp" / "meta"
        for name in os.listdir(folder):  # noqa: PTH208 - the fastest there is
            (folder / name).read_bytes()

    async def without_index(_: object) -> None:
        for file in (root / ".abp").glob("index.sqlite*"):
            file.unlink()

    async def session() -> None:
        nonlocal found
        found = len(await one.list())

    async def everything() -> None:
        nonlocal whole
        whole = len(await store.list())

    ways = {
        "files": timed(partial(asyncio.to_thread, read_files), then=without_index),
        "index": timed(session),
        "session": timed(session),
        "all": timed(everything),
    }
    times = await in_turns(ways, rounds=2, warm=False)
    best = {name: min(taken) for name, taken in times.items()}
    wrong = "" if (whole, found) == (count, count // SESSIONS) else f"{found} of {whole} were found"
    baseline = "reading one small file for each artifact"
    return [
        Row(
            work=f"{count:,} artifacts, those of one session listed",
            baseline=baseline,
            figure=best["files"] / best["session"],
            at_least=4,
            want=8,
            measured=f"{found:,} in {1000 * best['session']:.1f} ms against {1000 * best['files']:.0f} ms",
            reason="each row is compared with its metadata file",
            wrong=wrong,
        ),
        Row(
            work=f"{count:,} artifacts, the index made at the first list",
            baseline=baseline,
            figure=best["files"] / best["index"],
            at_least=0.4,
            want=0.58,
            measured=f"{best['index']:.1f} s against {best['files']:.1f} s",
            reason="reading a file is half of it; the rest is checking its JSON and writing a row, on one processor",
            wrong=wrong,
        ),
        Row(
            work=f"{count:,} artifacts, all listed",
            baseline=baseline,
            figure=best["files"] / best["all"],
            at_least=0.9,
            want=1,
            measured=f"{1000 * best['all']:.0f} ms for {count:,} references",
            reason="reading the rows and making the references take half of it each",
            wrong=wrong,
        ),
    ]
