"""The manifest of a page and the app that runs there, in one session."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.support.apps import answering
from tests.support.raw_server import Connection, listening, reply
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


def page(link: str = "") -> bytes:
    return reply(f"<title>x</title>{link}".encode(), Content_Type="text/html")


def manifest(document: object) -> bytes:
    return reply(json.dumps(document).encode(), Content_Type="application/json", Cache_Control="no-store")


@pytest.fixture
async def site() -> AsyncIterator[str]:
    async def serve(connection: Connection) -> None:
        path, _, query = connection.target.partition("?")
        if path == "/":
            link = f'<link rel=abp-manifest href="/manifest?{query}">'
            await connection.send(page("" if query == "bare" else link))
        elif query == "slow":
            await connection.hang()
        else:
            await connection.send(manifest(MANIFEST))

    async with listening(serve) as server:
        yield f"{server.url}/"


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
    async def serve(connection: Connection) -> None:
        if connection.target == "/":
            await connection.send(page('<link rel=abp-manifest href="/m">'))
            return
        keys = ("homepage", "icon", "script", "scripts", "main", "support", "$schema", "permissions")
        addresses = {key: f"http://{connection.headers['Host']}/{key}.js" for key in keys}
        declared = {"name": "other", "inputSchema": {"$ref": addresses["$schema"]}, **addresses}
        about = {"id": "a", "name": "A", "version": "1", **addresses}
        document = {"abp": "0.1", "app": about, "capabilities": [declared], **addresses}
        await connection.send(manifest(document))

    async with listening(serve) as server:
        transport = MemoryTransport({"other": answer})
        async with connect(f"{server.url}/", transport=transport, store=tmp_path) as session:
            assert (await session.call("other", {"a": 1})).data == {"a": 1}
    assert [connection.target for connection in server.seen] == ["/", "/m"]


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
