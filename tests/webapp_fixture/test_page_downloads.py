"""The downloads of the reference app: ranges, credentials, expiry, faults."""

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from tests.webapp_fixture.page import App
from webapp_fixture import Fixture, generate, serve

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def fetch(http: aiohttp.ClientSession, url: str, **headers: str) -> tuple[int, Any, bytes]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with http.get(url, headers=named) as response:
        return response.status, response.headers, await response.read()


async def test_ranges(http: aiohttp.ClientSession, fixture: Fixture) -> None:
    url = f"{fixture.url}downloads/2000000/4/a.bin?type=application/pdf"
    whole = b"".join(generate(2_000_000, 4))
    status, headers, body = await fetch(http, url, Accept_Encoding="identity")
    assert (status, body, headers["Content-Type"]) == (200, whole, "application/pdf")
    assert headers["Content-Length"] == "2000000" and "Content-Encoding" not in headers
    etag = headers["ETag"]
    for asked, first, stop in [
        ("0-0", 0, 1),
        ("1048570-1048580", 1048570, 1048581),
        ("1999999-", 1999999, 2000000),
        ("-5", 1999995, 2000000),
    ]:
        status, headers, body = await fetch(http, url, Range=f"bytes={asked}", If_Range=etag)
        assert (status, body) == (206, whole[first:stop])
        assert headers["Content-Range"] == f"bytes {first}-{stop - 1}/2000000"
    status, headers, _ = await fetch(http, url, Range="bytes=2000000-")
    assert (status, headers["Content-Range"]) == (416, "bytes */2000000")
    for odd in ({"Range": "bytes=0-1,4-5"}, {"Range": "bytes=5-2"}, {"Range": "bytes=0-1", "If_Range": '"other"'}):
        status, _, body = await fetch(http, url, **odd)
        assert (status, len(body)) == (200, 2_000_000)
    assert (await fetch(http, url, If_None_Match=etag))[0] == 304
    async with http.head(url) as response:
        assert response.headers["Content-Length"] == "2000000" and await response.read() == b""
    assert (await fetch(http, f"{fixture.url}downloads/0/0/empty"))[2] == b""


@pytest.mark.slow
@pytest.mark.browser
async def test_download_urls_require_cookie_and_expire(app: App, http: aiohttp.ClientSession, fixture: Fixture) -> None:
    file = (await app.data("file.generate", bytes=10, auth="cookie", **{"as": "url"}))["file"]
    assert file["downloadUrl"].startswith("/downloads/") and "auth" not in file
    assert await app.page.evaluate("async (url) => (await fetch(url)).status", file["downloadUrl"]) == 200
    assert await app.page.evaluate("() => document.cookie") == ""
    url = fixture.url.rstrip("/") + file["downloadUrl"]
    async with aiohttp.ClientSession() as fresh:
        assert (await fetch(fresh, url))[0] == 401
    for seconds, status in [(60, 200), (-60, 410)]:
        made = (await app.data("file.generate", bytes=10, expiresIn=seconds, absolute=True, **{"as": "url"}))["file"]
        assert abs(made["expiresAt"] / 1000 - time.time() - seconds) < 5
        assert (await fetch(http, made["downloadUrl"]))[0] == status


async def test_fixture_server_leaves_no_tasks() -> None:
    before = asyncio.all_tasks()
    async with serve() as running, aiohttp.ClientSession() as session:
        async with session.get(f"{running.url}downloads/{1 << 30}/0/large") as response:
            await response.content.readexactly(10)
            started = time.monotonic()
            response.close()
        port = int(running.url.rstrip("/").rpartition(":")[2])
        assert json.loads(await (await session.get(running.other_origin + "abp-manifest.json")).text())["abp"] == "0.1"
    assert time.monotonic() - started < 10
    assert asyncio.all_tasks() == before
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
