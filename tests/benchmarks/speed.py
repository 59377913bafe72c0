"""Speed against a baseline: page → file, file → page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import median

from tests.benchmarks.measure import MB, in_turns, timed
from tests.benchmarks.pages import KEPT, LENGTH, Bench, delete_whole, document_client, keep, plain_page
from tests.benchmarks.report import Row
from transports import Result
from webapp_fixture import digest, generate

__all__ = ["file_to_page", "page_to_file"]


_INPUT = "Object.assign(document.createElement('input'), { type: 'file' })"
_READ = "async function () { return (await this.files[0].arrayBuffer()).byteLength; }"


async def page_to_file(bench: Bench) -> list[Row]:
    """A file that the page has already made, to a verified artifact; against the documented client."""
    size = (16 if bench.quick else 64) * MB
    expected = digest(size)
    target = bench.folder / "documented.bin"
    async with (
        bench.session(bench.folder / "store") as (app, transport, page),
        plain_page(bench.browser, bench.url) as plain,
    ):
        await keep(page, bytes=size)
        await keep(plain, bytes=size)

        async def removed(_: object) -> None:
            target.unlink()  # or the kit's fsync would have to write it to the disk, too

        kit = timed(partial(app.call, KEPT), times=2, then=lambda result: delete_whole(app, result, expected))
        documented = timed(partial(document_client, plain, target), then=removed)
        times = await in_turns({"documented": documented, "kit": kit}, rounds=1, warm=False, pause=0.2)
        used = dict(transport.rungs)
    ours, theirs = min(times["kit"]), min(times["documented"])
    row = Row(
        work=f"page → verified file, {size // MB} MB",
        baseline="the documented client (btoa, evaluate, b64decode, write)",
        figure=theirs / ours,
        at_least=15,
        want=25,
        measured=f"{size / MB / ours:.0f} MB/s against {size / MB / theirs:.1f} MB/s "
        f"({against(times['documented'], times['kit'])}); rungs used: {rungs(used)}",
        reason="most of the time is the browser's own download; the kit also syncs the file to the disk",
    )
    return [row]


def rungs(used: Mapping[str, int]) -> str:
    """The rungs of the ladder that moved something, and how often."""
    return ", ".join(f"{name} {times}" for name, times in used.items() if times) or "none (inline)"


def against(baseline: Sequence[float], kit: Sequence[float]) -> str:
    """The ratio of the medians, in words: what a busy machine makes of the ratio of the best."""
    return f"medians: {median(baseline) / median(kit):.1f}×"


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
        f"({against(times['limit'], times['kit'])})",
        reason="the kit makes an input for each file, checks its size there, and lets it go: three commands more",
    )
    return [row]
