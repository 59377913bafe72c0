"""Asynchronous things as blocking ones, so that no logic and no signature is written twice.

A type checker follows parameters and results through :func:`blocking` and its kin; ``inspect.signature`` gives those of
the asynchronous namesake.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import sys
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeAlias, TypeVar

from ..errors import CallTimeout, Disconnected
from .loop import SHARED, Runner

__all__ = [
    "Blocking",
    "Resource",
    "blocking",
    "blocking_function",
    "closing",
    "described",
    "iterating",
    "made_by",
    "managing",
]

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
M = TypeVar("M", bound=AbstractAsyncContextManager[Any])
F = TypeVar("F")

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[type[BaseException] | None, None, None]
)

#: Seconds for closing; what it closes has stricter bounds of its own.
_CLOSE = 30.0
#: Seconds for a manager to let go once it is cancelled.
_CANCELLED = 10.0


class Blocking(Generic[W]):
    """A blocking object. ``wrapped`` is the asynchronous one that does the work."""

    def __init__(self, wrapped: W, runner: Runner = SHARED) -> None:
        self.wrapped = wrapped
        self._runner = runner

    def __repr__(self) -> str:
        return f"<blocking {self.wrapped!r}>"


def _in_blocking_words(text: str | None) -> str | None:
    """A docstring of the asynchronous API, for the blocking one."""
    return text and text.replace("async with", "with").replace("async for", "for").replace("await ", "")


def described(original: Callable[..., object]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a blocking function that is written out with the words of its asynchronous namesake."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__doc__ = _in_blocking_words(original.__doc__)
        return function

    return decorate


def _described(bridge: Callable[P, T], original: Callable[..., object]) -> Callable[P, T]:
    """The name, the signature and the words of ``original``, without its being a coroutine function."""
    functools.update_wrapper(bridge, original, updated=())
    bridge.__doc__ = _in_blocking_words(original.__doc__)
    signature = inspect.signature(original)
    returned = str(signature.return_annotation).replace("AbstractAsyncContextManager", "AbstractContextManager")
    returned = re.sub(r"AsyncGenerator\[(.*), None\]", r"AsyncIterator[\1]", returned)
    signature = signature.replace(return_annotation=returned.replace("AsyncIterator", "Iterator"))
    bridge.__signature__ = signature  # type: ignore[attr-defined]
    bridge.__annotations__ = {**original.__annotations__, "return": signature.return_annotation}
    return bridge


def blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    """A coroutine method of what is wrapped."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        coroutine: Coroutine[Any, Any, T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
        return self._runner.run(coroutine)

    return _described(call, method)


def blocking_function(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return SHARED.run(function(*args, **kwargs))

    return _described(call, function)


def made_by(function: Callable[P, W], facade: Callable[[W], F]) -> Callable[P, F]:
    """A function that makes an asynchronous object, with the blocking one around it."""

    def make(*args: P.args, **kwargs: P.kwargs) -> F:
        return facade(function(*args, **kwargs))

    return _described(make, function)


def iterating(
    method: Callable[Concatenate[W, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[W], P], Iterator[T]]:
    """A method that returns an asynchronous iterator. Leaving the loop over it early closes it."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        async def begin() -> AsyncIterator[T]:  # in the loop, where its listener list is
            iterator: AsyncIterator[T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
            return iterator

        return _steps(self._runner.run(begin()), self._runner)

    return _described(call, method)


def _steps(iterator: AsyncIterator[T], runner: Runner) -> Generator[T, None, None]:
    async def step() -> tuple[T, ...]:
        async for item in iterator:
            return (item,)
        return ()

    try:
        while item := runner.run(step()):
            yield item[0]
    finally:
        if (aclose := getattr(iterator, "aclose", None)) is not None:
            runner.post(aclose())


def managing(
    method: Callable[Concatenate[W, P], AbstractAsyncContextManager[T]], facade: Callable[[T, Runner], F]
) -> Callable[Concatenate[Blocking[W], P], AbstractContextManager[F]]:
    """A method that returns an asynchronous context manager."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[F]:
        manager: AbstractAsyncContextManager[T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
        return _managed(manager, facade, self._runner)

    return _described(call, method)


@contextmanager
def _managed(manager: AbstractAsyncContextManager[T], facade: Callable[[T, Runner], F], runner: Runner) -> Iterator[F]:
    held = _Held(manager, runner)
    value = facade(held.enter(), runner)
    try:
        yield value
    except BaseException:
        if not held.leave(*sys.exc_info()):
            raise
    else:
        held.leave(None, None, None)


class _Held(Generic[T]):
    """An asynchronous context manager that is open. It is entered and left in one task (a cancel scope insists)."""

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
            self._let_go()
            raise

    def leave(self, *exc_info: Any) -> bool | None:
        """Close it; idempotent. What a forked process has inherited is its parent's to close."""
        self.closed = True
        if self._pid != os.getpid() or self._task is None or self._task.done():
            return None
        try:
            return self._runner.run(self._leave(exc_info))
        except Disconnected:
            return None  # the loop has ended, and with it all that was in it
        finally:
            self._let_go()

    def forgotten(self) -> None:
        """Nobody can close it any more (the garbage collector calls this, in any thread): close it, without waiting."""
        if not self.closed and self._pid == os.getpid():
            self._warn()
            self.closed = True
            self._runner.post(self._left())

    def finish(self) -> None:
        """The program ends."""
        if not self.closed:
            self._warn()
        self.leave(None, None, None)

    def _warn(self) -> None:
        warnings.warn(f"{self._manager!r} was not closed; use it in a `with` block", ResourceWarning, stacklevel=3)

    def _let_go(self) -> None:
        """A second Ctrl-C ends the wait, not the closing: the loop is needed until that is done."""
        if self._task is None or self._task.done():
            self._runner.release(self)
        else:
            self._runner.post(self._left())

    async def _enter(self) -> T:
        entered: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._leaving: asyncio.Future[_ExcInfo] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(entered))
        try:
            await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_CANCELLED)
            raise
        if not entered.done():
            self._task.result()  # raises
        return entered.result()

    async def _hold(self, entered: asyncio.Future[T]) -> bool | None:
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
        await asyncio.wait((self._task,), timeout=_CLOSE)
        if not self._task.done():
            self._task.cancel()
            raise CallTimeout(f"it did not close within {_CLOSE:g} s; parts of it may still be there")
        return self._task.result()

    async def _left(self) -> None:
        try:
            await self._leave((None, None, None))
        finally:
            self._let_go()


class Resource(Blocking[M]):
    """A blocking object that is open in a ``with`` block."""

    _held: _Held[Any] | None = None

    def __enter__(self) -> Self:
        held = _Held(self.wrapped, self._runner)
        held.enter()
        self._held = held
        weakref.finalize(self, held.forgotten).atexit = False
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._close(*exc_info)

    def _close(self, *exc_info: object) -> None:
        if self._held is None:
            self._runner.run(self.wrapped.__aexit__(None, None, None))
        else:
            self._held.leave(*(exc_info or (None, None, None)))


def closing(
    method: Callable[[M], Coroutine[Any, Any, None]],
) -> Callable[[Resource[M]], None]:
    """The ``aclose`` of a resource."""

    def close(self: Resource[M]) -> None:
        self._close()

    described = _described(close, method)
    described.__name__ = "close"
    return described
