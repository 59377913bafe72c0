"""Text that an app declares as a file is a file in the MCP bridge, and in the artifact server and its gallery."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.apps import answering
from tests.support.mcp_clients import Apps, Serve, era, files_of, read_as_resource, serve
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
TOP = {"content": "<p>ü</p>", "mimeType": "text/html", "encoding": "utf-8", "filename": "top.html"}
NESTED = {"pages": [{"file": {"content": text, "filename": name, **more}} for name, (text, more) in TEXTS.items()]}
APP = {"top": answering(TOP), "nested": answering(NESTED)}
CONTENT = {"top.html": b"<p>\xc3\xbc</p>", **{name: text.encode() for name, (text, _) in TEXTS.items()}}
TYPES = {"top.html": "text/html", **{name: str(more["mimeType"]) for name, (_, more) in TEXTS.items()}}
EXPECTED = {"abp_top": {"top.html"}, "abp_nested": set(TEXTS)}


async def test_bridge_links_stored_text_files(serve: Serve) -> None:
    async with serve(Apps(APP)) as client:
        for tool, names in EXPECTED.items():
            answer = await client.call_tool(tool, {})
            links = {item.name: item for item in answer.content if item.type == "resource_link"}
            assert set(links) == names
            assert {link.uri for link in links.values()} == {
                file["uri"] for file in files_of(answer.structured_content)
            }
            for name, link in links.items():
                assert (link.mime_type, link.size) == (TYPES[name], len(CONTENT[name]))
                assert await read_as_resource(client, link.uri) == CONTENT[name]


async def test_artifact_server_serves_stored_text_files(tmp_path: Path) -> None:
    async with running(LocalStore(tmp_path / "out"), APP) as web:
        session = (await web.served.apps.connect("memory:", {})).key
        for tool, names in EXPECTED.items():
            async with web.listen() as events:
                capability = tool.removeprefix("abp_")
                call = (await web.post(f"/apps/{session}/calls", {"capability": capability})).json["id"]
                over = (await events.until("call_finished", id=call))[2]
            assert over["status"] == "completed"
            seen = [(await web.get(f"/artifacts/{artifact}/meta")).json for artifact in over["artifacts"]]
            assert {meta["filename"] for meta in seen} == names
            for meta in seen:
                name = meta["filename"]
                assert (meta["mime_type"], meta["size_bytes"]) == (TYPES[name], len(CONTENT[name]))
                assert (await web.get(f"/artifacts/{meta['id']}")).body == CONTENT[name]
