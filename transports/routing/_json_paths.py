"""JSONPath (RFC 9535) in paths of field rules."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache

from jsonpath_rfc9535 import JSONPathError, JSONPathQuery, JSONPathRecursionError, compile

from ..errors import UsageError
from ..protocol._find_content import Place


@lru_cache(maxsize=256)
def compile_json_path(path: str) -> JSONPathQuery:
    try:
        return compile(path)
    except JSONPathError as error:
        reason = str(error).splitlines()[0]
        raise UsageError(
            f"{path!r} is not a JSONPath (RFC 9535): {reason}; a key that begins with $ is written \\$ in a dotted path"
        ) from None


def find_json_path(tree: object, path: str) -> Iterator[Place]:
    """Yield the places in ``tree`` that a JSONPath matches."""
    query = compile_json_path(path)
    # The search for content reports a tree that is too deep, and a path of a thousand steps matches nothing.
    with suppress(JSONPathRecursionError, RecursionError):
        for node in query.finditer(tree):  # type: ignore[arg-type]  # it may hold content, not just JSON
            yield node.location
