"""Adapter of blocking pages (``playwright.sync_api``) to our coroutines.

Playwright's two APIs wrap one implementation. The blocking API runs the implementation in a separate event loop, in a
greenlet of the thread that started it, and only while a blocking call waits; ``page._sync(coroutine)`` waits there for
any coroutine. So our work runs in the page's loop, and pauses between two calls. Three undocumented parts of Playwright
are used, all in this module: ``_impl_obj``, ``_sync`` and the constructors of ``async_api``.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar, overload

from playwright import async_api, sync_api

from .._internal.tasks import spawn
from ..errors import Disconnected, UsageError

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page

T = TypeVar("T")


class _Context(async_api.BrowserContext):
    """Context whose properties make new asynchronous wrappers. Playwright itself caches the first wrapper of each
    implementation object for both APIs: it would return a blocking wrapper that the user has seen, or give the user an
    asynchronous wrapper later."""

    @property
    def browser(self) -> Browser | None:
        implementation = self._impl_obj.browser
        return async_api.Browser(implementation) if implementation else None

    async def new_page(self) -> Page:
        return _Page(await self._impl_obj.new_page())


class _Page(async_api.Page):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Page) and self._impl_obj is other._impl_obj

    def __hash__(self) -> int:
        return hash(self._impl_obj)

    @property
    def context(self) -> BrowserContext:
        return _Context(self._impl_obj.context)


@overload
def to_async(thing: sync_api.Page) -> Page: ...
@overload
def to_async(thing: sync_api.BrowserContext) -> BrowserContext: ...
def to_async(thing: sync_api.Page | sync_api.BrowserContext) -> Page | BrowserContext:
    """Return an asynchronous wrapper of a blocking page or context. Only a :class:`PageRunner` may use it, in the event
    loop of its Playwright."""
    if isinstance(thing, sync_api.Page):
        return _Page(_implementation_of(thing))
    if isinstance(thing, sync_api.BrowserContext):
        return _Context(_implementation_of(thing))
    raise UsageError(f"page= takes a Page of playwright.sync_api here, and context= a BrowserContext, not {thing!r}")


def _implementation_of(thing: Any) -> Any:
    implementation = getattr(thing, "_impl_obj", None)
    loop = getattr(implementation, "_loop", None)
    sync = getattr(thing, "_sync", None)
    takes_coroutine = callable(sync) and len(inspect.signature(sync).parameters) == 1
    if not isinstance(loop, asyncio.AbstractEventLoop) or not takes_coroutine:
        raise UsageError(
            "this version of Playwright stores its sync pages in a way that this kit does not know; "
            "use playwright.async_api with transports.connect, or a Playwright of the tested version"
        )
    return implementation


class PageRunner:
    """Runner of coroutines in the loop of Playwright's blocking API. Between two calls the loop is paused: events
    arrive with the next call of this API or of Playwright's."""

    def __init__(self, owner: sync_api.Page | sync_api.BrowserContext) -> None:
        self._owner: Any = owner
        self._loop: asyncio.AbstractEventLoop = _implementation_of(owner)._loop
        self._thread = threading.get_ident()
        self._posted: set[asyncio.Task[None]] = set()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end. If the wait is interrupted, by Ctrl-C say, the coroutine is cancelled and gets
        ten seconds to end.

        Raises :class:`~transports.errors.UsageError` in another thread than the page's, and
        :class:`~transports.errors.Disconnected` if Playwright has been stopped."""
        __tracebackhide__ = True
        if threading.get_ident() != self._thread:
            coroutine.close()
            raise UsageError("a page of playwright.sync_api works in its own thread only; make this call there")
        if self._is_stopped():
            coroutine.close()
            raise Disconnected("Playwright has been stopped; connect again")
        task = self._loop.create_task(coroutine)
        try:
            self._owner._sync(asyncio.wait((task,)))
        except BaseException:
            # Only the wait was interrupted (Ctrl-C, or the driver is gone), not the work.
            task.cancel()
            if not self._is_stopped():
                self._owner._sync(asyncio.wait((task,), timeout=10.0))
            raise
        return task.result()

    def _is_stopped(self) -> bool:
        return self._loop.is_closed() or bool(getattr(self._owner._impl_obj._dispatcher_fiber, "dead", False))

    def post(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run a coroutine during the next call. It is dropped in another thread, or if Playwright has been stopped."""
        if self._loop.is_closed() or threading.get_ident() != self._thread:
            coroutine.close()
        else:
            self._loop.call_soon(spawn, coroutine, self._posted)

    def acquire(self, user: object) -> None:
        """Do nothing: Playwright owns the loop and also ends it."""

    def release(self, user: object) -> None:
        """As :meth:`acquire`."""
