"""The blocking API over real transports."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from playwright import sync_api

from tests.e2e.test_cli_browser import workbench as workbench
from tests.support.command_line import in_thread
from tests.support.mcp_over_http import views_server
from tests.support.processes import still_running
from transports import Disconnected
from transports.playwright._process import is_running
from transports.playwright._sync_page import PageRunner
from transports.sync import Browser, Session, connect, discover, expect

pytestmark = pytest.mark.browser


def test_sync_sessions_of_each_transport_and_a_view_share_a_browser(workbench: str, tmp_path: Path) -> None:
    assert (found := discover(workbench).manifest) and found.capabilities
    with Browser() as browser:
        assert browser.responds() and browser.version and browser.folder.is_dir()
        for transport, target in (
            ("playwright", workbench),
            ("postmessage", f"{workbench}embed"),
            ("websocket", workbench.replace("http", "ws") + "abp"),
        ):
            options: dict[str, Any] = {} if transport == "websocket" else {"transport": transport, "browser": browser}
            with connect(target, store=tmp_path, **options) as app:
                result = app.call("data.csv", {"rows": [{"product": "tea", "sold": 12}]}, timeout=30)
                assert app.call("file.generate", {"megabytes": 2}).artifacts
                if transport == "playwright":
                    assert app.screenshot(timeout=math.inf).artifacts["image"].size_bytes
                    assert app.render_to_pdf("<h1>Hi</h1>", timeout=math.inf).artifacts["document"].size_bytes
            assert result.transport == transport
            assert b"tea,12" in Path(result.artifact().path or "").read_bytes()
        with in_thread(views_server()) as target, connect(target, store=tmp_path, browser=browser) as app:
            use_view(app)
        processes = [psutil.Process(pid) for pid in browser.wrapped._process.pids]
        assert all(process.is_running() for process in processes)
    assert not any(map(is_running, processes))
    assert not [thread.name for thread in threading.enumerate() if thread.name == "abp-sync"]


def use_view(app: Session) -> None:
    """Use the attributes that the asynchronous view has, a handler that calls the app, and ``expect``."""
    asked: list[object] = []

    def decide(url: str) -> bool:
        asked.append((url, app.call("links").data))  # in a thread of its own
        return False

    with app.open_view("board", {"n": 2}, on_open_link=decide, theme="dark") as view:
        assert view.info.name == "Board" and isinstance(view.result.data, dict) and view.result.data["n"] == 2
        assert view.call("echo", {"text": "a"}).data == {"text": "a"}
        assert view.call("hands").artifact().filename == "three.bin"
        view.update(theme="light")
        view.send_input({"n": 3})
        ask = ["ui/open-link", {"url": "https://a.example/"}]
        link = view.frame.evaluate("([method, params]) => rpc(method, params)", ask)
        assert link["result"] == {"isError": True} and len(asked) == 1
        assert [one.kind for one in view.requests] == ["download-file", "open-link"]
        assert view.model_context is None and view.files == () and view.violations == () and len(view.warnings) == 1
        assert view.screenshot().artifact().mime_type == "image/png"
        assert view.render_to_pdf("<p>Hi").artifact().mime_type == "application/pdf"

        heading = view.frame.get_by_role("heading")
        expect(heading).to_have_text("A view")
        expect(heading).not_to_have_text("Another view")
        expect(view.frame.locator("h1").filter(has_text="view").first).to_be_visible()
        expect(view.frame.page).not_to_have_title("A title")
        titles = view.frame.locator("h1")
        assert titles.all_inner_texts() == [title.inner_text() for title in titles.all()] == [heading.inner_text()]
        view.frame.evaluate("setTimeout(() => { document.querySelector('h1').textContent = 'Later' }, 300)")
        expect(heading).to_have_text("Later")
        with pytest.raises(AssertionError, match=r"the heading\n(.|\n)*Sooner(.|\n)*Later"):
            expect(heading, "the heading").to_have_text("Sooner", timeout=100)
        with pytest.raises(ValueError, match=r"Unsupported type: .*; use the expect of transports\.sync"):
            sync_api.expect(heading)


#: Programs that end without closing their session: as a script does, as `asyncio.run` does, and as a notebook's kernel.
_OPEN = {
    "blocking": "from transports.sync import connect\napp = connect({!r}, store={!r}).open()\n",
    "asynchronous": "import asyncio\nfrom transports import connect\n"
    "async def main():\n    global app\n    app = await connect({!r}, store={!r})\nasyncio.run(main())\n",
    "kernel": "import asyncio\nfrom transports import connect\nloop = asyncio.new_event_loop()\n"
    "app = loop.run_until_complete(connect({!r}, store={!r}).__aenter__())\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("way", _OPEN)
def test_program_without_close_exits_quietly_and_cleans_up(workbench: str, way: str, tmp_path: Path) -> None:
    code = _OPEN[way].format(workbench, str(tmp_path)) + "print(app, flush=True)\ninput()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout and "open Session" in run.stdout.readline()
        family = psutil.Process(run.pid).children(recursive=True)
        _, err = run.communicate("\n", timeout=60)
    assert (run.returncode, err) == (0, "") and still_running(family, 5) == []
    bases = {Path(tempfile.gettempdir()), Path("/tmp")}
    assert not [folder for base in bases for folder in base.glob(f"abp-run-{run.pid}-*")]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: this system has none")
def test_forked_process_does_not_disturb_parents_browser(workbench: str, tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_no_browser_survives_ctrl_c(workbench: str) -> None:
    code = f"""
from transports.sync import connect
app = connect({workbench!r}, store="none:").open()
print("open", flush=True)
app.call("fault.slow", {{"ms": 60_000}})
"""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as run:
        assert run.stdout and run.stdout.readline() == "open\n"
        family = psutil.Process(run.pid).children(recursive=True)
        assert len(family) > 2
        time.sleep(0.5)
        run.send_signal(signal.SIGINT)
        started = time.monotonic()
        err = run.communicate(timeout=30)[1]
    assert time.monotonic() - started < 10, err
    assert "KeyboardInterrupt" in err and "in call" in err
    assert still_running(family, 5) == []


def test_runner_raises_disconnected_after_playwright_stopped() -> None:
    playwright = sync_api.sync_playwright().start()
    owner: Any = playwright.chromium  # in place of a page, which needs a browser
    runner = PageRunner(owner)
    playwright.stop()
    with pytest.raises(Disconnected, match="stopped"):
        runner.run(asyncio.sleep(0))
