"""Paths of field rules: dotted, or JSONPath (RFC 9535). No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from ..binary.detect import MAX_DEPTH, Place
from ..errors import UsageError

if TYPE_CHECKING:
    from jsonpath_rfc9535 import JSONPathQuery

__all__ = ["check_path", "walk_path"]

_DOTTED = re.compile(r"(?:[^.\\]|\\.)+(?:\.(?:[^.\\]|\\.)+)*", re.DOTALL)
_STEP = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


def check_path(path: str) -> None:
    """Raise :class:`~transports.errors.UsageError` for a path that is not valid, or that nothing can ever match."""
    if path.startswith("$"):
        _check_query(path, _query(path))
    elif not _DOTTED.fullmatch(path):
        raise UsageError(
            f"{path!r} is no path of a field, such as content, pages.*.image or $.pages[*].image; "
            "a dot or backslash in a key is written \\. or \\\\"
        )
    elif len(_STEP.findall(path)) > MAX_DEPTH:
        raise _matches_nothing(path, f"answers have {MAX_DEPTH} levels at most")


def walk_path(tree: object, path: str, start: Place) -> Iterator[tuple[Place, object, Mapping[str, object]]]:
    """Yield place, value and siblings of everything that ``path`` matches in the value at ``start`` of ``tree``.

    The siblings are the fields of the innermost object around the value, within that at ``start``.
    """
    for step in start:
        tree = tree[step]  # type: ignore[index]  # a place of the tree
    if path.startswith("$"):
        for location in _locations(tree, _query(path)):
            yield (*start, *location), *_follow(tree, location)
    else:
        yield from _walk(tree, _STEP.findall(path), start, {})


def _walk(
    node: object, steps: Sequence[str], place: Place, siblings: Mapping[str, object]
) -> Iterator[tuple[Place, object, Mapping[str, object]]]:
    if not steps:
        yield place, node, siblings
        return
    step, rest = steps[0], steps[1:]
    if isinstance(node, dict):
        key = re.sub(r"\\(.)", r"\1", step)
        chosen = node.items() if step == "*" else [(key, node[key])] if key in node else []
        for name, value in chosen:
            yield from _walk(value, rest, (*place, str(name)), node)
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            if step in ("*", str(index)):
                yield from _walk(value, rest, (*place, index), siblings)


# --- JSONPath ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _query(path: str) -> JSONPathQuery:
    """The query of a path. The library is loaded for the first one: it takes longer than the rest of this room."""
    from jsonpath_rfc9535 import JSONPathError, compile

    try:
        return compile(path)
    except JSONPathError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path!r} is no JSONPath (RFC 9535): {reason}; a key that begins with $ is written \\$ in a dotted path"
        ) from None


def _locations(tree: object, query: JSONPathQuery) -> Iterator[Place]:
    from jsonpath_rfc9535 import JSONPathRecursionError

    with suppress(JSONPathRecursionError):  # deeper than any answer may be, which the search for content reports
        for node in query.finditer(tree):  # type: ignore[arg-type]  # content may stand in the tree, and is no JSON
            yield node.location


def _follow(tree: object, location: Place) -> tuple[object, Mapping[str, object]]:
    siblings: Mapping[str, object] = {}
    for step in location:
        if isinstance(tree, dict):
            siblings = tree
        tree = tree[step]  # type: ignore[index]  # the query has found it there
    return tree, siblings


def _check_query(path: str, query: JSONPathQuery) -> None:
    from jsonpath_rfc9535.selectors import SliceSelector

    if len(query.segments) > MAX_DEPTH:
        raise _matches_nothing(path, f"answers have {MAX_DEPTH} levels at most")
    for segment in query.segments:
        slices = [selector.slice for selector in segment.selectors if isinstance(selector, SliceSelector)]
        if len(slices) == len(segment.selectors) and all(map(_is_empty, slices)):
            raise _matches_nothing(path, f"{segment} selects nothing of any list")


def _is_empty(part: slice[int | None, int | None, int | None]) -> bool:
    """Whether a slice is empty for a list of any length (RFC 9535 §2.3.4.2)."""
    start, stop, step = part.start, part.stop, 1 if part.step is None else part.step
    if step == 0:
        return True
    if start is None or stop is None:
        return stop == 0 and step > 0
    return (start >= 0) == (stop >= 0) and (start >= stop if step > 0 else start <= stop)


def _matches_nothing(path: str, reason: str) -> UsageError:
    return UsageError(f"the path {path!r} can match nothing: {reason}")
