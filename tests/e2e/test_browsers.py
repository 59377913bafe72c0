"""Which browser; and Playwright's own API as the way into a page, which is all that Firefox and WebKit have.

It is run in Chromium everywhere, and in Firefox where there is one that this Playwright can drive.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright.async_api import Error as PlaywrightError, Page, async_playwright

from tests.e2e.notebook import notebook
from tests.e2e.test_attach import OURS, ladder_of, value
from tests.support.needs import missing
from tests.support.pages import app_page, reach_without_cdp, serve_page
from tests.support.slow import slow_but
from transports import Browser, CallTimeout, ConnectionChanged, Disconnected, Session, UsageError, connect
from transports.errors import BrowserNotFound, PageCrashed, UnsupportedBinary
from transports.playwright._downloads import LIMITS
from transports.playwright._find import ENGINES, find_browser
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MB = 1 << 20
NO_CDP = slow_but(["chromium", "firefox"], "chromium")


@pytest.fixture(params=NO_CDP)
def shared(request: pytest.FixtureRequest, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> Browser:
    """A browser whose pages are reached without CDP."""
    if request.param == "firefox":
        firefox: Browser = request.getfixturevalue("firefox")
        return firefox
    reach_without_cdp(monkeypatch)
    return browser


@pytest.fixture
def without_cdp(shared: Browser, tmp_path: Path) -> Callable[..., Session]:
    def make(url: str, **options: Any) -> Session:
        if "page" not in options:
            options["browser"] = shared
        return connect(url, store=tmp_path / "out", **options)

    return make


# --- without CDP ------------------------------------------------------------------------------------------------------


#: A sandbox without allow-downloads gives no event at all.
SANDBOX = {"Content-Security-Policy": "sandbox allow-scripts allow-same-origin"}
SANDBOXED = app_page("file: () => ({ file: new Blob([new Uint8Array(9 << 20).fill(7)]) })")


@pytest.mark.parametrize(("way", "rung"), slow_but([("cdp", "stream"), ("evaluate", "slices")], ("cdp", "stream")))
async def test_large_content_comes_without_download_events(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, rung: str
) -> None:
    if way == "evaluate":
        reach_without_cdp(monkeypatch)
    async with serve_page(SANDBOXED, SANDBOX) as url, connect(url, browser=browser, store=tmp_path) as app:
        downloads = ladder_of(app).downloads
        assert downloads is not None
        starts = (0.3, 60) if way == "evaluate" else (0.3,)  # it is remembered there
        for start in starts:
            downloads.limits = replace(LIMITS, start=start)
            result = await app.call("file", timeout=30)
            assert await app.store.get(result.artifact()) == b"\7" * (9 * MB)
        assert ladder_of(app).used == {"download": 0, "stream": 0, "slices": 0, rung: len(starts)}


async def test_agent_script_runs_first_pages_are_printed_and_navigation_fails_call(
    without_cdp: Callable[..., Session], fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(self: Page, **_: object) -> bytes:
        raise PlaywrightError("Page.pdf: PDF generation is only supported for Headless Chromium")

    async with without_cdp(fixture.strict_url) as app:  # a strict Content-Security-Policy changes nothing
        first = value((await app.call("app.record")).data, "first")
        assert all(first["functions"].values()) and first["replaced"] == []
        traces = [name for name in first["names"] if not name.startswith(("__abp_", "__abpOn"))]
        assert all(name.startswith("__playwright") for name in traces)  # which is Playwright's own way, not ours

        ref = (await app.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifacts["document"]
        assert Path(str(ref.path)).read_bytes().startswith(b"%PDF-")
        with pytest.raises(Disconnected):
            await app.call("fault.navigate")
        with monkeypatch.context() as patch:
            patch.setattr(Page, "pdf", refused)
            with pytest.raises(UnsupportedBinary, match="cannot make PDFs; open the app in Chromium"):
                await app.call("export.pdf", {"html": "<h1>Hi</h1>"})
        assert (await app.call("file.list")).artifacts


async def test_new_document_disconnects_app_but_fragment_does_not(without_cdp: Callable[..., Session]) -> None:
    async with notebook() as url, without_cdp(url) as app, app.events() as events:
        page = app.transport._agent.page  # type: ignore[attr-defined]
        await page.evaluate("location.hash = '#/chapter/2'; history.pushState(null, '', '/elsewhere')")
        await app.call("note.read")
        await page.evaluate("document.body.append(document.createElement('iframe'))")
        await app.call("note.read")
        await page.evaluate("setTimeout(() => location.reload())")
        changes: list[bool] = []
        async with asyncio.timeout(20):
            while len(changes) < 2:
                if isinstance(event := await anext(events), ConnectionChanged):
                    changes.append(event.connected)
        assert changes == [False, True]  # and nothing was lost before
        await app.call("note.read")


async def test_callers_page_is_left_unchanged_without_cdp(without_cdp: Callable[..., Session], shared: Browser) -> None:
    async with notebook() as url, await shared.playwright.new_context() as context:
        page = await context.new_page()
        await page.goto(url)
        look = f"[{OURS}.filter(name => !name.startsWith('__playwright')), String(window.print), globalThis.loads]"
        before = await page.evaluate(look)
        for _ in range(2):
            async with without_cdp(url, page=page) as app:
                await app.call("note.read")
        assert await page.evaluate(look) == before
        await page.reload()
        assert await page.evaluate(look) == before


async def test_a_crashed_renderer_is_replaced(
    browser: Browser, fixture: Fixture, tmp_path: Path, monkeypatch: Any
) -> None:
    reach_without_cdp(monkeypatch)
    context = await browser.playwright.new_context()
    async with connect(fixture.url, context=context, store=tmp_path) as app:
        call = asyncio.ensure_future(app.call("fault.never"))
        await asyncio.sleep(0.2)
        crash = await context.new_cdp_session(context.pages[0])
        dying = asyncio.ensure_future(crash.send("Page.crash"))
        with pytest.raises(PageCrashed):
            await call
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    await context.close()


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_names_of_downloads_are_kept_in_any_locale(
    fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.delenv("LC_CTYPE", raising=False)
    monkeypatch.setenv("LANG", "C")
    environment = {**os.environ}
    async with Browser() as browser, connect(fixture.url, browser=browser, store=tmp_path) as app:
        step = {"kind": "download", "bytes": 9, "filename": "Größe.bin"}
        result = await app.call("fault.native_ui", {"do": [step]})
    assert result.artifact("document").filename == "Größe.bin"
    assert {**os.environ} == environment


@pytest.mark.slow
async def test_content_passes_a_browser_that_has_a_temp_folder_of_its_own(
    fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a snap has: neither the browser nor the program sees the other's files."""
    choice = find_browser(name="chromium")
    private = tmp_path / "private"
    private.mkdir()
    enter = f"mount --bind {private} {tempfile.gettempdir()}"
    if choice is None or subprocess.run(["unshare", "--mount", "sh", "-c", enter], capture_output=True).returncode:
        missing("the right to mount", "the browser gets another temp folder")

    program = tmp_path / "browser"
    program.write_text(f"""#!/bin/sh
exec unshare --mount sh -c '{enter} && exec "$0" "$@"' {choice.path} "$@"
""")
    program.chmod(0o755)
    monkeypatch.setenv("ABP_BROWSER", str(program))
    async with connect(fixture.url, store=tmp_path / "out") as app:
        result = await app.call("file.generate", {"bytes": 5 << 20, "seed": 1})
        assert result.artifacts["file"].sha256 == digest(5 << 20, 1)
        assert app.transport.rungs["stream"] == 1
        data = os.urandom(5 << 20)
        received = await app.call("file.digest", {"file": data})
        assert hashlib.sha256(data).hexdigest() in str(received.data)
        step = {"kind": "download", "bytes": 9, "filename": "table.csv"}
        result = await app.call("fault.native_ui", {"do": [step]})
    (warning,) = result.warnings
    assert "the browser saved it where this program does not see it" in warning and "table.csv" in warning


async def test_browser_executable_overrides_name_and_name_overrides_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ABP_BROWSER", "/bin/true")
    unnamed, named = find_browser(), find_browser(name="chromium")
    assert unnamed is not None and unnamed.path == "/bin/true"
    assert named is None or named.path != "/bin/true"
    given = find_browser("/bin/false", "firefox")
    assert given is not None and given.path == "/bin/false"


@pytest.mark.parametrize("name", ["chrome", "msedge", "firefox", "webkit"])
async def test_missing_browser_error_says_how_to_install_it(
    name: str, fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    with pytest.raises(BrowserNotFound, match=rf"no {name} was found.*(playwright install {name}|install it)"):
        await connect(fixture.url, browser=name, store=tmp_path)
    with pytest.raises(UsageError, match="chromium, chrome, msedge, firefox, webkit"):
        await connect(fixture.url, browser="netscape", store=tmp_path)
    assert set(ENGINES) >= {name}


async def test_playwright_builds_of_firefox_and_webkit_are_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1490", "1572"):
        program = tmp_path / f"firefox-{version}" / "firefox" / "firefox"
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_BROWSERS_PATH", str(tmp_path))
    choice = find_browser(name="firefox")
    assert choice is not None and choice.built_by_playwright and choice.path == str(program)


@pytest.mark.slow
async def test_firefox_leaves_no_processes(fixture: Fixture, tmp_path: Path, firefox: Browser) -> None:
    del firefox  # only whether there is one
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    async with connect(fixture.url, browser="firefox", profile=tmp_path / "profile", store=tmp_path / "out") as app:
        call = asyncio.ensure_future(app.call("fault.never"))
        await asyncio.sleep(0.3)
        for process in psutil.Process().children(recursive=True):
            if process.pid not in before and "firefox" in process.name():
                process.suspend()
        with pytest.raises(CallTimeout):
            await app.call("file.list", timeout=1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
    left = [process for process in psutil.Process().children(recursive=True) if process.pid not in before]
    assert [process for process in left if process.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
async def test_a_firefox_profile_is_kept(tmp_path: Path, firefox: Browser) -> None:
    del firefox
    profile = tmp_path / "profile"
    async with notebook() as url:
        for expected in (None, "signed-in"):
            async with connect(url, browser="firefox", profile=profile, store=tmp_path / "out") as app:
                assert value((await app.call("note.read")).data, "cookie") == expected
                await app.call("note.write", {"text": "signed-in"})


async def test_started_browser_opens_no_port_and_keeps_folder_private(browser: Browser) -> None:
    """It is spoken to over a pipe, and its files are its user's alone."""
    page = await browser.playwright.new_page()
    driver = psutil.Process(browser._process.pids[0])
    family = driver.children(recursive=True)
    listening: list[object] = []
    for process in (driver, *family):
        with suppress(psutil.Error):  # a browser starts and ends processes all the time
            listening += [one for one in process.net_connections("inet") if one.status == psutil.CONN_LISTEN]
    await page.close()
    assert len(family) > 2 and listening == []
    assert stat.S_IMODE(browser.folder.stat().st_mode) == 0o700


@pytest.mark.slow
async def test_features_of_chromium_include_those_of_playwright(browser: Browser) -> None:
    """A switch of ours replaces Playwright's."""

    def features(driver: psutil.Process, switch: str) -> set[str]:
        (process,) = (child for child in driver.children() if "--disable-features" in " ".join(child.cmdline()))
        return set([line for line in process.cmdline() if line.startswith(switch)][-1].partition("=")[2].split(","))

    before = psutil.Process().children()
    ours = psutil.Process(browser._process.pids[0])
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=os.environ.get("ABP_BROWSER")),
    ):
        (theirs,) = set(psutil.Process().children()) - set(before)
        for switch in ("--disable-features", "--enable-features"):
            assert features(theirs, switch) < features(ours, switch)


@pytest.mark.slow
async def test_window_of_whole_chromium_starts_no_process_for_its_address_bar(whole_browser: Browser) -> None:
    session = await whole_browser.playwright.new_browser_cdp_session()
    page = await whole_browser.playwright.new_page()
    targets = (await session.send("Target.getTargets", {"filter": [{}]}))["targetInfos"]
    await page.close()
    assert {target["type"] for target in targets} >= {"page", "tab"}
    assert [target["url"] for target in targets if target["type"] == "browser_ui"] == []
