"""Connections that send half a request, one byte after another, or nothing."""

import errno
import os
from contextlib import AsyncExitStack, suppress

import pytest

from tests.support.eventually import eventually
from tests.support.slow_client import drip, half_sent, is_closed
from tests.support.web_client import running
from transports.artifacts import ArtifactStore, Scope
from transports.surfaces.shared import _listening as connections
from transports.surfaces.web._access import Limits

_LIMIT, _HALF_SENT = 8, 30


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EADDRINUSE, "port 80 is taken; end the program that listens there, or name another port with --port"),
        (errno.EACCES, "port 80 may not be used by this user; name another port with --port"),
        (errno.EADDRNOTAVAIL, "Cannot assign requested address; name an address of this machine"),
    ],
)
def test_refused_address_is_explained(number: int, reason: str) -> None:
    error = connections.cannot_listen("10.0.0.1", 80, OSError(number, os.strerror(number)), "--port")
    assert error.message.startswith(f"cannot listen on 10.0.0.1:80: {reason}")


@pytest.mark.fault(49)
async def test_half_sent_requests_do_not_block_complete_ones(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: _LIMIT)
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 3600.0)  # nothing but the limit ends them
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(running(store, {}))
        listening = await stack.enter_async_context(web.listen())  # a whole request is never cut
        opened = await half_sent(stack, web.netloc, "/healthz", _HALF_SENT)
        assert (await web.get("/healthz")).status == 200
        # the oldest ones made room
        gone = [await is_closed(reader) for reader in opened[: _HALF_SENT - _LIMIT]]
        assert all(gone) and not any(reader.at_eof() for reader in opened[1 - _LIMIT + 2 :])
        await web.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")


@pytest.mark.load
@pytest.mark.fault(49)
async def test_slow_request_head_and_body_time_out(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 0.2)
    monkeypatch.setattr(connections, "_PIECE_TIMEOUT", 0.2)
    limits = Limits(part_timeout=0.2)
    async with running(store, {}, limits=limits) as web, web.listen() as listening:
        assert await drip(web.netloc, "GET / HTTP/1.1\nHost: HOST\nX: ") == b""
        access = f"Host: HOST\nAuthorization: Bearer {web.token}\nConnection: close"
        upload = f"POST /artifacts HTTP/1.1\n{access}\nContent-Type: text/plain\nContent-Length: 9999\n\n"
        assert (await drip(web.netloc, upload)).startswith(b"HTTP/1.1 408 ")
        form = upload.replace("text/plain", "multipart/form-data; boundary=b").replace("\n\n", "\n\n--b\nX: ")
        assert (await drip(web.netloc, form)).startswith(b"HTTP/1.1 408 ")
        async with AsyncExitStack() as stack:
            first, second = await half_sent(stack, web.netloc, "/healthz", 2)
            assert await is_closed(first) and await is_closed(second)  # after a whole request, too
        await web.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")  # a whole request has no such deadline


@pytest.mark.parametrize(("listeners", "opened", "refused_path"), [(28, 7, "/events"), (1000, 8, "/artifacts")])
async def test_one_tenant_does_not_exhaust_connections(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, listeners: int, opened: int, refused_path: str
) -> None:
    """A tenant may have a quarter of the listeners, and eight running requests."""
    monkeypatch.setattr(connections, "_connection_limit", lambda: 4 * 8)
    users = {"a-token-of-acme": Scope(tenant="acme"), "a-token-of-other": Scope(tenant="other")}
    async with running(store, users=users, max_listeners=listeners) as web, AsyncExitStack() as stack:
        acme, other = (web.with_token(token) for token in users)
        streams = await stack.enter_async_context(AsyncExitStack())
        for _ in range(opened):
            await streams.enter_async_context(acme.listen())
        refused = await acme.get(refused_path)
        assert (refused.status, refused.code) == (429, "LIMIT_REACHED")
        assert ((await acme.get("/artifacts")).status == 200) is (refused_path == "/events")
        assert (await other.get("/artifacts")).status == (await web.get("/artifacts")).status == 200
        for _ in range(opened + 1):  # the operator has no share
            await stack.enter_async_context(web.listen())
        listening = await stack.enter_async_context(other.listen())
        await other.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")
        await streams.aclose()

        async def is_heard_again() -> bool:
            with suppress(AssertionError):  # refused
                async with acme.listen():
                    return True
            return False

        await eventually(is_heard_again)
