"""Page → file against the limit: the browser's own download of the same bytes, hashed when it has ended."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import KEPT, Bench, collect, delete_whole, keep, plain_page
from tests.benchmarks.report import Row
from tests.benchmarks.speed import against, rungs
from webapp_fixture import digest

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

__all__ = ["page_to_file_at_the_limit"]

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


async def page_to_file_at_the_limit(bench: Bench) -> list[Row]:
    """A file that the page has already made, to a verified artifact; against a raw download, renamed, then hashed."""
    sizes = ((16, 3), (64, 3)) if bench.quick else ((64, 3), (448, 1))
    return [await _row(bench, size * MB, rounds) for size, rounds in sizes]


async def _row(bench: Bench, size: int, rounds: int) -> Row:
    expected, small = digest(size), size <= 64 * MB
    target = bench.folder / "raw.bin"
    async with bench.session(bench.folder / "store") as (app, transport, page), _raw(bench) as (raw, plain):
        await keep(page, bytes=size)
        await keep(plain, bytes=size)

        async def limit(*, sync: bool = False) -> None:
            assert await raw.save(target, sync=sync) == expected

        async def clean(_: object) -> None:
            target.unlink()
            await collect(plain)

        ways = {"limit": timed(limit, then=clean)}
        if small:
            ways["synced"] = timed(partial(limit, sync=True), then=clean)
        ways["kit"] = timed(partial(app.call, KEPT), then=lambda result: delete_whole(app, result, expected))
        times = await in_turns(ways, rounds=rounds, warm=False, pause=0.2)
        used = dict(transport.rungs)
    ours, theirs = min(times["kit"]), min(times["limit"])
    beside, reason = "", "the kit also syncs the file to the disk, names it and describes it"
    if small:
        synced = min(times["synced"])
        beside = (
            "; the download synced to the disk, as the kit's: "
            f"{size / MB / synced:.0f} MB/s ({against(times['synced'], times['kit'])})"
        )
        reason = (
            f"the kit also syncs the file to the disk, {1000 * (synced - theirs):.0f} ms of a raw download that "
            "does it at its end, names it and describes it"
        )
    return Row(
        work=f"page → verified file, {size // MB} MB, beside its limit",
        baseline="a raw download over CDP: a click, a rename, then SHA-256 of the file",
        figure=theirs / ours,
        at_least=1,
        measured=f"{size / MB / ours:.0f} MB/s against {size / MB / theirs:.0f} MB/s "
        f"({against(times['limit'], times['kit'])}){beside}; rungs used: {rungs(used)}",
        reason=reason,
    )
