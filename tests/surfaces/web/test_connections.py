"""Connections that send half a request, one byte after another, or nothing."""

import asyncio
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tests.support.web_client import running
from transports.artifacts import LocalStore
from transports.surfaces.web import connections, uploads

_LIMIT, _HALF_SENT = 8, 30


async def _is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection, within 15 seconds."""
    with suppress(ConnectionError):
        async with asyncio.timeout(15):
            return await reader.read() == b""
    return True


@pytest.mark.fault(49)
async def test_half_sent_requests_leave_room_for_whole_ones_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: _LIMIT)
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 3600.0)  # nothing but the limit ends them
    monkeypatch.setattr("transports.surfaces.web.server._KEEPALIVE_TIMEOUT", 3600.0)
    async with AsyncExitStack() as stack:
        web = await stack.enter_async_context(running(LocalStore(tmp_path / "out"), {}))
        listening = await stack.enter_async_context(web.listen())  # a whole request is never cut
        half_sent: list[asyncio.StreamReader] = []
        for _ in range(_HALF_SENT):
            reader, writer = await asyncio.open_connection(*web.netloc.rsplit(":", 1))
            stack.callback(writer.close)
            if len(half_sent) % 2:  # a whole one first proves nothing
                writer.write(f"GET /healthz HTTP/1.1\r\nHost: {web.netloc}\r\n\r\n".encode())
                await reader.readuntil(b"}")
            writer.write(f"GET /healthz HTTP/1.1\r\nHost: {web.netloc}\r\n".encode())
            half_sent.append(reader)
        assert (await web.get("/healthz")).status == 200
        # the oldest ones made room
        gone = [await _is_closed(reader) for reader in half_sent[: _HALF_SENT - _LIMIT]]
        assert all(gone) and not any(reader.at_eof() for reader in half_sent[1 - _LIMIT + 2 :])
        await web.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")


@pytest.mark.fault(49)
async def test_a_head_and_a_body_that_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(uploads, "_READ_TIMEOUT", 0.3)
    async with running(LocalStore(tmp_path / "out"), {}) as web, web.listen() as listening:

        async def drip(start: str) -> bytes:
            """Send ``start`` and then a byte at a time, until the server answers or ends it; return its first line."""
            reader, writer = await asyncio.open_connection(*web.netloc.rsplit(":", 1))
            writer.write(start.replace("\n", "\r\n").replace("HOST", web.netloc).encode())
            answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
            try:
                async with asyncio.timeout(15):
                    while not answer.done():
                        writer.write(b"a")
                        await asyncio.wait((answer,), timeout=0.05)
                return await answer
            except (ConnectionError, EOFError):
                return b""
            finally:
                answer.cancel()
                writer.close()

        assert await drip("GET / HTTP/1.1\nHost: HOST\nX: ") == b""
        access = f"Host: HOST\nAuthorization: Bearer {web.token}\nConnection: close"
        upload = await drip(f"POST /artifacts HTTP/1.1\n{access}\nContent-Type: text/plain\nContent-Length: 9999\n\n")
        assert upload.startswith(b"HTTP/1.1 408 ")
        await web.post("/artifacts", data=b"text", headers={"Content-Type": "text/plain"})
        await listening.until("artifact_stored")  # a whole request has no such deadline
