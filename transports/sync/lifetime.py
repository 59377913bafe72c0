"""Asynchronous context managers held open from blocking code: entered, left, forgotten, interrupted.

Entering and leaving happen in one task, as cancel scopes require, although the block between them runs elsewhere.
"""

from __future__ import annotations

import asyncio
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar

from ..errors import ABPError, CallTimeout, Disconnected, format_seconds
from ..errors.tracebacks import shortened
from .bridge import Blocking, namesake
from .loop import Runner

__all__ = ["Resource", "closing", "managing"]

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
M = TypeVar("M", bound=AbstractAsyncContextManager[Any])
F = TypeVar("F")

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[type[BaseException] | None, None, None]
)

#: Seconds that closing may take; what is closed has stricter limits of its own.
_CLOSE_TIMEOUT = 30.0
#: Seconds that a cancelled ``__aenter__`` may take to clean up.
_CANCEL_TIMEOUT = 10.0


class _OpenManager(Generic[T]):
    """An asynchronous context manager that is open, and the task that holds it open."""

    def __init__(self, manager: AbstractAsyncContextManager[T], runner: Runner) -> None:
        self._manager = manager
        self._runner = runner
        self._task: asyncio.Task[bool | None] | None = None
        self._pid = os.getpid()
        self.closed = False

    def enter(self) -> T:
        self._runner.acquire(self)
        try:
            return self._runner.run(self._enter())
        except BaseException:
            self.closed = True
            self._release()
            raise

    def leave(self, *exc_info: Any) -> bool | None:
        """Close it; idempotent. A forked process leaves what it inherited to its parent."""
        self.closed = True
        if self._pid != os.getpid() or self._task is None or self._task.done():
            return None
        try:
            return self._runner.run(self._leave(exc_info))
        except Disconnected:
            return None  # the loop has ended, and with it all that was in it
        finally:
            self._release()

    def abandon(self) -> None:
        """Close it without waiting. The garbage collector calls this, in any thread: nobody else can close it now."""
        if not self.closed and self._pid == os.getpid():
            self._warn()
            self.closed = True
            self._runner.post(self._leave_and_release())

    def finish(self) -> None:
        """Close it because the program ends."""
        if not self.closed:
            self._warn()
        self.leave(None, None, None)

    def _warn(self) -> None:
        warnings.warn(f"{self._manager!r} was not closed; use it in a `with` block", ResourceWarning, stacklevel=3)

    def _release(self) -> None:
        """A second Ctrl-C ends the wait, not the closing: the loop is needed until that is done."""
        if self._task is None or self._task.done():
            self._runner.release(self)
        else:
            self._runner.post(self._leave_and_release())

    async def _enter(self) -> T:
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._leaving: asyncio.Future[_ExcInfo] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold_open(entered))
        try:
            await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_CANCEL_TIMEOUT)
            raise
        if not entered.done():
            self._task.result()  # raises
        return entered.result()

    async def _hold_open(self, entered: asyncio.Future[T]) -> bool | None:
        entered.set_result(await self._manager.__aenter__())
        try:
            exc_info = await self._leaving
        except asyncio.CancelledError:
            exc_info = (None, None, None)
        return await self._manager.__aexit__(*exc_info)

    async def _leave(self, exc_info: Any) -> bool | None:
        assert self._task is not None
        if not self._leaving.done():
            self._leaving.set_result(exc_info)
        await asyncio.wait((self._task,), timeout=_CLOSE_TIMEOUT)
        if not self._task.done():
            self._task.cancel()
            raise CallTimeout(
                f"it did not close within {format_seconds(_CLOSE_TIMEOUT)}; parts of it may still be there"
            )
        return self._task.result()

    async def _leave_and_release(self) -> None:
        try:
            await self._leave((None, None, None))
        finally:
            self._release()


class Resource(Blocking[M]):
    """A blocking object that is open in a ``with`` block. A forgotten one is closed with a ``ResourceWarning``."""

    _open_manager: _OpenManager[Any] | None = None

    def __enter__(self) -> Self:
        __tracebackhide__ = True
        manager = _OpenManager(self.wrapped, self._runner)
        try:
            manager.enter()
        except ABPError as error:
            raise shortened(error)  # noqa: B904 - it is the same error
        self._open_manager = manager
        weakref.finalize(self, manager.abandon).atexit = False
        return self

    def __exit__(self, *exc_info: object) -> None:
        __tracebackhide__ = True
        try:
            self._close(*exc_info)
        except ABPError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    def _close(self, *exc_info: object) -> None:
        if self._open_manager is None:
            self._runner.run(self.wrapped.__aexit__(None, None, None))
        else:
            self._open_manager.leave(*(exc_info or (None, None, None)))


def closing(
    method: Callable[[M], Coroutine[Any, Any, None]],
) -> Callable[[Resource[M]], None]:
    """Return the blocking ``close`` for the ``aclose`` of a resource."""

    def close(self: Resource[M]) -> None:
        self._close()

    blocking_close = namesake(close, method)
    blocking_close.__name__ = "close"
    return blocking_close


def managing(
    method: Callable[Concatenate[W, P], AbstractAsyncContextManager[T]], facade: Callable[[T, Runner], F]
) -> Callable[Concatenate[Blocking[W], P], AbstractContextManager[F]]:
    """Return the blocking method for one that returns an asynchronous context manager.

    ``facade`` makes the blocking object around the value that the manager gives.
    """

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[F]:
        manager: AbstractAsyncContextManager[T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
        return _managed(manager, facade, self._runner)

    return namesake(call, method)


@contextmanager
def _managed(manager: AbstractAsyncContextManager[T], facade: Callable[[T, Runner], F], runner: Runner) -> Iterator[F]:
    open_manager = _OpenManager(manager, runner)
    value = facade(open_manager.enter(), runner)
    try:
        yield value
    except BaseException:
        if not open_manager.leave(*sys.exc_info()):
            raise
    else:
        open_manager.leave(None, None, None)
