"""Browsers that die, freeze or spin; and that nothing of any browser is ever left."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest
import pytest_asyncio
from playwright.async_api import Error

from tests.support.cancelling import cancel_after_turns
from tests.support.eventually import eventually
from tests.support.measured import measuring
from tests.support.pages import reach_without_cdp
from tests.support.processes import processes
from tests.support.slow import slow_but
from transports import Browser, CallTimeout, Disconnected, PlaywrightTransport, Progress, Session, UsageError, connect
from transports._internal.telemetry import BROWSERS
from transports.errors import BrowserCrashed, BrowserNotFound
from transports.playwright import _process as browser_process
from transports.playwright._process import RunFolder, remove_abandoned_folders
from transports.playwright._source import opened
from webapp_fixture import Fixture, serve

Started: TypeAlias = Callable[[str], list[psutil.Process]]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def scratch(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Path]:
    """A temp folder of this test's own, to see what is left in it; and the processes, likewise."""
    folder = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))  # a short path: see RunFolder
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    before = {process.pid for process in processes()}
    yield folder
    assert list(folder.iterdir()) == []
    folder.rmdir()

    def left() -> list[psutil.Process]:
        return [process for process in processes() if not before & {process.pid, *ancestors(process)}]

    # A browser that was told to end does so a little later on a busy machine.
    with suppress(AssertionError):
        await eventually(lambda: not left(), within=60)
    assert [process.cmdline() for process in left()] == []


@pytest.fixture
def started() -> Started:
    """The processes of one kind, or all, that this test has started."""
    before = {process.pid for process in processes()}

    def started(kind: str) -> list[psutil.Process]:
        return [process for process in processes(kind) if process.pid not in before]

    return started


def ancestors(process: psutil.Process) -> set[int]:
    """A browser that other tests share starts and ends processes of its own meanwhile."""
    with suppress(psutil.Error):
        return {parent.pid for parent in process.parents()}
    return set()


@pytest.mark.requirement("R6-9i")
@pytest.mark.fault(1, 2, 3)
@pytest.mark.parametrize("victim", ["browser", pytest.param("driver", marks=pytest.mark.slow)])
async def test_browser_crash_during_call_is_reported_at_once_and_recovered(
    fixture: Fixture, scratch: Path, tmp_path: Path, started: Started, victim: str
) -> None:
    with pytest.raises(ZeroDivisionError):
        async with connect(fixture.url, store=tmp_path / "out", timeout=20) as app:
            call = asyncio.ensure_future(app.call("fault.never"))
            await asyncio.sleep(0.3)
            killed = time.monotonic()
            for process in started(victim):
                process.kill()
            with pytest.raises(BrowserCrashed) as caught:
                await call
            assert time.monotonic() - killed < 10  # of the 20 s that the call may take
            assert caught.value.code == "DISCONNECTED" and caught.value.retryable
            listed = await app.call("file.list", timeout=20)  # what was lost is opened again
            assert listed.artifacts
            raise ZeroDivisionError  # a block that fails leaves no more than another


@pytest.mark.fault(1, 3)
@pytest.mark.slow
async def test_dead_shared_browser_is_restarted_once_for_all_sessions(
    fixture: Fixture, scratch: Path, tmp_path: Path, started: Started
) -> None:
    open_before = BROWSERS.value()
    async with AsyncExitStack() as sessions, Browser() as browser:
        measured = sessions.enter_context(measuring())

        async def opened() -> Session:
            return await sessions.enter_async_context(
                connect(fixture.url, browser=browser, store=tmp_path / "out", timeout=60)
            )

        apps = [await opened() for _ in range(2)]
        for victim in ("browser", "driver"):
            async with apps[0].events() as events:
                call = asyncio.ensure_future(apps[0].call("job.run", {"steps": 10_000, "delay": 10}))
                async with asyncio.timeout(15):
                    async for event in events:
                        if isinstance(event, Progress):
                            break
            for process in started(victim):
                process.kill()
            with pytest.raises(BrowserCrashed, match="without the cookies and storage that it held; it may have run"):
                await call
            apps += [await opened()] if len(apps) == 2 else []  # as if nothing had happened
            for result in await asyncio.gather(*(app.call("file.list") for app in apps)):
                assert result.artifacts
            assert len(started("driver")) == 1  # a browser forks processes that look like itself for a moment
        assert measured.labels("abp.browser.restarts") == [{"reason": "restart"}] * 2
        assert BROWSERS.value() == open_before + 1
        await browser.aclose()
        assert BROWSERS.value() == open_before
        with pytest.raises(Disconnected, match="connect again") as caught:
            await apps[0].call("file.list")
        assert not caught.value.retryable
        with pytest.raises(UsageError, match="not open"):
            await opened()


@pytest.mark.fault(4, 5)
@pytest.mark.slow
@pytest.mark.parametrize("fault", ["spin", "spin without CDP", "freeze"])
async def test_spinning_page_and_frozen_browser_time_out_and_are_replaced(
    fixture: Fixture,
    scratch: Path,
    tmp_path: Path,
    started: Started,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
) -> None:
    if "without CDP" in fault:
        reach_without_cdp(monkeypatch)
    async with asyncio.timeout(60):
        async with connect(fixture.url, store=tmp_path / "out", timeout=20) as app:
            if fault == "freeze":
                for process in started("browser"):
                    process.suspend()
            with pytest.raises(CallTimeout):
                await app.call("fault.never" if fault == "freeze" else "fault.spin", timeout=1.0)
            assert (await app.call("file.list", timeout=20)).artifacts


@pytest.mark.parametrize("grace", [pytest.param(3.0, marks=pytest.mark.slow), 0.0])
async def test_cancelling_connect_closes_everything(
    fixture: Fixture, scratch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    """Without a grace, as on a very busy machine, the driver has not started when its end is waited for no longer."""
    monkeypatch.setattr(browser_process, "_GRACE", grace)
    for delay in (0.0, 0.1, 0.3, 0.6) if grace else (0.3,):

        async def opened() -> None:
            async with connect(fixture.url, store=tmp_path / "out"):
                await asyncio.sleep(10)

        task = asyncio.ensure_future(opened())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize("owner", slow_but(["browser", "context"], "browser"))
async def test_connect_cancelled_at_any_moment_leaves_no_page_or_context(
    fixture: Fixture, browser: Browser, owner: str
) -> None:
    before = set(browser.playwright.contexts)
    async with opened(browser.playwright.new_context()) as context:
        owners: dict[str, Any] = {"browser": browser, "context": context}

        async def open_session() -> None:
            async with connect(fixture.url, store="none:", **{owner: owners[owner]}):
                await asyncio.sleep(60)

        for milliseconds in range(0, 100, 5):
            opening = asyncio.ensure_future(open_session())
            await asyncio.sleep(milliseconds / 1000)
            opening.cancel()
            await asyncio.wait((opening,))
        await eventually(lambda: not set(browser.playwright.contexts) - before - {context} and context.pages == [])


async def test_transport_closing_that_is_cancelled_leaves_no_context(fixture: Fixture, browser: Browser) -> None:
    before = set(browser.playwright.contexts)
    for turns in (1, 4, 16):
        transport = await PlaywrightTransport(fixture.url, browser=browser).__aenter__()
        await cancel_after_turns(turns, transport.aclose())
    await eventually(lambda: not set(browser.playwright.contexts) - before)


async def test_browser_closing_that_is_cancelled_ends_its_processes(scratch: Path) -> None:
    browser = await Browser().__aenter__()
    assert (await cancel_after_turns(2, browser.aclose())).cancelled()


async def test_reloading_page_and_window_opened_between_calls_are_closed(fixture: Fixture, browser: Browser) -> None:
    """Chromium ignores most commands to close a page that is reloading, so two pages would rarely both be closed."""
    async with opened(browser.playwright.new_context()) as context:
        for _ in range(2):
            async with connect(fixture.url, store="none:", context=context):
                (page,) = context.pages
                with suppress(Error):
                    await page.evaluate("() => { location.reload(); return new Promise(() => {}) }")
            assert context.pages == []
        async with connect(fixture.url, store="none:", context=context):
            (page,) = context.pages
            async with context.expect_page():
                await page.evaluate("() => void window.open('/')")
        assert context.pages == []


async def test_reason_why_page_cannot_be_opened_again_is_said(browser: Browser) -> None:
    async with AsyncExitStack() as stack:
        async with serve() as fixture:
            app = await stack.enter_async_context(connect(fixture.url, browser=browser, store="none:"))
        await app.transport.page.goto("about:blank")  # type: ignore[attr-defined]
        with pytest.raises(Disconnected, match=r"not back within 3 s: .*nothing listens there"):
            await app.call("file.list", timeout=3)


async def test_file_not_taken_is_removed_when_its_page_is_opened_again(fixture: Fixture, browser: Browser) -> None:
    script = """() => {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob(["between two calls"]));
        link.download = "file.txt";
        link.click();
    }"""
    before = set(browser.folder.glob("downloads-*/*"))

    def downloads() -> set[Path]:
        return set(browser.folder.glob("downloads-*/*")) - before

    async with connect(fixture.url, browser=browser, store="none:") as app:
        page = app.transport.page  # type: ignore[attr-defined]
        await page.evaluate(script)
        await eventually(lambda: [path for path in downloads() if not path.suffix])
        with suppress(Error):
            await page.reload()
        listed = await app.call("file.list", timeout=20)  # in the new page
        assert listed.warnings == ("the app's download 'file.txt' is lost: its page was opened again",)
        assert downloads() == set()


async def test_browser_start_failure_raises_with_reason(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(BrowserNotFound, match="ABP_BROWSER"):
        async with Browser(executable="/nonexistent/chrome"):
            pass
    fake = tmp_path / "chrome"
    fake.write_text("#!/bin/sh\nsleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setenv("ABP_BROWSER", str(fake))
    with pytest.raises(BrowserNotFound, match="within"):
        async with Browser(timeout=0.5):
            pass


@pytest.mark.fault(3)
async def test_only_run_folders_of_dead_processes_are_removed(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = scratch / "abp-run-5-abc"

    def leave_folder() -> None:
        dead.mkdir()
        (dead / "in-use").touch()

    leave_folder()
    monkeypatch.setattr(browser_process, "_folder_path", None)  # the shared browser of these tests has one already
    monkeypatch.setattr(browser_process, "_folder_users", 0)
    with RunFolder() as ours:
        assert not dead.exists()
        remove_abandoned_folders()
        assert ours.is_dir()
        leave_folder()
        with RunFolder() as again:
            assert again == ours
        assert ours.is_dir()
        async with Browser():  # each start looks, also in a process that has a browser all the time
            assert not dead.exists()
    assert not ours.exists()


HOLDER = """
import sys
from transports.playwright._process import RunFolder
with RunFolder() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


async def test_run_folder_of_another_container_is_kept_until_its_process_ends(scratch: Path) -> None:
    # Containers that share a temp folder do not see each other's processes.
    contained = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*contained, "true"], capture_output=True).returncode:
        contained = []
    command = [*contained, sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().strip())
        remove_abandoned_folders()
        assert folder.is_dir()
        process.kill()
        process.wait()
        assert folder.is_dir()

        def is_swept() -> bool:
            remove_abandoned_folders()
            return not folder.exists()

        await eventually(is_swept)


async def test_closed_transport_of_a_call_does_not_end_shared_browser(fixture: Fixture) -> None:
    async with Browser() as browser, connect(fixture.url, browser=browser, store="memory:") as other:
        page = other.transport.page  # type: ignore[attr-defined]
        async with connect(fixture.url, browser=browser, store="none:") as app:
            call = asyncio.create_task(app.call("job.run", {"steps": 100, "delay": 100}))
            await asyncio.sleep(0.2)
            await app.transport.aclose()
            with pytest.raises(Disconnected, match="the page was left"):
                await call
        await other.call("file.list")
        assert other.transport.page is page  # type: ignore[attr-defined]
