"""Prompts with large content, and files deep in the arguments of a tool."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path

import pytest

from tests.support.relayed import Client, relayed
from tests.surfaces.proxy.test_relay import bytes_of, text_of
from transports.surfaces.mcp.proxy._files import _schema_parts

pytestmark = pytest.mark.load


@pytest.mark.asyncio(loop_scope="module")
async def test_large_prompt_content_becomes_links(client: Client) -> None:
    resource = {"uri": "file:///r/report.bin", "mimeType": "application/x-report", "blob": "@base64:90001"}
    blocks = [
        {"type": "text", "text": "look at this"},
        {"type": "image", "data": "@base64:90000", "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
        {"type": "text", "text": "@text:100000"},
    ]
    given = {"description": "d", "messages": [{"role": "user", "content": block} for block in blocks]}
    result = await client.request("prompts/get", name="p", arguments={"result": given})
    small, image, file, text, link = result["messages"]
    assert result["description"] == "d" and {one["role"] for one in result["messages"]} == {"user"}
    assert small == given["messages"][0]
    assert [one["content"]["type"] for one in (image, file, link)] == ["resource_link"] * 3
    assert await client.content(image["content"]["uri"]) == bytes_of(90_000)
    assert await client.content(file["content"]["uri"]) == bytes_of(90_001)
    assert link["content"]["uri"] in text["content"]["text"] and len(text["content"]["text"]) < 4000
    assert (await client.content(link["content"]["uri"])).decode() == text_of(100_000)
    assert "messages.1.content.data" in result["_meta"]["abp-transports/artifacts"]
    stored = await client.store.stat(image["content"]["uri"].rpartition("/")[2])
    assert stored.source["capability"] == "prompts.get"


async def test_older_clients_get_text_instead_of_links(tmp_path: Path) -> None:
    image = {"type": "image", "data": "@base64:90000", "mimeType": "image/png"}
    given = {"messages": [{"role": "assistant", "content": image}, {"role": "user", "content": "not a block"}]}
    async with relayed(tmp_path) as client:
        await client.request("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={})
        result = await client.request("prompts/get", name="p", arguments={"result": given})
        first, odd = result["messages"]
        assert first["role"] == "assistant" and first["content"]["text"].startswith("artifact://prompts_get_")
        assert odd == given["messages"][1]
        (text,) = (await client.give({"content": [image]}))["content"]
        assert text["type"] == "text" and text["text"].startswith("artifact://give_")


@pytest.mark.asyncio(loop_scope="module")
async def test_nested_file_arguments_are_sent(client: Client) -> None:
    """In lists of objects, behind references and alternatives, and below a schema that refers to itself."""
    ref = await client.store.put_bytes(bytes_of(100_000), mime_type="image/png", filename="p.png")
    pages = [{"title": ref.uri, "picture": ref.uri}, {"next": {"next": {"picture": ref.uri}}}, {"title": "x"}]
    taken = await client.call("take", pages=pages, cover={"picture": ref.uri}, file=ref.uri)
    heads, sums = taken["structuredContent"]["heads"], taken["structuredContent"]["sums"]
    whole = hashlib.sha256(bytes_of(100_000)).hexdigest()
    assert heads["pages"][0] == ref.uri  # a title is no file
    assert sums["pages"][1:] == [whole, whole, ""] and sums["cover"] == sums["file"] == [whole]


def test_recursive_schema_is_walked_for_at_most_1000_parts() -> None:
    again = {"$ref": "#/$defs/A"}
    node = {"properties": {f"p{number}": again for number in range(100)}, "anyOf": [again] * 100}
    assert len([*islice(_schema_parts({**again, "$defs": {"A": node}}), 1001)]) == 1000


@pytest.mark.asyncio(loop_scope="module")
async def test_argument_file_limits_are_enforced(client: Client) -> None:
    most, beyond = [await client.store.put_bytes(bytes(size)) for size in (1_000_000, 1_000_001)]
    small = await client.store.put_bytes(b"small")
    cases = (
        ({"pages": [{"picture": beyond.uri}]}, "TOO_LARGE"),
        ({"pages": [{"picture": small.uri}] * 17}, "INVALID_PARAMS"),
        ({"cover": {"picture": "artifact://none_000000000000"}}, "ARTIFACT_NOT_FOUND"),
        ({"file": beyond.uri}, "TOO_LARGE"),
        ({"file": "artifact://none_000000000000"}, "ARTIFACT_NOT_FOUND"),
    )
    for arguments, code in cases:
        answer = await client.answer(client.ask("tools/call", name="take", arguments=arguments))
        assert answer["error"]["data"]["code"] == code
    assert "structuredContent" in await client.call("take", file=most.uri)
    sent = await client.call("take", pages=[{"picture": small.uri}] * 16)
    assert len(sent["structuredContent"]["sums"]["pages"]) == 16
