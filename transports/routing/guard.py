"""The last guard (seed 002 §4.4): JSON that fits, with its structure kept and every cut told. No I/O.

A value that is too large is cut where it is large: a fair share of the room goes to each field, what a small one does
not need goes to the large ones. Texts keep their beginning, lists and objects their first items; what was left out is
counted where it stood. What comes back is valid JSON, of at most ``max_bytes`` as compact UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..errors import UsageError
from ..protocol.strict_json import JSONValue, encode_json

__all__ = ["LEAST", "clamp", "json_size"]

#: A limit below this many bytes would leave no room for saying what was left out.
LEAST = 64
#: What every item of a list gets at least, in bytes, if it is shown at all; a field of an object, if all fit so.
_WORTH = 256
_MARK = "…"
_BARE = 5  # bytes of "…" with its quotes: the least that any value can be cut to


def json_size(value: object) -> int:
    """Bytes of ``value`` as compact JSON in UTF-8."""
    return len(encode_json(value))


def clamp(value: JSONValue, max_bytes: int) -> JSONValue:
    """``value``, or what of it fits into ``max_bytes``. Raises :class:`~transports.errors.UsageError` for a limit below
    :data:`LEAST`."""
    if max_bytes < LEAST:
        raise UsageError(f"max_bytes must be at least {LEAST} (it is {max_bytes})")
    return _fit(value, max_bytes)


def _fit(value: JSONValue, room: int) -> JSONValue:
    """``room`` is enough for ``value``, or at least :data:`_BARE`."""
    if _fits(value, room):
        return value
    if isinstance(value, dict):
        return _object(value, room)
    if isinstance(value, list):
        return _list(value, room)
    return _text(value if isinstance(value, str) else encode_json(value).decode(), room)


def _fits(value: JSONValue, room: int) -> bool:
    if isinstance(value, str) and len(value) + 2 > room:  # no need to encode megabytes
        return False
    return json_size(value) <= room


def _text(text: str, room: int) -> str:
    """The beginning of a text, and how much is missing (the wording of seed 002 §4.4)."""
    low, high = 0, min(len(text), room)
    while low < high:
        middle = (low + high + 1) // 2
        if json_size(_cut(text, middle)) <= room:
            low = middle
        else:
            high = middle - 1
    return _short(_cut(text, low), room)


def _cut(text: str, kept: int) -> str:
    return f"{text[:kept]}{_MARK} [truncated: {len(text) - kept:,} characters]"


def _short(text: str, room: int) -> str:
    return text if json_size(text) <= room else _MARK


def _list(items: Sequence[JSONValue], room: int) -> JSONValue:
    """The first items, each of them worth reading, and how many more there are."""
    room -= 2
    worth = min(_WORTH, room // 2)
    sizes = _first(items, room, worth)
    if len(sizes) < len(items):
        sizes = _first(items, room - json_size(_more_items(len(items))) - 1, worth)
    if not sizes or worth < _BARE:
        return _short(f"[{_MARK} {len(items):,} items]", room + 2)
    left = len(items) - len(sizes)
    more: list[JSONValue] = [_more_items(left)] if left else []
    shares = _shares(sizes, room - len(sizes) - sum(json_size(item) + 1 for item in more))
    return [*(_fit(item, share) for item, share in zip(items, shares, strict=False)), *more]


def _more_items(count: int) -> str:
    return f"{_MARK} {count:,} more items"


def _first(items: Iterable[JSONValue], room: int, worth: int) -> list[int]:
    """The sizes of as many items as fit into ``room`` if none takes more than ``worth``."""
    sizes: list[int] = []
    for item in items:
        size = json_size(item)
        room -= min(size, worth) + 1
        if room < 0:
            break
        sizes.append(size)
    return sizes


def _object(fields: Mapping[str, JSONValue], room: int) -> JSONValue:
    """Rather all fields, cut short, than some of them in full; where not even that fits, those that do."""
    room -= 2
    sizes = {name: (json_size(name) + 2, json_size(value)) for name, value in fields.items()}
    kept: list[str] = []
    more: dict[str, JSONValue] = {}
    for worth in (_WORTH, 64, 16, _BARE):
        if sum(key + min(size, worth) for key, size in sizes.values()) <= room:
            kept = list(fields)
            break
    else:
        mark = _MARK
        while mark in fields:
            mark += _MARK
        free = room - json_size(mark) - json_size(_more_fields(len(fields))) - 2
        for name, (key, size) in sizes.items():
            if key + min(size, 16) <= free:
                kept.append(name)
                free -= key + min(size, 16)
        more = {mark: _more_fields(len(fields) - len(kept))}
        room -= json_size(more) - 1
    if not kept:
        return _short(f"{{{_MARK} {len(fields):,} fields}}", room + 2 + (json_size(more) - 1 if more else 0))
    shares = _shares([sizes[name][1] for name in kept], room - sum(sizes[name][0] for name in kept))
    return {name: _fit(fields[name], share) for name, share in zip(kept, shares, strict=True)} | more


def _more_fields(count: int) -> str:
    return f"{count:,} more fields"


def _shares(sizes: Sequence[int], room: int) -> list[int]:
    """``room`` among values of these sizes: none gets more than it needs, the others the same."""
    shares = [0] * len(sizes)
    left = len(sizes)
    for index in sorted(range(left), key=sizes.__getitem__):
        shares[index] = min(sizes[index], room // left)
        room -= shares[index]
        left -= 1
    return shares
