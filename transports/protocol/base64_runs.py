"""JSON with long runs of base64 in it, read without copying them. No I/O.

Parsing would copy such a run and hold Python's lock for as long as that takes (measured: 50-180 ms for 64 MB), so runs
are taken out before, and whoever knows what they are puts something in their places.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import TypeAlias

from ..errors import ProtocolError
from .strict_json import decode_json

__all__ = ["RunHandler", "decode_run", "decode_with_runs"]

#: Text that is longer is not parsed but referred to.
_LONG = 128 * 1024

#: Takes the object that holds a run, its key and the run; gives what shall stand there.
RunHandler: TypeAlias = "Callable[[dict[str, object], str, memoryview], object]"


def decode_with_runs(data: bytes, key: re.Pattern[bytes], placed: RunHandler) -> object:
    """The JSON value that ``data`` is. A long text without escapes, whose length is one of base64 and that ``key``
    matches the end of what stands before it, is given to ``placed`` as a view of ``data``. Raises
    :class:`~transports.errors.ProtocolError`."""
    if len(data) <= _LONG:
        return decode_json(data)
    mark = secrets.token_hex(16)
    text, runs = _without_runs(data, key, mark)
    tree = decode_json(text)
    return _with_runs(tree, mark, runs, placed) if runs else tree


def decode_run(run: memoryview) -> str:
    """A run that is no content after all. Raises :class:`~transports.errors.ProtocolError` if it is no UTF-8."""
    try:
        return str(run, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the app sent text that is no valid UTF-8") from error


def _without_runs(data: bytes, key: re.Pattern[bytes], mark: str) -> tuple[bytes, list[memoryview]]:
    """``data`` with every run replaced by ``mark`` and its number. Only text without an escape is taken, so the
    quotation mark after it is its end."""
    runs: list[memoryview] = []
    parts: list[bytes] = []
    kept = at = 0
    while at + _LONG < len(data):
        quote = data.rfind(b'"', at, at + _LONG)
        if quote >= 0:  # a run that is longer than the window cannot begin before it
            at = quote + 1
            continue
        end = data.find(b'"', at + _LONG)
        if end < 0:
            break
        if (end - at) % 4 == 0 and key.search(data, max(at - 40, 0), at) and data.find(b"\\", at, end) < 0:
            parts += [data[kept:at], f"{mark}{len(runs)}".encode()]
            runs.append(memoryview(data)[at:end])
            kept = end
        at = end + 1
    return b"".join([*parts, data[kept:]]), runs


def _with_runs(node: object, mark: str, runs: list[memoryview], placed: RunHandler) -> object:
    if isinstance(node, list):
        return [_with_runs(item, mark, runs, placed) for item in node]
    if not isinstance(node, dict):
        return node
    whole = {key: _with_runs(value, mark, runs, placed) for key, value in node.items()}
    for key, value in whole.items():
        if isinstance(value, str) and value.startswith(mark):
            whole[key] = placed(whole, key, runs[int(value[len(mark) :])])
    return whole
