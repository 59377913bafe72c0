"""The driver of the browsers: its start, also ahead of its browser, its environment, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from playwright.async_api import Error

from tests.support.eventually import eventually_blocking
from tests.support.local_store import REPOSITORY
from transports import Browser, connect
from transports.errors import BrowserNotFound, UsageError
from transports.playwright import _process as browser_process
from transports.playwright._agent import AgentScript
from transports.playwright._channels import CdpChannel
from transports.playwright._diagnosis import explain_load_failure, location_note
from transports.playwright._find import BrowserChoice
from transports.playwright._process import (
    BrowserProcess,
    child_environment,
    driver_ahead,
    next_process,
    start_driver,
)
from transports.playwright._source import PageSource


@pytest.mark.slow
async def test_driver_exit_leaves_no_unretrieved_error() -> None:
    """Its calls fail, and that is all: Playwright has a future of its own for the end, which nobody awaits."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    playwright, pids = await start_driver()
    psutil.Process(pids[0]).kill()
    with pytest.raises(Error):
        await asyncio.wait_for(playwright.request.new_context(), 15)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(playwright.stop(), 15)
    del playwright
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert logged == []


class _WithoutProcesses(asyncio.SelectorEventLoop):
    """As on Windows."""

    async def subprocess_exec(self, *_: object, **__: object) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("target", [None, "mcp+stdio:server"])
async def test_event_loop_that_starts_no_processes_is_reported(target: str | None) -> None:
    async def start() -> None:
        with pytest.raises(UsageError, match=r"event loop of this program starts no processes.*use transports\.sync"):
            async with Browser() if target is None else connect(target, store="none:"):
                pass

    def run() -> None:
        with asyncio.Runner(loop_factory=_WithoutProcesses) as runner:
            # Playwright leaves a future with the error. It must not be logged later, in the middle of another test.
            runner.get_loop().set_exception_handler(lambda *_: None)
            runner.run(start())
        gc.collect()

    await asyncio.to_thread(run)


@pytest.mark.requirement("R6-3l")
@pytest.mark.parametrize(("user", "on"), [(0, False), (1000, True)])
async def test_chromium_sandbox_is_off_only_for_root(monkeypatch: pytest.MonkeyPatch, user: int, on: bool) -> None:
    """Playwright switches it off unless it is asked for."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sys, "platform", "linux")
    launched: dict[str, Any] = {}

    async def launch(**options: Any) -> None:
        launched.update(options)
        raise Error("that is enough")

    process = BrowserProcess()
    process._playwright = SimpleNamespace(chromium=SimpleNamespace(launch=launch))  # type: ignore[assignment]
    with pytest.raises(Error):
        await process.launch(
            BrowserChoice("chromium", "a test"), "chromium", headless=True, slow_mo=0, profile=None, extensions=False
        )
    assert launched["chromium_sandbox"] is on and "--no-sandbox" not in launched["args"]


_NO_SANDBOX = "has no sandbox here; allow user namespaces"


#: What a browser does that ends at once, and what is said of it.
_EXITS = {
    "echo 'No usable sandbox! Update your kernel' >&2; exit 1": _NO_SANDBOX,
    "echo 'Failed to move to new namespace: PID namespaces supported' >&2; exit 1": _NO_SANDBOX,
    "kill -SEGV $$": r"chrome did not start \(it was ended by SIGSEGV\); run",
    "echo 'chrome_crashpad_handler: --database is required' >&2; kill -TRAP $$": (
        r"ended by SIGTRAP and printed: chrome_crashpad_handler: --database is required\)"
    ),
    "echo 'Failed to create a ProcessSingleton: No space left on device' >&2; exit 21": (
        r"status 21 and printed: Failed to create a ProcessSingleton: No space left on device\)"
    ),
    "exit 0": r"chrome did not start \(it ended with status 0\); run",
    "echo '3: [: unexpected operator' >&2; echo 'libnss3.so: no such file' >&2; exit 127": (
        r"127 and printed: 3: \[: unexpected operator / libnss3.so: no such file\)"
    ),
    "head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1": r"status 1 and printed: x{400}\)",
}


@pytest.mark.load
async def test_browser_exiting_at_once_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = await start_driver()

    async def start_none() -> tuple[Any, list[int]]:
        """One driver is enough for all."""
        return SimpleNamespace(chromium=driver.chromium, stop=Recorded().stop), []

    monkeypatch.setattr(browser_process, "start_driver", start_none)
    fake = tmp_path / "chrome"
    try:
        for script, words in _EXITS.items():
            fake.write_text(f"#!/bin/sh\n{script}\n")
            fake.chmod(0o755)
            with pytest.raises(BrowserNotFound, match=words) as failed:
                async with Browser(executable=str(fake)):
                    pass
            assert "Target page" not in failed.value.message
    finally:
        await driver.stop()


def test_driver_failure_names_driver_and_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its Node.js lacks a library on a slim system, and ends before it says a word to us."""

    async def start() -> None:
        with pytest.raises(BrowserNotFound, match=r"driver did not start .*playwright --version"):
            async with Browser():
                pass

    node = tmp_path / "node"
    node.write_text("#!/bin/sh\nexec >&- <&-\nsleep 0.2\n")
    node.chmod(0o755)
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", str(node))
    asyncio.run(start())

    def has_ended() -> bool:
        return all(child.name() != "node" for child in psutil.Process().children())

    eventually_blocking(has_ended, within=10, what="the end of the driver")
    assert caplog.messages == []  # asyncio warns of a process that outlives its loop


#: Starts as root, since the interpreter may lie where only root can read.
_AS_NOBODY = """
import asyncio, os, sys, tempfile
import playwright.async_api, psutil
from tests.support.eventually import eventually_blocking
from tests.support.processes import processes
from transports import Browser

async def main():
    async with Browser() as browser:
        page = await browser.playwright.new_page()
        for process in processes("renderer"):
            print([line for line in open(f"/proc/{process.pid}/status") if line.startswith("Seccomp:")][0].split()[1])

async def nothing():
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    await asyncio.to_thread(int)

asyncio.run(nothing())
os.setgroups([]); os.setgid(65534); os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="starts as root to become somebody else")
def test_renderer_of_ordinary_user_is_sandboxed() -> None:
    with tempfile.TemporaryDirectory(prefix="sb", dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        env = {**os.environ, "HOME": folder, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"2"}, done.stdout  # filtered by seccomp


class Playwright:
    """A driver that starts when it may, and knows that it was stopped."""

    def __init__(self) -> None:
        self.may_start = asyncio.Event()
        self.started = self.stopped = 0

    async def start(self) -> tuple[Any, list[int]]:
        self.started += 1
        await self.may_start.wait()
        return self, []

    async def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
async def playwright(monkeypatch: pytest.MonkeyPatch) -> Playwright:
    made = Playwright()
    monkeypatch.setattr(browser_process, "start_driver", made.start)
    return made


async def test_first_browser_uses_driver_started_ahead(playwright: Playwright, tmp_path: Path) -> None:
    async with driver_ahead():
        first, second = next_process(), next_process()
        waiting = asyncio.ensure_future(first.start_driver(tmp_path))
        playwright.may_start.set()
        await asyncio.wait_for(waiting, 15)
        assert playwright.started == 1
        await second.start_driver(tmp_path)
        assert playwright.started == 2
    assert playwright.stopped == 0, "each ends with its browser"
    await first.end()
    await second.end()
    assert playwright.stopped == 2
    await next_process().start_driver(tmp_path)
    assert playwright.started == 3


@pytest.mark.parametrize("running", [True, False], ids=["running", "starting"])
async def test_unused_driver_stops_with_its_block(playwright: Playwright, running: bool) -> None:
    with pytest.raises(RuntimeError, match="no browser"):
        async with driver_ahead():
            asyncio.get_running_loop().call_later(0 if running else 0.1, playwright.may_start.set)
            raise RuntimeError("no browser")
    assert (playwright.started, playwright.stopped) == (1, 1)


async def test_driver_failure_is_raised_by_its_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def fail() -> None:
        raise BrowserNotFound("no library")

    monkeypatch.setattr(browser_process, "start_driver", fail)
    async with driver_ahead():
        pass
    async with driver_ahead():
        process = next_process()
        with pytest.raises(BrowserNotFound, match="no library"):
            await process.start_driver(tmp_path)
        await process.end()


@pytest.mark.parametrize(("value", "seen"), [("1", ""), ("console", "console")])
def test_inspector_of_playwright_does_not_pause_sessions(
    value: str, seen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWDEBUG", value)
    with child_environment(tmp_path):
        assert os.environ["PWDEBUG"] == seen
    assert os.environ["PWDEBUG"] == value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork: this system has none")
def test_forked_process_has_variables_of_its_parent_while_a_browser_starts(tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from transports.playwright._process import child_environment

def has_started():
    return os.environ.get("TMPDIR") == sys.argv[1]

with child_environment(Path(sys.argv[1])):
    assert has_started()
    pid = os.fork()
    if not pid:
        was_started = has_started()
        with child_environment(Path(sys.argv[1])):
            os._exit(was_started or not has_started())
    _, status = os.waitpid(pid, 0)
assert not has_started()
sys.exit(status != 0)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=REPOSITORY, timeout=60)
    assert done.returncode == 0


class Recorded:
    """Stands for a CDP session or a browser of Playwright's: notes what is asked of it, and answers when told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.contexts: list[Recorded] = []
        self.answers = asyncio.Event()

    def on(self, event: str, handler: object) -> None:
        """Nothing ever happens."""

    async def send(self, method: str, params: object = None) -> dict[str, object]:
        self.asked.append(method)
        await self.answers.wait()
        return {"targetInfo": {}, "browserContextIds": []}

    async def new_context(self, **options: object) -> Recorded:
        self.contexts.append(Recorded())
        return self.contexts[-1]

    async def new_page(self) -> Recorded:
        return Recorded()

    async def close(self) -> None:
        self.asked.append("close")

    async def stop(self) -> None:
        self.asked.append("stop")


async def test_installation_steps_are_sent_at_once_in_order() -> None:
    cdp: Any = Recorded()
    agent_script = AgentScript("script", "late", "binding", on_emit=print, on_document=print)
    installing = asyncio.ensure_future(CdpChannel(cdp).install(agent_script))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    script = "Page.addScriptToEvaluateOnNewDocument"
    assert cdp.asked == ["Target.getTargetInfo", "Runtime.enable", "Runtime.addBinding", "Page.enable", script]
    cdp.answers.set()
    await installing


async def test_shared_browser_that_has_died_is_started_again_for_new_session() -> None:
    class Dead(Browser):
        is_restarted = False

        async def ensure_running(self, *, patience: float) -> None:
            self.is_restarted = True

    browser = Dead()
    async with AsyncExitStack() as stack:
        assert await PageSource(browser=browser).start(stack, "http://localhost/", timeout=1) is browser
    assert browser.is_restarted


@pytest.mark.parametrize(
    ("has", "steps"),
    [
        ("", ["stop"]),
        ("session", ["stop"]),
        *((has, ["close", "stop"]) for has in ("profile", "contexts", "downloads")),
    ],
)
async def test_only_chromium_with_data_to_save_gets_time_to_exit(has: str, steps: list[str], tmp_path: Path) -> None:
    process, playwright = BrowserProcess(), Recorded()
    recorded: Any = playwright
    cdp: Any = Recorded()
    cdp.answers.set()
    process.browser = process._playwright = recorded
    process.cdp = cdp
    process.context = recorded if has == "profile" else None
    recorded.contexts = [recorded] if has == "contexts" else []
    if has == "session":
        async with AsyncExitStack() as stack:
            browser: Any = SimpleNamespace(engine="", context=None, folder=Path(), playwright=recorded)
            await PageSource().open(stack, browser)
        assert recorded.contexts
    if has == "downloads":
        process.note_download(None)
        process.note_download(tmp_path / "download")
        (tmp_path / "download.crdownload").touch()
    sleeping = subprocess.Popen([sys.executable, "-S", "-I", "-c", "import time; time.sleep(60)"])
    process.pids = [0, sleeping.pid]
    try:
        await process.end()
        assert sleeping.wait(timeout=10) != 0, "it was killed"
    finally:
        sleeping.kill()
    assert playwright.asked == steps
    assert not any(tmp_path.iterdir())


async def test_driver_is_found_when_script_starts_browser() -> None:
    class Session:
        async def send(self, method: str, params: object = None) -> dict[str, object]:
            return {"processInfo": [{"type": "browser", "id": os.getpid()}]}

    class Playwright:
        chromium = property(lambda self: self)

        async def launch(self, **options: object) -> Playwright:
            return self

        async def new_browser_cdp_session(self) -> Session:
            return Session()

    playwright: Any = Playwright()
    process = BrowserProcess()
    process._playwright, process.pids = playwright, [4711]
    await process.launch(
        BrowserChoice("chromium", "a test"), "chromium", headless=True, slow_mo=0, profile=None, extensions=False
    )
    assert process.pids == [4711, os.getpid()]


def test_page_load_failure_explains_what_to_do() -> None:
    failed = "Page.goto: net::{} at https://127.0.0.1:8000/"
    for code, said in {
        "ERR_CONNECTION_REFUSED": "nothing listens there; start the app or correct the address",
        "ERR_CERT_AUTHORITY_INVALID": "its certificate is not trusted; have this system trust it",
        "ERR_SSL_PROTOCOL_ERROR": "the server does not speak TLS; try http://",
        "ERR_EMPTY_RESPONSE": "without an answer; is it an https:// address?",
        "ERR_SSL_VERSION_OR_CIPHER_MISMATCH": "net::ERR_SSL_VERSION_OR_CIPHER_MISMATCH",
        "ERR_OF_TOMORROW": "net::ERR_OF_TOMORROW",
    }.items():
        assert said in explain_load_failure(failed.format(code), "https://127.0.0.1:8000/")
    refused = explain_load_failure("Page.goto: net::ERR_INVALID_AUTH_CREDENTIALS at http://a/", "http://a/", 401)
    assert refused.startswith("the server answers 401 Unauthorized: it refuses the name and the password; give them")
    for status, said in {
        205: "205 Reset Content, so there is no page; correct the address",
        403: "403 Forbidden; sign in with profile= or storage_state=, or correct the address",
        503: "503 Service Unavailable; see the log of the server",
        599: "599; see the log of the server",
    }.items():
        refused = explain_load_failure("net::ERR_HTTP_RESPONSE_CODE_FAILURE", "http://a/", status)
        assert refused == f"the server answers {said}"
    assert len(location_note(f"http://127.0.0.1:8000/{'x' * 10_000}", "http://127.0.0.1:8000/")) < 220
