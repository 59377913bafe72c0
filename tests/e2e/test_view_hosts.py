"""Hosts that are imitated: what each says, grants and limits, and profiles of one's own (docs/views.md)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.eventually import eventually
from tests.support.rows import each_row
from transports import Browser, Session, UsageError, View, connect
from transports.mcp.views._host import read_profile

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
FILE = {"contents": [{"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}]}
OWN = """name = "House"
display_modes = ["inline"]
sources = [{what = "all", address = "here", day = 2026-11-23}]
[capabilities]
openLinks = {}
serverTools = {}
[limits]
result_characters = 10
[csp_sources]
worker-src = ["blob:"]
[styles]
--font-sans = "Inter"
"""


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def app(browser: Browser, tmp_path_factory: pytest.TempPathFactory, views_address: str) -> AsyncIterator[Session]:
    async with connect(views_address, browser=browser, store=tmp_path_factory.mktemp("hosts")) as app:
        yield app


async def ask(view: View, method: str, params: object) -> Any:
    return await view.frame.evaluate("([method, params]) => rpc(method, params)", [method, params])


@pytest.mark.parametrize(
    ("host", "downloads", "tools", "modes"),
    [
        pytest.param("claude", True, True, ["inline", "fullscreen"], marks=pytest.mark.slow),
        pytest.param("chatgpt", False, False, ["inline", "fullscreen", "pip"], marks=pytest.mark.slow),
        ("goose", False, False, ["inline", "fullscreen", "pip"]),
        pytest.param("basic-host", True, False, ["inline", "fullscreen"], marks=pytest.mark.slow),
    ],
)
async def test_view_sees_named_host_profile(
    app: Session, host: str, downloads: bool, tools: bool, modes: list[str]
) -> None:
    profile = read_profile(host)
    async with app.open_view("board", host=host) as view:
        init = (await view.frame.evaluate("init"))["result"]
        assert init["hostInfo"] == {"name": profile.name, "version": profile.version}
        assert init["hostCapabilities"] == profile.capabilities
        assert init["hostContext"]["availableDisplayModes"] == modes
        assert init["hostContext"].get("styles", {"variables": {}})["variables"] == profile.styles
        assert bool(view.capabilities) is tools
        answer = await ask(view, "ui/download-file", FILE)
        assert ("result" in answer) is downloads
        assert downloads or answer["error"]["code"] == -32601
        assert [one.kind for one in view.requests] == ["download-file"] and (view.requests[0].answer == {}) is downloads
        pip = await ask(view, "ui/request-display-mode", {"mode": "pip"})
        assert pip["result"] == {"mode": "pip" if "pip" in modes else "inline"}
        assert ("error" in await ask(view, "tools/call", {"name": "links", "arguments": {}})) is (host == "goose")


async def test_window_openai_needs_no_handshake(app: Session) -> None:
    async with app.open_view("openai", {"n": 3}, host="chatgpt", theme="dark") as view:
        assert json.loads(await view.frame.locator("p").inner_text()) == [{"n": 3}, {"n": 3}, "dark"]
        assert await view.frame.evaluate("document.compatMode") == "CSS1Compat"
        answer = await view.frame.evaluate("openai.callTool('links', {})")
        assert answer["content"][0]["uri"] == "ui://views/plain.html"
        assert await view.frame.evaluate("openai.sendFollowUpMessage({ prompt: 'go on' })") == {}
        assert await view.frame.evaluate("openai.requestDisplayMode({ mode: 'pip' })") == {"mode": "pip"}
        assert [one.kind for one in view.requests] == ["message", "display-mode"]
        await view.update(theme="light")
        await eventually(lambda: view.frame.evaluate("openai.theme === 'light'"))
        assert {"theme": "light"} in await view.frame.evaluate("seen")
        with pytest.raises(Exception, match="requestModal is not imitated"):
            await view.frame.evaluate("openai.requestModal({})")
    async with app.open_view("board", host="chatgpt") as view:
        heard = await view.frame.evaluate("rpc('ping').then(() => heard.map((one) => one.method))")
        assert heard[:2] == ["ui/notifications/tool-input", "ui/notifications/tool-result"]


async def test_custom_host_profile_is_applied_to_view(app: Session, tmp_path: Path) -> None:
    (tmp_path / "house.toml").write_text(OWN)
    async with app.open_view("board", host=tmp_path / "house.toml") as view:
        init = (await view.frame.evaluate("init"))["result"]
        assert init["hostInfo"]["name"] == "House"
        assert init["hostContext"]["styles"] == {"variables": {"--font-sans": "Inter"}}
        assert (await view.frame.evaluate("policy()")).endswith("worker-src blob:")
        assert "result" in await ask(view, "tools/call", {"name": "links", "arguments": {}})
        assert any("House takes about 10" in text for text in view.warnings)
        assert (await ask(view, "ui/message", {"role": "user", "content": []}))["error"]["code"] == -32601
    with pytest.raises(UsageError, match="House shows views inline, not 'pip'"):
        app.open_view("board", host=str(tmp_path / "house.toml"), display_mode="pip")


@each_row(
    ("content", "why"),
    [
        ("name = 7", "cannot be read"),
        (OWN.replace("openLinks", "opens\nLinks"), "cannot be read"),
        (OWN.replace("[limits]", "[limit]"), "cannot be read"),
        (OWN.replace('"blob:"', '"blob:; script-src *"'), "no sources of a policy"),
        (OWN.replace("worker-src", '"worker-src *; script-src"'), "no sources of a policy"),
        ("#" * ((1 << 20) + 1), "larger than 1,048,576 bytes"),
        (None, "cannot be read"),
    ],
)
async def test_non_profile_file_or_unknown_host_is_rejected(
    app: Session, tmp_path: Path, content: str | None, why: str
) -> None:
    path = tmp_path / "odd.toml"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_text(content)
    with pytest.raises(UsageError, match=why):
        app.open_view("board", host=path)
    known = "spec, basic-host, chatgpt, claude, goose"
    with pytest.raises(UsageError, match=f"unknown host 'netscape'; use one of {known}, or"):
        app.open_view("board", host="netscape")
