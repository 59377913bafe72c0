"""Tracebacks of the errors that leave the library: they show the caller's lines, not ours."""

from __future__ import annotations

import functools
import logging
import sysconfig
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from .base import ABPError

__all__ = ["short_traceback", "shortened"]

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=ABPError)

logger = logging.getLogger("transports")

_PACKAGE = str(Path(__file__).parents[1])
#: Folders of code that is not the caller's: this package, other packages and the standard library.
_LIBRARIES = (_PACKAGE, *(sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")))


def short_traceback(function: Callable[P, Awaitable[T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return a public function, which returns an awaitable, as a coroutine function: an :class:`ABPError` that leaves
    it has the :func:`shortened` traceback.

    The whole one is logged at the level DEBUG of the logger ``transports``. Other exceptions, which are faults of this
    library or of a callback, keep theirs. Pytest does not show the frame of the decorator either.
    """

    @functools.wraps(function)
    async def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return await function(*args, **kwargs)
        except ABPError as error:
            if logger.isEnabledFor(logging.DEBUG):
                logger.debug("%s", error.message, exc_info=error)
            raise shortened(error)  # noqa: B904 - it is the same error

    return call


def shortened(error: E) -> E:
    """Return ``error`` without its traceback, and its causes without theirs if no code of the caller is in them.

    Where in this library an error was raised helps nobody: its message says what happened and what to do.
    """
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if cause is error or not _is_of_caller(cause.__traceback__):
            cause.__traceback__ = None
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return error


def _is_of_caller(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith((*_LIBRARIES, "<frozen")):
            return True
        traceback = traceback.tb_next
    return False
