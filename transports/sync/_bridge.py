"""Bridge from blocking code to asyncio, so that no function of the API is written twice."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # whose handler of the program's end must be registered before ours
import contextlib
import functools
import inspect
import logging
import os
import re
import sys
import threading
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from .._internal.arguments import with_short_traceback
from ..errors import ABPError, CallTimeout, Disconnected, UsageError, format_seconds

logger = logging.getLogger("transports")

#: Seconds that cancelled work may take to end: to send a cancellation to an app, to close a browser.
_CANCEL_TIMEOUT = 10.0


class Closable(Protocol):
    """User of a loop: it keeps the loop alive, and can be closed when the program ends."""

    def finish(self) -> None:
        """Close, because the program ends."""


class Runner(Protocol):
    """Event loop in which coroutines run while blocking code waits for them."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result. An interrupted wait (Ctrl-C) cancels it and lets it end."""

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine without waiting for it. It is dropped if the loop has ended."""

    def acquire(self, user: Closable) -> object: ...

    def release(self, user: Closable) -> None:
        """Let the loop end if ``user`` was its last user. Idempotent."""


class Background:
    """Event loop in a thread of its own, which starts with the first user and ends with the last."""

    def __init__(self) -> None:
        self._exiting = self._registered = False
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """A forked process does not inherit the thread."""
        for user in self._users:
            if isinstance(user, _OpenManager):
                user.forget()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._thread: _LoopThread | None = None
        self._users: dict[object, None] = {}

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Raises :class:`~transports.errors.UsageError` in the thread of the loop, which would wait for itself."""
        __tracebackhide__ = True
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise UsageError(
                "a coroutine callback runs in the loop that this call would wait for; make it a plain function, "
                "which gets a thread of its own"
            )

        with self._running_thread(coroutine) as thread:
            outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
            tasks: list[asyncio.Task[T]] = []
            try:
                thread.begin_task(coroutine, outcome, tasks)
                # Raised here, since result() would add its own frames to the traceback.
                error = outcome.exception()
                if error is not None:
                    raise error
                return outcome.result()
            except BaseException:
                # The wait was interrupted (Ctrl-C), but not the work.
                if not outcome.done():
                    thread.cancel(tasks)
                    concurrent.futures.wait((outcome,), timeout=_CANCEL_TIMEOUT)
                raise
            finally:
                # The exception refers to this frame; these two lines prevent a reference cycle.
                error = None
                del outcome

    @contextlib.contextmanager
    def _running_thread(self, coroutine: Coroutine[Any, Any, object]) -> Iterator[_LoopThread]:
        user = object()
        try:
            thread = self.acquire(user)
        except BaseException:
            coroutine.close()
            raise
        try:
            yield thread
        finally:
            self.release(user)

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Callable in any thread, also by the garbage collector."""
        # Without the lock: the garbage collector may call this while the lock is held.
        thread = self._thread
        if thread is None or not thread.is_alive():
            coroutine.close()
            return

        outcome: concurrent.futures.Future[object] = concurrent.futures.Future()
        outcome.add_done_callback(_report_error)
        thread.begin_task(coroutine, outcome, [])

    def acquire(self, user: object) -> _LoopThread:
        with self._lock:
            if self._thread is None:
                thread = _LoopThread()
                thread.start_and_wait()
                self._thread = thread
                self._register_finish()
            self._users[user] = None
            return self._thread

    def release(self, user: object) -> None:
        """Waits for the thread to end."""
        with self._lock:
            if self._exiting or user not in self._users:
                return
            del self._users[user]
            if self._users or self._thread is None:
                return
            thread = self._thread
            self._thread = None
        thread.end()

    def _register_finish(self) -> None:
        # Register anew as the last handler, which runs first.
        atexit.unregister(self._finish)
        atexit.register(self._finish)

        if not self._registered:
            # Closing needs thread pools, which take no more work by the time that handlers of atexit run.
            # AttributeError: this is not CPython. RuntimeError: the program is ending already.
            with contextlib.suppress(AttributeError, RuntimeError):
                threading._register_atexit(self._finish_early)  # type: ignore[attr-defined]
            self._registered = True

    def _finish_early(self) -> None:
        """Close nothing if other threads of the program may still use the users."""
        # Threads of pools end later than this.
        pool_threads = getattr(concurrent.futures.thread, "_threads_queues", {})
        ending = (threading.main_thread(), threading.current_thread())
        if all(thread.daemon or thread in pool_threads or thread in ending for thread in threading.enumerate()):
            self._finish()

    def _finish(self) -> None:
        """Close open users, the newest first. Idempotent. The thread itself ends with the program, since an executor
        can no longer be shut down."""
        if self._exiting:
            return
        self._exiting = True

        for user in reversed(tuple(self._users)):
            # The users that run() adds have nothing to close.
            finish = getattr(user, "finish", None)
            if finish is not None:
                try:
                    finish()
                except ABPError as error:
                    logger.warning("an object that was open at the end of the program did not close: %s", error)
                except Exception:
                    logger.debug("an object that was open at the end of the program did not close", exc_info=True)


def _report_error(outcome: concurrent.futures.Future[object]) -> None:
    """A coroutine in the background is cancelled if the program ends, which is no error."""
    error = outcome.exception()
    if error is not None and not isinstance(error, asyncio.CancelledError):
        logger.error("a forgotten object did not close: %r", error, exc_info=error)


class _LoopThread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="abp-sync", daemon=True)
        self._running = threading.Event()
        self._error: BaseException | None = None

    def run(self) -> None:
        """Run the loop in this thread. The error of a failed start is kept for :meth:`start_and_wait`."""
        serving = self._serve()
        try:
            # On Windows the policy of a notebook may make loops that start no processes.
            with asyncio.Runner(loop_factory=getattr(asyncio, "ProactorEventLoop", None)) as runner:
                runner.run(serving)
        except BaseException as error:
            if self._running.is_set():
                raise
            self._error = error
        finally:
            serving.close()
            # Without this, start_and_wait() would wait for ever after a failed start.
            self._running.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._end_requested = asyncio.Event()
        self._running.set()
        await self._end_requested.wait()

    def start_and_wait(self) -> None:
        self.start()
        self._running.wait()
        if self._error is not None:
            raise ABPError(f"the event loop of transports.sync did not start: {self._error!r}") from self._error

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end_requested.set)
        if threading.current_thread() is not self:
            self.join(5.0)

    def begin_task(
        self,
        coroutine: Coroutine[Any, Any, T],
        outcome: concurrent.futures.Future[T],
        tasks: list[asyncio.Task[T]],
    ) -> None:
        """``tasks`` gets the task, ``outcome`` its result or exception."""

        def on_done(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                outcome.set_exception(asyncio.CancelledError())
                return
            error = task.exception()
            if error is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(task.result())

        def start() -> None:
            # Runs in the caller's context, which call_soon_threadsafe has copied.
            task = self._loop.create_task(coroutine)
            task.add_done_callback(on_done)
            tasks.append(task)

        self._loop.call_soon_threadsafe(start)

    def cancel(self, tasks: list[asyncio.Task[T]]) -> None:
        def cancel_all() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(cancel_all)


SHARED = Background()


P = ParamSpec("P")
T = TypeVar("T")
W = TypeVar("W")
F = TypeVar("F")
S = TypeVar("S")


class Blocking(Generic[W]):
    """Blocking object. ``wrapped`` is the asynchronous object that does the work."""

    def __init__(self, wrapped: W, runner: Runner = SHARED) -> None:
        self.wrapped = wrapped
        self._runner = runner

    def __repr__(self) -> str:
        return f"<blocking {repr(self.wrapped).removeprefix('<').removesuffix('>')}>"


def _blocking_text(text: str) -> str:
    text = text.replace("app = await connect(…)", "app = connect(…).open()")
    return text.replace("async with", "with").replace("async for", "for").replace("await ", "")


def blocking_error(error: ABPError) -> ABPError:
    if isinstance(error, UsageError):
        error.message = _blocking_text(error.message)
    return with_short_traceback(error)


def with_docstring_of(original: Callable[..., object]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        function.__doc__ = _blocking_text(original.__doc__ or "")
        return function

    return decorate


def with_signature_of(function: Callable[P, T], original: Callable[..., object]) -> Callable[P, T]:
    """Give a blocking ``function`` the name, the docstring and the signature of ``original``. ``AsyncIterator[Job]`` as
    the result becomes ``Iterator[Job]``."""
    functools.update_wrapper(function, original, updated=())
    function.__doc__ = _blocking_text(original.__doc__ or "")

    signature = inspect.signature(original)
    returned = str(signature.return_annotation)
    returned = returned.replace("AbstractAsyncContextManager", "AbstractContextManager")
    returned = re.sub(r"AsyncGenerator\[(.*), None\]", r"Iterator[\1]", returned)
    returned = returned.replace("AsyncIterator", "Iterator")
    function.__signature__ = signature.replace(return_annotation=returned)  # type: ignore[attr-defined]
    function.__annotations__ = {**original.__annotations__, "return": returned}
    return function


def blocking(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[W], P], T]:
    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            coroutine: Coroutine[Any, Any, T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
            return self._runner.run(coroutine)
        except ABPError as error:
            raise blocking_error(error)  # noqa: B904 - it is the same error

    return with_signature_of(call, method)


def blocking_returning(
    method: Callable[Concatenate[W, P], Coroutine[Any, Any, T]], facade: Callable[[T, Runner], F]
) -> Callable[Concatenate[Blocking[W], P], F]:
    """``facade`` makes the blocking object around the one that ``method`` makes."""
    wait = blocking(method)

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> F:
        __tracebackhide__ = True
        return facade(wait(self, *args, **kwargs), self._runner)

    return with_signature_of(call, method)


def blocking_function(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        __tracebackhide__ = True
        try:
            return SHARED.run(function(*args, **kwargs))
        except ABPError as error:
            raise blocking_error(error)  # noqa: B904 - it is the same error

    return with_signature_of(call, function)


def returning(function: Callable[P, W], facade: Callable[[W], F]) -> Callable[P, F]:
    """``facade`` makes the blocking object around the one that ``function`` makes."""

    def make(*args: P.args, **kwargs: P.kwargs) -> F:
        return facade(function(*args, **kwargs))

    return with_signature_of(make, function)


def taking_parameters_of(
    make: Callable[P, W],
) -> Callable[[Callable[[S, W], None]], Callable[Concatenate[S, P], None]]:
    """Decorate an ``__init__`` that takes the wrapped object: callers pass the parameters of ``make`` instead."""

    def decorate(initialize: Callable[[S, W], None]) -> Callable[Concatenate[S, P], None]:
        def __init__(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
            initialize(self, make(*args, **kwargs))

        return with_signature_of(__init__, getattr(make, "__init__"))  # noqa: B009 - of the class, as a plain function

    return decorate


def iterating(
    method: Callable[Concatenate[W, P], AsyncIterator[T]],
) -> Callable[Concatenate[Blocking[W], P], Iterator[T]]:
    """Leaving the blocking loop early closes the asynchronous iterator."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return iterate(getattr(self.wrapped, method.__name__)(*args, **kwargs), self._runner)

    return with_signature_of(call, method)


def iterate(iterator: AsyncIterator[T], runner: Runner) -> Iterator[T]:
    user = _Iteration()

    async def next_item() -> tuple[T, ...]:
        """Return the next item in a tuple, or an empty tuple at the end."""
        async for item in iterator:
            return (item,)
        return ()

    async def close() -> None:
        try:
            aclose = getattr(iterator, "aclose", None)
            if aclose is not None:
                await aclose()
        finally:
            runner.release(user)

    # A loop that ended between two items would end the iterator, too.
    runner.acquire(user)
    try:
        while item := runner.run(next_item()):
            yield item[0]
    finally:
        # Without waiting: the garbage collector may close this generator, in any thread.
        runner.post(close())


class _Iteration:
    def finish(self) -> None:
        """The loop ends with the program."""


M = TypeVar("M", bound=AbstractAsyncContextManager[Any])

_ExcInfo: TypeAlias = (
    tuple[type[BaseException], BaseException, TracebackType | None] | tuple[type[BaseException] | None, None, None]
)


class _OpenManager(Generic[T]):
    """An asynchronous manager that a task holds open: it must be entered and left in the same task."""

    def __init__(self, manager: AbstractAsyncContextManager[T], runner: Runner) -> None:
        self._manager = manager
        self._runner = runner
        self._task: asyncio.Task[bool | None] | None = None
        self._pid = os.getpid()
        self.closed = False

    def enter(self) -> T:
        """The loop stays alive until the manager is left."""
        self._runner.acquire(self)
        try:
            return self._runner.run(self._enter_manager())
        except BaseException:
            self.closed = True
            self._release()
            raise

    def leave(self, *exc_info: Any) -> bool | None:
        """Idempotent. A forked process does nothing: the manager belongs to its parent."""
        self.closed = True
        if self._pid != os.getpid() or self._task is None or self._task.done():
            return None
        try:
            return self._runner.run(self._leave_manager(exc_info))
        except Disconnected:
            # The loop has ended, and the manager with it.
            return None
        finally:
            self._release()

    def forget(self) -> None:
        """Forget the task in a forked process, whose loop is dead, without asyncio's warning that it is destroyed."""
        if self._task is not None:
            self._task.get_loop().set_exception_handler(lambda _loop, _context: None)

    def abandon(self) -> None:
        """Called by the garbage collector, in any thread, for a forgotten object."""
        if self.closed or self._pid != os.getpid():
            return
        try:
            self._warn_unclosed()
        finally:
            # With `python -W error` the warning is an exception.
            self.closed = True
            self._runner.post(self._close_and_release())

    def finish(self) -> None:
        try:
            if not self.closed:
                self._warn_unclosed()
        finally:
            self.leave(None, None, None)

    def _warn_unclosed(self) -> None:
        warnings.warn(f"{self._manager!r} was not closed; use it in a `with` block", ResourceWarning, stacklevel=3)

    def _release(self) -> None:
        """A second Ctrl-C ends the wait for the closing, but not the closing."""
        if self._task is None or self._task.done():
            self._runner.release(self)
        else:
            self._runner.post(self._close_and_release())

    async def _enter_manager(self) -> T:
        loop = asyncio.get_running_loop()
        entered: asyncio.Future[T] = loop.create_future()
        self._leaving: asyncio.Future[_ExcInfo] = loop.create_future()
        self._task = asyncio.create_task(self._hold_open(entered))

        try:
            await asyncio.wait((self._task, entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=_CANCEL_TIMEOUT)
            raise

        if not entered.done():
            # The manager did not open: this raises its error.
            self._task.result()
        return entered.result()

    async def _hold_open(self, entered: asyncio.Future[T]) -> bool | None:
        """Enter and leave the manager in this task."""
        entered.set_result(await self._manager.__aenter__())
        try:
            exc_info = await self._leaving
        except asyncio.CancelledError:
            exc_info = (None, None, None)
        return await self._manager.__aexit__(*exc_info)

    async def _leave_manager(self, exc_info: Any) -> bool | None:
        """Raises :class:`~transports.errors.CallTimeout` if the manager does not close in time."""
        assert self._task is not None
        if not self._leaving.done():
            self._leaving.set_result(exc_info)
        timeout = 30.0  # the closed objects have stricter limits of their own
        await asyncio.wait((self._task,), timeout=timeout)
        if not self._task.done():
            self._task.cancel()
            raise CallTimeout(f"it did not close within {format_seconds(timeout)}; some of its processes may still run")
        return self._task.result()

    async def _close_and_release(self) -> None:
        try:
            await self._leave_manager((None, None, None))
        finally:
            self._release()


class Resource(Blocking[M]):
    """Blocking object that is open in a ``with`` block. A forgotten object is closed with a ``ResourceWarning``."""

    _open_manager: _OpenManager[Any] | None = None

    def __enter__(self) -> Self:
        __tracebackhide__ = True
        manager = _OpenManager(self.wrapped, self._runner)
        try:
            manager.enter()
        except ABPError as error:
            raise blocking_error(error)  # noqa: B904 - it is the same error
        self._open_manager = manager
        # Not at the end of the program, when Background._finish closes it.
        weakref.finalize(self, manager.abandon).atexit = False
        return self

    def __exit__(self, *exc_info: object) -> None:
        __tracebackhide__ = True
        try:
            self._close(*exc_info)
        except ABPError as error:
            raise blocking_error(error)  # noqa: B904 - it is the same error

    if not TYPE_CHECKING:  # a type checker refuses `async with` by itself

        async def __aenter__(self) -> NoReturn:
            kind = type(self).__name__.lower()
            raise UsageError(f"this {kind} is opened with `with`; in a coroutine use transports without sync")

        async def __aexit__(self, *_: object) -> None:
            """Do nothing: ``async with`` looks for this before it begins."""

    def _close(self, *exc_info: object) -> None:
        if self._open_manager is None:
            self._runner.run(self.wrapped.__aexit__(None, None, None))
        else:
            self._open_manager.leave(*(exc_info or (None, None, None)))


def closing(
    method: Callable[[M], Coroutine[Any, Any, None]],
) -> Callable[[Resource[M]], None]:
    def close(self: Resource[M]) -> None:
        self._close()

    blocking_close = with_signature_of(close, method)
    blocking_close.__name__ = "close"
    return blocking_close


def managing(
    method: Callable[Concatenate[W, P], AbstractAsyncContextManager[T]], facade: Callable[[T, Runner], F]
) -> Callable[Concatenate[Blocking[W], P], AbstractContextManager[F]]:
    """``facade`` makes the blocking object around the value of the manager."""

    def call(self: Blocking[W], /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[F]:
        manager: AbstractAsyncContextManager[T] = getattr(self.wrapped, method.__name__)(*args, **kwargs)
        return _manage_blocking(manager, facade, self._runner)

    return with_signature_of(call, method)


@contextmanager
def _manage_blocking(
    manager: AbstractAsyncContextManager[T], facade: Callable[[T, Runner], F], runner: Runner
) -> Iterator[F]:
    open_manager = _OpenManager(manager, runner)
    value = facade(open_manager.enter(), runner)
    try:
        yield value
    except BaseException:
        # A true result means that the manager has handled the exception.
        if not open_manager.leave(*sys.exc_info()):
            raise
    else:
        open_manager.leave(None, None, None)
