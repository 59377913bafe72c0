"""Connections that send half a request, one byte after another, or nothing."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.slow_client import drip, half_sent, is_closed
from tests.support.web_client import running
from transports.artifacts import LocalStore, Scope
from transports.surfaces.shared import _listening as connections
from transports.surfaces.web._options import Limits

_LIMIT, _HALF_SENT = 8, 30


@pytest.mark.fault(49)
async def test_half_sent_requests_leave_room_for_whole_ones_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: _LIMIT)
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 3600.0)  # nothing but the limit ends them
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(running(LocalStore(tmp_path / "out"), {}))
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
async def test_a_head_and_a_body_that_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(connections, "_PIECE_TIMEOUT", 0.3)
    limits = Limits(part_timeout=0.3)
    async with running(LocalStore(tmp_path / "out"), {}, limits=limits) as web, web.listen() as listening:
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


async def test_one_tenant_s_requests_and_listeners_leave_others_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: 4 * 8)
    async with AsyncExitStack() as stack:
        users = {"a-token-of-acme": Scope(tenant="acme"), "a-token-of-other": Scope(tenant="other")}
        web = await stack.enter_async_context(running(LocalStore(tmp_path / "out"), {}, users=users, max_listeners=28))
        acme, other = web.with_token("a-token-of-acme"), web.with_token("a-token-of-other")
        for _ in range(7):  # a quarter of the listeners
            await stack.enter_async_context(acme.listen())
        refused = await acme.get("/events")
        assert (refused.status, refused.code) == (429, "LIMIT_REACHED")
        assert (await acme.get("/artifacts")).status == 200  # seven requests of eight are under way
        listening = await stack.enter_async_context(other.listen())
        await stack.enter_async_context(web.listen())
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(running(LocalStore(tmp_path / "out"), {}, users=users))
        acme, other = web.with_token("a-token-of-acme"), web.with_token("a-token-of-other")
        for _ in range(8):
            await stack.enter_async_context(acme.listen())
        refused = await acme.get("/artifacts")
        assert (refused.status, refused.code) == (
            429,
            "LIMIT_REACHED",
        ) and "wait for one to end" in refused.body.decode()
        assert (await other.get("/artifacts")).status == (await web.get("/artifacts")).status == 200
        listening = await stack.enter_async_context(other.listen())
        await other.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")
