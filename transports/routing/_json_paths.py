"""JSONPath (RFC 9535) in paths of field rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache

from jsonpath_rfc9535 import JSONPathError, JSONPathQuery, JSONPathRecursionError, compile
from jsonpath_rfc9535.selectors import SliceSelector

from ..errors import UsageError
from ..protocol._find_content import MAX_DEPTH, Place


def check_json_path(path: str) -> str | None:
    """Return the reason why a path can match nothing, or ``None``.

    Raises :class:`~transports.errors.UsageError` for a path that is not valid."""
    query = _query(path)
    if len(query.segments) > MAX_DEPTH:
        return f"answers have {MAX_DEPTH} levels at most"
    for segment in query.segments:
        slices = [selector.slice for selector in segment.selectors if isinstance(selector, SliceSelector)]
        if len(slices) == len(segment.selectors) and all(map(_is_empty, slices)):
            return f"{segment} selects nothing of any list"
    return None


def walk_json_path(tree: object, path: str) -> Iterator[tuple[Place, object, Mapping[str, object]]]:
    """Yield place, value and siblings of each match of ``path`` in ``tree``.

    The siblings are the fields of the innermost object around the match."""
    with suppress(JSONPathRecursionError):  # deeper than any answer may be, which the search for content reports
        for node in _query(path).finditer(tree):  # type: ignore[arg-type]  # the tree may hold content, which is not JSON
            yield node.location, *_follow(tree, node.location)


@lru_cache(maxsize=256)
def _query(path: str) -> JSONPathQuery:
    try:
        return compile(path)
    except JSONPathError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path!r} is not a JSONPath (RFC 9535): {reason}; a key that begins with $ is written \\$ in a dotted path"
        ) from None


def _follow(tree: object, location: Place) -> tuple[object, Mapping[str, object]]:
    siblings: Mapping[str, object] = {}
    for step in location:
        if isinstance(tree, dict):
            siblings = tree
        tree = tree[step]  # type: ignore[index]  # the query has found it there
    return tree, siblings


def _is_empty(part: slice[int | None, int | None, int | None]) -> bool:
    """Return whether a slice is empty for a list of any length (RFC 9535 §2.3.4.2)."""
    start, stop, step = part.start, part.stop, 1 if part.step is None else part.step
    if step == 0:
        return True
    if start is None or stop is None:
        return stop == 0 and step > 0
    return (start >= 0) == (stop >= 0) and (start >= stop if step > 0 else start <= stop)
