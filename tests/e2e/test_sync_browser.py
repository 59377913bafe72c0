"""The blocking API over real transports, and on a page of Playwright's blocking API."""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright import sync_api

from tests.e2e.test_cli_browser import workbench as workbench
from tests.support.slow import slow_but
from transports import ABPError, CallTimeout, Disconnected, PlaywrightTransport, UsageError
from transports.browser import PageAgent, PageRunner, find_browser, to_async
from transports.browser.page import _syncpage as syncpage
from transports.browser.page._channels import open_channel
from transports.browser.process._processes import is_running
from transports.sync import Browser, connect, discover

pytestmark = pytest.mark.browser

#: A session on a page of the caller's needs the option ``page`` of the asynchronous connect.


@pytest.mark.parametrize("transport", ["playwright", "websocket", "postmessage"])
def test_one_call_over_each_transport(workbench: str, tmp_path: Path, transport: str) -> None:
    target = {"websocket": workbench.replace("http", "ws") + "abp", "postmessage": f"{workbench}embed"}
    name = "auto" if transport == "websocket" else transport
    with connect(target.get(transport, workbench), transport=name, store=tmp_path) as app:
        result = app.call("data.csv", {"rows": [{"product": "tea", "sold": 12}]}, timeout=30)
    assert result.transport == transport
    (ref,) = result.artifacts.values()
    assert b"tea,12" in Path(ref.path or "").read_bytes()
    assert not [thread.name for thread in threading.enumerate() if thread.name == "abp-sync"]


@pytest.mark.slow
def test_an_infinite_timeout_is_no_limit_for_a_page_and_its_tools(workbench: str, tmp_path: Path) -> None:
    with connect(workbench, timeout=math.inf, store=tmp_path) as app:
        assert app.call("fault.slow", {"ms": 100}, timeout=math.inf).artifacts
        assert app.screenshot(timeout=math.inf).artifacts["image"].size_bytes
        assert app.render_to_pdf("<h1>Hi</h1>", timeout=math.inf).artifacts["document"].size_bytes
    app = connect(workbench, store=tmp_path).open()
    try:
        assert app.call("file.list").artifacts
    finally:
        app.close()


def test_sessions_share_a_browser(workbench: str, tmp_path: Path) -> None:
    assert (found := discover(workbench).manifest) and found.capabilities
    with Browser() as browser:
        assert browser.responds() and browser.version and browser.folder.is_dir()
        for _ in range(2):
            transport = PlaywrightTransport(workbench, browser=browser.wrapped)
            with connect(workbench, transport=transport, store=tmp_path) as app:
                assert app.call("file.generate", {"megabytes": 2}).artifacts
        processes = [psutil.Process(pid) for pid in browser.wrapped._process.pids]
        assert all(process.is_running() for process in processes)
    assert not any(map(is_running, processes))


#: Programs that end without closing their session: as a script does, as `asyncio.run` does, and as a notebook's kernel.
_OPEN = {
    "blocking": "from transports.sync import connect\napp = connect({!r}, store={!r}).open()\n",
    "asynchronous": "import asyncio\nfrom transports import connect\n"
    "async def main():\n    global app\n    app = await connect({!r}, store={!r})\nasyncio.run(main())\n",
    "kernel": "import asyncio\nfrom transports import connect\nloop = asyncio.new_event_loop()\n"
    "app = loop.run_until_complete(connect({!r}, store={!r}).__aenter__())\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", slow_but(_OPEN, "blocking"))
def test_a_program_that_does_not_close_ends_quietly_and_leaves_nothing(
    workbench: str, way: str, tmp_path: Path
) -> None:
    code = _OPEN[way].format(workbench, str(tmp_path)) + "print(app, flush=True)"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as run:
        out, err = run.communicate(timeout=60)
    assert (run.returncode, err) == (0, "") and "open Session" in out
    bases = {Path(tempfile.gettempdir()), Path("/tmp")}
    assert not [folder for base in bases for folder in base.glob(f"abp-run-{run.pid}-*")]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: this system has none")
def test_a_forked_process_does_not_disturb_the_browser_of_its_parent(workbench: str, tmp_path: Path) -> None:
    code = f"""
import os, sys
from transports import UsageError
from transports.sync import Browser, connect
with Browser() as browser, connect({workbench!r}, browser=browser, store={str(tmp_path)!r}) as app:
    def refused(work):
        try:
            work()
        except UsageError as error:
            print(error.message.partition(";")[0], flush=True)
    if not (pid := os.fork()):
        refused(lambda: app.call("file.list"))
        refused(lambda: connect({workbench!r}, browser=browser, store="none:").open())
        refused(browser.restart)
        browser.close()
        sys.exit()
    print(os.waitpid(pid, 0)[1], flush=True)
    for _ in range(3):
        print(len(app.call("file.generate", {{"megabytes": 2}}).artifacts), flush=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    owned = "belongs to the process that opened it\n"
    assert done.stdout == f"this session {owned}this browser {owned}this browser {owned}0\n1\n1\n1\n", done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("end", slow_but(["interrupted", "forgotten"], "interrupted"))
def test_no_browser_survives_the_program(workbench: str, end: str) -> None:
    code = f"""
from transports.sync import connect
app = connect({workbench!r}, store="none:").open()
print("open", flush=True)
{"app.call('fault.slow', {'ms': 60_000})" if end == "interrupted" else ""}
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout and run.stdout.readline() == "open\n"
        family = psutil.Process(run.pid).children(recursive=True)
        if end == "interrupted":
            assert len(family) > 2
            time.sleep(0.5)
            run.send_signal(signal.SIGINT)
        started = time.monotonic()
        err = run.communicate(timeout=30)[1]
    assert time.monotonic() - started < 10, err
    assert ("KeyboardInterrupt" in err and "in call" in err) is (end == "interrupted"), err
    assert not [process for process in psutil.wait_procs(family, timeout=5)[1] if process.status() != "zombie"]


# --- a page of Playwright's blocking API ------------------------------------------------------------------------------


@pytest.fixture
def page() -> Iterator[sync_api.Page]:
    choice = find_browser()
    assert choice
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=choice.path, args=["--no-sandbox"])
        yield browser.new_context().new_page()
        browser.close()


def test_our_agent_works_in_a_blocking_page(workbench: str, page: sync_api.Page) -> None:
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status))
    asynchronous, runner = to_async(page), PageRunner(page)

    async def install() -> PageAgent:
        agent = PageAgent(asynchronous, await open_channel(asynchronous), lambda *_: None, lambda lost: lost)
        await agent.install("codec.js", "effects.js")
        await asynchronous.goto(workbench)
        return agent

    agent = runner.run(install())
    seen = json.loads(runner.run(agent.invoke("ready", 5000, timeout=10)))
    assert seen["present"] and seen["title"] == page.title() == "Workbench"
    # nothing of the caller's has become asynchronous
    assert statuses and isinstance(page.context, sync_api.BrowserContext)
    assert isinstance(page.context.browser, sync_api.Browser) and isinstance(page.context.pages[0], sync_api.Page)
    page.close()
    assert isinstance(runner.run(asyncio.wait_for(agent.lost, 5)), Disconnected)


def test_who_may_run_where(page: sync_api.Page) -> None:
    runner = PageRunner(page)
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            runner.run(asyncio.sleep(0))
        except UsageError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert "its own thread" in str(refused[0])
    with pytest.raises(ZeroDivisionError):
        runner.run(_failing())
    assert page.evaluate("1 + 1") == 2


async def _failing() -> None:
    raise ZeroDivisionError


def test_ctrl_c_in_a_blocking_page_cancels(page: sync_api.Page) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            threading.Timer(0.2, signal.raise_signal, [signal.SIGINT]).start()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            ended.append("told the app")
            raise

    with pytest.raises(KeyboardInterrupt):
        PageRunner(page).run(work())
    assert ended == ["told the app"] and page.evaluate("1 + 1") == 2


def test_after_playwright_has_stopped() -> None:
    playwright = sync_api.sync_playwright().start()
    choice = find_browser()
    assert choice
    page = playwright.chromium.launch(executable_path=choice.path, args=["--no-sandbox"]).new_page()
    runner = PageRunner(page)
    playwright.stop()
    with pytest.raises(Disconnected, match="stopped"):
        runner.run(asyncio.sleep(0))


def test_another_playwright_is_told_clearly(page: sync_api.Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("playwright._impl._sync_base.SyncBase._sync")
    with pytest.raises(UsageError, match=r"transports\.connect"):
        to_async(page)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=r"playwright\.sync_api"):
        anything: Any = "a page"
        syncpage.to_async(anything)


def test_a_session_on_a_blocking_page(workbench: str, page: sync_api.Page, tmp_path: Path) -> None:
    page.goto(workbench)
    stages: list[str] = []
    session = connect(page.url, page=page, store=tmp_path, on_progress=lambda event: stages.append(str(event.stage)))
    with session as app, app.events() as events:
        result = app.call("export.pages", {"count": 2}, timeout=30)
        assert len(result.artifacts) == 2 and stages and next(events)
        large = app.call("file.generate", {"megabytes": 4}, timeout=30)
        (ref,) = large.artifacts.values()
        assert ref.size_bytes == 4 << 20 == len(app.store.get(ref))
        with pytest.raises(CallTimeout):
            app.call("fault.slow", {"ms": 30_000}, timeout=0.5)
        assert page.title() == "Workbench"  # which is the caller's, and works meanwhile
    with pytest.raises(ABPError):
        app.call("export.pages", {"count": 1})
    assert page.title() == "Workbench" and isinstance(page.context, sync_api.BrowserContext)
    with connect(page.url, context=page.context, store=tmp_path) as app:
        assert app.call("file.list").data is not None
        assert len(page.context.pages) == 2
    assert len(page.context.pages) == 1
