"""Blocking twins of asynchronous functions, methods and constructors, so that nothing is written twice.

A type checker follows parameters and results through :func:`blocking` and its kin; ``inspect.signature`` gives those of
the asynchronous namesake.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from ..errors import ABPError
from ..errors.tracebacks import shortened
from .loop import SHARED, Runner

__all__ = [
    "Blocking",
    "blocking",
    "blocking_function",
    "described",
    "iterate",
    "iterating",
    "made_by",
    "making",
    "namesake",
    "taking_parameters_of",
]

P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
F = TypeVar("F")
S = TypeVar("S")


class Blocking(Generic[W]):
    """A blocking object. ``wrapped`` is the asynchronous one that does the work."""

    def __init__(self, wrapped: W, runner: Runner = SHARED) -> None:
        self.wrapped = wrapped
        self._runner = runner

    def __repr__(self) -> str:
        return f"<blocking {self.wrapped!r}>"


def _blocking_text(text: str | None) -> str | None:
    """Return a docstring of the asynchronous API as one of the blocking API."""
    return text and text.replace("async with", "with").replace("async for", "for").replace("await ", "")


def described(original: Callable[..., object]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a blocking function that is written out with the docstring of its asynchronous namesake."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__doc__ = _blocking_text(original.__doc__)
        return function

    return decorate


def namesake(twin: Callable[P, T], original: Callable[..., object]) -> Callable[P, T]:
    """Return ``twin`` with the name, the docstring and the signature of ``original``, in blocking terms."""
    functools.update_wrapper(twin, original, updated=())
    twin.__doc__ = _blocking_text(original.__doc__)
    signature = inspect.signature(original)
    returned = str(signature.return_annotation).replace("AbstractAsyncContextManager", "AbstractContextManager")
    returned = re.sub(r"AsyncGenerator\[(.*), None\]", r"AsyncIterator[\1]", returned)
    signature = signature.replace(return_annotation=returned.replace("AsyncIterator", "Iterator"))
    twin.__signature__ = signature  # type: ignore[attr-defined]
    twin.__annotations__ = {**original.__annotations__, "return": signature.return_annotation}
    return twin


def blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    """Return the blocking method for a coroutine method of what is wrapped."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        coroutine: Coroutine[Any, Any, T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
        try:
            return self._runner.run(coroutine)
        except ABPError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    return namesake(call, method)


def making(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]], facade: Callable[[T, Runner], F]
) -> Callable[Concatenate[Blocking[W], P], F]:
    """Return the blocking method for a coroutine method that makes an asynchronous object: ``facade`` makes the
    blocking one around it."""
    wait = blocking(method)

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> F:
        __tracebackhide__ = True
        return facade(wait(self, *args, **kwargs), self._runner)

    return namesake(call, method)


def blocking_function(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return the blocking function for a coroutine function."""

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return SHARED.run(function(*args, **kwargs))
        except ABPError as error:
            raise shortened(error)  # noqa: B904 - it is the same error

    return namesake(call, function)


def made_by(function: Callable[P, W], facade: Callable[[W], F]) -> Callable[P, F]:
    """Return a function that makes an asynchronous object and puts the blocking ``facade`` around it."""

    def make(*args: P.args, **kwargs: P.kwargs) -> F:
        return facade(function(*args, **kwargs))

    return namesake(make, function)


def taking_parameters_of(
    make: Callable[P, W],
) -> Callable[[Callable[[S, W], None]], Callable[Concatenate[S, P], None]]:
    """Decorate an ``__init__`` that takes the wrapped object: callers give the parameters that make one."""

    def decorate(initialize: Callable[[S, W], None]) -> Callable[Concatenate[S, P], None]:
        def __init__(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            initialize(self, make(*args, **kwargs))

        return namesake(__init__, getattr(make, "__init__"))  # noqa: B009 - of the class, as a plain function

    return decorate


def iterating(
    method: Callable[Concatenate[W, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[W], P], Iterator[T]]:
    """Return the blocking method for one that returns an asynchronous iterator. A loop that is left early closes it."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(getattr(self.wrapped, method.__name__)(*args, **kwargs), self._runner)

    return namesake(call, method)


def iterate(iterator: AsyncIterator[T], runner: Runner) -> Iterator[T]:
    """Yield the items of an asynchronous iterator, each of which the runner waits for."""

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
