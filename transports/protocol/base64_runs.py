"""JSON with long runs of base64 in it, read without copying them. No I/O.

Parsing would copy such a run and hold the interpreter's lock for as long as that takes (measured: 50-180 ms for 64 MB).
So runs are taken out of the text first, a short marker is parsed in the place of each, and the caller decides what
replaces the marker.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable
from typing import TypeAlias

from ..errors import ProtocolError
from .strict_json import MAX_VALUES, decode_json, inner_values

__all__ = ["RunHandler", "decode_run", "decode_with_runs"]

#: Length in bytes from which a text is a run. Shorter ones cost less to parse than to take out.
_SHORTEST_RUN = 128 * 1024

#: Bytes that are searched at a time, and seconds between two searches: a search keeps the interpreter's lock, and in
#: the thread of the event loop others wait for it.
_PIECE, _PAUSE = 4 << 20, 0.0001

#: Returns the value that replaces a run, given the object that holds it, its key there, and the run.
RunHandler: TypeAlias = "Callable[[dict[str, object], str, memoryview], object]"


def decode_with_runs(data: bytes, key: re.Pattern[bytes], on_run: RunHandler, *, at_most: int = MAX_VALUES) -> object:
    """Parse UTF-8 JSON, handing long runs of base64 to ``on_run`` as views of ``data``.

    A text is a run if it has 128 KiB or more, no escapes, a length that base64 can have, and if ``key`` matches the end
    of what stands before it. Raises :class:`~transports.errors.ProtocolError` for JSON that cannot be read, and for
    more than ``at_most`` values and names.
    """
    if len(data) <= _SHORTEST_RUN:
        return decode_json(data, at_most=at_most)
    marker = secrets.token_hex(16)  # not to be guessed, so no app can write one itself
    text, runs = _take_runs_out(data, key, marker)
    tree = decode_json(text, at_most=at_most)
    if runs:
        _put_runs_back(tree, marker, runs, on_run)
    return tree


def decode_run(run: memoryview) -> str:
    """Return a run that is no content after all as text. Raises :class:`~transports.errors.ProtocolError` if it is not
    valid UTF-8."""
    try:
        return str(run, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the app sent text that is no valid UTF-8") from error


def _take_runs_out(data: bytes, key: re.Pattern[bytes], marker: str) -> tuple[bytes, list[memoryview]]:
    """Return ``data`` with every run replaced by ``marker`` and its number, and the runs. Only text without an escape
    is a run, so the quotation mark after it is its end."""
    runs: list[memoryview] = []
    parts: list[bytes] = []
    copied = at = 0
    while at + _SHORTEST_RUN < len(data):
        quote = data.rfind(b'"', at, at + _SHORTEST_RUN)
        if quote >= 0:  # a run is longer than the window, so it cannot begin before this mark
            at = quote + 1
            continue
        end, escaped = _end_of_text(data, at)
        if end < 0:
            break
        if (end - at) % 4 == 0 and not escaped and key.search(data, max(at - 40, 0), at):
            parts += [data[copied:at], f"{marker}{len(runs)}".encode()]
            runs.append(memoryview(data)[at:end])
            copied = end
        at = end + 1
    return b"".join([*parts, data[copied:]]), runs


def _end_of_text(data: bytes, start: int) -> tuple[int, bool]:
    """Return the place of the first quotation mark from ``start`` on, -1 without one, and whether there is a backslash
    before it."""
    escaped = False
    for at in range(start, len(data), _PIECE):
        end = data.find(b'"', at, at + _PIECE)
        escaped = escaped or data.find(b"\\", at, at + _PIECE if end < 0 else end) >= 0
        if end >= 0:
            return end, escaped
        time.sleep(_PAUSE)
    return -1, escaped


def _put_runs_back(tree: object, marker: str, runs: list[memoryview], on_run: RunHandler) -> None:
    """Replace the markers in ``tree`` where they stand. Level by level: the parser takes deeper nesting than a function
    that calls itself."""
    level: list[object] = [tree]
    while level:
        for node in level:
            if isinstance(node, dict):
                for key, value in node.items():
                    if isinstance(value, str) and value.startswith(marker):
                        node[key] = on_run(node, key, runs[int(value[len(marker) :])])
        level = inner_values(level)
