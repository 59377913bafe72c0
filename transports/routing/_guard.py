"""Size guard for agents (docs/requirements.md R2-4.4): JSON cut to a size, with its structure. No I/O.

It is the last step before an agent. A value that is too large is cut where it is large: each field has a fair share of
the bytes, and large fields share the bytes that small fields do not use. Texts keep their beginning, lists and objects
their first items, and each cut says how much is missing. The result is valid JSON of at most ``max_bytes`` as compact
UTF-8.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, cast

from ..errors import UsageError
from ..protocol._strict_json import JSONValue, encode_json

#: Default limit of an agent's view, in bytes of compact UTF-8 JSON (docs/requirements.md R2-4.4).
MAX_BYTES = 50_000
#: Default limit of each text in an agent's view, in characters (docs/requirements.md R2-4.4).
MAX_FIELD_CHARS = 10_000
#: The smallest limit in bytes: a smaller one would leave no room to say what is missing.
MIN_BYTES = 64
#: The smallest limit in bytes for a whole answer: a smaller one would leave no room to say where the answer is stored.
MIN_AGENT_BYTES = 1024
_ELLIPSIS = "…"
#: The end of a text that was cut, as docs/requirements.md R2-4.4 has it.
TRUNCATION_SUFFIX = "\n... [truncated: {truncated_chars} chars]"
#: Types of values without texts.
_SHORT = frozenset((int, float, bool, type(None)))
#: Bytes of "…" with its quotes, the smallest that a value can be cut to.
_MIN_VALUE = 5


def json_size(value: object) -> int:
    return len(encode_json(value))


def clamp(value: JSONValue, max_bytes: int, *, suffix: str = TRUNCATION_SUFFIX) -> JSONValue:
    """Return ``value`` if it fits into ``max_bytes``, else a copy cut to fit. ``suffix`` ends each text that is cut.

    A value that is nested too deeply to be cut, hundreds of levels, becomes "…". Raises
    :class:`~transports.errors.UsageError` for a limit below :data:`MIN_BYTES`.
    """
    if max_bytes < MIN_BYTES:
        raise UsageError(f"max_bytes must be at least {MIN_BYTES} (it is {max_bytes})")
    try:
        return _fit_value(value, max_bytes, suffix)
    except (RecursionError, ValueError):
        # The encoder raises ValueError.
        return _ELLIPSIS


def cut_texts(value: JSONValue, max_chars: int, suffix: str = TRUNCATION_SUFFIX) -> JSONValue:
    """Return a copy in which no text has more than ``max_chars`` characters, or ``value`` itself if none is longer.

    ``suffix`` ends each text that is cut. It counts towards ``max_chars``, and becomes "…" if it does not fit. A value
    that is nested too deeply to be cut, hundreds of levels, becomes "…"."""
    try:
        if not _has_longer_text(value, max_chars):
            return value
        return _cut_texts(value, max_chars, suffix)
    except RecursionError:
        return _ELLIPSIS


def _has_longer_text(value: JSONValue, max_chars: int) -> bool:
    if isinstance(value, str):
        return len(value) > max_chars
    if isinstance(value, dict):
        items: Iterable[JSONValue] = value.values()
    elif isinstance(value, list):
        items = value
    else:
        return False

    for item in items:
        # Texts and numbers, which most values are, are handled here: a call for each of them would take long.
        kind = type(item)
        if kind is str:
            if len(cast(str, item)) > max_chars:
                return True
        elif kind not in _SHORT and _has_longer_text(item, max_chars):
            return True
    return False


def _cut_texts(value: JSONValue, max_chars: int, suffix: str) -> JSONValue:
    if isinstance(value, str):
        return _shorten_text(value, max_chars, suffix)
    if isinstance(value, dict):
        return {name: _cut_texts(item, max_chars, suffix) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut_texts(item, max_chars, suffix) for item in value]
    return value


def _shorten_text(text: str, max_chars: int, suffix: str) -> str:
    if len(text) <= max_chars:
        return text
    room = max_chars - len(_cut_text(text, 0, suffix))
    if room < 0:
        return text[: max_chars - 1] + _ELLIPSIS
    return _cut_text(text, room, suffix)


def _cut_text(text: str, chars: int, suffix: str) -> str:
    return text[:chars] + suffix.replace("{truncated_chars}", str(len(text) - chars))


def _fit_value(value: JSONValue, room: int, suffix: str) -> JSONValue:
    """Return a value that fits into ``room`` bytes: unchanged if it does, else cut. A value that must be cut needs a
    room of at least :data:`_MIN_VALUE`."""
    if _fits_room(value, room):
        return value
    if isinstance(value, dict):
        return _fit_object(value, room, suffix)
    if isinstance(value, list):
        return _fit_list(value, room, suffix)
    if isinstance(value, str):
        return _fit_text(value, room, suffix)
    return _fit_text(encode_json(value).decode(), room, suffix)


def _fits_room(value: JSONValue, room: int) -> bool:
    # A text needs a byte for each character, and two for its quotes: megabytes need not be encoded to know that.
    if isinstance(value, str) and len(value) + 2 > room:
        return False
    return json_size(value) <= room


def _fit_text(text: str, room: int, suffix: str) -> str:
    # Search in halves for the greatest length that fits: a cut text must be encoded to know its size.
    lengths = range(min(len(text), room) + 1)
    fitting_lengths = bisect_right(lengths, room, key=lambda chars: json_size(_cut_text(text, chars, suffix)))
    longest = max(fitting_lengths - 1, 0)
    return _or_ellipsis(_cut_text(text, longest, suffix), room)


def _or_ellipsis(text: str, room: int) -> str:
    if json_size(text) <= room:
        return text
    return _ELLIPSIS


def _fit_list(items: Sequence[JSONValue], room: int, suffix: str) -> JSONValue:
    """Return the first items, each with a share of the room that is worth reading, and the number of the others."""
    room_inside = room - len("[]")
    readable_bytes = 256
    min_share = min(readable_bytes, room_inside // 2)
    sizes = _sizes_of_first(items, room_inside, min_share)
    if len(sizes) < len(items):
        # Not all items fit, so the number of the others needs room, too.
        room_for_items = room_inside - json_size(_more_items(len(items))) - len(",")
        sizes = _sizes_of_first(items, room_for_items, min_share)
    if not sizes or min_share < _MIN_VALUE:
        return _or_ellipsis(f"[{_ELLIPSIS} {len(items):,} items]", room)

    more: list[JSONValue] = []
    if len(sizes) < len(items):
        more.append(_more_items(len(items) - len(sizes)))
        room_inside -= json_size(more[0]) + len(",")
    shares = _divide_room(room_inside - len(sizes), sizes)
    return [*(_fit_value(item, share, suffix) for item, share in zip(items, shares, strict=False)), *more]


def _more_items(count: int) -> str:
    return f"{_ELLIPSIS} {count:,} more items"


def _sizes_of_first(items: Iterable[JSONValue], room: int, min_share: int) -> list[int]:
    """Return the sizes of as many first items as fit into ``room`` if each takes at most ``min_share``."""
    sizes: list[int] = []
    for item in items:
        size = json_size(item)
        room -= min(size, min_share) + len(",")
        if room < 0:
            break
        sizes.append(size)
    return sizes


class _FieldSize(NamedTuple):
    """Sizes of a field of an object in bytes: of its key with the colon and the comma, and of its value."""

    key: int
    value: int

    def with_share(self, share: int) -> int:
        return self.key + min(self.value, share)


def _fit_object(fields: Mapping[str, JSONValue], room: int, suffix: str) -> JSONValue:
    """Return all fields, each cut as far as needed; if even that does not fit, the fields that fit."""
    room_inside = room - len("{}")
    sizes = {name: _FieldSize(json_size(name) + len(":,"), json_size(value)) for name, value in fields.items()}
    if sum(size.with_share(_MIN_VALUE) for size in sizes.values()) <= room_inside:
        return _fit_values(fields, sizes, room_inside, suffix)

    # Leave fields out, and put their number under a key that the object does not have.
    more_key = _ELLIPSIS
    while more_key in fields:
        more_key += _ELLIPSIS
    free = room_inside - json_size(more_key) - json_size(_more_fields(len(fields))) - len(":,")
    min_share = 16  # bytes of each value
    shown_fields: dict[str, JSONValue] = {}
    for name, value in fields.items():
        size = sizes[name].with_share(min_share)
        if size <= free:
            shown_fields[name] = value
            free -= size
    if not shown_fields:
        return _or_ellipsis(f"{{{_ELLIPSIS} {len(fields):,} fields}}", room)

    # The braces of this object are not needed, but a comma is.
    more: dict[str, JSONValue] = {more_key: _more_fields(len(fields) - len(shown_fields))}
    room_for_shown = room_inside - json_size(more) + len("{}") - len(",")
    return _fit_values(shown_fields, sizes, room_for_shown, suffix) | more


def _fit_values(
    fields: Mapping[str, JSONValue], sizes: Mapping[str, _FieldSize], room: int, suffix: str
) -> dict[str, JSONValue]:
    room_for_values = room - sum(sizes[name].key for name in fields)
    shares = _divide_room(room_for_values, [sizes[name].value for name in fields])
    return {name: _fit_value(value, share, suffix) for (name, value), share in zip(fields.items(), shares, strict=True)}


def _more_fields(count: int) -> str:
    return f"{count:,} more fields"


def _divide_room(room: int, sizes: Sequence[int]) -> list[int]:
    """Divide ``room`` among values of these sizes: small values get their size, the others equal shares."""
    shares = [0] * len(sizes)
    values_left = len(sizes)
    # Begin with the smallest value, because the others share the room that it does not use.
    for index in sorted(range(len(sizes)), key=sizes.__getitem__):
        shares[index] = min(sizes[index], room // values_left)
        room -= shares[index]
        values_left -= 1
    return shares
