"""Resources of connected MCP servers, which clients of the bridge read by the links in results."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from tests.support.mcp_clients import URL, Apps, Serve, called, read_as_resource
from tests.support.resources import ResourceApp
from transports import CapabilityError
from transports.testing import Call

pytestmark = pytest.mark.parametrize("era", ["2026-07-28"])

LONG = "region,revenue\n" + "north,1\n" * 3000


class Server(ResourceApp):
    """An app with these resources, which notes what is read."""

    def __init__(self, resources: Mapping[str, dict[str, Any]]) -> None:
        super().__init__({"export": self._export})
        self.resources = {**resources}
        self.asked: list[str] = []

    async def _export(self, params: Mapping[str, object], call: Call) -> object:
        return {"content": [{"type": "resource_link", "uri": uri, "name": uri, "size": 9} for uri in self.resources]}

    def _read(self, uri: str) -> dict[str, object]:
        self.asked.append(uri)
        if uri not in self.resources:
            raise CapabilityError("Resource not found", code="RESOURCE_NOT_FOUND")
        return {"contents": [{"uri": uri, **self.resources[uri]}]}


def servers(*servers: Server) -> Apps:
    """Each connection opens the next of these."""
    waiting = list(servers)
    return Apps(make=lambda _: waiting.pop(0))


@pytest.mark.requirement("R2-4.3c")
async def test_link_names_its_read_tool_and_is_readable_as_resource(serve: Serve) -> None:
    blob = bytes(range(256))
    server = Server(
        {
            "lib://note": {"mimeType": "text/plain", "text": "a note"},
            "lib://table": {"mimeType": "text/csv", "text": LONG},
            "lib://image": {"mimeType": "image/x-own", "blob": base64.b64encode(blob).decode()},
            "artifact://note": {"mimeType": "text/plain", "text": "of another bridge"},
        }
    )
    async with serve(servers(server), options={"max_resource_bytes": 25_000}) as client:
        links = (await called(client, "abp_export"))["data"]["content"]
        assert [link["fetched"] for link in links] == [False] * 4
        assert all("abp_resources_read" in link["hint"] for link in links)
        assert await read_as_resource(client, "lib://note") == b"a note"
        assert await read_as_resource(client, "lib://table") == LONG.encode()
        assert await read_as_resource(client, "artifact://note") == b"of another bridge"
        assert await read_as_resource(client, "lib://image") == blob
        (image,) = (await client.read_resource("lib://image")).contents
        assert image.uri == "lib://image" and image.mime_type == "image/x-own" and image.meta
        assert await read_as_resource(client, f"artifact://{image.meta['artifact']}") == blob  # and it is kept
        server.resources["lib://large"] = {"mimeType": "text/csv", "text": LONG * 2}
        with pytest.raises(MCPError, match=r"at most 25000 are read at once; read ranges: artifact://"):
            await client.read_resource("lib://large")
        with pytest.raises(MCPError, match="not found") as refused:
            await client.read_resource("lib://gone")
        assert refused.value.error.code == -32602 and refused.value.error.data["code"] == "RESOURCE_NOT_FOUND"


async def test_resource_is_read_from_server_that_lists_it(serve: Serve) -> None:
    first, second = (Server({f"{name}://a": {"text": name}}) for name in ("one", "two"))
    async with serve(servers(first, second)) as client:
        await called(client, "abp_connect", url=URL, new=True)
        assert await read_as_resource(client, "two://a") == b"two" and first.asked == []
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource("three://a")
        assert first.asked == second.asked[1:] == ["three://a"]  # it may be one that is not listed


@pytest.mark.parametrize(
    ("code", "message"),
    [(None, "no artifact"), ("ARTIFACT_NOT_FOUND", "no artifact"), ("TOO_LARGE", "artifact://ID: the server's words")],
)
async def test_artifact_that_no_server_has_is_not_found(serve: Serve, code: str | None, message: str) -> None:
    class Refusing(Server):
        def _read(self, uri: str) -> dict[str, object]:
            data = None if code is None else {"code": code}
            raise CapabilityError("the server's words", details={"code": -32602, "data": data})

    async with serve(servers(Refusing({}))) as client:
        with pytest.raises(MCPError, match=message) as failed:
            await client.read_resource("artifact://ID")
        is_not_found = failed.value.data["code"] == "ARTIFACT_NOT_FOUND"
        assert is_not_found == (code != "TOO_LARGE")


async def test_hidden_resource_tool_also_blocks_resource_reads(serve: Serve) -> None:
    server = Server({"lib://note": {"text": "a note"}})
    async with serve(servers(server), options={"hide_tools": ("abp_resources_*",)}) as client:
        with pytest.raises(MCPError, match="hide_tools"):
            await client.read_resource("lib://note")
    assert server.asked == []
