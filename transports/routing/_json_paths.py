"""JSONPath (RFC 9535) in paths of field rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from jsonpath_rfc9535 import JSONPathError, JSONPathQuery, JSONPathRecursionError, compile
from jsonpath_rfc9535.selectors import SliceSelector

from ..errors import UsageError
from ..protocol._find_content import MAX_DEPTH, Place


def check_json_path(path: str) -> str | None:
    """Return the reason why a path can match nothing, or ``None``.

    Raises :class:`~transports.errors.UsageError` for a path that is not valid."""
    query = _compile_query(path)
    if len(query.segments) > MAX_DEPTH:
        return f"answers have {MAX_DEPTH} levels at most"
    for segment in query.segments:
        slices = [selector.slice for selector in segment.selectors if isinstance(selector, SliceSelector)]
        has_only_slices = len(slices) == len(segment.selectors)
        if has_only_slices and all(_is_empty_slice(part) for part in slices):
            return f"{segment} selects nothing of any list"
    return None


def find_json_path(tree: object, path: str) -> Iterator[Place]:
    """Yield the place of each match of ``path`` in ``tree``."""
    # A tree that is nested too deeply is reported by the search for content.
    with suppress(JSONPathRecursionError):
        for node in _compile_query(path).finditer(tree):  # type: ignore[arg-type]  # it may hold content, not just JSON
            yield node.location


@lru_cache(maxsize=256)
def _compile_query(path: str) -> JSONPathQuery:
    try:
        return compile(path)
    except JSONPathError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path!r} is not a JSONPath (RFC 9535): {reason}; a key that begins with $ is written \\$ in a dotted path"
        ) from None


def _is_empty_slice(part: slice[int | None, int | None, int | None]) -> bool:
    """Return whether a slice is empty for a list of any length (RFC 9535 §2.3.4.2)."""
    start = part.start
    stop = part.stop
    step = 1 if part.step is None else part.step
    if step == 0:
        return True
    if start is None or stop is None:
        return stop == 0 and step > 0

    # Only positions from the same end can be compared without the length of the list.
    has_same_sign = (start >= 0) == (stop >= 0)
    if step > 0:
        return has_same_sign and start >= stop
    return has_same_sign and start <= stop
