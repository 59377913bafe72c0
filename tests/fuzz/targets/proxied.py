"""A client and a server that speak through ``abp proxy``: ids, depths, cancellations, half lines, and sudden ends."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeAlias

from transports.artifacts import open_store
from transports.errors import ProtocolError
from transports.mcp._stdio import LineSplitter, MessageEnds
from transports.protocol._strict_json import MAX_JSON_DEPTH
from transports.surfaces.mcp.proxy._duplex import relay
from transports.surfaces.mcp.proxy._exchange import ClientMessage, ProxyContext
from transports.surfaces.mcp.proxy._messages import MAX_BYTES, key_of
from transports.surfaces.mcp.proxy._rewriting import ProxyOptions
from transports.surfaces.mcp.proxy._stats import Stats

_Deliver: TypeAlias = "Callable[[bytes | MessageEnds], Awaitable[None]]"
_TOOLS = {"tools": [{"name": "take", "inputSchema": {"properties": {"file": {"type": "string", "x-mcp-file": {}}}}}]}
_DEEP = b"[" * (MAX_JSON_DEPTH + 1) + b"]" * (MAX_JSON_DEPTH + 1)
_RESULTS = (
    b"{}",
    b'{"content":[]}',
    b'{"content":[{"type":"text","text":"%s"}]}' % (b"x" * 300),
    b'{"content":[{"type":"image","data":"%s"}],"structuredContent":{"a":"%s"}}' % (b"AAAA" * 100, b"y" * 300),
    b'{"content":5,"structuredContent":%s}' % (b"[1," * 60 + b"1" + b"]" * 60),
    b'{"a":%s}' % _DEEP,
    b'{"content":[{"type":"text","text":"\\ud800%s"}]}' % (b"z" * 300),
    json.dumps(_TOOLS).encode(),
    b'{"a":NaN}',
)
_NOISE = (
    b"ready",
    b"[INFO] ready",
    b"{ not json",
    b'{"level":"info","method":"GET"}',
    b"\xff\xfe",
    b"[]",
    b'{"jsonrpc":5}',
)
_METHODS = (b"tools/call", b"tools/list", b"resources/read", b"initialize", b"ping", b"prompts/get", b"tasks/get")
_PARAMS = (
    b'{"name":"take","arguments":{"file":"artifact://[x"}}',
    b'{"name":"take","arguments":{"file":"/etc/hostname"}}',
    b'{"uri":"artifact://none_0"}',
    b'{"capabilities":{"roots":{}},"_meta":{"progressToken":1.0}}',
    b"[1]",
    b'{"arguments":%s}' % _DEEP,
    b'{"name":"\\ud800"}',
)


class _Talk:
    """One conversation. Its steps are bytes: what the client or the server does next."""

    def __init__(self, data: bytes) -> None:
        self._steps: Iterator[int] = iter(data[:48])
        self._to_proxy: asyncio.Queue[bytes] = asyncio.Queue()
        self._from_server: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unanswered: dict[bytes, bytes] = {}
        self._spellings: list[bytes] = []
        self._cancelled: set[object] = set()
        self._replies: list[bytes] = []
        self.answers: Counter[object] = Counter()
        self.asked: set[object] = set()
        self.killed = False

    # --- the server, an Upstream --------------------------------------------------------------------------------------

    status, grace = 0, 1.0

    async def run(self, deliver: _Deliver) -> None:
        reader = LineSplitter(MAX_BYTES)
        while (chunk := await self._from_server.get()) is not None:
            for line in reader.feed(chunk):
                await deliver(line)

    async def send(self, line: bytes) -> None:
        try:
            fields = json.loads(line)
            if isinstance(fields, dict) and "method" in fields and "id" in fields:
                self._unanswered[json.dumps(fields["id"]).encode()] = line
            self._unanswered.pop(b'"tools"', None)
        except (ValueError, RecursionError):
            pass

    def close_input(self) -> None:
        for identity in [*self._unanswered]:
            self._answer(identity, 0)
        self._from_server.put_nowait(None)

    async def aclose(self) -> None:
        pass

    def _answer(self, identity: bytes, choice: int) -> None:
        del self._unanswered[identity]
        result = _RESULTS[choice % len(_RESULTS)]
        forms = (
            b'{"jsonrpc":"2.0","id":%s,"result":%s}\n' % (identity, result),
            b'{"result":%s,"id":%s,"jsonrpc":"2.0"}\r\n' % (result, _respelled(identity)),
            b'{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"m"}}\n' % identity,
        )
        line = forms[choice // len(_RESULTS) % len(forms)]
        half = choice * len(line) // 256
        for part in (line[:half], line[half:]):
            self._from_server.put_nowait(part)

    # --- the steps ----------------------------------------------------------------------------------------------------

    async def chunks(self) -> AsyncIterator[bytes]:
        """The client's input, and beside it the steps of both sides."""
        yield b'{"jsonrpc":"2.0","id":"tools","method":"tools/list"}\n'
        self._from_server.put_nowait(b'{"jsonrpc":"2.0","id":"tools","result":%s}\n' % json.dumps(_TOOLS).encode())
        for step in self._steps:
            choice = next(self._steps, 0)
            match step % 8:
                case 0 | 1:
                    for part in self._request(choice):
                        yield part
                case 2 | 3 if self._unanswered:
                    self._answer([*self._unanswered][choice % len(self._unanswered)], choice)
                case 4 if self._spellings:
                    yield self._cancel(self._spellings[choice % len(self._spellings)])
                case 5:
                    self._from_server.put_nowait(_NOISE[choice % len(_NOISE)] + b"\n")
                case 6:
                    yield _NOISE[choice % len(_NOISE)] + b"\n"
                case 7 if choice > 250:
                    self.killed = True
                    self._from_server.put_nowait(None)
                case 7:
                    question = b'{"jsonrpc":"2.0","id":%d,"method":"roots/list"}\n' % choice
                    self._from_server.put_nowait(question)
                    yield b'{"jsonrpc":"2.0","id":%d,"result":{"roots":[]}}\n' % choice
            await asyncio.sleep(0)
            while self._replies:
                yield self._replies.pop()
        await asyncio.sleep(0.02)  # for the last questions of the proxy
        while self._replies:
            yield self._replies.pop()

    def _request(self, choice: int) -> Iterator[bytes]:
        number = len(self._spellings)
        identity = (b"%d", b"%d.0", b'"%d"', b"%de0", b'"\\u0061%d"')[choice % 5] % number
        self._spellings.append(identity)
        self.asked.add(key_of(identity))
        method, params = _METHODS[choice % len(_METHODS)], _PARAMS[choice // 8 % len(_PARAMS)]
        line = b'{"jsonrpc":"2.0","id":%s,"method":"%s","params":%s}\n' % (identity, method, params)
        half = choice * len(line) // 256
        yield line[:half]
        yield line[half:]

    def _cancel(self, identity: bytes) -> bytes:
        self._cancelled.add(key_of(identity))
        return b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' % identity

    async def write(self, message: ClientMessage) -> None:
        """Count an answer to the client."""
        if message.raw and b'"method"' not in message.raw[:100]:
            fields = json.loads(message.raw)
            for answer in fields if isinstance(fields, list) else [fields]:
                if isinstance(answer.get("id"), int | float | str):
                    self.answers[answer["id"]] += 1
        elif b'"abp-proxy-' in message.raw:
            identity = json.loads(message.raw)["id"]
            self._replies.append(b'{"jsonrpc":"2.0","id":"%s","result":{"roots":[]}}\n' % identity.encode())

    def check(self) -> None:
        """Each request has one answer; one that was cancelled may have none."""
        for key in self.asked:
            least = 0 if self.killed or key in self._cancelled else 1
            assert least <= self.answers[key] <= 1, f"{self.answers[key]} answers to {key!r}"


def _respelled(identity: bytes) -> bytes:
    """The same id as JSON, written otherwise."""
    value = json.loads(identity)
    if isinstance(value, str):
        return b'"' + b"".join(b"\\u%04x" % ord(character) for character in value) + b'"'
    return b"%d.0" % value if isinstance(value, int) else b"%d" % value


def conversation(data: bytes) -> None:
    """A client and a server between which the proxy relays. Each request has one answer, or the connection ends."""
    asyncio.run(_converse(data))


async def _converse(data: bytes) -> None:
    talk = _Talk(data)
    async with open_store("memory:") as store:
        shared = ProxyContext(store, ProxyOptions(max_inline=200), Stats("fuzz"), roots=None)
        try:
            async with asyncio.timeout(30):
                await relay(talk, shared, talk.chunks(), talk.write)
        except ProtocolError:  # the end of the connection: an answer that nobody can tell whose it is
            talk.killed = True
    talk.check()
