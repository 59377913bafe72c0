"""What opening a page and ending its browser wait for."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from transports.playwright._agent import AgentScript
from transports.playwright._channels import CdpChannel
from transports.playwright._diagnosis import explain_load_failure, now_at
from transports.playwright._find import BrowserChoice
from transports.playwright._process import BrowserProcess
from transports.playwright._source import PageSource


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
        return {}

    async def new_context(self, **options: object) -> Recorded:
        self.contexts.append(Recorded())
        return self.contexts[-1]

    async def new_page(self) -> Recorded:
        return Recorded()

    async def close(self) -> None:
        self.asked.append("close")

    async def stop(self) -> None:
        self.asked.append("stop")


async def test_the_steps_of_an_installation_are_sent_at_once_and_in_order() -> None:
    cdp: Any = Recorded()
    agent_script = AgentScript("script", "late", "binding", on_emit=print, on_document=print)
    installing = asyncio.ensure_future(CdpChannel(cdp).install(agent_script))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    script = "Page.addScriptToEvaluateOnNewDocument"
    assert cdp.asked == ["Runtime.enable", "Runtime.addBinding", "Page.enable", script]
    cdp.answers.set()
    await installing


@pytest.mark.parametrize(
    ("has", "steps"),
    [
        ("", ["stop"]),
        ("session", ["stop"]),
        *((has, ["close", "stop"]) for has in ("profile", "contexts", "downloads")),
    ],
)
async def test_only_a_chromium_with_something_to_save_is_given_time_to_end(has: str, steps: list[str]) -> None:
    process, playwright = BrowserProcess(), Recorded()
    recorded: Any = playwright
    process.browser = process.cdp = process._playwright = recorded
    process.context = recorded if has == "profile" else None
    recorded.contexts = [recorded] if has == "contexts" else []
    if has == "session":
        async with AsyncExitStack() as stack:
            browser: Any = SimpleNamespace(playwright=recorded, engine="", context=None, folder=Path())
            await PageSource()._open_tab(stack, browser)
        assert recorded.contexts
    if has == "downloads":
        process.note_download()
    sleeping = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    process.pids = [0, sleeping.pid]
    try:
        await process.end()
        assert sleeping.wait(timeout=10) != 0, "it was killed"
    finally:
        sleeping.kill()
    assert playwright.asked == steps


async def test_a_driver_is_known_although_a_script_starts_the_browser() -> None:
    class Session:
        async def send(self, method: str) -> dict[str, object]:
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


def test_why_a_page_did_not_load_is_told_with_what_to_do() -> None:
    failed = "Page.goto: net::{} at https://127.0.0.1:8000/"
    for code, said in {
        "ERR_CONNECTION_REFUSED": "nothing listens there; start the app or correct the address",
        "ERR_CERT_AUTHORITY_INVALID": "its certificate is not trusted; have this system trust it",
        "ERR_SSL_PROTOCOL_ERROR": "it does not speak TLS as https:// says; try http://",
        "ERR_EMPTY_RESPONSE": "without an answer; is it an https:// address?",
        "ERR_SSL_VERSION_OR_CIPHER_MISMATCH": "net::ERR_SSL_VERSION_OR_CIPHER_MISMATCH",
        "ERR_OF_TOMORROW": "net::ERR_OF_TOMORROW",
    }.items():
        assert said in explain_load_failure(failed.format(code), "https://127.0.0.1:8000/")
    assert len(now_at(f"http://127.0.0.1:8000/{'x' * 10_000}", "http://127.0.0.1:8000/")) < 220
