"""The relay of ``abp proxy``: what passes, what is replaced, files as arguments, and the server's death."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest

from tests.support.relayed import Client, relayed
from tests.support.rows import each_row
from transports.artifacts import Retention, open_store
from transports.errors import StoreError
from transports.surfaces.mcp.proxy._stats import Count, Size, Stats, read_log, table_rows

pytestmark = [pytest.mark.load, pytest.mark.asyncio(loop_scope="module")]

LIMIT = 64 * 1024
LONG = "x" * 100_000


def bytes_of(size: int) -> bytes:
    return random.Random(1).randbytes(size)


def base64_of(size: int) -> str:
    return base64.b64encode(bytes_of(size)).decode()


def text_of(size: int) -> str:
    return ("line é\n" * size)[:size]


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = [value]
    return value


def links(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [block for block in result["content"] if block["type"] == "resource_link"]


async def test_small_messages_pass_through_byte_for_byte(tmp_path: Path) -> None:
    result = '{"content":[],"a":1.0,"b":1e3,"c":12345678901234567890123,"d":"\\u00e9\\/"}'
    odd = f'{{"id":7, "method":"tools/call","params":{{"name":"give","arguments":{{"result":{result}}}}}}}'
    async with relayed(tmp_path) as client:
        client.chunks.put_nowait(odd.encode() + b"\n")
        await client.until(lambda: 7 in client.raw)
        assert client.raw[7] == json.dumps({"jsonrpc": "2.0", "id": 7, "result": json.loads(result)}).encode()
        small = {"type": "image", "data": base64_of(40_000), "mimeType": "image/png"}
        assert (await client.give({"content": [small]}))["content"] == [small]
        prompt = {"messages": [{"role": "user", "content": small}]}
        assert await client.request("prompts/get", name="p", arguments={"result": prompt}) == prompt
        counted = client.stats.tools["prompts/get"]
        assert (counted.pictures_in, counted.pictures_out) == (1, 1) and counted.bytes_in < 1000
        assert await client.store.list() == []


async def test_value_at_inline_limit_stays_and_larger_becomes_link(tmp_path: Path) -> None:
    async with relayed(tmp_path, max_inline=10_000) as client:
        frame = len(json.dumps({"type": "text", "text": ""}))
        at = {"type": "text", "text": "x" * (10_000 - frame)}
        assert (await client.give({"content": [at], "more": "y" * 5000}))["content"] == [at]
        beyond = {"type": "text", "text": at["text"] + "x"}
        shown, link = (await client.give({"content": [beyond]}))["content"]
        assert shown["type"] == "text" and len(shown["text"]) < 4000
        assert (await client.content(link["uri"])).decode() == beyond["text"]


async def test_binaries_are_replaced_in_place_by_links(client: Client) -> None:
    size = 300_000
    image = {"type": "image", "data": f"@base64:{size}", "mimeType": "image/webp", "annotations": {"priority": 1}}
    resource = {"uri": "file:///r/report.bin", "mimeType": "application/x-report", "blob": f"@base64:{size + 1}"}
    blocks = [{"type": "text", "text": "a"}, image, {"type": "resource", "resource": resource}]
    result = await client.give({"content": [*blocks, {"type": "text", "text": "z"}]})
    first, image, file, last = result["content"]
    assert [first["text"], last["text"]] == ["a", "z"]
    assert image["type"] == file["type"] == "resource_link"
    assert image["size"] == size and image["annotations"]["priority"] == 1 and image["mimeType"] == "image/webp"
    assert file["name"] == "report.bin" and file["mimeType"] == "application/x-report"
    for block, expected in ((image, bytes_of(size)), (file, bytes_of(size + 1))):
        assert block["_meta"]["sha256"] == hashlib.sha256(expected).hexdigest()
        assert await client.content(block["uri"]) == expected
    assert result["_meta"]["abp-transports/artifacts"]["content.1.data"]["uri"] == image["uri"]


async def test_long_texts_show_preview_shape_and_link(client: Client, tmp_path: Path) -> None:
    rows = json.dumps([{"id": number, "name": "n" * 30} for number in range(3000)])
    text, link = (await client.give({"content": [{"type": "text", "text": "@text:200000"}]}))["content"]
    assert text["text"].startswith("line é\nline é\n") and "200,000 characters, 28,572 lines" in text["text"]
    assert link["uri"] in text["text"]
    assert (await client.content(link["uri"])).decode() == text_of(200_000)
    text, link = (await client.give({"content": [{"type": "text", "text": rows}]}))["content"]
    assert "a list of 3,000 items, each with id, name" in text["text"] and link["mimeType"] == "application/json"
    assert (await client.content(link["uri"])).decode() == rows
    async with relayed(tmp_path, json_previews=True) as other:
        text, link = (await other.give({"content": [{"type": "text", "text": rows}]}))["content"]
        assert json.loads(text["text"])[0] == {"id": 0, "name": "n" * 30}


async def test_small_texts_are_also_limited_in_total(client: Client) -> None:
    texts = [{"type": "text", "text": f"{number}" * 20_000} for number in range(8)]
    result = await client.give({"content": texts})
    assert len(json.dumps(result)) < 1.5 * LIMIT
    kept = [block for block in result["content"] if block in texts]
    assert len(kept) == 3 and len(links(result)) == 5


async def test_files_in_json_text_are_stored_and_json_stays_valid(client: Client) -> None:
    pdf = b"%PDF-1.4\n" + bytes_of(100_000)
    text = json.dumps({"name": "x", "content": base64.b64encode(pdf).decode(), "pages": [1, 2]})
    shown, link = (await client.give({"content": [{"type": "text", "text": text}]}))["content"]
    document = json.loads(shown["text"])
    assert document["name"] == "x" and document["pages"] == [1, 2] and link["uri"] in document["content"]
    assert await client.content(link["uri"]) == pdf


async def test_broken_base64_is_kept_unchanged(client: Client) -> None:
    broken = base64_of(60_000)[:-2] + "!!"
    block = {"type": "image", "data": broken, "mimeType": "image/png"}
    result = await client.give({"content": [block]})
    assert (await client.content(links(result)[0]["uri"])).decode() == broken
    assert "base64" in result["_meta"]["abp-transports/warnings"][0]


PNG = b"\x89PNG\r\n\x1a\n" + bytes_of(60_000)
SPELLINGS = {
    "plain": base64.b64encode(PNG).decode(),
    "url-safe": base64.urlsafe_b64encode(PNG).decode(),
    "without padding": base64.b64encode(PNG).decode().rstrip("="),
    "in lines": base64.encodebytes(PNG).decode(),
    "in lines of CRLF": base64.encodebytes(PNG).decode().replace("\n", "\r\n"),
    "data: URL": "data:image/png;base64," + base64.b64encode(PNG).decode(),
}


async def test_every_base64_variant_decodes_to_declared_file(client: Client) -> None:
    for spelling, text in SPELLINGS.items():
        image = {"type": "image", "data": text, "mimeType": "image/png"}
        resource = {"uri": "x://a.png", "mimeType": "image/png", "blob": text}
        results: list[dict[str, object]] = [
            {"content": [image]},
            {"content": [{"type": "resource", "resource": resource}]},
            {"content": [], "structuredContent": {"data": text, "mimeType": "image/png"}},
        ]
        if spelling == "data: URL":
            results.append({"content": [{"type": "text", "text": text}]})
        for result in results:
            (link,) = (await client.give(result))["content"]
            assert link["mimeType"] == "image/png" and await client.content(link["uri"]) == PNG, spelling


async def test_link_keeps_server_metadata_of_its_block(client: Client) -> None:
    resource = {"uri": "book://one.xlsx", "blob": "@base64:90000", "_meta": {"zoo/inner": 1, "sha256": "forged"}}
    block = {"type": "resource", "resource": resource, "annotations": {"priority": 0.25}, "_meta": {"zoo/block": 2}}
    (link,) = (await client.give({"content": [block]}))["content"]
    meta = link["_meta"]
    assert (meta["abp-transports/uri"], meta["zoo/inner"], meta["zoo/block"]) == ("book://one.xlsx", 1, 2)
    assert meta["sha256"] == hashlib.sha256(bytes_of(90_000)).hexdigest() and link["annotations"]["priority"] == 0.25


async def test_view_in_tool_result_is_shortened_and_linked(client: Client) -> None:
    view = {"uri": "ui://card", "mimeType": "text/html;profile=mcp-app", "text": "@text:200000"}
    shown, link = (await client.give({"content": [{"type": "resource", "resource": view}]}))["content"]
    assert shown["resource"]["uri"] == "ui://card" and len(shown["resource"]["text"]) < 4000
    assert (await client.content(link["uri"])).decode() == text_of(200_000)


async def test_same_file_is_linked_once(client: Client) -> None:
    image = {"type": "image", "data": "@base64:90000", "mimeType": "image/webp"}
    structured = {"first": image, "second": image}
    result = await client.give({"content": [image, image], "structuredContent": structured})
    (link,) = links(result)
    assert len(result["content"]) == 1 and link["uri"] in result["structuredContent"]["second"]["data"]


async def test_long_structured_content_is_truncated(client: Client) -> None:
    result = await client.give({"content": [], "structuredContent": {"rows": "@rows:10000", "n": 7}})
    (link,) = links(result)
    assert len(json.dumps(result)) < 8000 and result["structuredContent"]["n"] == 7
    assert len(json.loads(await client.content(link["uri"]))["rows"]) == 10_000


async def test_structured_content_still_matches_schema(client: Client) -> None:
    content = {"data": "@base64:300000", "mimeType": "image/png", "n": 1}
    result = await client.give({"content": [], "structuredContent": content}, "loose")
    (link,) = links(result)
    assert result["structuredContent"]["data"].startswith(link["uri"]) and result["structuredContent"]["n"] == 1
    assert await client.content(link["uri"]) == bytes_of(300_000)
    result = await client.give({"content": [], "structuredContent": {"rows": "@rows:5000"}}, "loose")
    (link,) = links(result)
    assert result["structuredContent"]["rows"][0] == {"id": 0, "name": "row 0"}
    assert len(json.loads(await client.content(link["uri"]))["rows"]) == 5000


async def test_data_that_schema_forbids_replacing_stays_with_warning(client: Client) -> None:
    result = await client.give({"content": [], "structuredContent": {"data": "@base64:300000"}}, "strict")
    assert result["structuredContent"]["data"] == base64_of(300_000) and links(result) == []
    assert "outputSchema" in result["_meta"]["abp-transports/warnings"][0]
    result = await client.give({"content": [], "structuredContent": {"rows": "@rows:5000"}}, "strict")
    assert len(result["structuredContent"]["rows"]) == 5000
    assert "outputSchema" in result["_meta"]["abp-transports/warnings"][0]


@each_row(
    "result",
    [
        {"more": LONG},
        {"content": [LONG]},
        {"content": [{"type": "other", "more": LONG}]},
        {"content": [{"type": "resource", "resource": {"uri": "x://a", "more": LONG}}]},
    ],
)
async def test_long_content_of_other_form_stays(client: Client, result: dict[str, Any]) -> None:
    assert await client.give(result) == result


@each_row(
    ("fields", "mime_type", "content"),
    [
        ({"log": LONG}, "text/plain", LONG.encode()),
        ({"table": json.dumps([LONG])}, "application/json", json.dumps([LONG]).encode()),
        ({"page": SPELLINGS["data: URL"]}, "image/png", PNG),
        ({"data": LONG + "!", "mimeType": "image/png"}, "text/plain", LONG.encode() + b"!"),  # not base64 after all
    ],
)
async def test_long_text_in_structured_content_becomes_a_file(
    client: Client, fields: dict[str, str], mime_type: str, content: bytes
) -> None:
    result = await client.give({"content": [], "structuredContent": fields})
    (link,) = links(result)
    assert link["mimeType"] == mime_type and await client.content(link["uri"]) == content
    assert link["uri"] in result["structuredContent"][next(iter(fields))]


@each_row(
    ("value", "warned"),
    [
        (nested([LONG], 100), []),  # too deep to be searched
        ({"data": LONG + "!", "mimeType": "image/png"}, ["content.0.text.data"]),
    ],
)
async def test_json_text_without_files_is_stored_as_it_is(client: Client, value: object, warned: list[str]) -> None:
    text = json.dumps(value)
    result = await client.give({"content": [{"type": "text", "text": text}]})
    (link,) = links(result)
    assert link["mimeType"] == "application/json" and (await client.content(link["uri"])).decode() == text
    warnings = result["_meta"].get("abp-transports/warnings", [])
    assert [warning.partition(":")[0] for warning in warnings] == warned


async def test_proxy_replaces_resources_but_not_views(client: Client) -> None:
    (item,) = (await client.request("resources/read", uri="thing://200000"))["contents"]
    assert item["uri"] == "thing://200000" and "blob" not in item
    (about,) = item["_meta"]["abp-transports/artifacts"]
    assert await client.content(about["uri"]) == bytes_of(200_000)
    (view,) = (await client.request("resources/read", uri="ui://view"))["contents"]
    assert len(view["text"]) > LIMIT and view["mimeType"] == "text/html;profile=mcp-app"


async def test_artifact_ranges_are_read_and_other_artifacts_left_to_the_server(client: Client) -> None:
    audio = {"type": "audio", "data": "@base64:90000", "mimeType": "audio/wav"}
    (link,) = links(await client.give({"content": [audio]}))
    assert await client.content(link["uri"] + "?offset=10&length=20") == bytes_of(90_000)[10:30]
    # What the proxy does not have is the server's.
    (item,) = (await client.request("resources/read", uri="artifact://10"))["contents"]
    assert base64.b64decode(item["blob"]) == bytes_of(10)


async def test_proxy_adds_resources_capability_if_missing(client: Client, tmp_path: Path) -> None:
    assert "resources" in client.hello["capabilities"]
    assert "error" in await client.answer(client.ask("resources/list"))  # the server's own answer
    async with relayed(tmp_path, "--bare") as bare:
        described = bare.hello
        assert described["capabilities"] == {"tools": {}, "resources": {}}
        assert described["serverInfo"] == {"name": "large", "version": "1.0"}
        assert await bare.request("resources/list") == {"resources": []}
        (template,) = (await bare.request("resources/templates/list"))["resourceTemplates"]
        assert template["uriTemplate"].startswith("artifact://")
        answer = await bare.answer(bare.ask("resources/read", uri="artifact://10"))
        assert answer["error"]["data"]["code"] == "ARTIFACT_NOT_FOUND"


async def test_proxy_relays_questions_and_progress_both_ways(client: Client) -> None:
    client.other.clear()
    call = client.ask("tools/call", name="ask", arguments={}, _meta={"progressToken": "p"})
    await client.until(lambda: client.other)
    assert client.other[0]["method"] == "sampling/createMessage" and client.other[0]["id"] == "q1"
    client.send({"id": "q1", "result": {"role": "assistant", "content": "x" * 200_000}})
    answer = await client.answer(call)
    assert client.other[1]["method"] == "notifications/progress"
    (link,) = links(answer["result"])
    assert json.loads(await client.content(link["uri"]))["result"]["content"] == "x" * 200_000


# --- files as arguments -----------------------------------------------------------------------------------------------


async def test_artifacts_and_files_below_roots_are_passed_as_arguments(tmp_path: Path) -> None:
    root = tmp_path / "shared folder"
    root.mkdir()
    (root / "a b.txt").write_bytes(b"of the root")
    (tmp_path / "secret.txt").write_bytes(b"outside")
    (root / "way out").symlink_to(tmp_path / "secret.txt")
    async with relayed(tmp_path) as client:
        client.roots = [root.as_uri()]
        ref = await client.store.put_bytes(bytes_of(200_000), mime_type="image/png", filename="p.png")
        outside, way_out = str(tmp_path / "secret.txt"), str(root / "way out")
        taken = await client.call(
            "take", file=ref.uri, bytes=ref.uri, files=[(root / "a b.txt").as_uri(), outside, way_out], text=ref.uri
        )
        heads, sums = taken["structuredContent"]["heads"], taken["structuredContent"]["sums"]
        whole = hashlib.sha256(bytes_of(200_000)).hexdigest()
        assert heads["file"][0].startswith("data:image/png;name=p.png;base64,") and sums["file"] == [whole]
        assert sums["bytes"] == [whole] and not heads["bytes"][0].startswith("data:")
        assert heads["files"][0].startswith("data:text/plain;name=a%20b.txt;base64,")
        assert sums["files"][0] == hashlib.sha256(b"of the root").hexdigest()
        assert heads["files"][1:] == [outside, way_out]  # as the client gave them
        assert heads["text"] == [ref.uri]


async def test_changed_or_odd_roots_of_the_client(tmp_path: Path) -> None:
    for name in ("before", "after"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    before, after = ((tmp_path / name).as_uri() for name in ("before", "after"))
    path = str(tmp_path / "after" / "a.txt")
    async with relayed(tmp_path) as client:

        async def is_sent() -> bool:
            (head,) = (await client.call("take", file=path))["structuredContent"]["heads"]["file"]
            return bool(head != path)

        async def change(*roots: Any) -> None:
            client.roots = [*roots]
            client.send({"method": "notifications/roots/list_changed"})

        client.roots = [before]
        assert not await is_sent()
        client.roots = [after]
        assert not await is_sent()  # the client has not said that they changed
        await change("file://[", "file://elsewhere/x", "no/path", "file:///a%00", after)
        assert await is_sent()
        await change(5)
        assert not await is_sent()

        # A change while the client is asked.
        client.answers_roots = False
        await change(before)
        asked = len(client.questions)
        sending = asyncio.ensure_future(is_sent())
        await client.until(lambda: len(client.questions) > asked)
        client.answers_roots = True
        await change(after)
        assert await sending


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_proxy_exits_with_status_of_its_server(tmp_path: Path) -> None:
    async with relayed(tmp_path, "--once", str(tmp_path / "died")) as client:
        identity = client.ask("tools/call", name="risky", arguments={})
        async with asyncio.timeout(30):
            assert await client.running == 3
        assert identity not in client.raw


async def test_open_requests_are_answered_after_stdin_closes(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        identities = [client.ask("tools/call", name="give", arguments={"result": {"n": n}}) for n in range(20)]
        client.chunks.put_nowait(b'{"jsonrpc":"2.0","id":"last","method":"ping"}')  # without the end of its line
        client.chunks.put_nowait(b"")
        async with asyncio.timeout(30):
            assert await client.running == 0
        assert {*identities, "last"} <= client.raw.keys()


# --- bounds and counts ------------------------------------------------------------------------------------------------


async def test_proxy_lists_files_in_pages(tmp_path: Path) -> None:
    async with relayed(tmp_path, "--bare", max_inline=1000) as client:
        blobs = [{"type": "image", "data": f"@base64:{2000 + number}", "mimeType": "image/png"} for number in range(51)]
        await client.give({"content": blobs})
        first = await client.request("resources/list")
        last = await client.request("resources/list", cursor=first["nextCursor"])
        assert len({resource["uri"] for page in (first, last) for resource in page["resources"]}) == 51
        assert "nextCursor" not in last
        refused = await client.answer(client.ask("resources/list", cursor="nowhere"))
        assert "cursor is not valid" in refused["error"]["message"]


async def test_next_run_reads_files_of_last_run_until_expiry(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        (link,) = links(await client.give({"content": [{"type": "image", "data": "@base64:90000"}]}))
    async with relayed(tmp_path) as client:
        assert await client.content(link["uri"]) == bytes_of(90_000)
    # the default folder is that of `abp call` too, whose files have no owner and stay
    async with open_store(tmp_path / "store", retention=Retention.only(ttl_seconds=0, keep_unscoped=True)) as store:
        await store.gc()
        assert await store.list() == []


def picture(size: int) -> dict[str, object]:
    return {"type": "image", "data": f"@base64:{size}", "mimeType": "image/png"}


async def test_bytes_and_images_are_counted_per_tool(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    #: Results, and how many images the server and the client have counted with them.
    results: list[tuple[list[object], int, int]] = [
        ([picture(30_000), {"type": "text", "text": "two"}, picture(40_000)], 2, 2),
        ([picture(30_000), picture(300_000)], 4, 3),
        ([{"type": "text", "text": '"image"'}], 4, 3),
        ([{"type": "image"}, "image", {"type": ["image"]}], 4, 3),
    ]
    async with relayed(tmp_path, log=log) as client:
        bytes_in = bytes_out = 0
        for blocks, pictures_in, pictures_out in results:
            await client.give({"content": blocks})
            counted = client.stats.tools["give"]
            assert (counted.pictures_in, counted.pictures_out) == (pictures_in, pictures_out)
            assert 0 < counted.bytes_in - bytes_in < 1000  # an image is not counted as base64
            assert 0 < counted.bytes_out - bytes_out < 4000
            bytes_in, bytes_out = counted.bytes_in, counted.bytes_out
        await client.give({"content": [{"type": "audio", "data": "@base64:300000", "mimeType": "audio/wav"}]})
        counted = client.stats.tools["give"]
        assert (counted.calls, counted.files) == (5, 2)
        assert counted.bytes_in - bytes_in > 400_000 and counted.bytes_out - bytes_out < 4000
    assert read_log(log) == {"large": {"give": counted}}
    assert log.stat().st_mode & 0o077 == 0
    headings, row = table_rows(read_log(log))
    assert "pictures to the model" in headings
    assert row == ("large", "give", *(f"{number:,}" for number in astuple(counted)))


async def test_activity_log_begins_anew_at_its_limit_and_keeps_the_last_one(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"x" * (4 << 20) + b"\n")  # a line that was cut off, for example
    stats = Stats("s", log)
    for _ in range(2):
        stats.count("t", Size(1), Size(2), 3)
        stats.flush()
    assert 0 < log.stat().st_size < 1000
    assert read_log(log)["s"]["t"] == Count(2, 2, 0, 4, 0, 6)


async def test_activity_log_that_cannot_be_written_ends_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stats = Stats("s", tmp_path)  # a folder
    for number in range(1002):
        stats.count(f"t{number}", Size(1), Size(1), 0)
        stats.flush()
    (record,) = caplog.records
    assert "cannot be written" in record.getMessage()
    assert len(stats.tools) == 1001 and stats.tools["(others)"].calls == 2
    with pytest.raises(StoreError, match="cannot be read"):
        read_log(tmp_path)
