"""Page → file, against what a client finds documented, and against the limit: the browser's own download of the same
bytes, hashed when it has ended."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import KEPT, LENGTH, Bench, collect, delete_whole, document_client, keep, plain_page
from tests.benchmarks.report import Row
from transports import Result
from webapp_fixture import digest, generate

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

__all__ = ["file_to_page", "page_to_file"]

_INPUT = "Object.assign(document.createElement('input'), { type: 'file' })"
_READ = "async function () { return (await this.files[0].arrayBuffer()).byteLength; }"

# One round trip: call, blob, click.
_CLICK = """async (capability) => {
  const answer = await window.abp.call(capability, {});
  const url = URL.createObjectURL(new Blob([answer.data.file.content]));
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
  URL.revokeObjectURL(url);
}"""


class _RawDownload:
    """A page and its browser, told what to do by CDP alone."""

    def __init__(self, page: CDPSession, folder: Path) -> None:
        self._page = page
        self._folder = folder
        self._ended: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def on_progress(self, event: dict[str, Any]) -> None:
        if event["state"] != "inProgress" and not self._ended.done():
            self._ended.set_result(event)

    async def save(self, target: Path, *, sync: bool = False) -> str:
        """Download the kept content, rename the file, and return its SHA-256 in hex. With ``sync``, have it on the
        disk, as the kit has."""
        self._ended = asyncio.get_running_loop().create_future()
        expression = f"({_CLICK})({KEPT!r})"
        await self._page.send("Runtime.evaluate", {"expression": expression, "awaitPromise": True})
        event = await self._ended
        assert event["state"] == "completed", event
        (self._folder / event["guid"]).rename(target)
        return await asyncio.to_thread(_hash, target, sync)


def _hash(path: Path, sync: bool) -> str:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if sync:
            os.fsync(file.fileno())
        return found


@asynccontextmanager
async def _raw(bench: Bench) -> AsyncIterator[tuple[_RawDownload, Page]]:
    folder = bench.folder / "raw"
    folder.mkdir(exist_ok=True)
    async with plain_page(bench.browser, bench.url) as page:
        session = await page.context.new_cdp_session(page)
        context = (await session.send("Target.getTargetInfo"))["targetInfo"]["browserContextId"]
        process = await bench.browser.playwright.new_browser_cdp_session()
        behavior = {"behavior": "allowAndName", "downloadPath": str(folder), "eventsEnabled": True}
        await process.send("Browser.setDownloadBehavior", {**behavior, "browserContextId": context})
        raw = _RawDownload(session, folder)
        process.on("Browser.downloadProgress", raw.on_progress)
        yield raw, page
        await process.detach()


async def page_to_file(bench: Bench) -> list[Row]:
    """A file that the page has already made, to a verified artifact; against the documented client, and against a raw
    download, renamed, then hashed. A larger file against the raw download alone."""
    sizes = ((16, 3), (64, 3)) if bench.quick else ((64, 3), (448, 1))
    return [
        row for n, (size, rounds) in enumerate(sizes) for row in await _rows(bench, size * MB, rounds, first=n == 0)
    ]


async def _rows(bench: Bench, size: int, rounds: int, *, first: bool) -> list[Row]:
    expected = digest(size)
    target = bench.folder / "raw.bin"
    async with bench.session(bench.folder / "store") as (app, transport, page), _raw(bench) as (raw, plain):
        await keep(page, bytes=size)
        await keep(plain, bytes=size)

        async def limit(*, sync: bool = False) -> None:
            assert await raw.save(target, sync=sync) == expected

        async def clean(_: object) -> None:
            target.unlink()  # or the kit's fsync would have to write it to the disk, too
            await collect(plain)

        ways = {"limit": timed(limit, then=clean)}
        if first:
            ways["synced"] = timed(partial(limit, sync=True), then=clean)
            ways["documented"] = timed(partial(document_client, plain, target), then=clean)
        ways["kit"] = timed(partial(app.call, KEPT), then=lambda result: delete_whole(app, result, expected))
        times = await in_turns(ways, rounds=rounds, warm=False, pause=0.2)
        used = dict(transport.rungs)
    best = {name: min(taken) for name, taken in times.items()}
    work = f"page → verified file, {size // MB} MB"

    def speeds(name: str) -> str:
        medians = median(times[name]) / median(times["kit"])  # what a busy machine makes of the ratio of the best
        return f"{size / MB / best[name]:.0f} MB/s (medians: {medians:.1f}×)"

    measured = f"{size / MB / best['kit']:.0f} MB/s; rungs used: {rungs(used)}; against "
    rows, beside = [], ""
    if first:
        beside = f"; the download synced to the disk, as the kit's: {speeds('synced')}"
        rows.append(
            Row(
                work=work,
                baseline="the documented client (btoa, evaluate, b64decode, write)",
                figure=best["documented"] / best["kit"],
                at_least=15,
                want=25,
                measured=measured + speeds("documented"),
                reason="most of the time is the browser's own download; the kit also syncs the file to the disk",
            )
        )
    limited = Row(
        work=f"{work}, beside its limit",
        baseline="a raw download over CDP: a click, a rename, then SHA-256 of the file",
        figure=best["limit"] / best["kit"],
        at_least=1,
        measured=measured + speeds("limit") + beside,
        reason="the kit also syncs the file to the disk, names it and describes it",
    )
    return [*rows, limited]


def rungs(used: Mapping[str, int]) -> str:
    """The rungs of the ladder that moved something, and how often."""
    return ", ".join(f"{name} {times}" for name, times in used.items() if times) or "none (inline)"


async def file_to_page(bench: Bench) -> list[Row]:
    """A file on the disk to an ``ArrayBuffer`` in the app; against the commands that do no more than that."""
    size = (4 if bench.quick else 16) * MB
    path = bench.folder / "input.bin"
    with path.open("wb") as file:
        file.writelines(generate(size))
    async with bench.session() as (app, _, page), plain_page(bench.browser, bench.url) as plain:
        await keep(page)
        received = await app.call("file.digest", {"file": path})
        assert isinstance(received.data, dict)
        assert received.data["sha256"] == digest(size), "the app got other bytes"

        async def whole(result: Result) -> None:
            assert isinstance(result.data, dict) and result.data["length"] == size

        cdp = await plain.context.new_cdp_session(plain)
        chosen = (await cdp.send("Runtime.evaluate", {"expression": _INPUT}))["result"]["objectId"]

        async def limit() -> None:
            await cdp.send("DOM.setFileInputFiles", {"objectId": chosen, "files": [str(path)]})
            reading = {"objectId": chosen, "functionDeclaration": _READ, "awaitPromise": True, "returnByValue": True}
            assert (await cdp.send("Runtime.callFunctionOn", reading))["result"]["value"] == size

        kit = timed(partial(app.call, LENGTH, {"file": path}), then=whole)
        times = await in_turns({"limit": timed(limit), "kit": kit}, rounds=4, warm=False, pause=0.2)
    path.unlink()
    ours, least = min(times["kit"]), min(times["limit"])
    row = Row(
        work=f"file → page, {size // MB} MB, beside its limit",
        baseline="DOM.setFileInputFiles, then one command that reads the file",
        figure=least / ours,
        at_least=0.8,
        want=1,
        measured=f"{size / MB / ours:.0f} MB/s against {size / MB / least:.0f} MB/s "
        f"(medians: {median(times['limit']) / median(times['kit']):.1f}×)",
        reason="the kit makes an input for each file, checks its size there, and lets it go: three commands more",
    )
    return [row]
