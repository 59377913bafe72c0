"""The MCP bridge over HTTP against clients that send half a request, or one byte after another (docs/faults.md 49)."""

from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.mcp_clients import URL, called
from tests.support.slow_client import drip, half_sent, is_closed
from tests.surfaces.mcp.test_http import ANN, client_of, served
from transports.surfaces.shared import _listening as connections

_LIMIT, _HALF_SENT = 8, 20


@pytest.mark.fault(49)
async def test_half_sent_requests_leave_room_for_whole_ones_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: _LIMIT)
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 3600.0)  # nothing but the limit ends them
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(served(tmp_path))
        client = await stack.enter_async_context(client_of(url, ANN, "legacy"))  # listens, which is never cut
        opened = await half_sent(stack, urlsplit(url).netloc, "/mcp", _HALF_SENT)  # every second one gets a 401
        await called(client, "abp_connect", url=URL)
        gone = [await is_closed(reader) for reader in opened[: _HALF_SENT - _LIMIT]]
        assert all(gone) and not any(reader.at_eof() for reader in opened[4 - _LIMIT :])


@pytest.mark.load
@pytest.mark.fault(49)
async def test_a_head_and_a_body_that_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 0.3)
    monkeypatch.setattr(connections, "_PIECE_TIMEOUT", 0.3)
    async with served(tmp_path) as url, client_of(url, ANN, "legacy") as client:
        netloc = urlsplit(url).netloc
        assert await drip(netloc, "GET /mcp HTTP/1.1\nHost: HOST\nX: ") == b""
        body = "Content-Type: application/json\nAccept: application/json, text/event-stream\nContent-Length: 9999\n\n"
        allowed = f"POST /mcp HTTP/1.1\nHost: HOST\nAuthorization: Bearer {ANN}\n{body}"
        assert (await drip(netloc, allowed)).startswith(b"HTTP/1.1 408 ")
        without_token = allowed.replace(f"Authorization: Bearer {ANN}\n", "")
        assert (await drip(netloc, without_token)).startswith(b"HTTP/1.1 401 ")  # its body is not read
        async with AsyncExitStack() as stack:
            first, second = await half_sent(stack, netloc, "/mcp", 2)
            assert await is_closed(first) and await is_closed(second)  # after a whole request, too
        await called(client, "abp_connect", url=URL)
