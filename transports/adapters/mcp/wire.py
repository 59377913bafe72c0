"""Lines of a stdio server as messages of the SDK (MCP "Transports": one JSON-RPC message a line)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.jsonrpc import ErrorData

from ...binary import BinaryData, Encoded
from ...binary.detect import declares_base64
from ...errors import ProtocolError, TooLarge
from ...protocol.base64_runs import decode_run, decode_with_runs
from ...protocol.strict_json import PARSED_ON_LOOP, inner_values

__all__ = ["OVER_LIMIT", "TOO_MANY", "UNREADABLE", "Base64Run", "LineReader", "encode_line", "parse_json_text"]
__all__ += ["parse_message", "request_id", "unreadable", "unsent_error", "with_content"]

logger = logging.getLogger("transports.mcp")

#: Codes of our own errors for answers that arrived and could not be read; no server sends them.
OVER_LIMIT, UNREADABLE, TOO_MANY = -48001, -48002, -48003
_END_BYTES = 4096
_KEY = re.compile(rb'"(?:data|blob|content)"\s*:\s*"\Z')
#: Characters of the URL-safe alphabet and of data: URLs, which the general decoder handles.
_NOT_PLAIN_BASE64 = re.compile(rb"[-_:]")
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\b')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class Base64Run(str):
    """A long run of base64 in a message: an empty text for the SDK, a view of the received bytes for us."""

    __slots__ = ("view",)
    view: memoryview

    @classmethod
    def of(cls, view: memoryview) -> Base64Run:
        """Return a run over ``view``."""
        run = cls()
        run.view = view
        return run


class LineReader:
    """Joins chunks into lines of at most ``max_bytes`` of content (base64 is a third longer)."""

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes * 4 // 3 + (1 << 20)
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._garbage = 0

    def split(self, chunk: bytes) -> Iterator[bytes | SessionMessage]:
        """Yield the lines that end in ``chunk``.

        For a line over the limit, yield the error of the request that it answers instead, or nothing if that is
        unknown.
        """
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._append(chunk[start:end])
            whole, over = b"".join(self._parts), self._size > self._limit
            tail, self._parts, self._size, self._tail = self._tail, [], 0, b""
            start = end + 1
            if over:
                problem = f"a message over the limit of {self._max_bytes:,} bytes"
                if (error := _error_message(whole[:_END_BYTES], tail, OVER_LIMIT, problem)) is not None:
                    yield SessionMessage(error)
                else:
                    logger.warning("left out %s; the request that it answers is unknown", problem)
            elif whole.strip():
                yield whole
        self._append(chunk[start:])

    def _append(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        else:  # the request's id may be in its beginning or its end
            if len(self._parts) > 1 or len(self._parts[0] if self._parts else b"") > _END_BYTES:
                self._parts = [b"".join(self._parts)[:_END_BYTES]]
            elif not self._parts:
                self._parts = [part[:_END_BYTES]]
            self._tail = (self._tail + part)[-_END_BYTES:]

    async def parse(self, line: bytes | SessionMessage) -> list[SessionMessage]:
        """Return the message of a line, as a list of one.

        A line that is no message is left out with a warning. If it can be told which request it answers, the list holds
        that request's error.
        """
        if isinstance(line, SessionMessage):
            return [line]
        try:
            if len(line) <= PARSED_ON_LOOP:
                return [SessionMessage(parse_message(line))]
            return [SessionMessage(await asyncio.to_thread(parse_message, line))]
        except Exception as error:  # noqa: BLE001 - whatever a line causes is that line's error alone
            self._garbage += 1
            reason = error.message if isinstance(error, ProtocolError) else "it is no JSON-RPC message"
            if self._garbage == 1:
                logger.warning("left out a line of the server's stdout: %s; more are left out quietly", reason[:200])
            failed = unreadable(line, error)
            return [SessionMessage(failed)] if failed else []


def unreadable(line: bytes, reason: Exception) -> JSONRPCError | None:
    """Return the error of the request that a line answers which could not be read for this reason; ``None`` if it
    cannot be told which that is."""
    code, problem = UNREADABLE, "it is no JSON-RPC message"
    if isinstance(reason, ProtocolError):
        problem = reason.message[:200]
        code = TOO_MANY if reason.code == TooLarge.code else UNREADABLE
    return _error_message(line[:_END_BYTES], line[-_END_BYTES:], code, f"an answer that cannot be read: {problem}")


def _error_message(head: bytes, tail: bytes, code: int, problem: str) -> JSONRPCError | None:
    if (identity := request_id(head, tail)) is None:
        return None
    error = ErrorData(code=code, message=f"the server sent {problem}")
    return JSONRPCError(jsonrpc="2.0", id=identity, error=error)


def request_id(head: bytes, tail: bytes) -> int | None:
    """Return the id at the beginning or the end of a message that is not parsed; ``None`` if it stands elsewhere."""
    found = _ID_FIRST.match(head[:_END_BYTES]) or _ID_LAST.search(tail[-_END_BYTES:])
    return None if found is None else int(found[1])


def parse_message(line: bytes) -> JSONRPCMessage:
    """Return a message, with :class:`Base64Run` in the place of long base64. Raises
    :class:`~transports.errors.ProtocolError`, and what pydantic raises for JSON that is no message."""
    tree = decode_with_runs(line, _KEY, _keep_run)
    return jsonrpc_message_adapter.validate_python(tree, by_name=False)


def with_content(tree: object) -> Any:
    """Replace the runs of a result, where they stand, and return it: by content where a block or descriptor declares it
    (docs/requirements.md R2-2.3), elsewhere by text.

    Level by level: the parser takes deeper nesting than a function that calls itself.
    """
    level: list[object] = [tree]
    while level:
        for node in level:
            if isinstance(node, dict):
                for key, item in node.items():
                    if isinstance(item, Base64Run):
                        node[key] = _text_or_content(node, key, item)
        level = inner_values(level)
    return tree


def parse_json_text(text: str) -> object:
    """Return JSON that stands in a text, read as a message is. Raises :class:`~transports.errors.ProtocolError`."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError("the text holds half of a surrogate pair") from None
    return with_content(decode_with_runs(data, _KEY, _keep_run))


def _keep_run(_: object, __: str, run: memoryview) -> Base64Run:
    return Base64Run.of(run)


def _text_or_content(node: Mapping[str, object], key: str, run: Base64Run) -> object:
    typed = key == "blob" or (key == "data" and node.get("type") in ("image", "audio"))
    content = typed or (key == "content" and declares_base64(node.get("mimeType"), node.get("encoding")))
    if content and _NOT_PLAIN_BASE64.search(run.view[:PARSED_ON_LOOP]) is None:
        return BinaryData(Encoded(run.view, "base64"))
    return decode_run(run.view)


def encode_line(message: SessionMessage) -> bytes:
    """Return a message as a line."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def unsent_error(message: SessionMessage, error: Exception) -> SessionMessage | None:
    """Return the error of a request that could not be written, such as one with half a surrogate pair; ``None`` for a
    message that nobody waits for."""
    problem = f"the request cannot be sent ({type(error).__name__}): {str(error)[:200]}"
    logger.warning("%s", problem)
    if not isinstance(message.message, JSONRPCRequest):
        return None
    data = ErrorData(code=UNREADABLE, message=problem)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.message.id, error=data))
