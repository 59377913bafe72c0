"""Counts of a proxy: bytes and pictures from the server and to the client, for each tool.

A model gets a picture as such, so its base64 is not counted as bytes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, astuple, dataclass
from pathlib import Path

import msgspec

from ...._internal.redaction import Redactor
from ....artifacts._files import state_folder
from ....errors import StoreError
from ....protocol._plain_text import plain_line
from ....protocol._strict_json import in_thread_if_long
from ....protocol._times import iso_utc

logger = logging.getLogger("transports")

#: Maximum number of characters of the name of a tool or a server.
_MAX_NAME = 200
#: Headings of the table: of a server, a tool, and the fields of its :class:`Count`.
_HEADINGS = (
    *("server", "tool", "calls", "text bytes in", "pictures in"),
    *("text bytes to the model", "pictures to the model", "files"),
)


class _Block(msgspec.Struct):
    type: str = ""
    data: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Result(msgspec.Struct):
    content: list[msgspec.Raw] = []
    messages: list[_Message] = []


_RESULT_DECODER, _BLOCK_DECODER = msgspec.json.Decoder(_Result), msgspec.json.Decoder(_Block)


@dataclass(frozen=True, slots=True)
class Size:
    """Size of an answer. ``bytes`` are without the base64 of pictures."""

    bytes: int
    pictures: int = 0


async def measure_answer(answer: bytes, result: bytes | msgspec.Raw) -> Size:
    """Measure an answer and its pictures. A large answer is decoded in a thread."""
    if b'"image"' not in answer:
        return Size(len(answer))
    return await in_thread_if_long(_size_of, answer, result)


def _size_of(answer: bytes, result: bytes | msgspec.Raw) -> Size:
    pictures = _picture_sizes(result)
    return Size(len(answer) - sum(pictures), len(pictures))


def _picture_sizes(result: bytes | msgspec.Raw) -> list[int]:
    """Return the number of base64 characters of each picture in a result."""
    try:
        fields = _RESULT_DECODER.decode(result)
    except (ValueError, RecursionError):
        # The result has another form.
        return []

    blocks = [*fields.content, *(message.content for message in fields.messages)]
    sizes: list[int] = []
    for raw_block in blocks:
        try:
            block = _BLOCK_DECODER.decode(raw_block)
        except (ValueError, RecursionError):
            continue
        is_json_text = bytes(memoryview(block.data)[:1]) == b'"'
        if block.type == "image" and is_json_text:
            sizes.append(len(block.data) - len('""'))
    return sizes


class _Entry(msgspec.Struct):
    """One call in the activity log. ``at`` is the time of its end."""

    at: str
    server: str
    tool: str
    bytes_in: int
    pictures_in: int
    bytes_out: int
    pictures_out: int
    files: int


_ENTRY_DECODER = msgspec.json.Decoder(_Entry)


@dataclass(slots=True)
class Count:
    """Sums over the calls of a tool. Bytes and pictures come ``in`` from the server, and go ``out`` to the client."""

    calls: int = 0
    bytes_in: int = 0
    pictures_in: int = 0
    bytes_out: int = 0
    pictures_out: int = 0
    files: int = 0

    def add(self, entry: _Entry) -> None:
        self.calls += 1
        self.bytes_in += entry.bytes_in
        self.pictures_in += entry.pictures_in
        self.bytes_out += entry.bytes_out
        self.pictures_out += entry.pictures_out
        self.files += entry.files


class Stats:
    """Statistics of calls. Each call becomes a line of the activity log ``log``, written within a second or by
    :meth:`flush`; without ``log`` nothing is written."""

    def __init__(self, server: str, log: Path | None = None) -> None:
        self.tools: dict[str, Count] = {}
        self.server = plain_line(Redactor().redact_text(server), _MAX_NAME)
        self._log = log
        self._unwritten: list[_Entry] = []

    def rename_server(self, server: str) -> None:
        """Use the name that the server gives itself, if it has one."""
        self.server = plain_line(server, _MAX_NAME) or self.server

    def count(self, tool: str, received: Size, sent: Size, files: int) -> None:
        name = plain_line(tool, _MAX_NAME)
        max_tools = 1000
        if name not in self.tools and len(self.tools) >= max_tools:
            name = "(others)"
        entry = _Entry(
            at=iso_utc(time.time()),
            server=self.server,
            tool=name,
            bytes_in=received.bytes,
            pictures_in=received.pictures,
            bytes_out=sent.bytes,
            pictures_out=sent.pictures,
            files=files,
        )
        self.tools.setdefault(name, Count()).add(entry)

        if self._log is None:
            return
        if not self._unwritten:
            # Writing each call at once took 40 µs, a sixth of a small call.
            asyncio.get_running_loop().call_later(1, self.flush)
        self._unwritten.append(entry)

    def flush(self) -> None:
        entries = self._unwritten
        self._unwritten = []
        if self._log is None or not entries:
            return
        try:
            _append_to_log(self._log, msgspec.json.Encoder().encode_lines(entries))
        except OSError as error:
            logger.warning("the activity log %s cannot be written (%s); it ends here", self._log, error.strerror)
            self._log = None

    def as_dict(self) -> dict[str, object]:
        return {"server": self.server, "tools": {name: asdict(count) for name, count in self.tools.items()}}


def log_file() -> Path | None:
    try:
        return state_folder("proxy") / "activity.jsonl"
    except OSError:
        return None


def _append_to_log(log: Path, lines: bytes) -> None:
    """Append lines. A log over the limit becomes the older log, and the next one starts empty."""
    max_log_bytes = 4 << 20
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        # A single write, so that the lines of several proxies do not mix.
        os.write(fd, lines)
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)

    if size > max_log_bytes:
        log.replace(_older_log(log))


def _older_log(log: Path) -> Path:
    return log.with_suffix(".1.jsonl")


def read_log(log: Path) -> dict[str, dict[str, Count]]:
    """Read an activity log, and return its counts by server and tool. Raises
    :class:`~transports.errors.StoreError`."""
    servers: dict[str, dict[str, Count]] = {}
    try:
        for line in _read_lines(log):
            try:
                entry = _ENTRY_DECODER.decode(line)
            except ValueError:
                continue  # a partial line, as a full disk leaves it
            tools = servers.setdefault(plain_line(entry.server, _MAX_NAME), {})
            tools.setdefault(plain_line(entry.tool, _MAX_NAME), Count()).add(entry)
    except OSError as error:
        raise StoreError(f"the activity log {log} cannot be read: {error.strerror}") from None
    return servers


def _read_lines(log: Path) -> Iterator[bytes]:
    for file in (_older_log(log), log):
        if file.exists():
            with file.open("rb") as lines:
                yield from lines


def table_rows(servers: Mapping[str, Mapping[str, Count]]) -> list[tuple[str, ...]]:
    """Return the rows of a table with headings, the tools of a server with the most bytes first. All columns but the
    first two are numbers."""
    rows: list[tuple[str, ...]] = [_HEADINGS]
    for server, tools in sorted(servers.items()):
        for name, count in sorted(tools.items(), key=lambda item: -item[1].bytes_in):
            rows.append((server, name, *(f"{number:,}" for number in astuple(count))))
    return rows
