"""Lines of a stdio server as messages of the SDK (MCP "Transports": one JSON-RPC message a line)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, jsonrpc_message_adapter
from mcp_types.jsonrpc import ErrorData
from pydantic import ValidationError

from ...binary import BinaryData, Encoded
from ...binary.detect import declares_base64
from ...errors import ProtocolError
from ...protocol.base64_runs import decode_run, decode_with_runs

__all__ = ["OVER_LIMIT", "UNREADABLE", "Lines", "Run", "encoded", "tree_of", "with_content"]

logger = logging.getLogger("transports.mcp")

#: Codes of the errors that stand for an answer which came and could not be taken; no server sends them.
OVER_LIMIT, UNREADABLE = -48001, -48002
#: From this size on a message is parsed in a thread: below, the hop costs more than the parse (measured).
_PARSE_INLINE = 256 * 1024
_ENDS = 4096
_KEY = re.compile(rb'"(?:data|blob|content)"\s*:\s*"\Z')
#: The URL-safe alphabet and data: URLs are for the careful way.
_OTHERWISE = re.compile(rb"[-_:]")
_ID_FIRST = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(\d{1,18})\b')
_ID_LAST = re.compile(rb'"id"\s*:\s*(\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')


class Run(str):
    """A long run of base64 in a message: to the SDK an empty text, to us a view of what was received."""

    __slots__ = ("view",)
    view: memoryview

    @classmethod
    def of(cls, view: memoryview) -> Run:
        made = cls()
        made.view = view
        return made


class Lines:
    """Takes in chunks and gives whole lines, of ``max_bytes`` of content at the most (base64 is a third longer)."""

    def __init__(self, max_bytes: int) -> None:
        self._limit = max_bytes * 4 // 3 + (1 << 20)
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._tail = b""
        self._garbage = 0

    def split(self, chunk: bytes) -> Iterator[bytes | SessionMessage]:
        """The lines that end in ``chunk``; of one over the limit only the error that it becomes, if it is known whose
        answer it was."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._take(chunk[start:end])
            whole, over = b"".join(self._parts), self._size > self._limit
            tail, self._parts, self._size, self._tail = self._tail, [], 0, b""
            start = end + 1
            if over:
                problem = f"a message over the limit of {self._max_bytes:,} bytes"
                if (error := _failed(whole[:_ENDS], tail, OVER_LIMIT, problem)) is not None:
                    yield error
                else:
                    logger.warning("left out %s, of which it cannot be told what it answers", problem)
            elif whole.strip():
                yield whole
        self._take(chunk[start:])

    def _take(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
        else:  # its beginning and its end may say whose answer it is
            if len(self._parts) > 1 or len(self._parts[0] if self._parts else b"") > _ENDS:
                self._parts = [b"".join(self._parts)[:_ENDS]]
            elif not self._parts:
                self._parts = [part[:_ENDS]]
            self._tail = (self._tail + part)[-_ENDS:]

    async def messages(self, line: bytes | SessionMessage) -> list[SessionMessage]:
        """The message of a line. What is none is left out with a warning; if it can be told whose answer it was, that
        call fails."""
        if isinstance(line, SessionMessage):
            return [line]
        try:
            if len(line) <= _PARSE_INLINE:
                return [_message(line)]
            return [await asyncio.to_thread(_message, line)]
        except (ProtocolError, ValidationError) as error:
            self._garbage += 1
            reason = error.message if isinstance(error, ProtocolError) else "it is no JSON-RPC message"
            if self._garbage == 1:
                logger.warning("left out a line of the server's stdout: %s; more are left out quietly", reason[:200])
            failed = _failed(line[:_ENDS], line[-_ENDS:], UNREADABLE, f"an answer that cannot be read: {reason[:200]}")
            return [failed] if failed else []


def _failed(head: bytes, tail: bytes, code: int, problem: str) -> SessionMessage | None:
    found = _ID_FIRST.match(head) or _ID_LAST.search(tail)
    if found is None:
        return None
    error = ErrorData(code=code, message=f"the server sent {problem}")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error))


def _message(line: bytes) -> SessionMessage:
    tree = decode_with_runs(line, _KEY, _as_run)
    return SessionMessage(jsonrpc_message_adapter.validate_python(tree, by_name=False))


def with_content(node: object) -> Any:
    """A result with content in the place of its runs where a block or a descriptor says that it is (seed 002 §2.3), and
    text elsewhere."""
    if isinstance(node, list):
        return [with_content(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _placed(node, key, item) if isinstance(item, Run) else with_content(item) for key, item in node.items()
    }


def tree_of(text: str) -> object:
    """JSON that stands in a text, read as a message is. Raises :class:`~transports.errors.ProtocolError`."""
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("the text holds half of a surrogate pair") from error
    return with_content(decode_with_runs(data, _KEY, _as_run))


def _as_run(_: object, __: str, run: memoryview) -> Run:
    return Run.of(run)


def _placed(node: Mapping[str, object], key: str, run: Run) -> object:
    typed = key == "blob" or (key == "data" and node.get("type") in ("image", "audio"))
    content = typed or (key == "content" and declares_base64(node.get("mimeType"), node.get("encoding")))
    if content and _OTHERWISE.search(run.view[:_PARSE_INLINE]) is None:
        return BinaryData(Encoded(run.view, "base64"))
    return decode_run(run.view)


def encoded(message: SessionMessage) -> bytes:
    """A message as a line."""
    return message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
