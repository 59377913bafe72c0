"""Names of arguments in messages: those of the Python API, or what replaces them in the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

_replacements: Mapping[str, str] = {}


def spelled(argument: str) -> str:
    """Return ``argument`` as the user of this process writes it: ``store=``, or ``--out`` in the command line."""
    return _replacements.get(argument, argument)


@contextmanager
def replaced_arguments(replacements: Mapping[str, str]) -> Iterator[None]:
    """Let messages of this process name ``replacements`` of arguments until the block ends."""
    global _replacements
    before, _replacements = _replacements, replacements
    try:
        yield
    finally:
        _replacements = before
