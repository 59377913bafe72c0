"""A loopback proxy before the bridge, for the conformance runner: it can send no token, and has names for tools.

It adds the bearer token, and calls ``abp_test_…`` what the runner calls ``test_…``. Nothing else is changed, Host and
Origin least of all.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, web

_OURS = re.compile(rb'"name":\s*"abp_(?=test_|json_schema_)')
_THEIRS = re.compile("test_|json_schema_")
_HOP = {"content-length", "transfer-encoding", "connection"}


@asynccontextmanager
async def proxied(url: str, token: str) -> AsyncIterator[str]:
    """The address of a proxy before ``url``."""
    async with ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False, read_bufsize=1 << 24) as http:

        async def forward(request: web.Request) -> web.StreamResponse:
            headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
            headers["Authorization"] = f"Bearer {token}"
            if _THEIRS.match(headers.get("Mcp-Name", "")):
                headers["Mcp-Name"] = f"abp_{headers['Mcp-Name']}"
            body = _asked(await request.read())
            async with http.request(request.method, url, headers=headers, data=body) as answer:
                end_to_end = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP}
                out = web.StreamResponse(status=answer.status, headers=end_to_end)
                await out.prepare(request)
                async for line in answer.content:
                    await out.write(_OURS.sub(b'"name":"', line))
                return out

        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                return await forward(request)
            except ClientConnectionError:  # the bridge has gone, which its own exit status tells about
                raise web.HTTPBadGateway from None

        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/mcp", handle)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.2, handle_signals=False, handler_cancellation=True
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
        finally:
            await runner.cleanup()


def _asked(body: bytes) -> bytes:
    try:
        message = json.loads(body)
        name = message["params"]["name"]
    except (ValueError, KeyError, TypeError):
        return body  # broken on purpose, or nothing about tools
    if message.get("method") != "tools/call" or not isinstance(name, str) or not _THEIRS.match(name):
        return body
    message["params"]["name"] = f"abp_{name}"
    return json.dumps(message).encode()
