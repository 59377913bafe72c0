"""Views of MCP servers through the bridge: opened by the official client, called, seen, and closed (docs/mcp.md)."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from mcp import Client
from mcp.server.subscriptions import ToolsListChanged
from mcp_types import CallToolResult, ToolListChangedNotification
from PIL import Image

from tests.support.authorization_server import authorization_server
from tests.support.eventually import eventually
from tests.support.mcp_clients import ERAS, URL, called, files_of, images_of, read_as_resource, words
from tests.support.mcp_http import BOB, client_of
from tests.support.slow import slow_but
from tests.surfaces.mcp import test_oauth as oauth
from transports import Browser, Session, connect
from transports.artifacts import open_store
from transports.errors import Disconnected
from transports.surfaces.mcp._bridge import Bridge
from transports.surfaces.mcp._options import Options
from transports.surfaces.shared._activity import Activity

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Tools of the view. It has one more, whose name is also a capability of the server.
OWN = {"abp_echo", "abp_picture", "abp_broken", "abp_never", "abp_hands", "abp_strict"}


Opens = Callable[..., Session]


@pytest.fixture
def opens(views_address: str, browser: Browser) -> Opens:
    """``connect`` to the server, whatever the target, with one browser for all."""

    def connecting(_: str, **options: Any) -> Session:
        return connect(views_address, browser=browser, **options)

    return connecting


class Bridged:
    """A client of a bridge with the server, and what it was told of changed tools."""

    def __init__(self, client: Client, activity: Activity) -> None:
        self.client = client
        self.activity = activity
        self.changes = 0

    async def tools(self) -> set[str]:
        return {tool.name for tool in (await self.client.list_tools()).tools}

    async def open(self, capability: str, **arguments: Any) -> CallToolResult:
        answer = await self.client.call_tool("abp_open_view", {"capability": capability, **arguments})
        assert not answer.is_error, answer
        return answer


@asynccontextmanager
async def bridged(folder: Path, opens: Opens, era: str = "2026-07-28", **options: Any) -> AsyncIterator[Bridged]:
    activity = Activity()
    bridge = Bridge(Options(apps=("ws://views",), **options), open_store(folder), connect=opens, activity=activity)

    async def on_message(message: object) -> None:
        made.changes += isinstance(message, ToolListChangedNotification)

    async def listening() -> None:
        async with client.listen(tools_list_changed=True) as events:
            ready.set()
            async for event in events:
                made.changes += isinstance(event, ToolsListChanged)

    async with Client(bridge.server, mode=era, message_handler=on_message) as client:
        made, ready = Bridged(client, activity), asyncio.Event()
        if era == "legacy":
            yield made
            return
        listener = asyncio.ensure_future(listening())
        await ready.wait()
        try:
            yield made
        finally:
            listener.cancel()
            await asyncio.wait((listener,))


def pictures(answer: CallToolResult) -> list[bytes]:
    return [base64.b64decode(item.data) for item in images_of(answer)]


def view_of(answer: CallToolResult) -> Mapping[str, Any]:
    assert answer.structured_content is not None
    found: Mapping[str, Any] = answer.structured_content["view"]
    return found


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_client_opens_view_calls_its_tools_and_closes_it(tmp_path: Path, opens: Opens, era: str) -> None:
    async with bridged(tmp_path, opens, era) as one:
        client, before = one.client, await one.tools()
        assert "abp_open_view" in before and not before & OWN
        (described,) = [tool for tool in (await client.list_tools()).tools if tool.name == "abp_board"]
        assert described.description is not None and "abp_open_view shows its view" in described.description
        changes = one.changes
        answer = await one.open("board", params={"n": 4}, picture=True, theme="dark", width=500, height=300)
        assert answer.structured_content is not None
        assert answer.structured_content["data"]["n"] == 4
        view = view_of(answer)
        assert set(view["tools"]) == {"fails", *(name.removeprefix("abp_") for name in OWN)}
        assert words(answer).startswith(f"View opened: Board (session {view['session']}).\nIts tools: ")
        await eventually(lambda: one.changes > changes)
        assert await one.tools() == before | OWN

        assert Image.open(io.BytesIO(pictures(answer)[-1])).size == (500, 300)  # after the tool's own picture
        assert (await called(client, "abp_echo", text="ü"))["data"] == {"text": "ü"}
        several = await client.call_tool("abp_fails", {})
        assert several.is_error and "choose one with `session`" in words(several)
        refused = await client.call_tool("abp_fails", {"session": view["session"]})
        assert refused.is_error and "no such thing" in words(refused)
        handed = files_of(await called(client, "abp_hands"))
        (three,) = [artifact for artifact in handed if Path(artifact["path"]).name == "three.bin"]
        assert await read_as_resource(client, three["uri"]) == bytes([1, 2, 3])
        seen = await client.call_tool("abp_screenshot", {"session": view["session"]})
        assert Image.open(io.BytesIO(pictures(seen)[0])).size == (500, 300)

        changes, shown = one.changes, one.activity.apps[view["session"]].view
        assert shown is not None
        await shown.frame.evaluate("delete tools.echo; tell('notifications/tools/list_changed', {})")
        await eventually(lambda: one.changes > changes)
        assert OWN - await one.tools() == {"abp_echo"}

        changes = one.changes
        await called(client, "abp_disconnect", session=view["session"])
        await eventually(lambda: one.changes > changes)
        assert await one.tools() == before
        with pytest.raises(Exception, match="unknown tool 'abp_hands'"):
            await client.call_tool("abp_hands", {})
        await called(client, "abp_disconnect")
        assert "abp_open_view" not in await one.tools()


async def test_view_requests_to_host_are_in_status_and_hidden_tools_are_refused(tmp_path: Path, opens: Opens) -> None:
    async with bridged(tmp_path, opens, hide_tools=("abp_plain", "abp_echo")) as one:
        refused = await one.client.call_tool("abp_open_view", {"capability": "plain"})
        assert refused.is_error and "plain may not be called" in words(refused)
        key = view_of(await one.open("board"))["session"]
        assert OWN - await one.tools() == {"abp_echo"}
        with pytest.raises(Exception, match="unknown tool 'abp_echo'"):
            await one.client.call_tool("abp_echo", {"text": "x"})
        view = one.activity.apps[key].view
        assert view is not None
        ask = "([method, params]) => rpc(method, params)"
        for method, params in (
            ("ui/open-link", {"url": "https://example.com/a"}),
            ("ui/open-link", {"url": "javascript:alert(1)"}),
            ("ui/message", {"role": "user", "content": [{"type": "text", "text": "Hello \u202e"}]}),
            ("ui/update-model-context", {"structuredContent": {"chosen": 3}}),
            ("ui/download-file", {"contents": [{"type": "resource_link", "uri": "data://report.csv"}]}),
        ):
            await view.frame.evaluate(ask, [method, params])
        await view.frame.evaluate("fetch('https://elsewhere.example/').catch(String)")
        await eventually(lambda: view.violations)
        (shown,) = (await called(one.client, "abp_status", session=key))["sessions"]
        assert shown["view"]["requests"] == [
            {"kind": "open-link", "url": "https://example.com/a"},
            {"kind": "open-link", "refused": True, "url": "javascript:alert(1)"},
            {"kind": "message"},
            {"kind": "model-context"},
            {"kind": "download-file"},
        ]
        assert shown["view"]["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Hello \N{REPLACEMENT CHARACTER}"}]}
        ]
        assert shown["view"]["model_context"] == {"structuredContent": {"chosen": 3}}
        assert "connect-src" in shown["view"]["violations"][0]
        (report,) = shown["view"]["files"]
        assert await read_as_resource(one.client, report) == b"a,b\n1,2\n"


async def test_views_close_with_their_app_and_count_as_apps_unless_they_are_blank(tmp_path: Path, opens: Opens) -> None:
    async with bridged(tmp_path, opens, max_sessions=2) as one:
        before = await one.tools()
        answer = await one.open("forbidden", params={"n": 7}, timeout=2, picture=True)
        document = answer.structured_content
        assert document is not None and document["data"]["n"] == 7 and "view" not in document
        (warning,) = document["warnings"]
        assert warning.startswith("the view is not shown: ") and "script-src" in warning
        assert warning[:60] in words(answer)
        assert await one.tools() == before  # nothing stays open
        refused = await one.client.call_tool("abp_open_view", {"capability": "model_only"})
        assert refused.is_error and "has no view; tools with views: board" in words(refused)

        (app,) = [app["session"] for app in (await called(one.client, "abp_status"))["sessions"]]
        key = view_of(await one.open("board", session=app))["session"]
        another = await one.client.call_tool("abp_open_view", {"capability": "board", "session": app})
        assert another.structured_content is not None
        assert another.structured_content["error"]["code"] == "LIMIT_REACHED"
        session = one.activity.apps[key].session
        await called(one.client, "abp_disconnect", session=app)
        assert (await called(one.client, "abp_status"))["sessions"] == [] and not one.activity.apps
        with pytest.raises(Disconnected, match="closed"):
            await session.call("echo")


async def test_view_is_for_its_user_only_and_needs_scopes_of_its_app(tmp_path: Path, opens: Opens) -> None:
    async with (
        authorization_server(oauth.SCOPES) as provider,
        oauth.served(tmp_path, provider.issuer, cast(Any, opens)) as url,
        client_of(url, provider.token(aud=url, scope="abp crm"), "2026-07-28") as carol,
        client_of(url, BOB, "2026-07-28") as bob,
    ):
        await called(carol, "abp_connect", name="crm")
        await called(bob, "abp_connect", url=URL)
        opened = await carol.call_tool("abp_open_view", {"capability": "board", "picture": True})
        key, few = view_of(opened)["session"], provider.token(aud=url, scope="abp")
        (report,) = [item["uri"] for item in files_of(opened.structured_content) if "screenshot" in str(item)]
        names = {tool.name for tool in (await bob.list_tools()).tools}
        assert "abp_board" in names and not names & OWN
        assert key not in str((await called(bob, "abp_status"))["sessions"])
        for tool, arguments in (
            ("abp_call", {"capability": "echo", "params": {"text": "x"}}),
            ("abp_screenshot", {}),
            ("abp_disconnect", {}),
        ):
            refused = await bob.call_tool(tool, {**arguments, "session": key})
            assert refused.structured_content["error"]["code"] == "SESSION_INVALID", tool
        with pytest.raises(Exception, match="artifact"):
            await bob.read_resource(report)

        for call in (
            oauth.tool_call("abp_echo", text="x"),
            oauth.tool_call("abp_call", capability="echo", params={"text": "x"}),
            oauth.tool_call("abp_screenshot", session=key),
            oauth.tool_call("abp_open_view", capability="board"),
        ):
            status, challenge = await oauth.asked(url, few, call)
            assert status == 403 and 'scope="crm"' in challenge, call
        assert (await called(carol, "abp_echo", text="here"))["data"] == {"text": "here"}
