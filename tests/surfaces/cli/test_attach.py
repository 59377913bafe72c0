"""``--attach``: browsers that run already, found by what they leave in their folders."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from transports.playwright import _find as running
from transports.playwright._find import RunningBrowser, find_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the folders are those of Linux")


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(running, "_USUAL_PORT", free.getsockname()[1])
    return tmp_path


def browser_in(folder: Path, port: int, path: str = "/devtools/browser/1-2") -> RunningBrowser:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "DevToolsActivePort").write_text(f"{port}\n{path}")
    return RunningBrowser(f"ws://127.0.0.1:{port}{path}", str(folder))


async def test_a_browser_is_found_while_it_listens(profiles: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    browser_in(profiles / "google-chrome", port)  # left behind
    browser_in(profiles / "microsoft-edge", 70000)
    (profiles / "google-chrome-beta").mkdir()
    (profiles / "google-chrome-beta/DevToolsActivePort").write_bytes(b"\xff")
    assert await find_running() == []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = browser_in(profiles / "chromium", port)
        browser_in(profiles / "microsoft-edge", port, "/elsewhere")
        assert await find_running() == [found]


async def test_browser_on_default_port_is_found(profiles: Path) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n")
        await writer.drain()
        writer.write(json.dumps({"Browser": "Chrome/1", "webSocketDebuggerUrl": "ws://x"}).encode())
        writer.close()

    port = running._USUAL_PORT
    async with await asyncio.start_server(answer, "127.0.0.1", port):
        assert await find_running() == [RunningBrowser(f"http://127.0.0.1:{port}", f"Chrome/1 at port {port}")]


def test_attach_reports_none_or_several_browsers(profiles: Path, abp: CommandLine) -> None:
    ran = abp("call", "http://127.0.0.1:9/", "x", "--attach")
    assert ran.status == 2 and "--attach: none of your browsers runs with remote debugging" in ran.err
    ran = abp("call", "http://127.0.0.1:9/", "x", "--attach", "--cdp-url", "http://127.0.0.1:9")
    assert ran.status == 2 and "mutually exclusive" in ran.err
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        browser_in(profiles / "chromium", one.getsockname()[1])
        browser_in(profiles / "google-chrome", two.getsockname()[1])
        ran = abp("capabilities", "http://127.0.0.1:9/", "--attach")
        assert ran.status == 2 and "several browsers are running; choose one with --cdp-url" in ran.err
        assert str(profiles / "google-chrome") in ran.err and "ws://127.0.0.1" in ran.err
