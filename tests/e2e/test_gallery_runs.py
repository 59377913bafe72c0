"""Batch runs in the gallery, live, searchable, and deaf to script in jobs; and the resources of a server."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from tests.e2e.visits import visiting
from tests.support.batch_run import TARGET, plant_run
from tests.support.gallery import open_gallery
from tests.support.resources import ResourceApp
from transports import Browser
from transports.batch import Job, Outcome, State
from transports.batch.ledger._schema import Settlement

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CANARY = "<script>alert(1)</script><img src=x onerror=alert(1)>"


@pytest.mark.slow
async def test_gallery_run_is_followed_searched_and_links_to_files(tmp_path: Path, browser: Browser) -> None:
    async with (
        await plant_run(tmp_path / "runs" / "charts", jobs=90, ended=70) as ledger,
        open_gallery(tmp_path / "store", browser, runs=[str(tmp_path / "runs")]) as gallery,
        visiting(gallery, browser) as page,
    ):
        alerts: list[str] = []
        page.on("dialog", lambda dialog: alerts.append(dialog.message))
        await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()  # without a click
        board, jobs = (
            page.locator("#run-board"),
            page.get_by_role("list", name="Jobs", exact=True).get_by_role("listitem"),
        )
        await expect(board).to_contain_text("70 of 90 jobs ended · running")
        await expect(board.get_by_role("img", name="Jobs that ended over")).to_be_visible()
        await expect(board).to_contain_text("3 browsers: memory 2, calls 1")
        await expect(board).to_contain_text("50 % of the jobs within702 ms")
        await expect(jobs.first).to_contain_text(f"1 file · {TARGET}")
        await expect(jobs).to_have_count(50)
        await page.get_by_role("button", name="More jobs").click()
        await expect(jobs).to_have_count(70)

        await board.get_by_role("button", name="RENDER_FAILED").click()
        await expect(jobs).to_have_count(6)
        await page.get_by_label("Error", exact=True).select_option("")
        await page.get_by_label("State", exact=True).select_option("queued")
        await expect(jobs).to_have_count(18)
        held: list[Route] = []
        await page.route("**/jobs?*state=failed*", lambda route: held.append(route))
        async with page.expect_request("**/jobs?*state=failed*"):
            await page.get_by_label("State", exact=True).select_option("failed")
        await page.get_by_label("State", exact=True).select_option("")
        await expect(jobs).to_have_count(50)
        async with page.expect_response("**/jobs?*state=failed*") as late:  # the filter is another one by now
            await held[0].continue_()
        await (await late.value).finished()
        await expect(jobs).to_have_count(50)
        await page.get_by_label("Search jobs").fill("chart-0004")
        await expect(jobs).to_have_count(1)
        await jobs.locator("summary").first.click()
        await jobs.get_by_text("Parameters").click()
        await expect(jobs.get_by_role("region", name="Parameters")).to_contain_text('"year": 1991')
        await jobs.get_by_role("link", name="chart.png").click()
        shown = page.get_by_role("dialog", name="chart.png")
        await expect(shown.locator("img.picture")).to_be_visible()
        await expect(shown.get_by_role("button", name="Delete")).to_have_count(0)
        await expect(shown.get_by_role("link", name="chart.render")).to_have_attribute("href", re.compile("^#run="))
        await page.keyboard.press("Escape")
        await page.get_by_label("Search jobs").fill("")

        canary = Job(CANARY, {CANARY: CANARY}, TARGET + CANARY, CANARY)
        await ledger.add(lambda: [[canary]], "two", extend=True)
        leased = [lease for lease in await ledger.lease(90, 60) if lease.key == canary.key]
        await ledger.settle([Settlement(leased[0].key, Outcome(canary, State.FAILED, None, CANARY, CANARY))])
        row = jobs.filter(has_text=CANARY)  # it comes by itself
        await expect(row).to_have_count(1)
        await expect(board).to_contain_text("71 of 91 jobs ended")
        await row.locator("summary").first.click()
        await row.get_by_text("Parameters").click()
        await expect(row.get_by_role("region", name="Parameters")).to_contain_text(CANARY)
        assert await page.locator("#view-runs :is(script, img[src])").count() == 0 == len(alerts)


# --- resources --------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R2-6.3j")
async def test_gallery_browses_reads_and_watches_resources(tmp_path: Path, browser: Browser) -> None:
    server = ResourceApp()
    async with open_gallery(tmp_path, browser, memory=server) as gallery, visiting(gallery, browser) as page:
        await page.get_by_role("link", name="Resources").click()
        listed = page.get_by_role("list", name="Resources of In-process app").get_by_role("button")
        await expect(listed).to_have_count(4)
        await page.get_by_label("Search resources").fill("pdf")
        await expect(listed).to_have_count(1)
        await page.get_by_label("Search resources").fill("")
        assert server.reads == 0  # on demand

        shown = page.locator("#resource")
        await listed.filter(has_text="a b?c=d").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("short")
        await expect(shown.get_by_role("heading", name="a b?c=d")).to_be_focused()
        await shown.get_by_role("button", name="Watch").click()
        await expect(shown.get_by_role("button", name="Stop watching")).to_be_visible()
        server.resources["note:///a b?c=d"]["text"] = "another"
        server.change("note:///a b?c=d")
        await expect(shown.get_by_text("The server has changed it")).to_be_visible()
        await shown.get_by_role("button", name="Read again").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("another")
        await expect(shown.get_by_text("The server has changed it")).to_be_hidden()

        await listed.filter(has_text="report.pdf").click()
        await expect(shown.locator("iframe")).to_be_visible()
        await shown.get_by_role("link", name="Open as artifact").click()
        dialog = page.get_by_role("dialog")
        await expect(dialog.get_by_text("application/pdf")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(shown.locator("iframe")).to_be_visible()  # where it was opened

        await page.get_by_role("button", name="Use the template note:///{name}").click()
        await page.keyboard.type("gone")  # in place of the variable, which is selected
        await expect(page.get_by_label("Address", exact=True)).to_have_value("note:///gone")
        await page.keyboard.press("Enter")
        await expect(shown.get_by_role("alert")).to_have_text("note:///gone: there is no such resource")

        server.resources["note:///new"] = {"mimeType": "text/plain", "text": "<img src=x onerror=alert(1)>"}
        server.change_list()
        await listed.filter(has_text="note:///new").click()
        await expect(shown.get_by_role("region", name="Text")).to_have_text("<img src=x onerror=alert(1)>")
