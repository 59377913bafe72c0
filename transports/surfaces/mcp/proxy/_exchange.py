"""The exchange of a client and its server: open requests, results with links, and the proxy's own answers.

* :class:`Facts` — the server's description of itself.
* :class:`Exchange` — the messages of both directions, one at a time."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts._ref import Scope
from ....errors import ABPError, ProtocolError, TooLarge
from ....mcp._stdio import Ends, ends_of
from ....protocol._capabilities import MAX_CAPABILITIES
from ....protocol._find_content import Place
from ....protocol._strict_json import encode_json
from .._artifacts import TEMPLATE, list_artifacts, read_artifact
from ._files import Ask, FileParams, Roots
from ._messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MAX_BYTES,
    PROTOCOL_VERSION,
    STATELESS_VERSIONS,
    SUBSCRIPTION_ID,
    Key,
    Message,
    error_message,
    key_or_none,
    over_limit,
    read_batch,
    read_message,
    result_message,
)
from ._rewriting import FIELDS, Caller, Rewriter, Rewritten
from ._stats import Stats, measure_answer

logger = logging.getLogger("transports")

#: Most requests without an answer, tasks and tokens that are remembered; what belongs to a forgotten one passes as it
#: is.
_MAX_OPEN = 10_000
#: Requests whose results may have large content.
_COUNTED = ("tools/call", "tasks/result", "resources/read", "prompts/get")


class _Tool(msgspec.Struct):
    name: str
    input_schema: dict[str, object] = msgspec.field(name="inputSchema", default_factory=dict)
    output_schema: dict[str, object] | None = msgspec.field(name="outputSchema", default=None)


class _Tools(msgspec.Struct):
    tools: list[msgspec.Raw] = []


class _ServerInfo(msgspec.Struct):
    name: str = ""


class _Described(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")
    info: _ServerInfo = msgspec.field(name="serverInfo", default_factory=_ServerInfo)


class _Client(msgspec.Struct):
    capabilities: dict[str, object] = {}


class _Task(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId", default="")


class _Created(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId", default="")
    task: _Task = msgspec.field(default_factory=_Task)


_TOOL = msgspec.json.Decoder(_Tool)


@dataclass(frozen=True, slots=True)
class _ToolFacts:
    output_schema: Mapping[str, object] | None
    files: FileParams


@dataclass(slots=True)
class Facts:
    """Facts about a server: its protocol version, its tools, and the tools of its tasks."""

    version: str = ""
    has_resources: bool = True
    tools: dict[str, _ToolFacts] = field(default_factory=dict)
    tasks: OrderedDict[str, str] = field(default_factory=OrderedDict)


@dataclass(slots=True)
class Shared:
    """Common parts of all exchanges of a proxy. ``rewriter`` returns the one for a store, ``roots`` are the folders
    from which files of clients may be read (``None``: all that a client shares), and ``reading`` bounds the artifacts
    that are in memory."""

    store: ArtifactStore
    rewriter: Callable[[ArtifactStore], Rewriter]
    stats: Stats
    roots: Sequence[Path] | None = None
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))

    def exchange(self, scope: Scope | None = None, facts: Facts | None = None) -> Exchange:
        """Return a new exchange, whose artifacts belong to ``scope``, and which reads only these.

        Without a scope, its artifacts belong to a session of their own, since files without an owner would stay for
        ever, and it reads all of the store: a client that starts again has the links of its last session."""
        store = self.store if scope is None else self.store.scoped(scope)
        owner = scope or Scope(session=secrets.token_urlsafe(12))
        return Exchange(facts or Facts(), self.rewriter(self.store.scoped(owner)), store, self)


@dataclass(frozen=True, slots=True)
class Passed:
    """A message for the client, the request that it belongs to, if that is known, and whether it answers it."""

    raw: bytes
    request: Key | None = None
    answers: bool = False


@dataclass(slots=True)
class _Request:
    method: str
    tool: str
    progress: Key | None
    is_cancelled: bool = False


class Exchange:
    """The messages between one client and one server. ``facts`` may be shared with other clients of the server, and
    artifacts are read from ``store``."""

    def __init__(self, facts: Facts, rewriter: Rewriter, store: ArtifactStore, shared: Shared) -> None:
        self.facts = facts
        self.roots = Roots(shared.roots)
        self._rewriter = rewriter
        self._store = store
        self._shared = shared
        self._open: OrderedDict[Key, _Request] = OrderedDict()
        self._progress: OrderedDict[Key, Key] = OrderedDict()
        self._warned = False
        #: Requests that the server does not have: an answer of the server to one of them is dropped.
        self.unsent: Collection[Key] = ()

    @property
    def owes_answers(self) -> bool:
        """True if the server has not answered a request that was not cancelled."""
        return any(not request.is_cancelled for request in self._open.values())

    # --- to the server ------------------------------------------------------------------------------------------------

    def add_request(self, message: Message) -> None:
        assert message.key is not None
        params = message.params
        tool = params.name if message.method == "tools/call" else self.facts.tasks.get(params.task_id, "")
        token = key_or_none(params.meta.get("progressToken", msgspec.Raw()))
        self._open[message.key] = _Request(message.method, tool, token)
        if token is not None:
            self._progress[token] = message.key
        if message.method == "initialize":
            self.roots.available = "roots" in _client_capabilities(message)
        _forget_oldest(self._open)
        _forget_oldest(self._progress)

    async def add_batch(self, batch: bytes) -> None:
        """Remember the requests of a batch (protocol 2025-03-26), which is sent as it is."""
        try:
            messages = [await read_message(item) for item in await read_batch(batch)]
        except ABPError:  # the server says what is wrong with it
            return
        for message in messages:
            if message.is_request:
                self.add_request(message)

    def cancel(self, key: Key) -> None:
        """Note that a request may stay without an answer."""
        if key in self._open:
            self._open[key].is_cancelled = True

    def is_ours(self, message: Message) -> bool:
        """Return whether the proxy answers a request: for artifacts, and for lists of resources of a server without."""
        if message.method == "resources/read":
            return message.params.uri.startswith("artifact:")
        return not self.facts.has_resources and message.method in ("resources/list", "resources/templates/list")

    async def answer(self, message: Message) -> bytes:
        store, view = self._store, self._rewriter.view
        identity, params = bytes(message.envelope.id), message.params
        try:
            async with self._shared.reading:
                if message.method == "resources/read":
                    result = await read_artifact(store, params.uri, 64 << 20, view)
                elif message.method == "resources/list":
                    result = await list_artifacts(store, params.cursor, view)
                else:
                    result = {"resourceTemplates": [TEMPLATE]}
                if _is_stateless(params.meta):  # fields that results have since protocol 2026-07-28 only
                    result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
                return result_message(identity, await asyncio.to_thread(encode_json, result))
        except ABPError as error:
            data = {"code": error.code}
            if params.uri:
                data = {"uri": params.uri[:300], "code": error.code}
            return error_message(identity, INVALID_PARAMS, error.message, data)

    def files_in(self, message: Message) -> dict[Place, str]:
        """Return the files that a call names and the proxy sends to the server, by their places in its arguments."""
        tool = self._tool_of(message)
        return {} if tool is None else tool.files.named_in(message)

    async def with_files(self, message: Message, files: Mapping[Place, str], ask: Ask) -> Message:
        """Return a call with the content of the files that it names; ``ask`` sends a question to the client.

        Raises :class:`~transports.errors.ABPError`."""
        tool = self._tool_of(message)
        assert tool is not None
        folders: list[Path] = []
        if any(not text.startswith("artifact:") for text in files.values()):
            folders = await self.roots.folders(ask)
        async with self._shared.reading:
            raw = await tool.files.filled(message, files, self._store, folders)
        return await read_message(raw)

    def _tool_of(self, message: Message) -> _ToolFacts | None:
        if message.method != "tools/call":
            return None
        return self.facts.tools.get(message.params.name)

    # --- to the client ------------------------------------------------------------------------------------------------

    async def to_client(self, line: bytes | Ends) -> Passed | None:
        """Return a message of the server as the client gets it; ``None`` for output that is not a message.

        Raises :class:`~transports.errors.ProtocolError` for an answer that cannot be read, if its request is
        unknown."""
        if isinstance(line, Ends):
            return self._over_limit(line, over_limit(MAX_BYTES, "bytes"))
        try:
            if line[:1] == b"[":
                return await self._batch(line)
            message = await read_message(line)
        except TooLarge as error:
            return self._over_limit(ends_of(line), error)
        except ProtocolError:
            return self._unreadable(line)
        request = None
        if message.is_answer and message.key is not None:
            if message.key in self.unsent:
                return self._dropped(line)
            request = self._open.pop(message.key, None)
        if request is not None:
            return Passed(await self._answered(message, request), message.key, answers=True)
        if message.envelope.jsonrpc != "2.0":
            return self._dropped(line)
        if message.method:
            return Passed(line, self._related(message))
        return Passed(line, message.key, answers=message.is_answer)

    def answered(self, key: Key) -> None:
        """Forget a request: it has its answer, or needs none."""
        request = self._open.pop(key, None)
        if request is not None and request.progress is not None:
            self._progress.pop(request.progress, None)

    async def _batch(self, line: bytes) -> Passed | None:
        try:
            messages = [await self.to_client(item) for item in await read_batch(line)]
        except ProtocolError:
            return self._dropped(line)
        passed = [message.raw for message in messages if message is not None]
        if not passed:
            return self._dropped(line)
        return Passed(b"[%s]" % b",".join(passed))

    def _unreadable(self, line: bytes) -> Passed | None:
        """Pass on a message that is not JSON: the client says what is wrong with it."""
        ends = ends_of(line)
        if not ends.is_message:
            return self._dropped(line)
        key = key_or_none(ends.identity)
        if ends.has_method or key is None:
            return Passed(line)
        if key in self.unsent:
            return self._dropped(line)
        self.answered(key)
        return Passed(line, key, answers=True)

    def _dropped(self, line: bytes) -> Passed | None:
        """Return ``None`` for output that is not a message, with a warning for the first."""
        if not self._warned:
            self._warned = True
            logger.warning("the server writes text that is not a message to its stdout; it is dropped: %.80r", line)
        return None

    def _over_limit(self, ends: Ends, error: TooLarge) -> Passed | None:
        key = key_or_none(ends.identity)
        if key not in self._open and ends.has_method:
            logger.warning("a message of the server is dropped: %s", error.message)
            return None
        if key not in self._open and len(self._open) == 1:
            (key,) = self._open
        if key is None or key not in self._open:
            raise ProtocolError(f"an answer of the server cannot be read, and its request is unknown: {error.message}")
        self.answered(key)
        identity = ends.identity if key_or_none(ends.identity) == key else encode_json(key)
        answer = error_message(identity, INTERNAL_ERROR, error.message, {"code": error.code})
        return Passed(answer, key, answers=True)

    def _related(self, message: Message) -> Key | None:
        """Return the request that a notification or a question belongs to, if that is known."""
        params = message.params
        if message.method == "notifications/progress":
            token = key_or_none(params.progress_token)
            if token is None:
                return None
            return self._progress.get(token)
        return key_or_none(params.meta.get(SUBSCRIPTION_ID, msgspec.Raw()))

    async def _answered(self, message: Message, request: _Request) -> bytes:
        if request.progress is not None:
            self._progress.pop(request.progress, None)
        rewritten: Rewritten | None = None
        if message.envelope.result:
            try:
                rewritten = await self._rewritten(message.envelope.result, request)
            except (ValueError, RecursionError):  # a result of another form: the client says what is wrong with it
                pass
            except Exception:  # the answer must not be lost for it
                logger.exception("an answer to %s passes as it came", request.method)
        is_counted = request.method in _COUNTED
        tool = request.tool or request.method
        if rewritten is None:
            if is_counted:
                size = await measure_answer(message.raw, message.envelope.result)
                self._shared.stats.count(tool, size, size, 0)
            return message.raw
        raw = result_message(bytes(message.envelope.id), rewritten.result)
        if is_counted:
            received = await measure_answer(message.raw, message.envelope.result)
            sent = await measure_answer(raw, rewritten.result)
            self._shared.stats.count(tool, received, sent, rewritten.files)
        return raw

    async def _rewritten(self, result: msgspec.Raw, request: _Request) -> Rewritten | None:
        """Return the result for the client if it differs from the server's."""
        match request.method:
            case "initialize" | "server/discover":
                return self._described(result)
            case "tools/list":
                await self._learn_tools(result)
            case "tools/call" | "tasks/result" | "resources/read" | "prompts/get":
                self._learn_task(result, request)
                return await self._rewriter.rewrite(result, self._caller_of(request))
            case "tasks/get":  # the result of a task is in it since protocol 2026-07-28
                fields = FIELDS.decode(result)
                if "result" in fields:
                    inner = await self._rewriter.rewrite(fields["result"], self._caller_of(request))
                    if inner is not None:
                        fields["result"] = msgspec.Raw(inner.result)
                        return Rewritten(encode_json(fields), inner.files)
        return None

    def _caller_of(self, request: _Request) -> Caller:
        tool = self.facts.tools.get(request.tool)
        return Caller(
            request.method,
            request.tool or request.method.replace("/", "."),
            None if tool is None else tool.output_schema,
            self.facts.version,
        )

    def _described(self, result: msgspec.Raw) -> Rewritten | None:
        """Return the server's description with the capability of resources, which artifacts are, if it has none."""
        fields = FIELDS.decode(result)
        try:
            described = msgspec.json.decode(result, type=_Described)
            self.facts.version = described.protocol_version
            self._shared.stats.name(described.info.name)
        except ValueError:  # another form of these fields, which the proxy does not need
            pass
        capabilities: dict[str, msgspec.Raw] = {}
        if "capabilities" in fields:
            capabilities = FIELDS.decode(fields["capabilities"])
        self.facts.has_resources = "resources" in capabilities
        if self.facts.has_resources:
            return None
        fields["capabilities"] = msgspec.Raw(encode_json({**capabilities, "resources": {}}))
        return Rewritten(encode_json(fields), 0)

    async def _learn_tools(self, result: msgspec.Raw) -> None:
        for name, tool in (await in_thread(_tools_of, result)).items():
            if len(self.facts.tools) < MAX_CAPABILITIES or name in self.facts.tools:
                self.facts.tools[name] = tool

    def _learn_task(self, result: msgspec.Raw, request: _Request) -> None:
        if request.method == "tools/call" and b'"task' in bytes(memoryview(result)[:4096]):
            try:
                created = msgspec.json.decode(result, type=_Created)
            except ValueError:  # a field of a tool that has this name
                return
            self.facts.tasks[created.task_id or created.task.task_id] = request.tool
            _forget_oldest(self.facts.tasks)


def _forget_oldest(entries: OrderedDict[Any, Any]) -> None:
    while len(entries) > _MAX_OPEN:
        entries.popitem(last=False)


def _tools_of(result: msgspec.Raw) -> dict[str, _ToolFacts]:
    tools: dict[str, _ToolFacts] = {}
    for raw in msgspec.json.decode(result, type=_Tools).tools:
        try:
            tool = _TOOL.decode(raw)
        except ValueError:
            continue
        tools[tool.name] = _ToolFacts(tool.output_schema, FileParams.of(tool.input_schema))
    return tools


def failure_of(error: BaseException) -> ABPError | OSError:
    if isinstance(error, ABPError | OSError):
        return error
    return ProtocolError(failure_message(error))


def failure_message(error: BaseException) -> str:
    return f"the proxy failed ({type(error).__name__}); its log says more"


def refusal(identity: bytes, error: Exception) -> bytes:
    """Return the answer to a request that failed in the proxy."""
    if isinstance(error, ABPError):
        return error_message(identity, INVALID_PARAMS, error.message, {"code": error.code})
    logger.error("a request failed in the proxy", exc_info=error)
    return error_message(identity, INTERNAL_ERROR, failure_message(error))


def _client_capabilities(message: Message) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(message.envelope.params, type=_Client).capabilities
    except (ValueError, RecursionError):
        return {}


def _is_stateless(meta: Mapping[str, msgspec.Raw]) -> bool:
    try:
        return msgspec.json.decode(meta.get(PROTOCOL_VERSION, b'""'), type=str) in STATELESS_VERSIONS
    except ValueError:
        return False
