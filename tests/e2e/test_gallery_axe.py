"""Accessibility of the gallery page by axe-core: each view, in light and in dark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.mcp_official.node import packages
from tests.support.batch_run import plant_run
from tests.support.gallery import PICTURE, open_gallery
from tests.support.resources import ResourceApp
from transports import Browser
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script, from npm."""
    folder = packages(ROOT / "tests" / "support" / "axe.json")
    return (folder / "node_modules/axe-core/axe.min.js").read_text(encoding="utf-8")


async def barriers(page: Page, axe: str) -> list[str]:
    """Serious and critical findings, and where: by all rules in light, by those of colours in dark."""
    await page.evaluate(axe)
    light = await _findings(page, "{resultTypes: ['violations'], iframes: false}")
    await page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    colours = "runOnly: ['color-contrast', 'link-in-text-block']"
    dark = await _findings(page, f"{{resultTypes: ['violations'], iframes: false, {colours}}}")
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    return [*light, *(f"dark: {violation}" for violation in dark)]


async def _findings(page: Page, options: str) -> list[str]:
    results: dict[str, Any] = await page.evaluate(f"axe.run(document, {options})")
    assert results["testEngine"]["name"] == "axe-core" and len(results["violations"]) < 100
    return [
        f"{finding['id']} ({finding['impact']}): {[node['target'] for node in finding['nodes']]}"
        for finding in results["violations"]
        if finding["impact"] in ("serious", "critical")
    ]


async def test_gallery_views_have_no_accessibility_violations(
    tmp_path: Path, fixture: Fixture, browser: Browser, axe: str, views_address: str
) -> None:
    seen: dict[str, list[str]] = {}
    # axe is put into the page, which the page's own policy would rightly refuse
    context = await browser.playwright.new_context(color_scheme="light", bypass_csp=True, reduced_motion="reduce")
    try:
        page = await context.new_page()
        async with (
            await plant_run(tmp_path / "runs" / "charts", jobs=40, ended=30),
            open_gallery(tmp_path, browser, fixture, memory=ResourceApp(), runs=[str(tmp_path / "runs")]) as gallery,
        ):
            await page.goto(gallery.url)
            await expect(page.get_by_label("Token")).to_be_visible()
            seen["login"] = await barriers(page, axe)
            await page.goto(gallery.entry)
            await page.reload()
            await page.get_by_role("link", name="Artifacts").click()  # it opens on the runs
            await expect(page.get_by_role("heading", name="No artifacts yet")).to_be_visible()
            seen["empty grid"] = await barriers(page, axe)

            await gallery.call("chart.render", csv="a,b\n1,2\n3,4")
            await gallery.call("audio.tone", seconds=0.1)
            names = {
                "t.txt": ("text/plain", b"text\n" * 500),
                "j.json": ("application/json", b'{"a": [1, null, true, "text"]}'),
                "c.csv": ("text/csv", b"a,b\n1,2\n" * 50),
                "b.bin": ("application/octet-stream", bytes(300)),
                "p.png": ("image/png", PICTURE),
            }
            for name, (kind, data) in names.items():
                await gallery.upload(name, kind, data)
            await expect(page.locator(".card")).to_have_count(7)
            seen["grid"] = await barriers(page, axe)
            for name in names:
                await page.locator(".card", has_text=name).click()
                await expect(page.get_by_role("dialog").locator(".preview > *").first).to_be_visible()
                seen[name] = await barriers(page, axe)
                await page.keyboard.press("Escape")

            await gallery.call("image.info", image={"content": "AAAA", "encoding": "base64"})
            waiting = await gallery.start("form.ask", {"method": "elicitation/input", "params": {"message": "Name?"}})
            await page.get_by_role("link", name="Calls").click()
            for row in await page.locator(".call > summary").all():
                await row.click()
            await expect(page.locator(f"#call-{waiting}").get_by_role("textbox")).to_be_visible()
            seen["timeline"] = await barriers(page, axe)

            await page.get_by_role("link", name="Apps").click()
            await expect(page.locator(".app")).to_have_count(1)
            seen["apps"] = await barriers(page, axe)
            for capability in ("export.pdf", "image.resize", "data.csv", "file.generate"):
                await page.locator(".capability", has_text=capability).first.click()
                await expect(page.locator("#capability-title")).to_have_text(capability)
                seen[capability] = await barriers(page, axe)

            server = await gallery.served.apps.connect(views_address, {})
            await page.locator('.capability:has(.name:text-is("board"))').click()
            await expect(page.locator("#capability-title")).to_have_text("board")
            await page.get_by_role("button", name="Run", exact=True).click()
            await expect(page.locator("#work .panel iframe")).to_be_visible()
            seen["view"] = await barriers(page, axe)
            await gallery.served.apps.disconnect(server)

            await gallery.served.apps.connect("memory:", {})
            await page.get_by_role("link", name="Resources").click()
            await page.locator("#view-resources .capability", has_text="a b?c=d").click()
            await page.get_by_role("button", name="Watch").click()
            await expect(page.get_by_role("button", name="Stop watching")).to_be_visible()
            await expect(page.get_by_role("region", name="Text")).to_have_text("short")
            seen["resources"] = await barriers(page, axe)

            await page.get_by_role("link", name="Runs").click()
            await page.locator(".job > summary").first.click()
            await expect(page.locator(".job .facts-list")).to_be_visible()
            seen["runs"] = await barriers(page, axe)
    finally:
        await context.close()
    assert {view: violations for view, violations in seen.items() if violations} == {}
