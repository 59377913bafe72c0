"""Every binary of an answer, in one walk. No I/O."""

from __future__ import annotations

from types import NoneType

from ...errors import ABPError, ProtocolError
from ..data import BinaryData
from .content import leaf
from .descriptors import described
from .flat_form import flat
from .heuristics import MIN_GUESSED, guessed
from .mcp_blocks import typed
from .paths import MAX_DEPTH, Found, Place

__all__ = ["contents", "find"]

_NUMBERS = frozenset((int, float, bool, NoneType))  # passed over quickly: an answer may hold a million numbers
_PLAIN = _NUMBERS | {str, list, dict, tuple}
_BLOCKS = frozenset(("image", "audio", "resource"))


def find(data: object, *, guess_from: int | None = MIN_GUESSED) -> list[Found]:
    """Every binary of an answer's ``data``, in order, at any depth. Text that nobody declared is looked at from
    ``guess_from`` characters on, or not at all.

    Raises :class:`~transports.errors.ProtocolError` for a nesting over :data:`MAX_DEPTH`. A binary whose description
    is invalid is returned with its error, so that its siblings are not lost.
    """
    found: list[Found] = []
    _walk(data, (), found, 1 << 62 if guess_from is None else guess_from)
    return found


def contents(data: object) -> list[Found]:
    """What is content by its type alone (``bytes``, :class:`~transports.BinaryData`, content still elsewhere):
    no descriptor is read and nothing is guessed. Raises as :func:`find`."""
    found: list[Found] = []
    _leaves(data, (), found)
    return found


def _leaves(node: object, path: Place, found: list[Found]) -> None:
    if isinstance(node, dict | list | tuple):
        _deep(path)
        for step, value in node.items() if isinstance(node, dict) else enumerate(node):
            if type(value) not in _NUMBERS:
                _leaves(value, (*path, step if isinstance(step, int) else str(step)), found)
    else:
        _content(node, path, found)


def _walk(node: object, path: Place, found: list[Found], guess_from: int) -> None:
    if isinstance(node, dict):
        _deep(path)
        _object(node, path, found, guess_from)
    elif isinstance(node, list | tuple):
        _deep(path)
        for index, value in enumerate(node):
            kind = type(value)
            if kind not in _NUMBERS and (kind is not str or len(value) >= guess_from):
                _walk(value, (*path, index), found, guess_from)
    elif isinstance(node, str):
        if len(node) >= guess_from and (binary := guessed(node, guess_from)) is not None:
            found.append(Found(path, binary, "heuristic"))
    else:
        _content(node, path, found)


def _object(node: dict[str, object], path: Place, found: list[Found], guess_from: int) -> None:
    taken: Place = ()
    block_type = node.get("type")
    if ((type(block_type) is str and block_type in _BLOCKS) or "blob" in node) and (block := typed(node, path)):
        taken = block[0]
        found.append(Found((*path, *taken), block[1], "typed"))
    if not taken and (isinstance(node.get("mimeType"), str) or type(node.get("content")) not in _PLAIN):
        try:
            if (binary := described(node)) is not None:
                found.append(Found(path, binary))
                return
        except ABPError as error:
            found.append(Found(path, error))
            return
        held = flat(node)
    else:
        held = None
    for name, value in node.items():
        kind = type(value)
        if held is not None and name == held[0]:
            found.append(Found((*path, held[0]), held[1]))
        elif kind in _NUMBERS or (kind is str and len(value) < guess_from) or (taken and name == taken[0]):  # type: ignore[arg-type]
            continue
        else:
            _walk(value, (*path, str(name)), found, guess_from)


def _content(node: object, path: Place, found: list[Found]) -> None:
    try:
        binary: BinaryData | ABPError | None = leaf(node)
    except ABPError as error:
        binary = error
    if binary is not None:
        found.append(Found(path, binary))


def _deep(path: Place) -> None:
    if len(path) >= MAX_DEPTH:
        raise ProtocolError(f"the answer is nested deeper than {MAX_DEPTH} levels at {'.'.join(map(str, path[:6]))}…")
