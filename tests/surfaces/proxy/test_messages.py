"""Messages through ``abp proxy``: ids, limits, output that is no message, cancellations, and sudden ends."""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import product
from pathlib import Path

import pytest

from tests.support.relayed import Client, relayed

pytestmark = [pytest.mark.load, pytest.mark.asyncio(loop_scope="module")]


#: Ways to write an id, and the id as JSON.
SPELLINGS = [("7", 7), ("7.0", 7), ("7e0", 7), ('"seven"', "seven"), ('"\\u0073even"', "seven"), ('"7"', "7")]
#: Forms of an answer with some ``@id`` in it.
ANSWERS = [
    '{"jsonrpc":"2.0","id":@id,"result":%s}',
    '{"result":%s,"jsonrpc":"2.0","id":@id}',
    '{"result":%s, "id" : @id }',
]


def raw_call(identity: str, *lines: str) -> bytes:
    arguments = json.dumps({"lines": lines})
    call = f'{{"name":"raw","arguments":{arguments}}}'
    return f'{{"jsonrpc":"2.0","id":{identity},"method":"tools/call","params":{call}}}\n'.encode()


async def test_ids_are_compared_as_json_values(client: Client) -> None:
    text = "x" * 100_000
    for (spelling, identity), (other, same) in product(SPELLINGS, SPELLINGS):
        if same != identity:
            continue
        answer = f'{{"jsonrpc":"2.0","id":{other},"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}'
        client.chunks.put_nowait(raw_call(spelling, answer))
        result = (await client.answer(identity))["result"]
        assert result["content"][1]["type"] == "resource_link", (spelling, other)


@pytest.mark.parametrize(("value", "limit"), [("@deep", "500 levels"), ('{"a":@wide}', "1,000,000 values")])
async def test_answer_over_limit_error_names_limit(tmp_path: Path, value: str, limit: str) -> None:
    async with relayed(tmp_path) as client:
        for identity, form in product(["7", '"seven"', "7.5"], ANSWERS):
            waiting = client.ask("tools/call", name="raw", arguments={"lines": []})  # so that the id decides
            client.chunks.put_nowait(raw_call(identity, form % value))
            error = (await client.answer(json.loads(identity)))["error"]
            assert error["data"]["code"] == "TOO_LARGE" and limit in error["message"], (identity, form)
            assert await client.request("ping") == {}
            assert waiting not in client.raw


async def test_answer_over_byte_limit_fails_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("_upstream", "_exchange"):
        monkeypatch.setattr(f"transports.surfaces.mcp.proxy.{module}.MAX_BYTES", 5_000_000)
    async with relayed(tmp_path) as client:
        answer = await client.answer(client.ask("tools/call", name="huge", arguments={"size": 5_000_000}))
        assert answer["error"]["data"]["code"] == "TOO_LARGE" and "5,000,000" in answer["error"]["message"]
        assert await client.request("ping") == {}


async def test_unreadable_answer_without_id_fails_only_open_request_or_ends_connection(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="its request is unknown"):
        async with relayed(tmp_path) as client:
            client.chunks.put_nowait(raw_call("7", '{"jsonrpc":"2.0","result":@deep}'))
            assert (await client.answer(7))["error"]["data"]["code"] == "TOO_LARGE"
            assert await client.request("ping") == {}
            for identity in ("7", "8"):
                client.chunks.put_nowait(raw_call(identity))
            client.chunks.put_nowait(raw_call("9", '{"jsonrpc":"2.0","result":@deep}'))
            async with asyncio.timeout(30):
                await client.running


@pytest.mark.parametrize(
    ("value", "limit"),
    [("[" * 601 + "]" * 601, "500 levels"), ("[" + "1," * 1_000_000 + "1]", "1,000,000 values")],
    ids=["deep", "wide"],
)
async def test_request_over_limit_is_rejected(tmp_path: Path, value: str, limit: str) -> None:
    async with relayed(tmp_path) as client:
        for identity in ("7", '"seven"'):
            params = f'{{"name":"give","arguments":{value}}}'
            line = f'{{"jsonrpc":"2.0","id":{identity},"method":"tools/call","params":{params}}}\n'
            client.chunks.put_nowait(line.encode())
            error = (await client.answer(json.loads(identity)))["error"]
            assert error["data"]["code"] == "TOO_LARGE" and limit in error["message"]


NOISE = ["=== my server 1.0 ===", "[INFO] ready", "{ not json", '{"level":"info","method":"GET"}', "[]", "12", "null"]


async def test_non_message_server_output_is_dropped_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = '{"jsonrpc":"2.0","id":@id,"result":{"content":[]}}'
    async with relayed(tmp_path) as client:
        with caplog.at_level(logging.WARNING, "transports"):
            client.chunks.put_nowait(raw_call("7", *NOISE, answer, *NOISE))
            assert (await client.answer(7))["result"] == {"content": []}
            assert await client.request("ping") == {}
        assert client.other == []
        warnings = [record for record in caplog.records if "not a message" in record.getMessage()]
        assert len(warnings) == 1 and "my server" in warnings[0].getMessage()


async def test_non_strict_json_answers_are_passed_through_or_stored(client: Client) -> None:
    """Half of a surrogate pair and NaN are written by Python; the client says what is wrong with them."""
    half = '{"jsonrpc":"2.0","id":@id,"result":{"content":[],"half":"\\ud800"}}'
    number = '{"jsonrpc":"2.0","id":@id,"result":{"content":[],"number":NaN}}'
    client.chunks.put_nowait(raw_call("7", half))
    assert (await client.answer(7))["result"]["half"] == "\ud800"
    client.chunks.put_nowait(raw_call("8", number))
    assert "NaN" in json.dumps(await client.answer(8))
    text = "\\ud800" + "x" * 100_000
    answer = f'{{"jsonrpc":"2.0","id":@id,"result":{{"content":[{{"type":"text","text":"{text}"}}]}}}}'
    client.chunks.put_nowait(raw_call("7", answer))
    _, link = (await client.answer(7))["result"]["content"]
    assert (await client.content(link["uri"])).decode() == "\ufffd" + "x" * 100_000


async def test_batch_answers_contain_links_and_nested_batch_is_dropped(client: Client) -> None:
    result = json.dumps({"content": [{"type": "text", "text": "x" * 100_000}]})
    batch = ",".join(f'{{"jsonrpc":"2.0","id":"b{number}","result":{result}}}' for number in range(2))
    for number in range(2):
        client.chunks.put_nowait(raw_call(f'"b{number}"'))
    await client.request("ping")
    client.batches.clear()
    client.chunks.put_nowait(raw_call("7", f"[{batch}]", '{"jsonrpc":"2.0","id":7,"result":{}}'))
    await client.answer(7)
    (answers,) = client.batches
    assert [answer["result"]["content"][1]["type"] for answer in answers] == ["resource_link"] * 2
    note = '{"jsonrpc":"2.0","method":"notifications/message","params":{}}'
    client.batches.clear()
    lines = [f"[[{note}]]", f"[{note}]", '{"jsonrpc":"2.0","id":@id,"result":{}}']
    client.chunks.put_nowait(raw_call("7", *lines))
    await client.answer(7)
    assert client.batches == [[json.loads(note)]]


async def test_answer_to_unknown_call_is_dropped(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        client.answers_roots = False
        held = client.ask("tools/call", name="take", arguments={"file": "/no/file"})
        await client.until(lambda: client.questions)
        forged = f'{{"jsonrpc":"2.0","id":{held},"result":"forged"}}'
        unreadable = forged.replace('"forged"', "NaN")
        client.chunks.put_nowait(
            raw_call('"last"', forged, unreadable, f"[{forged}]", '{"jsonrpc":"2.0","id":@id,"result":{}}')
        )
        await client.answer("last")
        client.send({"id": client.questions[0], "result": {"roots": []}})
        assert "heads" in (await client.answer(held))["result"]["structuredContent"]
        assert client.batches == []


# --- cancellations ----------------------------------------------------------------------------------------------------


async def test_call_cancelled_while_reading_file_is_never_sent_and_none_delays_exit(tmp_path: Path) -> None:
    async with relayed(tmp_path) as client:
        client.answers_roots = False
        client.send({"id": 50, "method": "tools/call", "params": {"name": "take", "arguments": {"file": "/x"}}})
        await client.until(lambda: client.questions)
        client.send({"method": "notifications/cancelled", "params": {"requestId": 50.0}})
        client.send({"id": client.questions[0], "result": {"roots": []}})
        assert await client.request("ping") == {}
        assert 50 not in client.raw
        assert await client.request("tools/call", name="seen", arguments={}) == ["initialize", "tools/list", "ping"]
        client.chunks.put_nowait(raw_call("51"))  # which the server does not answer
        client.send({"method": "notifications/cancelled", "params": {"requestId": 51}})
        client.chunks.put_nowait(b"")
        async with asyncio.timeout(20):
            assert await client.running == 0


# --- a client that is gone --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["ping", "resources/read"])
async def test_unwritable_answer_ends_proxy(tmp_path: Path, method: str) -> None:
    async with relayed(tmp_path, "--bare") as client:
        client.is_gone = True
        client.ask(method, uri="artifact://x")
        async with asyncio.timeout(20):
            with pytest.raises(BrokenPipeError):
                await client.running
        client.running = asyncio.get_running_loop().create_future()
        client.running.set_result(0)


async def test_store_failure_is_returned_as_request_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with relayed(tmp_path) as client:

        async def fail(*_: object, **__: object) -> None:
            raise KeyError("of a store")

        monkeypatch.setattr(type(client.store), "stat", fail)
        answer = await client.answer(client.ask("resources/read", uri="artifact://x"))
        assert "KeyError" in answer["error"]["message"]
        take = client.ask("tools/call", name="take", arguments={"file": "artifact://x"})
        assert "KeyError" in (await client.answer(take))["error"]["message"]
        assert await client.request("ping") == {}
