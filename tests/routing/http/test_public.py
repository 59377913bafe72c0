"""What is on the public web, against real servers: the limit, the headers that are kept, redirects, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import missing
from tests.support.own_network import METADATA, NOT_ALLOWED, PRIVATE, PUBLIC
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


_BLOCKED = "BLOCKED_ADDRESS"


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(35)
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: for a network of its own")
def test_only_public_and_app_addresses_are_connected(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.own_network", str(tmp_path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120)
    if done.returncode == NOT_ALLOWED:
        missing("root", f"a network namespace: {done.stdout.strip()}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "a public name": ["OK", {PUBLIC: 1}],
        "a private name": [_BLOCKED, {}],
        "a name with both": ["OK", {PUBLIC: 1}],
        "a redirect to a private name": [_BLOCKED, {PUBLIC: 1}],
        "a redirect to an address": [_BLOCKED, {PUBLIC: 1}],
        "a name that changes": [_BLOCKED, {PUBLIC: 1}],
        "the app's own name: app.example": ["OK", {PRIVATE: 1}],
        "the app's own name: moved.example": [_BLOCKED, {}],
        "a manifest": [_BLOCKED, {PUBLIC: 1}],
        "a resource": ["OK", {PUBLIC: 1}],
        "a private resource": [_BLOCKED, {}],
        "a resource of a name that changes": [_BLOCKED, {PUBLIC: 1}],
    }
    assert METADATA not in done.stdout  # nothing ever went there
