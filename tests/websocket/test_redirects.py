"""Redirects of the WebSocket handshake, on real sockets (docs/faults.md 36)."""

from __future__ import annotations

import ssl
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response

from tests.support.raw_server import certificate as certificate, tls as tls
from tests.support.rows import each_row
from tests.websocket.test_transport import App, echo, running
from transports import WebSocketTransport, connect
from transports.errors import ConnectFailed, UsageError
from transports.protocol.messages import Message


class Redirecting:
    """Redirects the handshake for each path of ``locations``, and keeps the headers of every handshake."""

    def __init__(self) -> None:
        self.locations: dict[str, str] = {}
        self.seen: list[tuple[str, dict[str, str]]] = []

    def __call__(self, connection: ServerConnection, request: Request) -> Response | None:
        self.seen.append((request.path, dict(request.headers.raw_items())))
        if (location := self.locations.get(request.path)) is None:
            return None
        response = connection.respond(307, "")
        response.headers["Location"] = location
        return response


async def session_of(app: App) -> Any:
    transport = WebSocketTransport(
        app.url, token="s3cret", headers={"X-Team": "t0p", "Cookie": "c=1", "X-Api-Key": "k3y"}, timeout=15
    )
    return connect(app.url, transport=transport, store="none:")


@pytest.mark.fault(36)
async def test_caller_headers_do_not_follow_cross_origin_redirect() -> None:
    secret = {"Authorization", "X-Team", "Cookie", "X-Api-Key"}
    first, second = Redirecting(), Redirecting()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(running(echo, process_request=first))
        other = await stack.enter_async_context(running(echo, process_request=second))
        first.locations = {"/abp": "/moved", "/moved": f"{other.url}?to=other"}  # its own origin, then another
        second.locations = {"/abp?to=other": f"{app.url}?to=back"}  # and back, which a credential does not survive
        async with await session_of(app) as session:
            assert session.transport.server_address == ("127.0.0.1", app.port)
            await session.call("x")
    assert [path for path, _ in first.seen] == ["/abp", "/moved", "/abp?to=back"]
    assert secret <= first.seen[0][1].keys() and secret <= first.seen[1][1].keys()
    assert not secret & (first.seen[2][1].keys() | second.seen[0][1].keys())


async def test_address_after_redirect_to_another_host_is_not_the_apps() -> None:
    redirecting = Redirecting()
    async with running(echo) as other, running(echo, process_request=redirecting) as app:
        redirecting.locations = {"/abp": other.url.replace("127.0.0.1", "localhost")}
        async with await session_of(app) as session:
            assert session.transport.server_address is None


@each_row(
    ("location", "said"),
    [
        ("/abp", "more than 5 redirects"),
        (
            "https://127.0.0.1/abp?key=s3cret",
            r"redirects to https://127.0.0.1/abp\S*, which .* give wss://127.0.0.1/abp\S* if the app has moved there",
        ),
        ("HTTP://127.0.0.1/abp#part", r"give ws://127.0.0.1/abp if the app"),
        ("file:///etc/passwd", "redirects to file:///etc/passwd, .*; correct its redirect"),
        ("ws://[127.0.0.1/", r"redirects to .*\(it is not valid\)"),
        ("ws://127.0.0.1:99999/", r"redirects to .*\(it is not valid\)"),
        ("/abp#part", r"redirects to /abp\S*, .*fragment"),
        (None, "answered HTTP 307 instead of a WebSocket"),
    ],
)
async def test_invalid_redirects_are_not_followed(location: str | None, said: str) -> None:
    redirecting = Redirecting()

    def process(connection: ServerConnection, request: Request) -> Response | None:
        return redirecting(connection, request) if location else connection.respond(307, "")

    async with running(echo, process_request=process) as app:
        redirecting.locations = {"/abp": location or ""}
        with pytest.raises(ConnectFailed, match=said) as failed:
            async with await session_of(app):
                pass
        assert "s3cret" not in failed.value.message and len(redirecting.seen) <= 6
        assert location or failed.value.details["status"] == 307


@pytest.mark.load
async def test_redirect_from_tls_is_followed_only_to_tls(certificate: tuple[Path, Path], tls: ssl.SSLContext) -> None:
    redirecting = Redirecting()
    async with running(echo) as plain, running(echo, ssl=tls, process_request=redirecting) as app:
        url = app.url.replace("ws:", "wss:")
        transport = WebSocketTransport(url, ssl=ssl.create_default_context(cafile=certificate[0]))
        redirecting.locations = {"/abp": plain.url}
        with pytest.raises(ConnectFailed, match="without TLS, which is not followed"):
            await transport.open()
        redirecting.locations = {"/abp": "/moved"}
        async with transport:
            assert [path for path, _ in redirecting.seen] == ["/abp", "/abp", "/moved"]


async def test_message_is_sent_only_to_origin_of_redirected_handshake() -> None:
    redirecting = Redirecting()
    async with running(echo) as there, running(echo, process_request=redirecting) as here:
        redirecting.locations = {"/abp": there.url}
        origins = [url.replace("ws:", "http:").removesuffix("/abp") for url in (here.url, there.url)]
        async with WebSocketTransport(here.url) as transport:
            await transport.request(Message("initialize", {}, id="1"), timeout=10)
            call = Message(
                "capabilities/call", {"capability": "x", "params": {}}, id="2", origins=frozenset(origins[:1])
            )
            with pytest.raises(UsageError, match="may not be sent to") as refused:
                await transport.request(call, timeout=10)
            assert refused.value.code == "PERMISSION_DENIED"
            with pytest.raises(UsageError, match="may not be sent to"):
                await transport.notify(replace(call, type="elicitation/response"))
            assert there.calls == [] and transport.receiver(call) == origins[1] + "/abp"
            await transport.request(replace(call, id="3", origins=frozenset(origins)), timeout=10)
        assert len(there.calls) == 1
