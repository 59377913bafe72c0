"""Our agent inside one page: installed before the app's first script, reached over a channel of its own.

No call into a page has a timeout of its own, and a frozen page never answers, so every wait here has a deadline and
ends at once when the page or the browser dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from ...errors import (
    BrowserCrashed,
    CallTimeout,
    ContextLost,
    Disconnected,
    PageCrashed,
    TransportError,
    UsageError,
    first_line,
)
from ...protocol.strict_json import decode_json
from .channel import Channel, RemoteObject

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

__all__ = ["INLINE_BYTES", "PageAgent", "script"]

#: Content up to this many bytes per answer travels inside the answer (measured: inline wins up to here).
INLINE_BYTES = 256 * 1024
#: Characters of an answer's JSON up to which it comes as it is (measured: above, a file is faster).
_LONGEST_TEXT = 2 << 20

_GONE = (
    "Target crashed",
    "has been closed",
    "Target closed",
    "Connection closed",
    "Session closed",
    "browser has disconnected",
)
_DRIVER_GONE = "Connection closed while reading from the driver"
_LAST_WORDS = 0.1
#: Seconds after which a page that answers nothing at all is given up.
_RESPONSE = 1.0
#: Seconds for each step of leaving a page that stays.
_LEAVE = 2.0
_MOVED = (
    "Cannot find context",
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "Could not find object",
    "JSHandle is disposed",
)


@cache
def script(name: str) -> str:
    """A file of the folder ``page``."""
    return (files(__package__) / name).read_text(encoding="utf-8")


class PageAgent:
    """One page's agent. ``on_event(kind, payload)`` is called for what the page emits: ``notification``, ``progress``,
    ``elicitation``, ``capabilities``, and what :class:`~transports.browser.effects.effects.Effects` takes."""

    def __init__(self, page: Page, channel: Channel, on_event: Callable[[str, Any], None]) -> None:
        self.page = page
        self.channel = channel
        self._on_event = on_event
        self._key = secrets.token_hex(16)
        self._binding = f"_{secrets.token_hex(8)}"
        self._object: RemoteObject | None = None
        self._pinned = False
        self._target: dict[str, Any] | None = None
        self._lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
        self._browser = page.context.browser
        page.on("crash", self._crashed)
        page.on("close", self._closed)
        if self._browser is not None:
            self._browser.on("disconnected", self._disconnected)

    @property
    def cdp(self) -> CDPSession:
        """The page's own CDP session. Raises :class:`~transports.errors.UsageError` where the browser has none."""
        if self.channel.cdp is None:
            raise UsageError("this browser has no CDP; use a Chromium")
        return self.channel.cdp

    async def install(self, *parts: str, now: bool = False) -> None:
        """Prepare every document that this page will load from now on, and with ``now`` the one that is there too;
        ``parts`` are scripts beside ``agent.js``."""
        options = {"binding": self._binding, "key": self._key, "inline": INLINE_BYTES, "longest": _LONGEST_TEXT}
        config = json.dumps(options)
        source = f"({script('agent.js')})({', '.join((config, *map(script, parts)))})"
        await self.channel.install(source, self._binding, on_emit=self._emitted, on_document=self._navigated, now=now)

    async def target(self) -> dict[str, Any]:
        """What the browser calls this page: its ``targetId`` and ``browserContextId``, among others."""
        if self._target is None:
            self._target = (await self.cdp.send("Target.getTargetInfo"))["targetInfo"]
        return self._target

    async def leave(self) -> None:
        """Take the agent out of a page that goes on without us, and stop listening to it."""
        with contextlib.suppress(TransportError):
            if self._object is not None:
                await self.invoke("leave", timeout=_LEAVE)
        with contextlib.suppress(TransportError):
            await self.bounded(self.channel.close(), "leaving the page", timeout=_LEAVE)
        self.ignore()

    def ignore(self) -> None:
        """Stop listening to the page and its browser."""
        self.page.remove_listener("crash", self._crashed)
        self.page.remove_listener("close", self._closed)
        if self._browser is not None:
            self._browser.remove_listener("disconnected", self._disconnected)

    def _emitted(self, text: str) -> None:
        kind_and_payload: Any = decode_json(text)
        self._on_event(*kind_and_payload)

    def pin(self) -> None:
        """From now on the page is the one that was connected to: its going elsewhere is a loss (FAULTS 10)."""
        self._pinned = True

    def _navigated(self) -> None:
        self._object = None
        if self._pinned:
            self.lose(ContextLost("the page navigated or reloaded; call again"))

    def _crashed(self, _: Page) -> None:
        self.lose(PageCrashed("the page's renderer crashed; call again"))

    def _disconnected(self, _: object) -> None:
        self.lose(BrowserCrashed("the browser is gone; call again"))

    def _closed(self, _: Page) -> None:
        """A dying browser closes its pages first: give it the time to say so."""
        closed = Disconnected("the page was closed; call again")
        asyncio.get_running_loop().call_later(_LAST_WORDS, self.lose, closed)

    @property
    def is_lost(self) -> bool:
        """Whether the app is gone."""
        return self._lost.done()

    @property
    def lost(self) -> asyncio.Future[TransportError]:
        """Done once the app is gone; not to be changed."""
        return self._lost

    async def require_responding(self) -> None:
        """A page that spins answers nothing any more: give it up (FAULTS 5)."""
        try:
            await self.bounded(self.channel.agent(self._key), "a sign of life", timeout=_RESPONSE)
        except CallTimeout:
            self.lose(Disconnected("the page does not respond any more; it is opened again"))

    def lose(self, error: TransportError) -> None:
        """The app is gone: whoever waits, and whoever asks from now on, gets ``error``."""
        if not self._lost.done():
            self._lost.set_result(error)

    async def send(
        self, method: str, params: Mapping[str, object] | None = None, *, timeout: float, what: str = ""
    ) -> dict[str, Any]:
        """One CDP command with a deadline. Raises :class:`~transports.errors.CallTimeout`,
        :class:`~transports.errors.Disconnected`, :class:`~transports.errors.ContextLost`."""
        reply: dict[str, Any] = await self.bounded(
            self.cdp.send(method, dict(params or {})), what or method, timeout=timeout
        )
        return reply

    async def bounded(self, work: Any, what: str, *, timeout: float) -> Any:
        """Await ``work`` (of this page) until it ends, the page is lost, or ``timeout`` seconds have passed."""
        if self._lost.done():
            work.close()
            raise self._again(self._lost.result())
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._lost), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                if self._lost.done():
                    raise self._again(self._lost.result())
                raise CallTimeout(f"no answer to {what} within {timeout:g} s")
            return task.result()
        except PlaywrightError as error:
            if any(text in error.message for text in (*_GONE, *_MOVED)):
                await asyncio.wait((self._lost,), timeout=2 * _LAST_WORDS)  # which of the losses it was
            raise self._translated(error) from error
        except Exception as error:
            if _DRIVER_GONE not in str(error):
                raise
            self.lose(BrowserCrashed("the browser's driver is gone; call again"))
            raise self._again(self._lost.result()) from error
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_retrieve)

    def _again(self, error: TransportError) -> TransportError:
        return type(error)(error.message)

    def _translated(self, error: PlaywrightError) -> TransportError:
        """Playwright's errors as ours."""
        first = first_line(error)
        if self._lost.done():
            return self._again(self._lost.result())
        if any(text in first for text in _MOVED):
            return ContextLost("the page navigated or reloaded while it worked; call again")
        if any(text in first for text in _GONE):  # and no event said what: its messenger, the driver, died
            self.lose(BrowserCrashed("the browser's driver is gone; call again"))
            return self._again(self._lost.result())
        return TransportError(f"the browser refused: {first}")

    async def _agent(self, timeout: float) -> RemoteObject:
        if self._object is None:
            self._object = await self.bounded(self.channel.agent(self._key), "the page", timeout=timeout)
            if self._object is None:
                raise ContextLost("the page replaced the functions of the protocol; it cannot be driven")
        return self._object

    async def invoke(self, method: str, *args: object, timeout: float, by_value: bool = True) -> Any:
        """Call a method of the agent; a :class:`~.channel.RemoteObject` argument is passed as the
        object it stands for. With ``by_value=False`` the result is such an object."""
        agent = await self._agent(timeout)
        call = self.channel.invoke(agent, method, args, by_value=by_value)
        return await self.bounded(call, f"`{method}`", timeout=timeout)

    async def set_file(self, element: RemoteObject, path: Path, *, timeout: float) -> None:
        """Choose a file for an ``<input type=file>`` of the page."""
        await self.bounded(self.channel.set_file(element, path), "choosing a file", timeout=timeout)

    async def forget(self, thing: RemoteObject, *, timeout: float = 5.0) -> None:
        """Let the page collect an object."""
        await self.bounded(self.channel.forget(thing), "forgetting", timeout=timeout)


def _retrieve(task: asyncio.Future[object]) -> None:
    """Look at the outcome of a call nobody waits for any more, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
