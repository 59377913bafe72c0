"""``python -m tests.support.screenshots``: the gallery's pictures in ``docs/images``, of a real run."""

from __future__ import annotations

import argparse
import asyncio
import io
import re
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.async_api import Page, ViewportSize

from tests.support.batch_run import plant_run
from tests.support.gallery import PICTURE, Gallery, open_gallery, tone
from tests.support.mcp_servers import target
from tests.support.secret_page import CANARY, secret_page
from tests.support.video import placed_ffmpeg
from transports import Browser, Evidence
from webapp_fixture import serve

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SALES = (Path(__file__).parents[2] / "webapp_fixture" / "samples" / "sales.csv").read_text(encoding="utf-8")
NOTES = (Path(__file__).parents[2] / "webapp_fixture" / "samples" / "notes.md").read_text(encoding="utf-8")
REPORT = """<style>body{font:13pt/1.5 sans-serif;margin:2cm} h1{color:#0f6a62} td,th{padding:4pt 14pt;text-align:left;
border-bottom:1px solid #ccc}</style><h1>Quarterly report</h1><p>Tea went up in summer, coffee in winter; cocoa is a
matter of taste. The figures are those of the sample file.</p><table><tr><th>Month<th>Tea<th>Coffee<th>Cocoa"""
COLOURS = 128
#: Pixels of the window; the pictures are as large.
WIDE, TALL, NARROW = (
    ViewportSize(width=1280, height=800),
    ViewportSize(width=1280, height=960),
    ViewportSize(width=360, height=740),
)
EVIDENCE, TALL_PHONE = ViewportSize(width=1280, height=1200), ViewportSize(width=360, height=1100)
#: Waits for the images that can be seen; others may never be loaded. Cards are read after they have stayed in view.
DECODED = """new Promise(resolve => setTimeout(resolve, 1000)).then(() => {
  const seen = [...document.images].filter(image => {
    const box = image.getBoundingClientRect();
    return image.checkVisibility() && box.bottom > 0 && box.top < innerHeight;
  });
  return Promise.all(seen.map(image => image.decode().catch(() => null)));
})"""


def report() -> str:
    rows = [line.split(",") for line in SALES.strip().splitlines()[1:]]
    return REPORT + "".join(f"<tr>{''.join(f'<td>{cell}' for cell in row)}" for row in rows) + "</table>"


async def work(gallery: Gallery) -> None:
    """An ordinary run: some calls at once, one that fails, one that is under way when the pictures are taken."""
    await gallery.upload("picture.png", "image/png", PICTURE)
    await gallery.call("data.json", csv=SALES)
    items = (await gallery.ask("GET", "artifacts?type=application/json"))["artifacts"]
    assert items
    await asyncio.gather(
        gallery.call("chart.render", csv=SALES, title="Sales", type="bar", width=900),
        gallery.call("chart.render", csv=SALES, title="Sales over the year", type="line", width=900),
        gallery.call("audio.tone", seconds=1.5, frequency=330),
        gallery.call("job.run", steps=9, delay=90, label="prepare"),
    )
    await gallery.call("export.html", markdown=NOTES, title="Notes")
    await asyncio.gather(
        gallery.call("export.pdf", html=report(), title="Quarterly report"),
        gallery.call("image.info", image={"content": "AAAA", "encoding": "base64"}),
    )
    await gallery.call("data.csv", rows=[{"region": name, "sum": 12 * at} for at, name in enumerate("NESW", 1)])
    await gallery.call("archive.gzip", text=NOTES * 40)
    await gallery.call("export.pages", count=2)
    await gallery.upload("tone.wav", "audio/wav", tone())
    await gallery.start("job.run", {"steps": 60, "delay": 200, "label": "long job"})


async def pictures(page: Page, gallery: Gallery, save: Any) -> None:
    await page.goto(gallery.entry)
    await page.reload()
    await page.get_by_role("link", name="Artifacts").click()  # it opens on the runs
    await page.locator(".card img").first.wait_for()
    wide = (page.viewport_size or WIDE)["width"] == WIDE["width"]
    await page.set_viewport_size(TALL if wide else NARROW)
    await page.get_by_role("link", name="Calls").click()
    await page.locator(".call[data-status=failed] > summary").click()
    await page.evaluate("scrollTo(0, 0)")
    await page.mouse.move(0, 0)
    await save("timeline")
    await page.set_viewport_size(WIDE if wide else NARROW)
    await page.get_by_role("link", name="Artifacts").click()
    await page.evaluate(DECODED)
    await save("grid")
    await page.locator(".card", has=page.locator("[data-kind=pdf]")).first.click()
    await page.locator("dialog iframe").wait_for()
    await asyncio.sleep(3)  # the viewer says to nobody that it is done
    await save("pdf")
    await page.get_by_role("button", name="Close").click()
    await page.get_by_role("link", name="Apps").click()
    await page.locator(".capability", has_text="chart.render").first.click()
    form = page.locator("#work")
    await page.set_viewport_size(TALL if wide else NARROW)
    await form.get_by_label("csv").fill(SALES[:60].rpartition("\n")[0])
    await form.get_by_label("title").fill("Sales")
    await form.get_by_role("button", name="Run").click()
    await form.locator(".chip img").first.wait_for()
    await page.evaluate("scrollTo(0, 0)")
    if not wide:
        await form.evaluate("node => node.scrollIntoView()")
    await page.evaluate(DECODED)
    await save("form")
    await page.get_by_role("link", name="Resources").click()
    resources = page.get_by_role("list", name="Resources of")
    await resources.get_by_role("button", name=re.compile(r"data\.csv")).click()
    shown = page.locator("#resource")
    await shown.get_by_role("button", name="Watch").click()
    await shown.get_by_role("button", name="Stop watching").wait_for()
    await shown.locator("table").wait_for()
    await page.evaluate("scrollTo(0, 0)")
    if not wide:
        await shown.evaluate("node => node.scrollIntoView()")
    await page.mouse.move(0, 0)
    await save("resources")
    if wide:
        await page.get_by_role("link", name="Runs").click()
        await page.locator(".job[data-status=failed] > summary").first.click()
        await page.locator(".job .facts-list").wait_for()
        await page.evaluate("scrollTo(0, 0)")
        await page.mouse.move(0, 0)
        await save("run")


async def evidence(page: Page, gallery: Gallery, url: str, save: Any) -> None:
    """A call that failed, with what was recorded of it unfolded."""
    choice = Evidence(trace=True, video=True, har=True, console=True, screenshot=True)
    gallery.app = (await gallery.served.apps.connect(url, {"evidence": choice})).key
    failed = await gallery.call("sign.in", password=CANARY)
    await page.set_viewport_size(EVIDENCE if (page.viewport_size or WIDE)["width"] > 500 else TALL_PHONE)
    await page.goto(f"{gallery.url}#call={failed['id']}")
    section = page.get_by_role("region", name="Evidence of this call")
    await section.locator("img").wait_for()
    for kind in ("screenshot", "video", "console", "har", "trace"):
        if kind != "screenshot":
            await section.locator(f"[data-evidence={kind}] > summary").click()
    await section.locator(".requests").wait_for()
    await section.locator("video").evaluate("(video) => { video.currentTime = 0.4; }")
    await section.locator("[data-evidence=screenshot] > summary").click()  # the video shows the same
    await section.evaluate("node => scrollTo(0, node.getBoundingClientRect().top + scrollY - 220)")
    await page.mouse.move(0, 0)
    await asyncio.sleep(1)
    await save("evidence")


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as stack:
        store = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="abp-gallery-")))
        stack.enter_context(placed_ffmpeg(store / "registry"))
        browser = await stack.enter_async_context(Browser())
        secret = await stack.enter_async_context(secret_page())
        fixture = await stack.enter_async_context(serve())
        for scheme, size in (("light", WIDE), ("dark", WIDE), ("phone", NARROW)):
            runs = store / f"{scheme}-runs"
            stack.push_async_exit(await plant_run(runs / "charts"))
            shown = open_gallery(store / scheme, browser, fixture, runs=[str(runs)])
            gallery = await stack.enter_async_context(shown)
            await work(gallery)
            await gallery.served.apps.connect(target("tableau"), {})
            context = await browser.playwright.new_context(
                color_scheme="dark" if scheme == "dark" else "light",
                viewport=size,
                reduced_motion="reduce",
                locale="en-GB",
            )
            page = await context.new_page()

            async def save(name: str, page: Page = page, scheme: str = scheme) -> None:
                picture = Image.open(io.BytesIO(await page.screenshot())).convert("RGB")
                path = folder / f"gallery-{name}-{scheme}.png"
                picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
                print(f"{path.stat().st_size:>8,}  {path}")

            await pictures(page, gallery, save)
            await evidence(page, gallery, secret, save)
            await context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=IMAGES)
    asyncio.run(main(parser.parse_args().folder))
