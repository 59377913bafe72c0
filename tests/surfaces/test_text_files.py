"""Text that an app declares as a file is a file in the MCP bridge, and in the artifact server and its gallery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apps import answering
from tests.support.mcp_clients import Apps, Serve, called, era, read_as_resource, serve
from tests.support.web_client import running
from transports.artifacts import LocalStore

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

__all__ = ["era", "serve"]

#: Each way to declare one (docs/protocol.md 9.3): name of the file, type, how.
TEXTS: dict[str, tuple[str, dict[str, object]]] = {
    "page.html": ("<p>é</p>", {"mimeType": "text/html", "encoding": "utf-8"}),
    "table.csv": ("a,b\r\n1,é\r\n", {"mimeType": "text/csv", "size": 11}),
    "notes.md": ("# é", {"mimeType": "text/markdown"}),
    "feed.xml": ("<é/>", {"mimeType": "application/xml"}),
    "list.json": ("[1]", {"mimeType": "application/json"}),
}
NESTED = {"pages": [{"file": {"content": text, "filename": name, **more}} for name, (text, more) in TEXTS.items()]}
(NAME, (TEXT, MORE)) = next(iter(TEXTS.items()))
TOP = {"content": TEXT, "filename": NAME, **MORE}
APP = {"top": answering(TOP), "nested": answering(NESTED)}
EXPECTED = {name: (str(more["mimeType"]), len(text.encode())) for name, (text, more) in TEXTS.items()}


async def test_the_bridge_links_the_files(serve: Serve) -> None:
    async with serve(Apps(APP)) as client:
        for tool, count in (("abp_top", 1), ("abp_nested", len(TEXTS))):
            answer = await client.call_tool(tool, {})
            links = {item.name: item for item in answer.content if item.type == "resource_link"}
            assert len(links) == count
            assert {name: (link.mime_type, link.size) for name, link in links.items()}.items() <= EXPECTED.items()
            for name, link in links.items():
                assert await read_as_resource(client, link.uri) == TEXTS[name][0].encode()
        document = await called(client, "abp_nested")
        assert {one["filename"]: (one["mime_type"], one["size_bytes"]) for one in document["artifacts"]} == EXPECTED


async def test_the_artifact_server_shows_the_files(tmp_path: Path) -> None:
    async with running(LocalStore(tmp_path / "out"), APP) as web:
        session = (await web.served.apps.connect("memory:", {})).key
        for capability, count in (("top", 1), ("nested", len(TEXTS))):
            async with web.listen() as events:
                call = (await web.post(f"/apps/{session}/calls", {"capability": capability})).json["id"]
                over = (await events.until("call_finished", id=call))[2]
            assert over["status"] == "succeeded" and len(over["artifacts"]) == count
            for artifact in over["artifacts"]:
                meta = (await web.get(f"/artifacts/{artifact}/meta")).json
                assert EXPECTED[meta["filename"]] == (meta["mime_type"], meta["size_bytes"])
                assert (await web.get(f"/artifacts/{artifact}")).body == TEXTS[meta["filename"]][0].encode()
