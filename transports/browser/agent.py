"""Our agent inside one page: installed before the app's first script, reached over the page's own CDP session.

A CDP call costs half of what Playwright's ``evaluate`` does, and hands over JavaScript objects by reference. Neither
has a timeout, and a frozen page never answers, so every wait here has a deadline and ends at once when the page or the
browser dies.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from playwright.async_api import Error as PlaywrightError

from ..errors import BrowserCrashed, CallTimeout, ContextLost, Disconnected, PageCrashed, ProtocolError, TransportError
from ..messages import decode_json

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

__all__ = ["INLINE_BYTES", "PageAgent", "RemoteObject", "script"]

#: Content up to this many bytes per answer travels inside the answer (measured: inline wins up to here).
INLINE_BYTES = 256 * 1024

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
_MOVED = (
    "Cannot find context",
    "navigated or closed",
    "context was destroyed",
    "Promise was collected",
    "Could not find object",
)


class RemoteObject(str):
    """The id of an object in the page."""

    __slots__ = ()


@cache
def script(name: str) -> str:
    """A file of the folder ``page``."""
    return (files(__package__) / "page" / name).read_text(encoding="utf-8")


class PageAgent:
    """One page's agent. ``on_event(kind, payload)`` is called for what the page emits: ``notification``, ``progress``,
    ``elicitation``, ``capabilities``, and what :class:`~transports.browser.effects.Effects` takes."""

    def __init__(self, page: Page, cdp: CDPSession, on_event: Callable[[str, Any], None]) -> None:
        self.page = page
        self.cdp = cdp
        self._on_event = on_event
        self._key = secrets.token_hex(16)
        self._binding = f"_{secrets.token_hex(8)}"
        self._object: str | None = None
        self._pinned = False
        self._lost: asyncio.Future[TransportError] = asyncio.get_running_loop().create_future()
        page.on("crash", lambda _: self.lose(PageCrashed("the page's renderer crashed; connect again")))
        page.on("close", self._closed)
        browser = page.context.browser
        if browser is not None:
            browser.on("disconnected", lambda _: self.lose(BrowserCrashed("the browser is gone; connect again")))

    @property
    def lost(self) -> asyncio.Future[TransportError]:
        """Done once the app is gone; not to be changed."""
        return self._lost

    async def install(self, *parts: str) -> None:
        """Prepare every document that this page will load from now on; ``parts`` are scripts beside ``agent.js``."""
        config = json.dumps({"binding": self._binding, "key": self._key, "inline": INLINE_BYTES})
        source = f"({script('agent.js')})({', '.join((config, *map(script, parts)))})"
        self.cdp.on("Runtime.bindingCalled", self._called)
        self.cdp.on("Page.frameNavigated", self._navigated)
        await self.cdp.send("Runtime.enable")
        await self.cdp.send("Runtime.addBinding", {"name": self._binding})
        await self.cdp.send("Page.enable")
        await self.cdp.send("Page.addScriptToEvaluateOnNewDocument", {"source": source})

    def _called(self, event: Mapping[str, Any]) -> None:
        if event["name"] != self._binding:
            return
        kind_and_payload: Any = decode_json(event["payload"])
        self._on_event(*kind_and_payload)

    def pin(self) -> None:
        """From now on the page is the one that was connected to: its going elsewhere is a loss (FAULTS 10)."""
        self._pinned = True

    def _navigated(self, event: Mapping[str, Any]) -> None:
        """A new document; a change of the address alone is none (CDP has another event for that)."""
        if event["frame"].get("parentId"):
            return
        self._object = None
        if self._pinned:
            self.lose(ContextLost("the page navigated or reloaded; connect again"))

    def _closed(self, _: Page) -> None:
        """A dying browser closes its pages first: give it the time to say so."""
        closed = Disconnected("the page was closed; connect again")
        asyncio.get_running_loop().call_later(_LAST_WORDS, self.lose, closed)

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
            raise BrowserCrashed("the browser's driver is gone; connect again") from error
        finally:
            if not task.done():
                task.cancel()
                task.add_done_callback(_retrieve)

    def _again(self, error: TransportError) -> TransportError:
        return type(error)(error.message)

    def _translated(self, error: PlaywrightError) -> TransportError:
        """Playwright's errors as ours."""
        first = error.message.strip().partition("\n")[0]
        if self._lost.done():
            return self._again(self._lost.result())
        if any(text in first for text in _MOVED):
            return ContextLost("the page navigated or reloaded while it worked; connect again")
        if any(text in first for text in _GONE):  # and no event said what: its messenger, the driver, died
            return BrowserCrashed("the browser's driver is gone; connect again")
        return TransportError(f"the browser refused: {first}")

    async def _agent(self, timeout: float) -> str:
        if self._object is None:
            result = await self.send(
                "Runtime.evaluate", {"expression": f"globalThis.__abp_notification?.({self._key!r})"}, timeout=timeout
            )
            object_id = result["result"].get("objectId")
            if object_id is None:
                raise ContextLost("the page replaced the functions of the protocol; it cannot be driven")
            self._object = object_id
        return self._object

    async def invoke(self, method: str, *args: object, timeout: float, by_value: bool = True) -> Any:
        """Call a method of the agent; a :class:`RemoteObject` argument is passed as the object it stands for.
        With ``by_value=False`` the result is a :class:`RemoteObject`."""
        object_id = await self._agent(timeout)
        arguments = [{"objectId": str(arg)} if isinstance(arg, RemoteObject) else {"value": arg} for arg in args]
        reply = await self.send(
            "Runtime.callFunctionOn",
            {
                "objectId": object_id,
                "functionDeclaration": f"function(...args) {{ return this.{method}(...args); }}",
                "arguments": arguments,
                "awaitPromise": True,
                "returnByValue": by_value,
            },
            timeout=timeout,
            what=f"`{method}`",
        )
        if "exceptionDetails" in reply:
            exception = reply["exceptionDetails"].get("exception", {})
            raise ProtocolError(
                f"the page failed in {method}: {str(exception.get('description', '?')).splitlines()[0]}"
            )
        return reply["result"].get("value") if by_value else RemoteObject(reply["result"]["objectId"])


def _retrieve(task: asyncio.Future[object]) -> None:
    """Look at the outcome of a call nobody waits for any more, so that asyncio does not report it."""
    if not task.cancelled():
        task.exception()
