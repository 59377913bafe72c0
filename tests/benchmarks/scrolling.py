"""The gallery of very many artifacts scrolled through: its longest frame, beside a bare page of as many cards."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.benchmarks.filled import filled_store
from tests.benchmarks.pages import Bench
from tests.benchmarks.report import Row, Table
from tests.benchmarks.waits import SERVE, gallery_address

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

__all__ = ["scrolled_gallery"]

#: Cards that the gallery loads at once, and how many it loads at once here.
_AT_ONCE, _MOST = 60, 240
_STEP = 240  # pixels that each frame scrolls: a quick turn of the wheel
#: From the first card to the last, to those of one further page, and back: the milliseconds of all frames.
_SCROLL = """async ([step, list, more]) => {
  const cards = document.querySelector(list), end = () => document.documentElement.scrollHeight - innerHeight - 1;
  const taken = [];
  let at = 0;
  const frame = () => new Promise((done) => requestAnimationFrame(() => {
    const now = performance.now();
    if (at) taken.push(now - at);
    at = now;
    done();
  }));
  await frame();
  for (const last of [false, true]) {
    while (scrollY < end()) { scrollBy({ top: step, behavior: "instant" }); await frame(); }
    if (last) break;
    const before = cards.childElementCount;
    document.querySelector(more).click();
    while (cards.childElementCount === before) await frame();
  }
  while (scrollY > 0) { scrollBy({ top: -5 * step, behavior: "instant" }); await frame(); }
  return taken;
}"""
_BARE = """<!doctype html><title>Cards</title><style>
body { margin: 0; font: 15px/1.5 sans-serif; }
ul { display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 1rem; padding: 0; }
li { list-style: none; height: 240px; border: 1px solid; }
</style><ul></ul><button>More</button><script>
const list = document.querySelector("ul");
let number = 0;
const add = (count) => {
  for (let one = 0; one < count; one += 1) {
    const card = document.createElement("li");
    card.textContent = `file ${number += 1}.txt`;
    list.append(card);
  }
};
document.querySelector("button").addEventListener("click", () => setTimeout(add, 0, AT_ONCE));
add(FIRST);
</script>"""


async def scrolled_gallery(bench: Bench) -> tuple[list[Row], list[Table]]:
    """``abp serve`` of 100,000 artifacts: a page with many cards is scrolled through, and loads further ones."""
    count = 20_000 if bench.quick else 100_000
    cards = _MOST + _AT_ONCE
    root = await filled_store(bench, count)
    async with _served(root) as address:

        async def gallery() -> Sequence[float]:
            async with _page(bench) as page:
                await page.route("**/artifacts?*", _load_many)
                await page.goto(address)
                await page.wait_for_selector(".card .name")
                await page.unroute_all()
                return [await _longest(page, ".grid", "button.wide", cards)]

        async def bare() -> Sequence[float]:
            async with _page(bench) as page:
                html = _BARE.replace("FIRST", str(_MOST)).replace("AT_ONCE", str(_AT_ONCE))
                await page.set_content(html)
                return [await _longest(page, "ul", "button", cards)]

        (theirs,) = await bare()
        taken = [*await gallery(), *await gallery()]
    ours, rounds = min(taken), " and ".join(f"{one:.0f}" for one in taken)
    return [
        Row(
            work=f"gallery of {count:,} artifacts, {cards:,} cards scrolled through: the longest frame",
            baseline="a bare page with as many cards, scrolled in the same way",
            figure=ours,
            unit="ms",
            at_least=50,
            want=50,
            measured=f"{rounds} ms in {len(taken)} rounds, the better one counts, against {theirs:.0f} ms",
            reason="previews of cards that stay are read, and cards that come are laid out",
        )
    ], []


async def _load_many(route: Route) -> None:
    await route.continue_(url=route.request.url.replace(f"limit={_AT_ONCE}", f"limit={_MOST}"))


async def _longest(page: Page, list_: str, more: str, cards: int) -> float:
    taken: list[float] = await page.evaluate(_SCROLL, [_STEP, list_, more])
    shown = await page.locator(f"{list_} > li").count()
    assert shown == cards, (shown, cards)
    return max(taken)


@asynccontextmanager
async def _page(bench: Bench) -> AsyncIterator[Page]:
    context = await bench.browser.playwright.new_context()
    try:
        yield await context.new_page()
    finally:
        await context.close()


@asynccontextmanager
async def _served(root: Path) -> AsyncIterator[str]:
    """The address of ``abp serve`` with its token."""
    command = [sys.executable, *SERVE, "--out", str(root)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield gallery_address(await process.stdout.readline())
    finally:
        process.terminate()
        await process.wait()
