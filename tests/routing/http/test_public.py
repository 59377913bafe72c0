"""What is on the public web, against real servers: the limit, the headers that are kept, redirects, refusals."""

from __future__ import annotations

import pytest

from tests.support.raw_server import Serve, moved, reply
from transports.base import WebResource
from transports.errors import DiscoveryFailed, UsageError
from transports.routing.http._redirects import fetch_public


async def fetch(url: str, *, max_bytes: int = 1000, allow_private: bool = True, accept: str = "") -> WebResource:
    return await fetch_public(url, accept=accept, timeout=15, max_bytes=max_bytes, allow_private=allow_private)


async def test_web_resource_keeps_bytes_and_browser_headers(serve: Serve) -> None:
    kept = {"Content-Type": "text/css", "Access-Control-Allow-Origin": "*", "Content-Language": "de"}
    whole = reply(b"x" * 1000, Set_Cookie="a=b", **{name.replace("-", "_"): value for name, value in kept.items()})
    server = await serve(moved("/there"), whole, reply(b"", Content_Type=""))
    assert await fetch(server.url + "/here", accept="text/css") == WebResource(b"x" * 1000, kept)
    assert [connection.target for connection in server.seen] == ["/here", "/there"]
    assert server.sent("Accept") == ["text/css", "text/css"]
    assert server.sent("Cookie") == server.sent("Authorization") == [None, None]
    assert await fetch(server.url) == WebResource(b"", {})
    assert server.sent("Accept")[-1] == "*/*"


async def test_failed_blocked_or_oversized_resource_fetch_raises(serve: Serve) -> None:
    server = await serve(reply(b"", "404 Not Found"), reply(b"x" * 1001))
    with pytest.raises(DiscoveryFailed) as caught:
        await fetch(server.url, allow_private=False)
    assert (caught.value.code, server.connects) == ("BLOCKED_ADDRESS", 0)
    with pytest.raises(UsageError, match=r"^ftp://a\.test/x\?… is not fetched: its scheme is ftp:"):
        await fetch("ftp://a.test/x?secret")
    with pytest.raises(DiscoveryFailed, match=r"the resource .* answered 404 Not Found"):
        await fetch(server.url)
    with pytest.raises(DiscoveryFailed, match=r"^the resource http://\S+ is larger than 1000 bytes") as caught:
        await fetch(server.url)
    assert caught.value.details == {"url": server.url + "/", "limit": 1000}
