"""The exchange of a client and its server: open requests, results with links, and the proxy's own answers."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ...._internal.recent import Recent
from ...._internal.tasks import in_thread
from ....artifacts._base import ArtifactStore
from ....artifacts._ref import Scope
from ....errors import ABPError, ProtocolError, TooLarge
from ....mcp._servers import Server
from ....mcp._stdio import MessageEnds, ends_of_message
from ....protocol._capabilities import MAX_CAPABILITIES
from ....protocol._find_content import Place
from ....protocol._strict_json import encode_json
from ....routing._policy import ABP, named_preset
from .._artifacts import TEMPLATE, Fields, list_artifacts, read_artifact
from ._files import Ask, FileParams, Roots, artifact_id_in
from ._messages import (
    FIELDS_DECODER,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MAX_BYTES,
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
    to_raw,
)
from ._rewriting import DESCRIBER, AnsweredRequest, ProxyOptions, Rewritten, rewrite
from ._stats import Stats, log_file, measure_answer

logger = logging.getLogger("transports")


class _ListedTool(msgspec.Struct):
    name: str
    input_schema: dict[str, object] = msgspec.field(name="inputSchema", default_factory=dict)
    output_schema: dict[str, object] | None = msgspec.field(name="outputSchema", default=None)


class _ToolList(msgspec.Struct):
    tools: list[msgspec.Raw] = []


class _ServerInfo(msgspec.Struct):
    name: str = ""


class Described(msgspec.Struct):
    protocol_version: str = msgspec.field(name="protocolVersion", default="")
    info: _ServerInfo = msgspec.field(name="serverInfo", default_factory=_ServerInfo)


class _Client(msgspec.Struct):
    capabilities: dict[str, object] = {}


@dataclass(frozen=True, slots=True)
class _ToolFacts:
    output_schema: Mapping[str, object] | None
    files: FileParams


@dataclass(slots=True)
class Facts:
    """What a proxy has learned about a server from its answers."""

    version: str = ""
    has_resources: bool = True
    tools: dict[str, _ToolFacts] = field(default_factory=dict)


@dataclass(slots=True)
class ProxyContext:
    """What all connections of a proxy share. ``roots`` are the folders from which files of clients may be read
    (``None``: all that a client shares), and ``reading`` bounds the number of artifacts that are in memory."""

    store: ArtifactStore
    options: ProxyOptions
    stats: Stats
    roots: Sequence[Path] | None
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(8))


def proxy_of(
    server: Server,
    store: ArtifactStore,
    *,
    max_inline: int,
    preset: str | None,
    json_previews: bool,
    roots: Sequence[Path] | None,
) -> ProxyContext:
    """Make the context of a proxy for a server. Raises :class:`~transports.errors.UsageError` for an unknown
    ``preset``."""
    policy = named_preset(preset) if preset else ABP
    return ProxyContext(store, ProxyOptions(max_inline, policy, json_previews), Stats(str(server), log_file()), roots)


@dataclass(frozen=True, slots=True)
class ClientMessage:
    """A message for the client. ``request`` is the key of the request that the message belongs to, if that is known."""

    raw: bytes
    request: Key | None = None
    is_answer: bool = False


@dataclass(slots=True)
class _Request:
    method: str
    tool: str
    progress: Key | None
    is_cancelled: bool = False


class Exchange:
    """The exchange of messages between one client and the server. Artifacts are stored in ``scope``, and the client can
    read only those. Without a ``scope``, artifacts are stored under a new session, and the client can read those of all
    sessions. ``facts`` may be shared with other clients of the server."""

    def __init__(self, context: ProxyContext, scope: Scope | None = None, facts: Facts | None = None) -> None:
        self.facts = facts or Facts()
        self.roots = Roots(context.roots)
        self._context = context
        if scope is None:
            # Artifacts without an owner would stay forever, so they get a new session. All sessions are readable, since
            # a client that was started again still has links of its last session.
            self._stored = context.store.scoped(Scope(session=secrets.token_urlsafe(12)))
            self._readable = context.store
        else:
            self._stored = self._readable = context.store.scoped(scope)
        max_remembered = 10_000  # messages about older requests pass unchanged
        #: Requests that the server has not answered.
        self._open: Recent[Key, _Request] = Recent(max_remembered)
        self._warned = False
        #: Requests that the server has not received yet. If it nevertheless answers one of them, the answer is dropped.
        self.unsent: Collection[Key] = ()

    @property
    def owes_answers(self) -> bool:
        """True while the server has to answer a request."""
        return any(not request.is_cancelled for request in self._open.values())

    # --- to the server ------------------------------------------------------------------------------------------------

    def add_request(self, message: Message) -> None:
        """Remember a request that is sent to the server, so that its answer is recognised."""
        assert message.key is not None
        params = message.params
        tool = ""
        if message.method == "tools/call":
            tool = params.name
        token = key_or_none(params.meta.get("progressToken", msgspec.Raw()))

        self._open[message.key] = _Request(message.method, tool, token)
        if message.method == "initialize":
            self.roots.available = "roots" in _client_capabilities(message)

    def cancel(self, key: Key) -> None:
        """Note that a request may stay without an answer."""
        if key in self._open:
            self._open[key].is_cancelled = True

    def is_for_proxy(self, message: Message) -> bool:
        """Whether the proxy answers a request itself, unless :meth:`is_for_server` says otherwise."""
        if message.method == "resources/read":
            return message.params.uri.startswith("artifact:")
        return not self.facts.has_resources and message.method in ("resources/list", "resources/templates/list")

    async def is_for_server(self, message: Message) -> bool:
        """Whether the server must answer the reading of an artifact, since the proxy does not have this artifact.
        Servers such as ``abp mcp`` have artifacts, too."""
        if message.method != "resources/read" or not self.facts.has_resources:
            return False
        try:
            return not await self._readable.exists(artifact_id_in(message.params.uri))
        except Exception:  # noqa: BLE001 - the proxy's answer reports the error
            return False

    async def answer(self, message: Message) -> bytes:
        """Answer a request for which :meth:`is_for_proxy` is true and :meth:`is_for_server` is not."""
        raw_id = bytes(message.envelope.id)
        try:
            # The artifact is in memory until the result is encoded.
            async with self._context.reading:
                result = await self._resource_result(message)
                return result_message(raw_id, await asyncio.to_thread(encode_json, result))
        except Exception as error:  # noqa: BLE001 - a request has one answer
            return error_answer(raw_id, error, uri=message.params.uri)

    async def _resource_result(self, message: Message) -> Fields:
        params = message.params
        if message.method == "resources/read":
            max_bytes = 64 << 20
            result = await read_artifact(self._readable, params.uri, max_bytes, DESCRIBER)
        elif message.method == "resources/list":
            result = await list_artifacts(self._readable, params.cursor, DESCRIBER)
        else:
            result = {"resourceTemplates": [TEMPLATE]}

        if params.version in STATELESS_VERSIONS:
            # Protocol 2026-07-28 added these fields.
            result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        return result

    def files_in(self, message: Message) -> dict[Place, str]:
        """Return the artifacts and paths that a call names where its tool takes files, by their places."""
        tool = self._tool_of(message)
        if tool is None:
            return {}
        return tool.files.find_named_in(message)

    async def with_files(self, message: Message, files: Mapping[Place, str], ask: Ask) -> Message:
        """Return a call with the content of its ``files`` filled in. ``ask`` sends a question to the client."""
        tool = self._tool_of(message)
        assert tool is not None
        folders: list[Path] = []
        if any(not text.startswith("artifact:") for text in files.values()):
            folders = await self.roots.folders(ask)
        async with self._context.reading:
            raw = await tool.files.fill_in(message, files, self._readable, folders)
        return await read_message(raw)

    def _tool_of(self, message: Message) -> _ToolFacts | None:
        if message.method != "tools/call":
            return None
        return self.facts.tools.get(message.params.name)

    # --- to the client ------------------------------------------------------------------------------------------------

    async def rewrite_for_client(self, line: bytes | MessageEnds) -> ClientMessage | None:
        """Rewrite a message of the server for the client. Return ``None`` to drop it, for instance output that is not a
        message. Of a message that is over the limit, ``line`` is only the ends. Raises
        :class:`~transports.errors.ProtocolError` if an answer cannot be read and its request is unknown."""
        if isinstance(line, MessageEnds):
            return self._pass_oversized(line, over_limit(MAX_BYTES, "bytes"))
        try:
            is_batch = line[:1] == b"["
            if is_batch:
                return await self._pass_batch(line)
            message = await read_message(line)
        except TooLarge as error:
            return self._pass_oversized(ends_of_message(line), error)
        except ProtocolError:
            return self._pass_unreadable(line)

        if message.is_answer and message.key is not None:
            if message.key in self.unsent:
                return self._log_dropped(line)
            request = self._open.pop(message.key, None)
            if request is not None:
                return ClientMessage(await self._pass_answer(message, request), message.key, is_answer=True)

        is_other_json = message.envelope.jsonrpc != "2.0"  # such as a line of a log
        if is_other_json:
            return self._log_dropped(line)
        if message.method:
            return ClientMessage(line, self._related_request(message))
        return ClientMessage(line, message.key, is_answer=message.is_answer)

    def forget_request(self, key: Key) -> None:
        self._open.pop(key, None)

    async def _pass_batch(self, line: bytes) -> ClientMessage | None:
        try:
            messages = [await self.rewrite_for_client(item) for item in await read_batch(line)]
        except ProtocolError:
            return self._log_dropped(line)
        raw_messages = [message.raw for message in messages if message is not None]
        if not raw_messages:
            return self._log_dropped(line)
        return ClientMessage(b"[%s]" % b",".join(raw_messages))

    def _pass_unreadable(self, line: bytes) -> ClientMessage | None:
        """Handle a line that cannot be read. If it looks like a message, pass it on, so that the client can report what
        is wrong with it. Drop anything else."""
        ends = ends_of_message(line)
        if not ends.is_message:
            return self._log_dropped(line)
        key = key_or_none(ends.identity)
        if ends.has_method or key is None:
            return ClientMessage(line)
        if key in self.unsent:
            return self._log_dropped(line)
        self.forget_request(key)
        return ClientMessage(line, key, is_answer=True)

    def _log_dropped(self, line: bytes) -> ClientMessage | None:
        """Log the first output that is dropped, and return ``None`` for all such output."""
        if not self._warned:
            self._warned = True
            logger.warning("the server writes text that is not a message to its stdout; it is dropped: %.80r", line)
        return None

    def _pass_oversized(self, ends: MessageEnds, error: TooLarge) -> ClientMessage | None:
        """Return an error for the request that an oversized message answers. Drop a message that is not an answer.
        ``ends`` are the known parts of the message."""
        raw_id = ends.identity
        key = key_or_none(raw_id)
        if key not in self._open:
            if ends.has_method:
                logger.warning("a message of the server is dropped: %s", error.message)
                return None
            if len(self._open) != 1:
                message = f"an answer of the server cannot be read, and its request is unknown: {error.message}"
                raise ProtocolError(message)
            # The id may be in the part that is lost, but only one request can be meant.
            (key,) = self._open
            raw_id = encode_json(key)
        assert key is not None

        self.forget_request(key)
        answer = error_message(raw_id, INTERNAL_ERROR, error.message, {"code": error.code})
        return ClientMessage(answer, key, is_answer=True)

    def _related_request(self, message: Message) -> Key | None:
        """Return the key of the request that a notification or a question of the server belongs to, if that is
        known."""
        params = message.params
        if message.method != "notifications/progress":
            return key_or_none(params.meta.get(SUBSCRIPTION_ID, msgspec.Raw()))

        token = key_or_none(params.progress_token)
        if token is None:
            return None
        keys = (key for key, request in self._open.items() if request.progress == token)
        return next(keys, None)

    async def _pass_answer(self, message: Message, request: _Request) -> bytes:
        """Return an answer for the client, with links in place of large content, and count its size."""
        rewritten: Rewritten | None = None
        if message.envelope.result:
            try:
                rewritten = await self._rewrite_result(message.envelope.result, request)
            except (ValueError, RecursionError):
                pass  # the result has another form, which the client reports
            except Exception:  # the client must get the answer in any case
                logger.exception("an answer to %s passes as it came", request.method)

        raw = message.raw
        files = 0
        if rewritten is not None:
            raw = result_message(bytes(message.envelope.id), rewritten.result)
            files = rewritten.files

        may_be_large = request.method in ("tools/call", "resources/read", "prompts/get")
        if may_be_large:
            size_received = size_sent = await measure_answer(message.raw, message.envelope.result)
            if rewritten is not None:
                size_sent = await measure_answer(raw, rewritten.result)
            self._context.stats.count(request.tool or request.method, size_received, size_sent, files)
        return raw

    async def _rewrite_result(self, result: msgspec.Raw, request: _Request) -> Rewritten | None:
        """Return the rewritten result, or ``None`` if it stays as it is. Facts about the server are learned from it."""
        match request.method:
            case "initialize" | "server/discover":
                return self._rewrite_description(result)
            case "tools/list":
                await self._learn_tools(result)
            case "tools/call" | "resources/read" | "prompts/get":
                return await self._rewrite_content(result, request)
        return None

    async def _rewrite_content(self, result: msgspec.Raw, request: _Request) -> Rewritten | None:
        tool = self.facts.tools.get(request.tool)
        output_schema = tool.output_schema if tool is not None else None
        name = request.tool or request.method.replace("/", ".")
        answered_request = AnsweredRequest(request.method, name, output_schema, self.facts.version)
        return await rewrite(result, answered_request, self._stored, self._context.options)

    def _rewrite_description(self, result: msgspec.Raw) -> Rewritten | None:
        """Add the capability ``resources`` to a server without it: the proxy's artifacts are resources."""
        fields = FIELDS_DECODER.decode(result)
        try:
            description = msgspec.json.decode(result, type=Described)
        except ValueError:
            pass  # these fields have another form; the proxy can do without them
        else:
            self.facts.version = description.protocol_version
            self._context.stats.rename_server(description.info.name)

        capabilities: dict[str, msgspec.Raw] = {}
        if "capabilities" in fields:
            capabilities = FIELDS_DECODER.decode(fields["capabilities"])
        self.facts.has_resources = "resources" in capabilities
        if self.facts.has_resources:
            return None
        fields["capabilities"] = to_raw({**capabilities, "resources": {}})
        return Rewritten(encode_json(fields), 0)

    async def _learn_tools(self, result: msgspec.Raw) -> None:
        for name, tool in (await in_thread(_facts_about_tools, result)).items():
            if len(self.facts.tools) < MAX_CAPABILITIES or name in self.facts.tools:
                self.facts.tools[name] = tool


def listed_tools(result: msgspec.Raw) -> list[_ListedTool]:
    """Read the tools in a result of `tools/list`, and skip invalid ones. Raises ``ValueError`` for another result."""
    tools: list[_ListedTool] = []
    for raw in msgspec.json.decode(result, type=_ToolList).tools:
        with suppress(ValueError):
            tools.append(msgspec.json.decode(raw, type=_ListedTool))
    return tools


def _facts_about_tools(result: msgspec.Raw) -> dict[str, _ToolFacts]:
    return {
        tool.name: _ToolFacts(tool.output_schema, FileParams.of(tool.input_schema)) for tool in listed_tools(result)
    }


def fail_connection(connection: asyncio.Future[None], error: BaseException) -> None:
    """End the connection with an error. An unexpected error is replaced by one that only names its type."""
    if not connection.done():
        is_expected = isinstance(error, ABPError | OSError)
        connection.set_exception(error if is_expected else ProtocolError(failure_message(error)))


def failure_message(error: BaseException) -> str:
    return f"the proxy failed ({type(error).__name__}); its log says more"


def error_answer(raw_id: bytes, error: Exception, *, uri: str = "") -> bytes:
    """Answer a request with an error. An unexpected one is logged."""
    if isinstance(error, ABPError):
        data = {"uri": uri[:300], "code": error.code} if uri else {"code": error.code}
        return error_message(raw_id, INVALID_PARAMS, error.message, data)
    logger.error("a request failed in the proxy", exc_info=error)
    return error_message(raw_id, INTERNAL_ERROR, failure_message(error))


def _client_capabilities(message: Message) -> Mapping[str, object]:
    try:
        return msgspec.json.decode(message.envelope.params, type=_Client).capabilities
    except (ValueError, RecursionError):
        return {}
