"""The manifest of a page and the app that runs there, in one session."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.apps import answering
from transports import MemoryTransport, connect
from transports.memory import Call

MANIFEST = {
    "abp": "0.1",
    "app": {"id": "a", "name": "A", "version": "1", "homepage": "https://a.test/"},
    "capabilities": [
        {
            "name": "export.pdf",
            "description": "from the manifest",
            "inputSchema": {"required": ["html"]},
            "experimental": True,
            "requirements": [{"type": "permission", "description": "the printer", "resolution": "plug it in"}],
        },
        {"name": "planned", "description": "not there yet"},
    ],
}


async def answer(params: Mapping[str, object], call: Call) -> object:
    """From the app."""
    return dict(params)


@pytest.fixture
async def site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        link = "" if "bare" in request.query else f'<link rel=abp-manifest href="/manifest?{request.query_string}">'
        return web.Response(text=f"<title>x</title>{link}", content_type="text/html")

    async def manifest(request: web.Request) -> web.Response:
        if "slow" in request.query:
            await asyncio.sleep(30)
        return web.json_response(MANIFEST, headers={"Cache-Control": "no-store"})

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/manifest", manifest)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    await runner.cleanup()


@pytest.mark.requirement("R6-1r")
async def test_session_prefers_running_app_over_manifest(site: str, tmp_path: Path) -> None:
    transport = MemoryTransport({"export.pdf": answering(None), "other": answer})
    async with connect(site, transport=transport, store=tmp_path) as app:
        assert list(app.capabilities) == ["export.pdf", "other"]
        assert app.capabilities["export.pdf"].description == "from the manifest"
        assert app.capabilities["export.pdf"].input_schema == {"required": ["html"]}
        assert app.capabilities["other"].description == "From the app."
        assert app.info.name == "In-process app"  # what the app says of itself stands
        assert app.info.homepage == "https://a.test/"
        result = await app.call("export.pdf", {"html": "<p>"})
        assert result.warnings == ("export.pdf is experimental and may change",)
        assert app.capabilities["export.pdf"].requirements[0].resolution == "plug it in"
        assert app.warnings == ("the manifest names planned, which the running app does not have",)


@pytest.mark.requirement("R6-1s")
async def test_manifest_urls_are_not_fetched(tmp_path: Path) -> None:
    asked: list[str] = []

    async def serve(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == "/":
            return web.Response(text='<title>x</title><link rel=abp-manifest href="/m">', content_type="text/html")
        keys = ("homepage", "icon", "script", "scripts", "main", "support", "$schema", "permissions")
        addresses = {key: str(request.url.with_path(f"/{key}.js")) for key in keys}
        declared = {"name": "other", "inputSchema": {"$ref": addresses["$schema"]}, **addresses}
        about = {"id": "a", "name": "A", "version": "1", **addresses}
        return web.json_response({"abp": "0.1", "app": about, "capabilities": [declared], **addresses})

    app = web.Application()
    app.router.add_get("/{path:.*}", serve)
    async with TestServer(app) as server:
        transport = MemoryTransport({"other": answer})
        async with connect(str(server.make_url("/")), transport=transport, store=tmp_path) as session:
            assert (await session.call("other", {"a": 1})).data == {"a": 1}
    assert asked == ["/", "/m"]


@pytest.mark.load
@pytest.mark.requirement("R6-1q")
async def test_absent_or_slow_manifest_does_not_block_or_leak_tasks(site: str, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with asyncio.timeout(8):
        async with connect(f"{site}?slow", transport=MemoryTransport({"other": answer}), store=tmp_path) as app:
            assert list(app.capabilities) == ["other"]
        ours = [task for task in asyncio.all_tasks() - before if "transports" in str(task.get_coro())]
        assert ours == []  # the others are the server's
    async with connect(f"{site}?bare", transport=MemoryTransport({"other": answer}), store=tmp_path) as app:
        (warning,) = app.warnings
        assert "without a manifest" in warning and (await app.call("other", {"a": 1})).data == {"a": 1}
