"""Messages as lines of JSON, of any length in little memory: long texts of a message stay in a file.

* :class:`Line` — one message: its bytes, or its file with the places of its long texts.
* :class:`LineReader` — makes lines of chunks.
"""

from __future__ import annotations

import bisect
import re
import secrets
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO

import msgspec

from ....errors import ProtocolError
from ....protocol import MAX_VALUES, ValueCounter, has_more_values
from ._outlines import MAX_SHORT, Carver, whole_end

#: Bytes from which a text of a long message is left in the file, and bytes read at once.
LONG, PIECE = 64 * 1024, 1 << 20
#: Head of all marks of this process. It cannot be guessed, so no message can hold a mark of its own.
_TOKEN = secrets.token_hex(16).encode()
#: Mark with its quotation marks.
_MARK = re.compile(rb'"(%s-v?\d+)"' % _TOKEN)
#: Bytes at both ends of a message that is not parsed, in which its id is looked for.
_END = 4096
#: The rest of a text.
_REST = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)


class Run(msgspec.Struct, frozen=True):
    """Place of a long text in the file of a line: the bytes between its quotation marks, with JSON's escapes. If
    ``is_value``, that of a long list or object, with its ``outline``, unless it is nested too deeply for one."""

    start: int
    end: int
    is_value: bool = False
    outline: bytes | None = None

    def __len__(self) -> int:
        return self.end - self.start


class Line:
    """One message of one line.

    ``short`` is its JSON, with a mark in the place of each text of 64 KiB or more, and ``runs`` are these texts by
    mark. If it would have more than 16 MiB or a million values, marks replace its long lists and objects too; if that
    is not enough, it is empty. ``size`` is in bytes."""

    def __init__(self, short: bytes, size: int = -1, file: IO[bytes] | None = None, head: bytes = b"") -> None:
        self.short = short
        self.size = len(short) if size < 0 else size
        self.runs: dict[str, Run] = {}
        #: Id of the request in whose response the message came, if that is known.
        self.related = b""
        #: First and last 4 KiB, if the message is not parsed.
        self.head = head or short
        self.tail = short
        self._file = file

    @property
    def is_long(self) -> bool:
        """True if the message is in a file."""
        return self._file is not None

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the whole line, without its end, as they came."""
        if self._file is None:
            yield self.short
        else:
            yield from self.read(Run(0, self.size))

    def read(self, run: Run) -> Iterator[bytes]:
        """Yield the bytes of a long text, at most 1 MiB at a time, all but the last a multiple of four."""
        assert self._file is not None
        self._file.seek(run.start)
        left = len(run)
        while left > 0 and (piece := self._file.read(min(left, PIECE))):
            left -= len(piece)
            yield piece

    def text(self, run: Run) -> str:
        """Return a long text, decoded. Raises :class:`~transports.errors.ProtocolError` for one that is not JSON."""
        try:
            return msgspec.json.decode(b'"%s"' % b"".join(self.read(run)), type=str)
        except msgspec.DecodeError as error:
            raise ProtocolError(f"the server sent a text that cannot be read: {error}") from None

    def length(self, data: bytes) -> int:
        """Return the size in bytes of a part of ``short`` with its long texts."""
        if not self.runs:
            return len(data)
        found = [(mark[1], self.runs.get(mark[1].decode())) for mark in _MARK.finditer(data)]
        return len(data) + sum(len(run) - len(mark) - 2 * run.is_value for mark, run in found if run is not None)

    def value(self, data: bytes) -> Run | None:
        """Return the long list or object that a part of ``short`` stands for, if it is a mark of one."""
        found = _MARK.fullmatch(data) if self.runs else None
        run = self.runs.get(found[1].decode()) if found else None
        return run if run is not None and run.is_value else None

    def whole(self, data: bytes) -> Iterator[bytes]:
        """Yield JSON made of parts of ``short`` with its long texts in the place of their marks."""
        at = 0
        for mark in _MARK.finditer(data) if self.runs else ():
            if (run := self.runs.get(mark[1].decode())) is not None:
                quotes = 0 if run.is_value else 1
                yield data[at : mark.start() + quotes]
                yield from self.read(run)
                at = mark.end() - quotes
        yield data[at:]

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()


class LineReader:
    """Lines of chunks that arrive one after another. A message of 64 KiB or more is kept in a file without a name."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._long: _Long | None = None

    def feed(self, chunk: bytes) -> Iterator[Line]:
        """Yield the lines that end in ``chunk``. Empty lines are left out."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self.add(chunk[start:end])
            start = end + 1
            if (line := self.finish()) is not None:
                yield line
        if start < len(chunk):
            self.add(chunk[start:] if start else chunk)

    def finish(self) -> Line | None:
        """Return the message that ends here, if there is one."""
        parts, self._parts, self._size = self._parts, [], 0
        if self._long is not None:
            long, self._long = self._long, None
            return long.line()
        whole = (parts[0] if len(parts) == 1 else b"".join(parts)).strip()
        return Line(whole) if whole else None

    def close(self) -> None:
        """Drop a message that has not ended."""
        if self._long is not None:
            self._long.file.close()
            self._long = None

    def add(self, part: bytes) -> None:
        """Add a part of a message that holds no end of a line."""
        if self._long is None:
            self._parts.append(part)
            self._size += len(part)
            if self._size < LONG:
                return
            self._long = _Long()
            part, self._parts = b"".join(self._parts), []
        self._long.add(part)


class _Long:
    """A message that is written to a file while it arrives, and its texts that are not long."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with its line
        self._size = 0
        self._short = bytearray()
        self._runs: list[Run] = []
        self._marks: list[int] = []  # where they are in the whole of `_short`
        self._head = self._tail = b""
        self._inside = self._escaped = False
        self._start = self._kept = 0
        self._carver: Carver | None = None
        self._counter = ValueCounter()
        self._seen = self._dropped = 0
        self._over = False

    def add(self, part: bytes) -> None:
        """Add what has come."""
        self.file.write(part)
        if len(self._head) < _END:
            self._head = (self._head + part)[:_END]
        self._tail = (self._tail + part[-_END:])[-_END:]
        for at in range(0, len(part), LONG):  # a text within one piece is never long
            self._scan(part[at : at + LONG])
            self._carve(self._kept if self._inside else len(self._short))

    def _scan(self, piece: bytes) -> None:
        base, at = self._size, 0
        self._size += len(piece)
        if self._inside:
            at = self._rest(piece, 1 if self._escaped else 0)
            long = base + at - self._start >= LONG
            if not long:
                self._short += piece[:at]
            else:
                del self._short[self._kept :]
            if at == len(piece):
                return
            if long:
                self._marks.append(self._dropped + len(self._short))
                self._short += b"%s-%d" % (_TOKEN, len(self._runs))
                self._runs.append(Run(self._start, base + at))
            self._inside = False
            self._short += b'"'
            at += 1
        end = whole_end(piece, at, len(piece))
        self._short += piece[at:end]
        if end < len(piece):
            self._inside, self._start = True, base + end + 1
            self._short += b'"'
            self._kept = len(self._short)
            self._short += piece[end + 1 : self._rest(piece, end + 1)]

    def _rest(self, piece: bytes, at: int) -> int:
        """Return where the text ends in which ``piece`` is at ``at``, and note whether it ends within an escape."""
        if at == 0 and b'"' not in piece and b"\\" not in piece:
            end = len(piece)
        else:
            found = _REST.match(piece, at)
            assert found is not None
            end = found.end()
        self._escaped = end < len(piece) and piece[end : end + 1] == b"\\"
        return len(piece) if self._escaped else end

    def _carve(self, stable: int) -> None:
        """Show a carver the next part of a message that may have too many values, and keep no more of one that has."""
        if self._carver is None:
            if len(self._short) <= MAX_VALUES:
                return
            self._carver = Carver(lambda number: b"%s-v%d" % (_TOKEN, number))
        part = bytes(self._short[self._seen : stable])
        self._carver.feed(part)
        self._seen = stable
        self._over = self._over or len(self._short) > MAX_SHORT or self._counter.add(part) > MAX_VALUES
        if self._over:
            del self._short[:stable]
            self._dropped += stable
            self._kept -= stable
            self._seen = 0

    def line(self) -> Line:
        """Return the whole message."""
        values: Sequence[Run] = ()
        short = bytes(self._short)
        if self._over:
            assert self._carver is not None
            short = self._carver.finish()
            values = [
                Run(self._place(start), self._place(end), is_value=True, outline=outline)
                for start, end, outline in self._carver.values
            ]
            if has_more_values(short, MAX_VALUES):
                short = b""
        line = Line(short, self._size, self.file, self._head)
        line.tail = self._tail
        line.runs = {f"{_TOKEN.decode()}-{at}": run for at, run in enumerate(self._runs)}
        line.runs |= {f"{_TOKEN.decode()}-v{at}": run for at, run in enumerate(values)}
        return line

    def _place(self, at: int) -> int:
        """Return the place in the file of a place in the message with marks."""
        before = bisect.bisect_left(self._marks, at)
        texts = sum(map(len, self._runs[:before]))
        return at + texts - sum(len(_TOKEN) + 1 + len(str(number)) for number in range(before))
