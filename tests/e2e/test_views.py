"""Views of MCP servers: opened, called, followed, and kept within their border (docs/views.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from transports import Browser, CallTimeout, CapabilityError, Session, UsageError, connect
from transports.artifacts import MemoryStore
from transports.errors import BinaryError
from transports.mcp.views._diagnosis import is_blank

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("views")


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def app(browser: Browser, folder: Path, views_address: str) -> AsyncIterator[Session]:
    async with connect(views_address, browser=browser, store=folder) as app:
        yield app


async def test_view_is_a_session_with_its_registered_tools(app: Session) -> None:
    assert app.capabilities["board"].view == "ui://views/board.html"
    assert app.capabilities["legacy"].view == "ui://views/plain.html"  # the key of earlier hosts
    assert app.capabilities["model_only"].view is None
    async with app.open_view("plain") as other, app.open_view("board", {"n": 4}) as view:
        assert dict(other.capabilities) == {}
        assert (view.info.name, view.info.version) == ("Board", "3.1")
        assert set(view.capabilities) == {"echo", "picture", "strict", "broken", "fails", "never", "hands"}
        assert isinstance(view.result.data, dict) and view.result.data["n"] == 4 and view.result.artifacts
        assert (await view.call("echo", {"text": "ü"})).data == {"text": "ü"}
        with pytest.raises(UsageError, match="text"):
            await view.call("echo", {"text": 1})
        with pytest.raises(CapabilityError, match="no such thing") as caught:
            await view.call("fails")
        assert caught.value.details["code"] == -32603
        with pytest.raises(CallTimeout):
            await view.call("never", timeout=0.5)
        assert (await view.call("echo", {"text": "still"})).data == {"text": "still"}
        heard = [message["method"] for message in await view.frame.evaluate("heard")]
        assert "notifications/cancelled" in heard
        with pytest.raises(BinaryError):
            await view.call("broken")
        assert (await view.call("strict", {"n": 1})).warnings == ("content.1: an image without mimeType",)
        (_, warning) = (await view.call("strict", {"n": "one"})).warnings  # validated as it came
        assert warning == 'outputSchema: data.n: "one" is not of type "integer"'
    with pytest.raises(UsageError, match="has no view; tools with views: board"):
        app.open_view("model_only")


async def test_view_messages_follow_specification_order(app: Session) -> None:
    context = {"theme": "dark", "locale": "de-DE", "timezone": "Europe/Berlin", "size": (400, 800)}
    async with app.open_view("board", {"n": 2}, **context) as view:  # type: ignore[arg-type]
        init = (await view.frame.evaluate("init"))["result"]
        given = init["hostContext"]
        assert init["protocolVersion"] == "2026-01-26" and init["hostInfo"]["name"] == "abp-transports"
        assert (given["theme"], given["locale"], given["timeZone"]) == ("dark", "de-DE", "Europe/Berlin")
        assert given["containerDimensions"]["width"] == 400 and given["toolInfo"]["tool"]["name"] == "board"
        assert await view.frame.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
        heard = await view.frame.evaluate("rpc('ping').then(() => heard.filter((one) => one.id === undefined))")
        assert [one["method"] for one in heard] == ["ui/notifications/tool-input", "ui/notifications/tool-result"]
        assert heard[0]["params"] == {"arguments": {"n": 2}} and heard[1]["params"]["structuredContent"] == {"n": 2}
        assert heard[1]["params"]["content"][1]["data"] == "A" * 134 + "=="  # content goes to the view, too
        await view.update(theme="light", size=(500, 800))
        await view.send_input({"n": 3})
        told = "rpc('ping').then(() => heard.filter((one) => one.id === undefined).slice(2))"
        heard = await view.frame.evaluate(told)
        assert heard[0]["method"] == "ui/notifications/host-context-changed"
        assert heard[0]["params"] == {"theme": "light", "containerDimensions": {"width": 500, "maxHeight": 800}}
        assert heard[1] == {"jsonrpc": "2.0", "method": "ui/notifications/tool-input-partial",
                            "params": {"arguments": {"n": 3}}}  # fmt: skip


async def test_view_isolation_is_enforced_both_ways(app: Session) -> None:
    assert "secret" not in app.capabilities
    with pytest.raises(CapabilityError) as caught:
        await app.call("secret", {"key": "x"})
    assert caught.value.code == "UNKNOWN_CAPABILITY"
    async with app.open_view("board") as view:

        async def rpc(method: str, params: object) -> Any:
            return await view.frame.evaluate("([method, params]) => rpc(method, params)", [method, params])

        answer = await rpc("tools/call", {"name": "secret", "arguments": {"key": "k"}})
        assert answer["result"]["content"][0]["text"] == "for views: k"
        for refused in ("model_only", "nothing"):
            assert "error" in await rpc("tools/call", {"name": refused, "arguments": {}})
        assert (await rpc("resources/read", {"uri": "data://report.csv"}))["result"]["contents"][0]["text"]
        for method in ("initialize", "logging/setLevel", "resources/subscribe", "ui/unknown", "completion/complete"):
            assert (await rpc(method, {}))["error"]["code"] == -32601, method
        for url in ("javascript:alert(1)", "file:///etc/passwd", "http://", "data:text/html,x"):
            assert (await rpc("ui/open-link", {"url": url}))["result"] == {"isError": True}, url
        assert (await rpc("ui/open-link", {"url": "https://example.com/"}))["result"] == {}
        requests = view.requests
        assert [one.kind for one in requests] == ["open-link"] * 5
        owner = await view.frame.frame_element()
        assert await owner.get_attribute("allow") == "clipboard-write"
        assert await owner.get_attribute("sandbox") == "allow-scripts allow-same-origin allow-forms"
        # Messages of a frame within, and those that are no requests, change nothing.
        await view.frame.evaluate("""() => {
          const inner = document.createElement('iframe');
          inner.srcdoc = `<script>top.postMessage({jsonrpc: "2.0", method: "ui/open-link", id: 1,
            params: {url: "https://evil.example/"}}, "*")</scr` + `ipt>`;
          document.body.append(inner);
          const jsonrpc = "2.0", odd = [
            null, 7, "x", [], {}, {jsonrpc: "1.0", method: "ping", id: 1}, {jsonrpc, id: 77, result: {}},
            {jsonrpc, method: "ping", id: {}}, {jsonrpc, method: "x".repeat(300), id: 2},
            {jsonrpc, id: 0, result: {tools: []}}, {jsonrpc, method: "ui/initialize", id: 3},
          ];
          for (const message of odd) parent.postMessage(message, "*");
        }""")
        assert (await view.call("echo", {"text": "alive"})).data == {"text": "alive"}
        assert (await rpc("ping", {}))["result"] == {} and view.requests == requests
        fetched = await view.frame.evaluate("fetch('https://a.example/').then((r) => r.status, String)")
        assert "Failed to fetch" in fetched and any("connect-src" in text for text in view.violations)
        note = {"type": "resource", "resource": {"uri": "file:///note.txt", "mimeType": "text/plain", "text": "abc"}}
        assert (await rpc("ui/download-file", {"contents": [note]}))["result"] == {}
        assert [file.filename for file in view.files] == ["note.txt"]
        shown = view._repr_html_()  # as notebooks show it
        assert "ui://views/board.html" in shown and "files of the view" in shown and "note.txt" in shown


async def test_view_requests_follow_users_decisions(app: Session) -> None:
    async def refuse(_: object) -> bool:
        return False

    def fail(_: object) -> bool:
        raise RuntimeError("a fault of the handler, which refuses")

    decisions: dict[str, Any] = {"on_open_link": refuse, "on_message": fail, "on_display_mode": lambda _: False}
    async with app.open_view("board", **decisions) as view:
        ask = "([method, params]) => rpc(method, params)"
        link = await view.frame.evaluate(ask, ["ui/open-link", {"url": "https://example.com/"}])
        assert link["result"] == {"isError": True}
        said = await view.frame.evaluate(ask, ["ui/message", {"role": "user", "content": []}])
        assert said["result"] == {"isError": True}
        mode = await view.frame.evaluate(ask, ["ui/request-display-mode", {"mode": "fullscreen"}])
        assert mode["result"] == {"mode": "inline"}
        await view.frame.evaluate(ask, ["ui/update-model-context", {"content": [{"type": "text", "text": "x"}]}])
        assert view.model_context == {"content": [{"type": "text", "text": "x"}]}
        await view.frame.evaluate("tell('ui/notifications/size-changed', { width: 3, height: 4 }); rpc('ping')")
        assert [one.kind for one in view.requests] == ["open-link", "message", "display-mode", "model-context", "size"]


async def test_unknown_timezone_or_locale_is_rejected_by_name(app: Session, browser: Browser) -> None:
    before = len(browser.playwright.contexts)
    for name, value in (("timezone", "Nowhere/Else"), ("locale", "no language!")):
        wrong: dict[str, Any] = {name: value}
        with pytest.raises(UsageError, match=f"unknown {name} '{value}'"):
            async with app.open_view("plain", **wrong):
                pass
        assert len(browser.playwright.contexts) == before


async def test_open_view_rejects_app_without_mcp_server(app_of: Callable[..., Session]) -> None:
    async with app_of() as app:
        with pytest.raises(UsageError, match="MCP servers"):
            app.open_view("echo")


async def test_document_with_spinner_is_waited_for(browser: Browser) -> None:
    page = await browser.playwright.new_page()
    try:
        await page.set_content("""<style>i { display: block; animation: turn 1s infinite }
          @keyframes turn { to { rotate: 1turn } }</style><i></i>
          <script>setTimeout(() => { document.body.textContent = "It failed to load."; }, 800)</script>""")
        assert not await is_blank(page.main_frame)
    finally:
        await page.close()


LINK = {"contents": [{"type": "resource_link", "uri": "data://report.csv", "name": "report"}]}
MESSAGE = {"role": "user", "content": [{"type": "text", "text": "hi"}]}


class FailingStore(MemoryStore):
    full = False

    def _stage(self) -> Any:
        if FailingStore.full:
            raise KeyError("no room")
        return super()._stage()


async def fail(message: Mapping[str, object]) -> bool:
    pytest.fail("the handler fails")  # no Exception


async def test_view_gets_error_for_any_exception(
    browser: Browser, views_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        connect(views_address, browser=browser, store=FailingStore()) as app,
        app.open_view("board", on_message=fail) as view,
    ):
        monkeypatch.setattr(FailingStore, "full", True)
        for method, params, kind in (("ui/download-file", LINK, "KeyError"), ("ui/message", MESSAGE, "Failed")):
            async with asyncio.timeout(20):
                answer = await view.frame.evaluate("([method, params]) => rpc(method, params)", [method, params])
            assert answer["error"] == {"code": -32603, "message": f"the host failed ({kind})"}
        assert view.files == ()
