"""Pages and contexts of the caller's own, and browsers that run already: driven, and left as they were."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import tempfile
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import BrowserContext, Page

from tests.e2e.notebook import content, notebook
from tests.support.eventually import eventually
from tests.support.object_server import Proxy
from tests.support.pages import serve_answers
from tests.support.slow import slow_but
from transports import ABPError, Browser, PlaywrightTransport, Session, UsageError, connect
from transports.errors import BrowserCrashed, ConnectFailed, ContextLost, Disconnected, NotAbpApp
from transports.playwright._channels import CdpChannel
from transports.playwright._content import Ladder
from transports.playwright._find import find_browser
from webapp_fixture import Fixture, digest

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

MB = 1 << 20
OURS = "Object.getOwnPropertyNames(window).filter(name => name.startsWith('__abp_') || name.startsWith('_'))"


def ladder_of(app: Session) -> Ladder:
    assert isinstance(app.transport, PlaywrightTransport)
    return app.transport._page_access.ladder


def value(tree: object, *path: str | int) -> Any:
    for step in path:
        tree = tree[step]  # type: ignore[index]
    return tree


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    return await context.new_page()


# --- a page of the caller's -------------------------------------------------------------------------------------------


async def test_sessions_drive_open_page_in_turn_without_reloading(page: Page, tmp_path: Path) -> None:
    async with notebook() as url:
        await page.goto(url)
        await page.evaluate("globalThis.state = 'half typed'")
        async with connect(url, page=page, store=tmp_path) as app:
            assert value((await app.call("note.read")).data, "state") == "half typed"
            assert "note.file" in app.capabilities
        assert await page.evaluate("[globalThis.state, globalThis.loads]") == ["half typed", 1]

        # a reload by the caller is a loss, and the page can be taken again
        async with connect(url, page=page, store=tmp_path) as app:
            await app.call("note.write", {"text": "second"})
            assert await page.evaluate("[localStorage.getItem('note'), globalThis.loads]") == ["second", 1]
            await page.reload()
            with pytest.raises(ContextLost):
                await app.call("note.read")
        async with connect(url, page=page, store=tmp_path) as app:
            await app.call("note.read")


async def test_callers_page_is_left_unchanged(page: Page, fixture: Fixture, tmp_path: Path) -> None:
    await page.goto(f"{fixture.url}?ownevents=assign")
    look = f"[{OURS}, String(window.print), Object.keys(abp).map(k => k + typeof abp[k])]"
    before = await page.evaluate(look)
    listeners = {name: len(page._impl_obj.listeners(name)) for name in ("close", "crash")}
    events: list[str] = []
    async with connect(page.url, page=page, store=tmp_path, on_notification=lambda n: events.append(n.event)) as app:
        assert set(before[0]) < set((await page.evaluate(look))[0])
        await app.call("job.run", {"steps": 1, "delay": 1})
        assert len(events) == 2
    assert not page.is_closed()
    assert await page.evaluate(look) == before
    assert {name: len(page._impl_obj.listeners(name)) for name in listeners} == listeners
    await page.reload()
    assert await page.evaluate(OURS) == before[0]


async def test_app_keeping_callbacks_does_not_hang(page: Page, fixture: Fixture, tmp_path: Path) -> None:
    await page.goto(f"{fixture.url}?ownevents=call")
    async with connect(page.url, page=page, store=tmp_path) as app:
        await app.call("file.list")
    hello = "{agent: {name: 'me', version: '1'}, protocolVersion: '0.1', features: {elicitation: true}}"
    ask = "abp.call('form.ask', {method: 'elicitation/input', params: {message: 'Colour?'}}, {})"
    async with asyncio.timeout(30):
        answer = await page.evaluate(f"abp.initialize({hello}).then(() => {ask})")
        assert answer["data"]["response"]["success"] is False
        await page.evaluate("abp.call('job.run', {steps: 2, delay: 1}, {})")


async def test_given_page_at_other_address_navigates_to_app(page: Page, tmp_path: Path) -> None:
    async with notebook("One") as one, notebook("Two") as two:
        await page.goto(one)
        async with connect(two, page=page, store=tmp_path) as app:
            assert app.info.name == "Two"
        assert page.url == two
        await page.evaluate("location.hash = '#/chapter/3'")  # where a route of the app is: the same document
        await page.evaluate("globalThis.state = 'kept'")
        async with connect(two, page=page, store=tmp_path) as app:
            assert value((await app.call("note.read")).data, "state") == "kept"
        async with connect(f"{two}#/other", page=page, store=tmp_path) as app:
            assert value((await app.call("note.read")).data, "state") == "kept"
        assert page.url.endswith("#/other")


async def test_page_without_app_is_reported_and_stays_open(page: Page, tmp_path: Path) -> None:
    async with notebook() as url:
        await page.goto(f"{url}plain")
        transport = PlaywrightTransport(page.url, page=page, grace=0.2)
        needs = (
            r"no window\.abp.* is it the right address, .* a script that makes an app of it: adapter= \(docs/adapters"
        )
        with pytest.raises(NotAbpApp, match=needs):
            await connect(page.url, transport=transport, store=tmp_path)
        assert await page.title() == "plain"
        assert await page.evaluate(OURS) == []


@pytest.mark.parametrize("accepting", slow_but([True, False], True))
async def test_large_content_does_not_affect_callers_downloads(
    browser: Browser, fixture: Fixture, tmp_path: Path, accepting: bool
) -> None:
    """Also in a context that accepts no downloads; and Playwright's own still work afterwards."""
    context = await browser.playwright.new_context(accept_downloads=accepting)
    page = await context.new_page()
    async with connect(fixture.url, page=page, store=tmp_path) as app:
        for size in (2 * MB, 9 * MB + 1) if accepting else (9 * MB + 1,):
            ref = (await app.call("file.generate", {"bytes": size, "seed": 5})).artifacts["file"]
            assert ref.sha256 == digest(size, 5)
        used = ladder_of(app).used
    assert used == {"download": int(accepting), "stream": 1, "slices": 0}
    if accepting:
        async with page.expect_download() as coming:
            await page.evaluate(
                "() => Object.assign(document.createElement('a'), {href: 'data:,own', download: 'own.txt'}).click()"
            )
        assert Path(await (await coming.value).path()).read_text() == "own"
    await context.close()


@pytest.fixture(params=slow_but(["page", "context", "cdp_url"], "page"))
def callers(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The option that gives a page, a context or a browser of the caller's."""
    if request.param == "cdp_url":
        return {"cdp_url": request.getfixturevalue("running")[0]}
    return {request.param: request.getfixturevalue(request.param)}


async def test_unreceived_app_download_is_a_warning(callers: dict[str, Any], fixture: Fixture, tmp_path: Path) -> None:
    download = {"kind": "download", "seed": 5, "bytes": 70_000, "filename": "report.bin"}
    async with connect(fixture.url, store=tmp_path, **callers) as app:
        await app.call("file.generate", {"bytes": 9 * MB, "seed": 5})
        result = await app.call("fault.native_ui", {"do": [download]})
    assert list(result.artifacts) == [""]
    (warning,) = result.warnings
    if "cdp_url" in callers and "went where" not in warning:
        assert "1 downloads did not begin" in warning  # a headless shell refuses them
    else:
        assert "download 'report.bin' went where the browser saves its files" in warning
        assert [(effect.kind, effect.detail["filename"]) for effect in result.effects] == [("download", "report.bin")]


# --- a context of the caller's ----------------------------------------------------------------------------------------


async def test_a_given_context_shares_its_cookies_and_keeps_its_pages(context: BrowserContext, tmp_path: Path) -> None:
    async with notebook() as url:
        await context.add_cookies([{"name": "note", "value": "signed-in", "url": url}])
        mine = await context.new_page()
        async with connect(url, context=context, store=tmp_path) as app:
            assert value((await app.call("note.read")).data, "cookie") == "signed-in"
            assert len(context.pages) == 2
            ref = (await app.call("note.file", {"size": 9 * MB, "seed": 1})).artifacts["file"]
            assert Path(str(ref.path)).stat().st_size == 9 * MB
            ref = (await app.call("note.link", {"size": 2 * MB, "seed": 4})).artifacts["file"]
            assert Path(str(ref.path)).read_bytes() == content(2 * MB, 4)
        assert context.pages == [mine]


async def test_session_ends_with_the_callers_context(page: Page, fixture: Fixture, tmp_path: Path) -> None:
    async with connect(fixture.url, context=page.context, store=tmp_path) as app:
        await page.context.close()
        for _ in range(2):
            with pytest.raises(Disconnected, match="the page was closed; connect again"):
                await app.call("file.list", timeout=10)
    for option, closed in (("page", page), ("context", page.context)):
        with pytest.raises(UsageError, match=f"{option}= is closed"):
            await connect(fixture.url, store=tmp_path, **{option: closed})  # type: ignore[arg-type]


async def test_sync_playwright_objects_and_contradicting_options_are_rejected(
    page: Page, browser: Browser, tmp_path: Path
) -> None:
    url = "http://127.0.0.1:1/"
    for option, name in (("page", "Page"), ("context", "BrowserContext")):
        of_another_module = type(name, (), {})()
        with pytest.raises(UsageError, match=r"playwright\.async_api"):
            connect(url, **{option: of_another_module})
    with pytest.raises(UsageError, match="page= must be a Page, not BrowserContext"):
        connect(url, page=page.context)  # type: ignore[arg-type]
    state: dict[str, object] = {"cookies": [], "origins": []}
    contradictions: list[tuple[dict[str, Any], str]] = [
        ({"page": page, "context": page.context}, "page= and context="),
        ({"page": page, "cdp_url": "http://127.0.0.1:9222"}, "page= and cdp_url="),
        ({"browser_server": "ws://h", "cdp_url": "http://127.0.0.1:9222"}, "cdp_url= and browser_server="),
        ({"browser_server": "ws://h", "profile": tmp_path}, "profile= and browser_server="),
        (
            {"cdp_url": "http://127.0.0.1:9222", "headers": {"X-Key": "k3y-\n"}},
            r"the header 'X-Key' of http://127\.0\.0\.1:9222 has a line end",
        ),
        ({"headers": {"X-Team": "blue"}}, "headers= cannot be combined with a page"),
        ({"browser_server": "ws://h", "auth": type("Auth", (), {})()}, "auth= cannot be combined with a page"),
        ({"profile": tmp_path, "browser": browser}, "browser= and profile="),
        ({"page": page, "browser": "firefox"}, "leave browser= out"),
        ({"cdp_url": "http://127.0.0.1:9222", "browser": "chrome"}, "leave browser= out"),
        ({"storage_state": state, "profile": tmp_path}, "storage_state="),
        ({"storage_state": state, "page": page}, "storage_state="),
        ({"extension_page": "x.html"}, "extension_page="),
        ({"browser": browser, "transport": PlaywrightTransport(url)}, "a transport instance"),
        ({"page": page, "transport": "postmessage"}, "page= cannot be combined with"),
    ]
    for options, words in contradictions:
        with pytest.raises(UsageError, match=words):
            connect(url, **options)
    with pytest.raises(UsageError, match="profile= cannot be combined with an app behind a WebSocket"):
        connect("ws://127.0.0.1:1/", profile=tmp_path)


# --- a browser that runs already --------------------------------------------------------------------------------------


@asynccontextmanager
async def started_by_hand(folder: Path) -> AsyncIterator[tuple[str, psutil.Process]]:
    """A Chromium as a user starts it, with one tab of theirs: the address to attach to, and its process."""
    choice = find_browser()
    assert choice is not None
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    scratch = tempfile.mkdtemp(prefix="t", dir="/tmp")  # short, for its sockets; killed, it would leave them behind
    started = await asyncio.create_subprocess_exec(
        choice.path,
        *options,
        "--headless",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        "data:text/html,<title>mine</title>",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "TMPDIR": scratch, "HOME": scratch},
    )
    try:
        port = folder / "DevToolsActivePort"
        await eventually(lambda: port.is_file() and port.read_text().strip())
        cdp_url = f"http://127.0.0.1:{port.read_text().splitlines()[0]}"
        async with asyncio.timeout(20):
            while await tabs_of(cdp_url) != ["mine"]:
                await asyncio.sleep(0.05)
        yield cdp_url, psutil.Process(started.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        await started.wait()
        for left in (folder, scratch):
            await asyncio.to_thread(shutil.rmtree, left, True)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[str, psutil.Process]]:
    """One browser as a user starts it, for the tests that leave it as it was."""
    async with started_by_hand(tmp_path_factory.mktemp("running") / "profile") as started:
        yield started


def tabs(cdp_url: str) -> list[str]:
    with urllib.request.urlopen(f"{cdp_url}/json/list", timeout=5) as answer:
        return sorted(tab["title"] for tab in json.load(answer) if tab["type"] == "page")


def tab_in_front(cdp_url: str) -> str:
    """The id of the tab that was shown last."""
    with urllib.request.urlopen(f"{cdp_url}/json/list", timeout=5) as answer:
        tabs = [tab for tab in json.load(answer) if tab["type"] == "page"]
    return str(tabs[0]["id"])


async def tabs_of(cdp_url: str) -> list[str]:
    return await asyncio.to_thread(tabs, cdp_url)


@pytest.mark.slow
async def test_detaching_from_cdp_leaves_browser_and_tabs_open(tmp_path: Path) -> None:
    async with started_by_hand(tmp_path / "profile") as (cdp_url, process), notebook() as url:
        assert await tabs_of(cdp_url) == ["mine"]
        async with connect(url, cdp_url=cdp_url, store=tmp_path / "out") as app:
            assert await tabs_of(cdp_url) == ["Notebook", "mine"]
            await app.call("note.write", {"text": "kept"})
            for size in (1000, 20 * MB):
                ref = (await app.call("note.file", {"size": size, "seed": 3})).artifacts["file"]
                assert ref.size_bytes == size
            assert Path(str(ref.path)).read_bytes() == content(20 * MB, 3)
            assert ladder_of(app).used["stream"] == 1
            for size in (1000, 9 * MB):
                ref = (await app.call("note.link", {"size": size, "seed": 4})).artifacts["file"]
                assert Path(str(ref.path)).read_bytes() == content(size, 4)
            measured = (await app.call("note.measure", {"file": content(300_000, 9)})).data
            assert measured == {"size": 300_000, "last": content(300_000, 9)[-1]}
        assert await tabs_of(cdp_url) == ["mine"]
        assert process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        version = await asyncio.to_thread(urllib.request.urlopen, f"{cdp_url}/json/version")
        ws_url = json.load(version)["webSocketDebuggerUrl"]
        # What the app kept is in that browser's own profile: the next one that attaches sees it.
        with pytest.raises(ZeroDivisionError):
            async with connect(url, cdp_url=ws_url, store=tmp_path / "out") as app:
                assert value((await app.call("note.read")).data, "storage") == "kept"
                raise ZeroDivisionError
        with pytest.raises(ConnectFailed):
            await connect("http://127.0.0.1:9/", cdp_url=cdp_url, store=tmp_path / "out")
        assert await tabs_of(cdp_url) == ["mine"]
        assert process.is_running()


@pytest.mark.slow
async def test_frozen_attached_browser_is_released_in_time_and_left_running(tmp_path: Path) -> None:
    async with started_by_hand(tmp_path / "profile") as (cdp_url, process), notebook() as url:
        family = [process, *process.children(recursive=True)]
        async with asyncio.timeout(30):
            with pytest.raises(ABPError):
                async with connect(url, cdp_url=cdp_url, store=tmp_path / "out", timeout=10) as app:
                    for member in family:
                        member.suspend()
                    await app.call("note.read", timeout=1)
        for member in family:
            member.resume()
        assert process.is_running()
        assert "mine" in await tabs_of(cdp_url)


@pytest.mark.slow
async def test_connection_to_attached_browser_is_opened_again(
    running: tuple[str, psutil.Process], tmp_path: Path
) -> None:
    port = urlsplit(running[0]).port
    assert port is not None
    async with (
        Proxy(port) as proxy,
        notebook() as url,
        connect(url, cdp_url=proxy.endpoint, store=tmp_path, timeout=30) as app,
    ):
        proxy.cut_down = 0
        with pytest.raises(BrowserCrashed, match=r"the browser is gone; .* as soon as it can be reached"):
            await app.call("note.read")
        proxy.cut_down = None
        assert value((await app.call("note.read")).data, "storage") is None


@pytest.mark.slow
async def test_hanging_tab_is_named_as_reason_not_to_attach(tmp_path: Path) -> None:
    async with started_by_hand(tmp_path / "profile") as (cdp_url, process), notebook() as url:
        for member in process.children(recursive=True):
            if "--type=renderer" in member.cmdline():
                member.suspend()
        with pytest.raises(
            ConnectFailed,
            match=r"within 2 s; if one runs there, allow .*, and wake or close its tabs that sleep or hang",
        ):
            async with connect(url, cdp_url=cdp_url, store=tmp_path / "out", timeout=2):
                pass
        assert process.is_running()


@pytest.mark.slow
async def test_app_in_attached_browser_works_behind_another_tab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole Chromium draws no frame of a hidden tab, and slows its timers down. It may never draw one for a picture,
    so the tab comes to the front."""
    monkeypatch.delenv("ABP_BROWSER", raising=False)
    async with (
        started_by_hand(tmp_path / "profile") as (cdp_url, _),
        notebook() as url,
        Browser(cdp_url=cdp_url) as attached,
        connect(url, browser=attached, store="memory:") as first,
        connect(url, browser=attached, store="memory:") as second,
        asyncio.timeout(20),
    ):
        assert isinstance(first.transport, PlaywrightTransport) and first.transport.page is not None
        await first.transport.page.evaluate("() => new Promise(requestAnimationFrame)")

        made = await asyncio.gather(*(app.call("note.file", {"size": 2 * MB, "seed": 1}) for app in (first, second)))
        assert [await first.store.get(result.artifacts["file"]) for result in made] == [content(2 * MB, 1)] * 2

        behind = await asyncio.to_thread(tab_in_front, cdp_url)
        await asyncio.gather(first.screenshot(), second.screenshot())
        await first.screenshot()
        assert await asyncio.to_thread(tab_in_front, cdp_url) != behind


async def test_attaching_to_closed_port_says_how_to_start_browser(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed, match=r"--remote-debugging-port=9222") as caught:
        await connect("http://127.0.0.1:1/", cdp_url="http://me:secret@127.0.0.1:9/?token=x", store=tmp_path)
    assert "secret" not in caught.value.message and "token" not in caught.value.message
    with pytest.raises(UsageError, match="cdp_url="):
        Browser(cdp_url="http://127.0.0.1:9222", name="chrome")


#: The answer of a browser that allows debugging without HTTP, and that of Chromium to another name.
_REFUSALS = {
    404: r"chrome://inspect, give ws://.* DevToolsActivePort",
    500: r"another name than localhost, give its IP address",
}


@pytest.mark.parametrize(("status", "team"), [(404, ""), (500, "blue")])
async def test_attaching_where_browser_refuses_gives_the_address_to_take(status: int, team: str) -> None:
    headers = {"X-Team": team} if team else None

    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status)

    async with serve_answers(answer) as url:
        with pytest.raises(ConnectFailed, match=_REFUSALS[status]):
            await connect("http://127.0.0.1:1/", cdp_url=url, headers=headers, store="none:")


async def test_files_reach_remote_browser_without_shared_paths(
    context: BrowserContext, fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser on another machine opens a path of ours and finds nothing, or something else."""
    original = CdpChannel.set_file

    async def elsewhere(self: CdpChannel, element: Any, path: Path) -> None:
        other = tmp_path / "elsewhere.bin"
        other.write_bytes(b"not what was meant")
        await original(self, element, other)

    monkeypatch.setattr(CdpChannel, "set_file", elsewhere)
    data = os.urandom(MB)
    async with connect(fixture.url, context=context, store=tmp_path / "out") as app:
        received = (await app.call("file.digest", {"file": data})).data
        assert value(received, "sha256") == hashlib.sha256(data).hexdigest()
        assert value(received, "received") == "ArrayBuffer"


@pytest.mark.parametrize("leads", ["redirect", "other address"])
async def test_remote_browser_headers_are_not_sent_to_other_origin(leads: str) -> None:
    """A secret in them is bound to that origin; Playwright would send it wherever it is led."""
    seen: list[tuple[str, str | None]] = []

    async def asked(request: web.Request) -> web.Response:
        seen.append((f"{request.path} {request.host}", request.headers.get("X-Key")))
        there = f"localhost:{request.url.port}"
        if request.path != "/json/version/" or "localhost" in request.host:
            return web.Response(status=400)
        if leads == "redirect":
            return web.Response(status=302, headers={"Location": f"http://{there}/json/version/"})
        return web.json_response({"webSocketDebuggerUrl": f"ws://{there}/devtools"})

    async with serve_answers(asked) as url:
        with pytest.raises(ConnectFailed):
            async with Browser(cdp_url=url.rstrip("/"), headers={"X-Key": "k3y-value"}, timeout=10):
                pass
    assert seen[0][0].startswith("/json/version/ 127.0.0.1") and seen[0][1] == "k3y-value"
    assert [key for place, key in seen if "localhost" in place] == ([None] if leads == "other address" else [])
