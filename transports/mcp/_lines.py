"""Lines of JSON-RPC messages over stdio, with a limit. Needs nothing of the SDK: ``abp proxy`` does without."""

from __future__ import annotations

import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from functools import cached_property

import msgspec

_TEXT = rb'"(?:[^"\\]|\\.)*+"'
_MEMBER = rb"\s*+(%s)\s*+:\s*+(%s|[-+.\w]++)\s*+" % (_TEXT, _TEXT)
_MEMBERS_AT_START = re.compile(rb"\s*+\{(?:%s,)*" % _MEMBER, re.DOTALL)
_MEMBERS_AT_END = re.compile(rb"(?:,%s)+\}\s*+\Z" % _MEMBER, re.DOTALL)
_ONE_MEMBER = re.compile(_MEMBER, re.DOTALL)
_END_BYTES = 4096


class Ends:
    """Both ends of a message that is not decoded, in which its id is looked for."""

    def __init__(self, head: bytes, tail: bytes) -> None:
        self.head = head[:_END_BYTES]
        self.tail = tail[-_END_BYTES:]

    @cached_property
    def _members(self) -> Mapping[bytes, bytes]:
        """The numbers and texts at both ends, by their names, as they are written."""
        members: dict[bytes, bytes] = {}
        for match in (_MEMBERS_AT_START.match(self.head), _MEMBERS_AT_END.search(self.tail)):
            if match is not None:
                members |= dict(_ONE_MEMBER.findall(match[0]))
        return members

    @property
    def identity(self) -> bytes:
        """Id of the message as it is written; empty if it is unknown."""
        identity = self._members.get(b'"id"', b"")
        try:
            msgspec.json.decode(identity)
        except ValueError:
            return b""
        return identity

    @property
    def has_method(self) -> bool:
        """True if the message is a request or a notification."""
        return b'"method"' in self._members

    @property
    def is_message(self) -> bool:
        """True if the message has the mark of JSON-RPC."""
        return self._members.get(b'"jsonrpc"') == b'"2.0"'


def ends_of(line: bytes | Ends) -> Ends:
    """Return the ends of a line."""
    return line if isinstance(line, Ends) else Ends(line, line)


class LineReader:
    """Lines of chunks that arrive one after another. Of a line over ``max_bytes``, only its ends stay in memory."""

    def __init__(self, max_bytes: float = math.inf) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._size = 0
        self._ends: Ends | None = None

    def feed(self, chunk: bytes) -> Iterator[bytes | Ends]:
        """Yield the lines that end in ``chunk``. Empty lines are left out."""
        *parts, rest = chunk.split(b"\n")
        for part in parts:
            self._add(part)
            line = self.rest()
            if line:
                yield line
        self._add(rest)

    def rest(self) -> bytes | Ends:
        """Return a last line without an end; empty if there is none."""
        line = self._ends or b"".join(self._parts).removeprefix(BOM_UTF8).strip()
        self._parts = []
        self._size = 0
        self._ends = None
        return line

    def _add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._max_bytes:
            text = b"".join(self._parts)
            if self._ends is None:
                self._ends = Ends(text, text)
            else:
                self._ends = Ends(self._ends.head, self._ends.tail + text)
            self._parts = []
