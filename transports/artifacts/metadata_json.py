"""The JSON of a metadata file, parsed strictly: what an index or a reader of JSON cannot take is refused. No I/O."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime

__all__ = ["LATEST", "LONGEST", "load", "stored_at"]

#: Bytes of a metadata file that is read, far more than any has.
LONGEST = 1 << 20
#: The end of the year 9999, in seconds since 1970.
LATEST = 253402300800.0
_DEEPEST = 500  # levels, far fewer than Python's own limit
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def stored_at(raw: object, source: Mapping[str, object]) -> float:
    """Return when the artifact was stored; metadata without this field has only the time of its creation."""
    if not isinstance(raw, float | int):
        try:
            raw = datetime.fromisoformat(str(source.get("created", "1970-01-01T00:00:00Z"))).timestamp()
        except OverflowError as error:
            raise ValueError("the time is out of range") from error
    if not 0 <= raw <= LATEST:
        raise ValueError("the time is out of range")
    return float(raw)


def load(data: bytes) -> object:
    """Parse the file. Raises :class:`ValueError` if it is too long, is no JSON, or holds numbers out of range, lone
    surrogates or deep nesting."""
    if len(data) > LONGEST:
        raise ValueError(f"longer than {LONGEST:,} bytes")
    text = data.decode()
    try:
        raw: object = json.loads(text, parse_int=_int, parse_float=_float, parse_constant=_float)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    level, depth = [raw], 0
    while level := [inner for one in level for inner in _inside(one)]:
        depth += 1
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
    if _SURROGATE.search(text):
        json.dumps(raw, ensure_ascii=False).encode()  # raises for a surrogate without its other half
    return raw


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _int(text: str) -> int:
    value = int(text)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number is out of range")
    return value


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is out of range")
    return value
