"""``abp mcp``: every request gets exactly one answer, whatever it is, and the next one is answered too."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.e2e.test_mcp_stdio import ABP, HELLO, Bridge, environment, request_of
from tests.support.mcp_http import ANN, served
from tests.support.relayed import LARGE

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": HELLO["clientInfo"],
    "io.modelcontextprotocol/clientCapabilities": {},
}
PARSE, REQUEST = -32700, -32600
_DEEP = b"[" * 9000 + b"]" * 9000


def request(identity: bytes, argument: bytes = b"1") -> bytes:
    params = b'{"name":"abp_status","arguments":{"x":' + argument + b"}}"
    return b'{"jsonrpc":"2.0","id":' + identity + b',"method":"tools/call","params":' + params + b"}"


#: Messages, with the id and the code of the error that is their answer; with the code 0, the answer is a result.
MESSAGES: dict[str, tuple[bytes, object, int]] = {
    "too deep": (request(b"7", _DEEP), 7, PARSE),
    "too deep, with an id that is a text": (request(b'"a \\"b"', _DEEP), 'a "b', PARSE),
    "too deep, with the id at the end": (
        b'{"jsonrpc":"2.0","method":"ping","params":{"a":' + _DEEP + b'},"id":8}',
        8,
        PARSE,
    ),
    # Only the ends are read. JSON-RPC has null for an id that is not known.
    "too deep, with ids inside": (
        b'{"jsonrpc":"2.0","params":{"id":1,"a":{"id":2}},"id":9,"method":"ping","x":' + _DEEP + b"}",
        None,
        PARSE,
    ),
    "100,000 levels": (request(b"10", b"[" * 100_000 + b"]" * 100_000), 10, REQUEST),
    "not closed": (request(b"11", b"[" * 30_000), 11, PARSE),
    "as many values as allowed": (request(b'"most"', b"[" + b"0," * 49_900 + b"0]"), "most", 0),
    "too many values": (request(b'"many"', b"[" + b"0," * 50_000 + b"0]"), "many", REQUEST),
    "no JSON": (b"hello", None, PARSE),
    "no UTF-8": (request(b"12", b'"\xff\xfe"'), 12, PARSE),
    "half of a surrogate pair": (request(b"13", b'"\\ud800"'), 13, PARSE),
    "a batch": (b'[{"jsonrpc":"2.0","id":14,"method":"ping"}]', None, REQUEST),
    "an empty batch": (b"[]", None, REQUEST),
    "null": (b"null", None, REQUEST),
    "a text as id": (request(b'"x"'), "x", 0),
    "a huge integer as id": (request(b"9" * 400), int("9" * 400), 0),
    "an integer of 5,000 digits as id": (request(b"9" * 5000), None, PARSE),
    "a whole number as id": (request(b"15.0"), 15, REQUEST),
    "a fraction as id": (request(b"1.5"), None, REQUEST),
    "null as id": (request(b"null"), None, REQUEST),
    "true as id": (request(b"true"), None, REQUEST),
    "an object as id": (request(b'{"id":3}'), None, REQUEST),
    "an integer of 5,000 digits": (request(b"16", b"9" * 5000), 16, PARSE),
    "8 MB of text": (request(b"17", b'"' + b"x" * 8_000_000 + b'"'), 17, 0),
    "no version": (b'{"id":18,"method":"ping"}', 18, REQUEST),
    "a number as method": (b'{"jsonrpc":"2.0","id":19,"method":5}', 19, REQUEST),
    "a list as params": (b'{"jsonrpc":"2.0","id":20,"method":"ping","params":[1]}', 20, REQUEST),
    "an unknown method": (b'{"jsonrpc":"2.0","id":21,"method":"x/y"}', 21, -32601),
}


@contextmanager
def bridge(folder: Path, command: Sequence[str] = ABP) -> Iterator[tuple[Bridge, socket.socket]]:
    """The process, whose stdin and stdout are one socket, as socat, inetd and socket units of systemd start it."""
    client, theirs = socket.socketpair()
    with client, client.makefile("wb") as requests, client.makefile("rb") as answers:
        with theirs:
            process = subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), env=environment(folder))
        with process:
            client.settimeout(60)
            try:
                yield Bridge(requests, answers), client
            finally:
                process.kill()


def check_answer(name: str, answer: Any, *, no_id: bool = False) -> None:
    """``no_id``: the answer may have none."""
    _, identity, code = MESSAGES[name]
    assert (answer["id"] == identity and type(answer["id"]) is type(identity)) or (no_id and answer["id"] is None), name
    assert answer.get("error", {"code": 0})["code"] == code, (name, answer)
    assert code == 0 or answer["error"]["message"], name


def test_each_stdio_message_is_answered_once(tmp_path: Path) -> None:
    with bridge(tmp_path) as (spoken, client):
        # A client that gave up discovery before the start: both requests are there when the process begins to read.
        spoken.send(request_of("discovery", "server/discover", _meta=ENVELOPE), request_of(0, "initialize", **HELLO))
        assert [("result" in answer, answer["id"]) for answer in (spoken.receive(), spoken.receive())] == [
            (False, "discovery"),
            (True, 0),
        ]
        spoken.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        spoken.send(b"")  # an empty line is no message
        for name, (message, _, _) in MESSAGES.items():
            spoken.send(message)
            answer = spoken.receive()
            check_answer(name, answer)
            if name == "too many values":
                assert answer["error"]["data"] == {"code": "TOO_LARGE", "limit": 50_000}
            spoken.send(request_of(f"after {name}", "ping"))  # one after the other: requests are answered as they end
            assert spoken.receive()["id"] == f"after {name}"
        check_slow_reading(spoken)
        last = [request_of(f"last {number}", "tools/list") for number in range(20)]
        spoken.send(*last, end=b"")
        client.shutdown(socket.SHUT_WR)
        assert_answered(spoken, last)


@pytest.mark.slow
def test_proxy_answers_over_one_socket(tmp_path: Path) -> None:
    with bridge(tmp_path, [*ABP[:-1], "proxy", "--", sys.executable, str(LARGE)]) as (spoken, _):
        spoken.ask("initialize", HELLO)
        check_slow_reading(spoken)


def check_slow_reading(spoken: Bridge) -> None:
    """More answers than the socket holds arrive, although they are read late."""
    requests = [request_of(f"slow {number}", "tools/list") for number in range(200)]
    spoken.send(*requests)
    time.sleep(0.5)
    assert_answered(spoken, requests)


def assert_answered(spoken: Bridge, requests: Sequence[Mapping[str, object]]) -> None:
    answers = [spoken.receive() for _ in requests]
    assert {answer["id"] for answer in answers if "result" in answer} == {request["id"] for request in requests}


@pytest.mark.slow
def test_open_subscription_does_not_delay_end_of_bridge(tmp_path: Path) -> None:
    # A bridge waits a second for the answers of other requests. A busy machine may take as long once.
    assert any(seconds_to_end(tmp_path) < 1 for _ in range(3))


def seconds_to_end(folder: Path) -> float:
    """Return how long an open subscription is answered after the end of input."""
    with bridge(folder) as (spoken, client):
        wanted = {"toolsListChanged": True}
        spoken.send(request_of("listen", "subscriptions/listen", _meta=ENVELOPE, notifications=wanted))
        assert "acknowledged" in spoken.receive()["method"]
        requests = (
            request_of("list", "tools/list", _meta=ENVELOPE),
            request_of("status", "tools/call", _meta=ENVELOPE, name="abp_status"),
        )
        spoken.send(*requests)
        answers = [spoken.receive() for _ in requests]
        assert {answer["id"] for answer in answers if "result" in answer} == {"list", "status"}
        ended = time.monotonic()
        client.shutdown(socket.SHUT_WR)
        assert spoken.receive()["id"] == "listen"
        return time.monotonic() - ended


async def test_each_http_message_is_answered_once(tmp_path: Path) -> None:
    headers = {
        "Authorization": f"Bearer {ANN}",
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    async with served(tmp_path) as address, httpx.AsyncClient(timeout=60, headers=headers) as client:
        hello = await client.post(address, json=request_of(0, "initialize", **HELLO))
        client.headers["mcp-session-id"] = hello.headers["mcp-session-id"]
        await client.post(address, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
        for name, (message, _, _) in MESSAGES.items():
            reply = await client.post(address, content=message)
            if reply.headers["content-type"].startswith("text/event-stream"):
                events = [line[5:] for line in reply.text.splitlines() if line.startswith("data:") and line[5:].strip()]
                (answer,) = map(json.loads, events)
            else:
                answer = reply.json()
            # too many values are refused on arrival, before the id may be there
            check_answer(name, answer, no_id=reply.status_code == 413)
            assert reply.status_code < 500, name
