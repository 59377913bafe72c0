"""An embedded app against the same app in a page: what the iframe and its messages cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.benchmarks.measure import MB, in_turns
from tests.benchmarks.pages import KEPT, Bench, only_artifact
from tests.benchmarks.report import Row, Table
from tests.benchmarks.speed import against, rungs
from transports import PlaywrightTransport, PostMessageTransport, Session, connect
from webapp_fixture import digest

if TYPE_CHECKING:
    from playwright.async_api import Frame

__all__ = ["embedded_to_file"]

# What was given away by a transfer is gone: the app answers a copy, in the iframe and in the page alike.
_KEEP_COPIES = """async ([kept, params]) => {
  const abp = window.abp, call = abp.call.bind(abp);
  const { data } = await call("file.generate", params, {});
  const original = data.file.content;
  abp.call = async (capability, given, options) =>
    capability === kept ? { success: true, data: { file: { ...data.file, content: original.slice(0) } } }
    : call(capability, given, options);
}"""


async def embedded_to_file(bench: Bench) -> tuple[list[Row], list[Table]]:
    """A buffer of an embedded app to a verified file; against our Playwright transport, in turns."""
    size = (16 if bench.quick else 32) * MB
    expected = digest(size)
    store = bench.folder / "store"
    paged = PlaywrightTransport(bench.url, browser=bench.browser)
    framed = PostMessageTransport(f"{bench.url}embed", browser=bench.browser)
    apart = PostMessageTransport(f"{bench.url}embed", browser=bench.browser, harness="other")

    async def taken(app: Session) -> Sequence[float]:
        started = time.perf_counter()
        result = await app.call(KEPT)
        seconds = time.perf_counter() - started
        ref = only_artifact(result)
        assert ref.sha256 == expected, "the file is not whole"
        await app.store.delete(ref.id)
        return [seconds]

    async with (
        connect(bench.url, transport=paged, store=store) as in_page,
        connect(bench.url, transport=framed, store=store) as in_frame,
        connect(bench.url, transport=apart, store=store) as on_another_site,
    ):
        pages = [page for context in bench.browser.playwright.contexts for page in context.pages]
        frames: list[Frame] = [
            page.main_frame.child_frames[0] if page.main_frame.child_frames else page.main_frame for page in pages
        ]
        for frame in frames:
            await frame.evaluate(_KEEP_COPIES, [KEPT, {"bytes": size}])
        ways = {
            "page": lambda: taken(in_page),
            "frame": lambda: taken(in_frame),
            "apart": lambda: taken(on_another_site),
        }
        times = await in_turns(ways, rounds=3, warm=False, pause=0.2)
        used = dict(framed.rungs)
    ours, theirs = min(times["frame"]), min(times["page"])
    row = Row(
        work=f"embedded app → verified file, {size // MB} MB",
        baseline="the same app by our Playwright transport",
        figure=theirs / ours,
        unit="×",
        at_least=0.95,
        want=1,
        measured=f"{size / MB / ours:.0f} MB/s against {size / MB / theirs:.0f} MB/s "
        f"({against(times['page'], times['frame'])}); rungs used: {rungs(used)}",
        reason="the message itself, and a frame that is laid out",
    )
    far = min(times["apart"])
    other = Row(
        work=f"the same, {size // MB} MB, its harness on another site",
        baseline="the same app by our Playwright transport",
        figure=theirs / far,
        unit="×",
        measured=f"{size / MB / far:.0f} MB/s against {size / MB / theirs:.0f} MB/s "
        f"({against(times['page'], times['apart'])}); the buffer crosses from one process to another",
    )
    return [row, other], []
