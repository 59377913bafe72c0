"""Values of the command line that are taken as they are. Typer reads each with a model of pydantic, whose import alone
would keep the browser waiting."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["take_plain_values"]


def take_plain_values(command: Any) -> None:
    """Let the parameters of a command, and of those in it, take what is plain by themselves (commands as Typer makes
    them). What a value is, and what a message says, stays the same."""
    made_late = command.get_help_option

    def get_help_option(ctx: object) -> Any:
        return _with_reader(made_late(ctx))

    command.get_help_option = get_help_option
    for param in command.params:
        _with_reader(param)
    for one in getattr(command, "commands", {}).values():
        take_plain_values(one)


def _with_reader(param: Any) -> Any:
    reading = getattr(param, "get_runtime_param", None)  # a part of Typer that may go: then it reads all values itself
    if reading is not None and not isinstance(getattr(reading, "__self__", None), _Reader):
        param.get_runtime_param = _Reader(reading).get
    return param


class _Reader:
    """Reads the values of one parameter: what is plain itself, all else as Typer does."""

    def __init__(self, typers: Callable[[], Any]) -> None:
        self._typers = typers

    def get(self) -> _Reader:
        return self

    def coerce(self, value: Any, param: Any, ctx: object) -> object:
        """Return the value of ``param`` from that of the command line, as Typer's own readers do."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        for plain in _plain(value, param.type_descriptor):
            return plain
        return self._typers().coerce(value, param=param, ctx=ctx)


def _plain(value: Any, kind: Any) -> Iterator[object]:
    """Yield what a value stands for, if that needs no look at it: texts, counts, paths that nothing is asked of."""
    given, wanted, info = type(value), kind.annotation, kind.parameter_info
    if info.parser is not None or info.path_type is not None:
        return
    if given is wanted and (wanted is str or (wanted is int and info.min is None and info.max is None)):
        yield value
    elif wanted == list[str] and given in (list, tuple) and all(type(one) is str for one in value):
        yield [*value]
    elif wanted is Path and given is str and not (info.exists or info.resolve_path or info.writable or info.allow_dash):
        path = Path(value)
        if "\0" in value or not (info.file_okay and info.dir_okay):
            return
        if os.access(path, os.R_OK) or not os.path.exists(value):  # noqa: PTH110 - unlike that of Path it never raises
            yield path
