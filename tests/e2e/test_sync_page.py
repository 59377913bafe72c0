"""The blocking API on a page of Playwright's blocking API."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright import sync_api

from tests.e2e.test_cli_browser import workbench as workbench
from transports import ABPError, CallTimeout, Disconnected, UsageError
from transports.playwright import _sync_page as syncpage
from transports.playwright._find import find_browser
from transports.playwright._sync_page import PageRunner, to_async
from transports.sync import connect, expect

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def blocking_browser() -> Iterator[sync_api.Browser]:
    """While it is open, this thread has an event loop that looks as if it ran, which tests of other modules must not
    meet."""
    choice = find_browser()
    assert choice
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=choice.path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(blocking_browser: sync_api.Browser) -> Iterator[sync_api.Page]:
    """A page as a caller has it."""
    context = blocking_browser.new_context()
    yield context.new_page()
    context.close()


def test_playwright_expect_works_on_sync_page(page: sync_api.Page) -> None:
    page.set_content("<title>Note</title><h1>Hello</h1>")
    expect(page).to_have_title("Note")
    expect(page.get_by_role("heading")).to_have_text("Hello")
    with pytest.raises(AssertionError, match="Hello"):
        expect(page.get_by_role("heading")).not_to_have_text("Hello", timeout=100)


def test_page_runner_rejects_other_threads(page: sync_api.Page) -> None:
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


def test_ctrl_c_cancels_work_in_blocking_page(page: sync_api.Page) -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            main = threading.main_thread().ident  # as a terminal does: a signal of another thread would wake no loop
            threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT]).start()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
            ended.append("told the app")
            raise

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a runner of other tests may have its own
    try:
        with pytest.raises(KeyboardInterrupt):
            PageRunner(page).run(work())
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == ["told the app"] and page.evaluate("1 + 1") == 2


def test_unsupported_playwright_page_is_rejected_clearly(page: sync_api.Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("playwright._impl._sync_base.SyncBase._sync")
    with pytest.raises(UsageError, match=r"transports\.connect"):
        to_async(page)
    monkeypatch.undo()
    with pytest.raises(UsageError, match=r"playwright\.sync_api"):
        anything: Any = "a page"
        syncpage.to_async(anything)


def test_session_drives_sync_playwright_page(workbench: str, page: sync_api.Page, tmp_path: Path) -> None:
    statuses: list[int] = []
    page.on("response", lambda response: statuses.append(response.status))
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
    # nothing of the caller's has become asynchronous
    assert statuses and isinstance(page.context.browser, sync_api.Browser)
    assert isinstance(page.context.pages[0], sync_api.Page)
    with connect(page.url, page=page, store=tmp_path) as app:
        page.close()
        with pytest.raises(Disconnected):
            app.call("file.list")
