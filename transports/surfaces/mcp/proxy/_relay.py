"""Relay between one client and one server: messages pass as they came, except for large results and files.

* :class:`Upstream` — the server as the relay needs it.
* :class:`Relay` — both directions, the open requests, and the server's restart."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ....adapters.mcp import request_id
from ....binary.detect import Place
from ....errors import ABPError
from ....protocol import MAX_CAPABILITIES, encode_json
from ....tasks import spawn
from .._resources import TEMPLATE, list_resources, read_resource
from ._files import FileParams, Roots
from ._lines import LONG, Line, LineReader
from ._rewriting import Caller, Rewriter
from ._stats import Stats

logger = logging.getLogger("transports")

#: Most requests without an answer that are remembered; the answer of a forgotten one passes as it is.
_MAX_OPEN = 10_000
#: Most artifacts that are read at once for one client.
_MAX_READS = 8
#: Largest artifact in bytes that is read in one piece.
_MAX_READ = 64 << 20
#: Requests that never change the server, so that they may be sent again.
_REPEATABLE = frozenset(
    {
        *("initialize", "ping", "server/discover", "tools/list", "prompts/list", "prompts/get", "resources/list"),
        *("resources/templates/list", "resources/read", "resources/subscribe", "resources/unsubscribe"),
        *("completion/complete", "logging/setLevel", "subscriptions/listen", "tasks/get", "tasks/list"),
    }
)
#: Requests of the client that a new server must see again, the latest of each kind and resource.
_STATE = ("logging/setLevel", "resources/subscribe")
_MAX_STATE = 1000
#: Seconds for the work of a relay to end: a server that is just being ended takes three.
_ENDING = 5.0
#: Error code of requests that were lost with the server.
_LOST = -32000
_VERSION = "io.modelcontextprotocol/protocolVersion"
#: Fields that results have since protocol 2026-07-28 only.
_COMPLETE: Mapping[str, object] = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

#: Writes a message to the client: the pieces of its line without the end, the id of the request that it belongs to, if
#: that is known, and whether it answers the request.
Write: TypeAlias = Callable[[Iterable[bytes], bytes, bool], Awaitable[None]]


class Upstream(Protocol):
    """A server that runs or can be reached."""

    def lines(self) -> AsyncGenerator[Line, None]:
        """Yield the server's messages until it ends."""

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send a message, the pieces of its line. Nothing happens if the server has ended."""

    def reason(self) -> str:
        """Return how the server ended."""

    def refused(self) -> frozenset[bytes]:
        """Return the ids of the requests that the server has certainly not run."""

    async def aclose(self) -> None:
        """End the server and all that it started."""


class _Envelope(msgspec.Struct):
    id: msgspec.Raw = msgspec.Raw()
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw()
    result: msgspec.Raw = msgspec.Raw()
    error: msgspec.Raw = msgspec.Raw()


class _Params(msgspec.Struct):
    name: str = ""
    uri: str = ""
    task_id: str = msgspec.field(name="taskId", default="")
    meta: dict[str, msgspec.Raw] = msgspec.field(name="_meta", default_factory=dict)


class _Progress(msgspec.Struct):
    token: msgspec.Raw = msgspec.field(name="progressToken")


class _Annotations(msgspec.Struct):
    read_only: bool = msgspec.field(name="readOnlyHint", default=False)
    idempotent: bool = msgspec.field(name="idempotentHint", default=False)


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, object] = msgspec.field(name="inputSchema", default_factory=dict)
    output_schema: dict[str, object] | None = msgspec.field(name="outputSchema", default=None)
    annotations: _Annotations | None = None


class _Tools(msgspec.Struct):
    tools: list[msgspec.Raw] = []


class _Server(msgspec.Struct):
    name: str = ""


class _Initialized(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")
    server: _Server = msgspec.field(name="serverInfo", default_factory=_Server)


class _Task(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")


class _Created(msgspec.Struct):
    task: _Task


_ENVELOPE = msgspec.json.Decoder(_Envelope)
_PARAMS, _PROGRESS = msgspec.json.Decoder(_Params), msgspec.json.Decoder(_Progress)
_TOOLS, _TOOL = msgspec.json.Decoder(_Tools), msgspec.json.Decoder(_Tool)
_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODE = msgspec.json.Encoder().encode


@dataclass(slots=True)
class _Open:
    """Request of the client without an answer. ``message`` is empty if it is too long to be sent again."""

    method: str
    tool: str
    message: bytes
    repeatable: bool
    progress: bytes = b""
    sent: int = 0

    @property
    def can_be_sent(self) -> bool:
        """True if the request was never sent, or may be sent once more."""
        return bool(self.message) and (self.sent == 0 or (self.repeatable and self.sent == 1))


@dataclass(slots=True)
class _ToolFacts:
    output_schema: Mapping[str, object] | None
    repeatable: bool
    files: FileParams


@dataclass(slots=True)
class _Memory:
    """Facts about the server: its handshake, its tools and its tasks."""

    initialize: bytes = b""
    initialize_id: bytes = b""
    initialized: bytes = b""
    version: str = ""
    lacks_resources: bool = False
    state: OrderedDict[str, bytes] = field(default_factory=OrderedDict)
    tools: dict[str, _ToolFacts] = field(default_factory=dict)
    tasks: OrderedDict[str, str] = field(default_factory=OrderedDict)


class Relay:
    """Relay of one client. ``start`` starts the server, once more after its death for requests that may be repeated.

    ``write`` sends to the client; it is called for one message at a time. ``rewriter`` replaces large content, and
    ``stats`` count it."""

    def __init__(
        self, start: Callable[[], Awaitable[Upstream]], write: Write, rewriter: Rewriter, stats: Stats
    ) -> None:
        self._start = start
        self._write = write
        self._rewriter = rewriter
        self._stats = stats
        self._writing = asyncio.Lock()
        self._upstream: Upstream | None = None
        self._open: OrderedDict[bytes, _Open] = OrderedDict()
        self._progress: dict[bytes, bytes] = {}
        self._memory = _Memory()
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._reading = asyncio.Semaphore(_MAX_READS)
        self._wanted = asyncio.Event()
        self._own_keys: set[bytes] = set()
        self._roots = Roots(self._ask_client)

    async def run(self, chunks: AsyncIterable[bytes]) -> bool:
        """Relay until the client's ``chunks`` end, or the server has ended for good. Return whether the client ended.

        Raises :class:`~transports.errors.ConnectFailed` if the server cannot be started."""
        self._upstream = await self._start()
        client = asyncio.ensure_future(self._from_client(chunks))
        server = asyncio.ensure_future(self._from_servers())
        try:
            await asyncio.wait((client, server), return_when=asyncio.FIRST_COMPLETED)
            if client.done():
                client.result()
                return True
            server.result()
            return False
        finally:
            tasks = (client, server, *self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=_ENDING)
            if self._upstream is not None:
                await self._upstream.aclose()

    # --- from the client ----------------------------------------------------------------------------------------------

    async def _from_client(self, chunks: AsyncIterable[bytes]) -> None:
        reader = LineReader()
        try:
            async for chunk in chunks:
                for line in reader.feed(chunk):
                    try:
                        await self._client_line(line)
                    finally:
                        line.close()
        finally:
            reader.close()

    async def _client_line(self, line: Line) -> None:
        try:
            message = _ENVELOPE.decode(line.short)
        except msgspec.MsgspecError:  # a batch, or nothing that we know; the server says what is wrong with it
            await self._send(line.pieces())
            return
        key = bytes(message.id)
        if message.method is None:
            if not self._roots.answered(key, bytes(message.result)):
                await self._send(line.pieces())
            return
        params = _params(bytes(message.params))
        if not key:
            if message.method == "notifications/initialized" and line.size < LONG:
                self._memory.initialized = line.short
            elif message.method == "notifications/roots/list_changed":
                self._roots.forget()
            await self._send(line.pieces())
            return
        if self._is_ours(message.method, params):
            spawn(self._answer(key, message.method, params), self._tasks)
            return
        facts = self._memory.tools.get(params.name) if message.method == "tools/call" else None
        named = facts.files.named(line) if facts is not None else {}
        if facts is not None and named:  # a task, since this one must read the client's roots
            spawn(self._call_with_files(key, params, line.short, facts, named), self._tasks)
            return
        request = self._remember(key, message.method, params, line, facts)
        await self._request(request, line.pieces())

    async def _request(self, request: _Open, pieces: Iterable[bytes]) -> None:
        """Send a request, or have a server started for it."""
        if self._upstream is None:
            self._wanted.set()
        else:
            request.sent += 1
            await self._send(pieces)

    async def _call_with_files(
        self, key: bytes, params: _Params, line: bytes, facts: _ToolFacts, named: Mapping[Place, str]
    ) -> None:
        try:
            whole = LineReader()
            async for piece in facts.files.filled(line, named, self._rewriter.store, self._roots):
                whole.add(piece)
            filled = whole.finish()
        except ABPError as error:
            await self._write_error(key, INVALID_PARAMS, error.message, code=error.code)
            return
        assert filled is not None
        try:
            await self._request(self._remember(key, "tools/call", params, filled, facts), filled.pieces())
        finally:
            filled.close()

    def _remember(self, key: bytes, method: str, params: _Params, line: Line, facts: _ToolFacts | None) -> _Open:
        tool = params.name if method == "tools/call" else self._memory.tasks.get(params.task_id, "")
        message = b"" if line.is_long else line.short
        repeatable = method in _REPEATABLE or (facts is not None and facts.repeatable)
        progress = bytes(params.meta.get("progressToken", msgspec.Raw()))
        request = self._open[key] = _Open(method, tool, message, repeatable, progress)
        if progress:
            self._progress[progress] = key
        while len(self._open) > _MAX_OPEN:
            forgotten = self._open.popitem(last=False)[1]
            self._progress.pop(forgotten.progress, None)
        if method == "initialize" and message:
            self._memory.initialize, self._memory.initialize_id = message, key
            self._roots.available = b'"roots"' in message
        elif method in _STATE and message:
            self._memory.state[f"{method} {params.uri}"] = message
            while len(self._memory.state) > _MAX_STATE:
                self._memory.state.popitem(last=False)
        elif method == "resources/unsubscribe":
            self._memory.state.pop(f"{_STATE[1]} {params.uri}", None)
        return request

    async def _send(self, pieces: Iterable[bytes]) -> None:
        if self._upstream is not None:
            async with self._sending:
                await self._upstream.send(pieces)

    # --- requests that the proxy answers ------------------------------------------------------------------------------

    def _is_ours(self, method: str, params: _Params) -> bool:
        """Return whether a request is answered here: artifacts, and lists of resources of a server without any."""
        if method == "resources/read":
            return params.uri.startswith("artifact:")
        return self._memory.lacks_resources and method in ("resources/list", "resources/templates/list")

    async def _answer(self, key: bytes, method: str, params: _Params) -> None:
        store, view = self._rewriter.store, self._rewriter.view
        async with self._reading:
            try:
                if method == "resources/read":
                    made: object = await read_resource(store, params.uri, _MAX_READ, view)
                elif method == "resources/list":
                    made = await list_resources(store, None, view)
                else:
                    made = {"resourceTemplates": [TEMPLATE.model_dump(mode="json", by_alias=True, exclude_none=True)]}
                result = (
                    made
                    if isinstance(made, dict)
                    else made.model_dump(  # type: ignore[attr-defined]
                        mode="json", by_alias=True, exclude_none=True
                    )
                )
                own = _COMPLETE if self._is_modern(params) else {}
                result = {**{name: value for name, value in result.items() if name not in _COMPLETE}, **own}
                await self._write_line([b'{"jsonrpc":"2.0","id":%s,"result":' % key, encode_json(result), b"}"], key)
            except MCPError as error:
                await self._write_error(key, error.error.code, error.error.message, data=error.error.data)
            except ABPError as error:
                await self._write_error(key, INTERNAL_ERROR, error.message, code=error.code)

    def _is_modern(self, params: _Params) -> bool:
        named = bytes(params.meta.get(_VERSION, msgspec.Raw())).decode("utf-8", "replace").strip('"')
        return named in MODERN_PROTOCOL_VERSIONS

    async def _ask_client(self, key: bytes, method: str) -> None:
        await self._write_line([b'{"jsonrpc":"2.0","id":%s,"method":%s}' % (key, encode_json(method))])

    async def _write_error(
        self, key: bytes, number: int, message: str, code: str | None = None, data: object = None
    ) -> None:
        """Answer a request with an error; ``code`` is ours, for ``data``."""
        data = data if code is None else {"code": code}
        error = {"code": number, "message": message, **({} if data is None else {"data": data})}
        await self._write_line([b'{"jsonrpc":"2.0","id":%s,"error":' % key, encode_json(error), b"}"], key)

    async def _write_line(self, pieces: Iterable[bytes], key: bytes = b"", *, related: bytes = b"") -> None:
        """Write a message: the answer to the request ``key``, or one that belongs to the request ``related``."""
        async with self._writing:
            await self._write(pieces, key or related, bool(key))

    # --- from the server ----------------------------------------------------------------------------------------------

    async def _from_servers(self) -> None:
        """Pass on the messages of the server, and of the next one after its death, until there is no next one."""
        while True:
            assert self._upstream is not None
            async for line in self._upstream.lines():
                try:
                    await self._server_line(line)
                finally:
                    line.close()
            ended, self._upstream = self._upstream, None
            reason = ended.reason()
            for key in ended.refused() & self._open.keys():
                self._open[key].repeatable = True
            await ended.aclose()
            if not await self._start_again(reason):
                return

    async def _start_again(self, reason: str) -> bool:
        """Answer the requests that may not be repeated, start the server when the client needs it, and repeat the
        others. Return ``False`` if the server cannot be started."""
        logger.warning("%s", reason)
        for key in [key for key, one in self._open.items() if not one.can_be_sent]:
            await self._lose(key, reason)
        self._wanted.clear()
        if not self._open:
            await self._wanted.wait()
        try:
            upstream = await self._start()
            await self._introduce(upstream)
        except ABPError as error:
            logger.warning("%s", error.message)
            for key in [*self._open]:
                await self._lose(key, error.message)
            return False
        self._upstream = upstream
        for key, one in [*self._open.items()]:
            if one.can_be_sent:
                await self._request(one, [one.message])
            else:  # arrived while there was no server, and is too long to be kept
                await self._lose(key, reason)
        return True

    async def _introduce(self, upstream: Upstream) -> None:
        """Repeat the client's handshake with a new server, and the requests that it must remember."""
        memory = self._memory
        if not memory.initialize or memory.initialize_id in self._open:
            return
        self._own_keys.add(memory.initialize_id)
        await upstream.send([memory.initialize])
        async with aclosing(upstream.lines()) as lines:
            async for line in lines:
                try:
                    await self._server_line(line)
                finally:
                    line.close()
                if memory.initialize_id not in self._own_keys:
                    break
        if memory.initialized:
            await upstream.send([memory.initialized])
        for request in memory.state.values():
            self._own_keys.add(bytes(_ENVELOPE.decode(request).id))
            await upstream.send([request])

    async def _lose(self, key: bytes, reason: str) -> None:
        """Answer a request that was lost with the server."""
        lost = self._open.pop(key, None)
        if lost is not None:
            did = "; the call may have run" if lost.sent and lost.method == "tools/call" else ""
            await self._write_error(key, _LOST, f"{reason}{did}", code="DISCONNECTED")

    async def _server_line(self, line: Line) -> None:
        """Pass on one message of the server."""
        if not line.short:
            await self._unparsed(line)
            return
        try:
            message = _ENVELOPE.decode(line.short)
        except msgspec.MsgspecError:
            await self._write_line(line.pieces())
            return
        key = bytes(message.id)
        if message.method is not None or not key:
            await self._write_line(line.pieces(), related=line.related or self._related(message))
            return
        request = self._open.pop(key, None)
        if request is None:
            if key in self._own_keys:
                self._own_keys.discard(key)
            else:
                await self._write_line(line.pieces(), key)
            return
        if request.progress:
            self._progress.pop(request.progress, None)
        changed = await self._changed(line, message, request) if message.result else None
        if changed is None:
            await self._write_line(line.pieces(), key)
            self._count(request, line.size, line.size, 0)
            return
        result, files = changed
        size = line.length(result)
        await self._write_line(_framed(key, line, result), key)
        self._count(request, line.size, size, files)

    def _related(self, message: _Envelope) -> bytes:
        """Return the id of the request that a notification or a question belongs to, or nothing."""
        if message.method == "notifications/progress":
            with suppress(msgspec.MsgspecError):
                return self._progress.get(bytes(_PROGRESS.decode(message.params).token), b"")
        return bytes(_params(bytes(message.params)).meta.get(_SUBSCRIPTION, msgspec.Raw()))

    async def _changed(self, line: Line, message: _Envelope, request: _Open) -> tuple[bytes, int] | None:
        """Return the result for the client if it differs from the server's, and the number of stored files."""
        result = bytes(message.result)
        try:
            match request.method:
                case "initialize" | "server/discover":
                    return self._with_resources(result)
                case "tools/list":
                    self._learn_tools(result)
                case "tools/call" | "tasks/result":
                    self._learn_task(result, request)
                    facts = self._memory.tools.get(request.tool)
                    schema = facts.output_schema if facts else None
                    caller = Caller(request.tool or request.method, schema, self._memory.version)
                    made = await self._rewriter.tool_result(line, result, caller)
                    return None if made is None else (made.result, len(made.refs))
                case "tasks/get":
                    return await self._finished_task(line, result, request)
                case "resources/read":
                    caller = Caller("resources.read", None, self._memory.version)
                    made = await self._rewriter.resource(line, result, caller)
                    return None if made is None else (made.result, len(made.refs))
                case "prompts/get":
                    caller = Caller("prompts.get", None, self._memory.version)
                    made = await self._rewriter.prompt(line, result, caller)
                    return None if made is None else (made.result, len(made.refs))
        except msgspec.MsgspecError:  # a result of another form: the client says what is wrong with it
            pass
        except Exception:  # the answer must not be lost for it
            logger.exception("an answer to %s passes as it came", request.method)
        return None

    async def _finished_task(self, line: Line, result: bytes, request: _Open) -> tuple[bytes, int] | None:
        """Return the state of a task whose result is in it (protocol 2026-07-28), with large content replaced."""
        fields = _FIELDS.decode(result)
        if "result" not in fields:
            return None
        facts = self._memory.tools.get(request.tool)
        caller = Caller(request.tool or request.method, facts.output_schema if facts else None, self._memory.version)
        made = await self._rewriter.tool_result(line, bytes(fields["result"]), caller)
        if made is None:
            return None
        fields["result"] = msgspec.Raw(made.result)
        return _ENCODE(fields), len(made.refs)

    def _with_resources(self, result: bytes) -> tuple[bytes, int] | None:
        """Return the server's description with the capability of resources, if it lacks that: artifacts are read as
        resources."""
        fields = _FIELDS.decode(result)
        with suppress(msgspec.MsgspecError):
            described = msgspec.json.decode(result, type=_Initialized)
            self._memory.version = described.protocol_version
            self._stats.name(described.server.name)
        able = _FIELDS.decode(fields["capabilities"]) if "capabilities" in fields else {}
        self._memory.lacks_resources = "resources" not in able
        if not self._memory.lacks_resources:
            return None
        fields["capabilities"] = msgspec.Raw(_ENCODE({**able, "resources": {}}))
        return _ENCODE(fields), 0

    def _learn_tools(self, result: bytes) -> None:
        for raw in _TOOLS.decode(result).tools:
            try:
                tool = _TOOL.decode(raw)
            except msgspec.MsgspecError:
                continue
            hints = tool.annotations or _Annotations()
            if len(self._memory.tools) < MAX_CAPABILITIES or tool.name in self._memory.tools:
                self._memory.tools[tool.name] = _ToolFacts(
                    tool.output_schema, hints.read_only or hints.idempotent, FileParams.of(tool.input_schema)
                )

    def _learn_task(self, result: bytes, request: _Open) -> None:
        """Remember the tool of a task that a call has made."""
        if request.method == "tools/call" and b'"task' in result[:LONG]:
            with suppress(msgspec.MsgspecError):
                flat = msgspec.json.decode(result, type=_Params).task_id
                task = flat or msgspec.json.decode(result, type=_Created).task.task_id
                self._memory.tasks[task] = request.tool
                while len(self._memory.tasks) > _MAX_OPEN:
                    self._memory.tasks.popitem(last=False)

    async def _unparsed(self, line: Line) -> None:
        """Answer a message that is too long to be parsed: the request that it answers gets an error."""
        identity = request_id(line.head, line.tail)
        key = b"" if identity is None else b"%d" % identity
        request = self._open.pop(key, None)
        if request is None:
            await self._write_line(line.pieces(), key)
            return
        await self._write_error(
            key,
            INTERNAL_ERROR,
            f"the server's answer has {line.size:,} bytes of many small values, which is over the limit; ask for less",
            code="TOO_LARGE",
        )
        self._count(request, line.size, 0, 0)

    def _count(self, request: _Open, received: int, sent: int, files: int) -> None:
        if request.method in ("tools/call", "tasks/result", "resources/read", "prompts/get"):
            self._stats.count(request.tool or request.method, received, sent, files)


def _framed(key: bytes, line: Line, result: bytes) -> Iterable[bytes]:
    yield b'{"jsonrpc":"2.0","id":%s,"result":' % key
    yield from line.whole(result)
    yield b"}"


def _params(raw: bytes) -> _Params:
    if raw:
        with suppress(msgspec.MsgspecError):
            return _PARAMS.decode(raw)
    return _Params()
