"""Files of WebMCP tools against the same files of an ABP app: what the tools of a page cost."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from statistics import median

import psutil

from tests.benchmarks.measure import MB, in_turns
from tests.benchmarks.pages import Bench, only_artifact
from tests.benchmarks.report import Row, Table
from tests.benchmarks.speed import rungs
from transports import PlaywrightTransport, Session, WebMcpTransport, connect

__all__ = ["tools_to_file"]

_REGISTER = """(size) => {
  const kept = new Uint8Array(size).fill(7), described = { mimeType: "application/x-bench", size };
  const answers = {
    buffer: () => ({ document: { ...described, content: kept.buffer } }),
    url: () => ({ document: { ...described, fileName: "bench.bin", blobUrl: URL.createObjectURL(new Blob([kept])) } }),
  };
  for (const [name, execute] of Object.entries(answers)) {
    document.modelContext.registerTool({ name, description: "Answer the kept file", execute });
  }
  const call = window.abp?.call.bind(window.abp);
  if (call) window.abp.call = async (capability, ...rest) =>
    capability === "buffer" ? { success: true, data: answers.buffer() } : call(capability, ...rest);
}"""


async def tools_to_file(bench: Bench) -> tuple[list[Row], list[Table]]:
    """A buffer and a blob: URL of a tool to a verified file; against a buffer of an ABP app, in turns.

    Both do the same work, so the figure is the median of what the rounds say, each of which meets the same neighbours:
    the best of each would say which had the luckier moment.
    """
    size = (16 if bench.quick else 32) * MB
    store = bench.folder / "store"
    url = f"{bench.url}webmcp"
    # A page for each way: the kit has a page collect its garbage every 128 MB, and that must meet all ways alike.
    pages: dict[str, PlaywrightTransport | WebMcpTransport] = {
        "abp": PlaywrightTransport(bench.url, browser=bench.browser),
        "buffer": WebMcpTransport(url, browser=bench.browser),
        "url": WebMcpTransport(url, browser=bench.browser),
    }
    async with contextlib.AsyncExitStack() as stack:
        sessions: dict[str, Session] = {}
        for way, transport in pages.items():
            session = connect(str(transport.url), transport=transport, store=store)
            sessions[way] = await stack.enter_async_context(session)
            assert transport.page is not None
            await transport.page.evaluate(_REGISTER, size)

        async def taken(way: str) -> Sequence[float]:
            session, name = sessions[way], "url" if way == "url" else "buffer"
            started = time.perf_counter()
            result = await session.call(name, timeout=120)
            seconds = time.perf_counter() - started
            ref = only_artifact(result)
            assert ref.size_bytes == size
            await session.store.delete(ref.id)
            return [seconds]

        ways = {way: partial(taken, way) for way in pages}
        async with _growth() as grown:
            times = await in_turns(ways, rounds=3 if bench.quick else 4, warm=False, pause=0.2)
    rows = []
    for way, words in (("buffer", "ArrayBuffer"), ("url", "blobUrl")):
        ours, theirs = median(times[way]), median(times["abp"])
        ratios = [abp / own for abp, own in zip(times["abp"], times[way], strict=True)]
        best = min(times["abp"]) / min(times[way])
        rows.append(
            Row(
                work=f"{words} of a WebMCP tool → verified file, {size // MB} MB",
                baseline="an ArrayBuffer of an ABP app",
                figure=median(ratios),
                unit="×",
                at_least=0.9,
                want=1,
                measured=f"{size / MB / ours:.0f} MB/s against {size / MB / theirs:.0f} MB/s "
                f"(medians of {len(ratios)} rounds; the best: {best:.1f}×); "
                f"rungs used: {rungs(pages[way].rungs)}; "
                f"Python and driver grew by {max(grown) / MB:.0f} MB at most",
                reason="the tool's own answer is seen in the page, before the platform makes text of it",
            )
        )
    return rows, []


@contextlib.asynccontextmanager
async def _growth() -> AsyncIterator[list[int]]:
    """Collect by how many bytes this process and the driver grow while the block runs."""
    own = psutil.Process()
    processes = [own, *(child for child in own.children() if "chrom" not in child.name())]
    before = sum(process.memory_info().rss for process in processes)
    grown = [0]

    async def watch() -> None:
        while True:
            grown.append(sum(process.memory_info().rss for process in processes) - before)
            await asyncio.sleep(0.02)

    watching = asyncio.ensure_future(watch())
    try:
        yield grown
    finally:
        watching.cancel()
        await asyncio.wait((watching,))
