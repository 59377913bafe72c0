"""What the transports that drive a page of their own share: the page, its agent, its events, its content.

What ``page.evaluate`` gives back for content is not the content (PROTOCOL: ``{}`` for an ``ArrayBuffer``), so an agent
in the page makes one JSON text of each answer: small content inside it, larger content by reference, fetched over the
ladder of :mod:`transports.browser.ladder`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pybase64

from ..base import Transport
from ..binary import BinaryData, Broken, Handle
from ..detect import Place, replace
from ..errors import ConnectFailed, ProtocolError, TransportError, UsageError, redact_url
from ..messages import Message, decode_json, encode_json
from .agent import PageAgent
from .appfiles import AppFiles
from .downloads import Downloads
from .effects import Dialogs, Effects
from .inputs import Inputs
from .ladder import Ladder
from .launch import Browser
from .permissions import check_permissions, set_permissions

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["PageTransport", "why_not_loaded"]

_REASONS = {
    "ERR_CONNECTION_REFUSED": "nothing listens there; start the app or correct the address",
    "ERR_NAME_NOT_RESOLVED": "the host name is not known; correct the address",
    "ERR_CONNECTION_TIMED_OUT": "the host does not answer; correct the address or check the network",
    "ERR_CERT": "its certificate is not trusted",
    "ERR_UNSAFE_PORT": "browsers refuse this port; serve the app on another",
    "ERR_ABORTED": "the address gives a download, not a page",
    "ERR_EMPTY_RESPONSE": "the server closed the connection without an answer",
    "ERR_BLOCKED_BY_LOCAL_NETWORK_ACCESS_CHECKS": "the browser keeps pages out of the local network",
}
_EVENTS = {"notification": "notification", "progress": "progress", "capabilities": "capabilities/changed"}


class PageTransport(Transport):
    """An app reached through one page in a browser context of its own; how the app gets into that page is the
    subclass's (:meth:`_enter`).

    ``browser`` is a running :class:`~transports.browser.launch.Browser` to share; without it one is started and ended.
    ``timeout`` in seconds covers starting and loading.
    """

    _scripts: ClassVar[tuple[str, ...]] = ("codec.js", "effects.js")

    def __init__(
        self,
        url: str,
        *,
        browser: Browser | None,
        headless: bool,
        timeout: float,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
    ) -> None:
        if dialogs not in ("dismiss", "accept"):
            raise UsageError(f"dialogs= is 'dismiss' or 'accept', not {dialogs!r}")
        self._target = url
        self._shared = browser
        self._browser = browser or Browser(headless=headless, timeout=timeout)
        self._timeout = timeout
        self._stack = contextlib.AsyncExitStack()
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._dialogs: Dialogs = dialogs
        self._permissions = check_permissions(permissions)
        self._agent: PageAgent | None = None

    @property
    def url(self) -> str | None:
        return self._agent.page.url if self._agent else self._target

    @property
    def ladder(self) -> Ladder:
        """The ladder of this page; its ``used`` counts what each rung has moved."""
        return self._ladder

    async def open(self) -> None:
        if self._shared is None:
            await self._stack.enter_async_context(self._browser)
        try:
            async with asyncio.timeout(self._timeout):
                await self._open_page()
        except TimeoutError as error:
            raise ConnectFailed(
                f"{redact_url(self._target)} did not load within {self._timeout:g} s; is it the right address?"
            ) from error

    async def _open_page(self) -> None:
        browser = self._browser.playwright
        context = await browser.new_context(accept_downloads=False)
        if self._shared is not None:  # a browser of our own takes its context along
            self._stack.push_async_callback(_closing, context)
        page = await context.new_page()
        cdp = await context.new_cdp_session(page)
        self._agent = agent = PageAgent(page, cdp, self._on_event)
        await agent.install(*self._scripts)
        target = (await cdp.send("Target.getTargetInfo"))["targetInfo"]
        downloads = Downloads(agent, self._browser.cdp, target["browserContextId"], self._browser.download_slots)
        self._stack.callback(downloads.close)
        files = AppFiles(agent, self._browser.cdp, target, downloads, self._browser.folder)
        self._effects = Effects(
            agent,
            files,
            dialogs=self._dialogs,
            timeout=self._timeout,
            announce=self._events.put_nowait,
            release=self.release,
        )
        self._stack.push_async_callback(self._effects.aclose)
        await self._effects.prepare()
        await set_permissions(self._browser.cdp, target["browserContextId"], self._permissions)
        self._ladder = Ladder(agent, downloads)
        self._inputs = Inputs(agent, self._browser.folder)
        await self._enter(page, agent)
        agent.pin()

    @abstractmethod
    async def _enter(self, page: Page, agent: PageAgent) -> None:
        """Bring the app into the page, whose agent is installed. Raises :class:`~transports.errors.ConnectFailed` and
        :class:`~transports.errors.NotAbpApp`."""

    async def aclose(self) -> None:
        self._events.put_nowait(None)
        await self._stack.aclose()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        agent = self._page_agent()
        payload: Any = message.payload
        match message.type:
            case "initialize":
                return _reply(message, await agent.invoke("initialize", encode_json(payload).decode(), timeout=timeout))
            case "capabilities/list":
                return _reply(message, await agent.invoke("list", timeout=timeout))
            case "capabilities/call":
                return await self._call(message, timeout)
            case "capabilities/cancel":
                text = await agent.invoke("cancel", payload["callId"], payload.get("reason", ""), timeout=timeout)
                return _reply(message, text)
        raise ProtocolError(f"this transport has no request {message.type!r}")

    async def _call(self, message: Message, timeout: float) -> Message:
        payload: Any = message.payload
        call_id = payload["options"]["callId"]
        deadline = asyncio.get_running_loop().time() + timeout
        with self._effects.during(call_id) as call:
            async with self._inputs.prepared(payload, message.content, timeout=timeout) as (text, elements):
                answer = await self._page_agent().invoke("call", text, *elements, timeout=timeout)
            reply = _reply(message, answer)
            left = max(deadline - asyncio.get_running_loop().time(), 1.0)
            await self._effects.settle(call, reply, timeout=left)
            return reply

    async def notify(self, message: Message) -> None:
        agent = self._page_agent()
        text = encode_json(message.payload if message.payload is not None else {}).decode()
        if message.type == "shutdown":
            await agent.invoke("shutdown", text, timeout=2.0)
        elif message.type == "elicitation/response":
            await agent.invoke("answer", message.id, text, timeout=5.0)
        else:
            raise ProtocolError(f"this transport has no message {message.type!r}")

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    def _on_event(self, kind: str, payload: Any) -> None:
        if kind == "elicitation":
            self._events.put_nowait(Message("elicitation/request", payload["request"], id=payload["id"]))
        elif kind in _EVENTS:
            self._events.put_nowait(Message(_EVENTS[kind], payload))
        else:
            self._effects.on_event(kind, payload)

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        kind, _, name = handle.id.partition(":")
        if kind == "stream":
            await self._ladder.save_stream(name, path, timeout=timeout)
        elif kind == "file":
            await self._effects.save(handle, path)
        elif kind == "blob":
            await self._ladder.save_url(handle.id, path, timeout=timeout)
        else:
            await self._ladder.save(Handle(name, handle.size), path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        kind, _, name = handle.id.partition(":")
        if kind == "file":
            self._effects.forget(handle)
        with contextlib.suppress(TransportError):
            if kind == "held":
                await self._page_agent().invoke("release", name, timeout=2.0)
            elif kind == "stream":
                await self._page_agent().send("IO.close", {"handle": name}, timeout=2.0)

    async def cookies(self, url: str) -> Mapping[str, str]:
        agent = self._page_agent()
        found = await agent.bounded(agent.page.context.cookies([url]), "cookies", timeout=5.0)
        return {cookie["name"]: cookie["value"] for cookie in found}

    def _page_agent(self) -> PageAgent:
        if self._agent is None:
            raise TransportError("the transport is not open; use it inside `async with`")
        return self._agent


def why_not_loaded(error: str, url: str) -> str:
    """What Playwright or Chromium says of a failed navigation to ``url``, in words that help."""
    first = error.partition("\n")[0]
    if known := next((text for code, text in _REASONS.items() if code in first), None):
        return known
    net = first.find("net::")
    return first[net:].split(" at ")[0] if net >= 0 else first.removeprefix("Page.goto: ").replace(url, "it")


async def _closing(context: BrowserContext) -> None:
    """A context whose browser hangs is ended with the browser."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):
        async with asyncio.timeout(2.0):
            await context.close()


def _reply(request: Message, text: str) -> Message:
    """The agent's text as a message: content back in its place."""
    parts = decode_json(text)
    assert isinstance(parts, dict)
    if "refused" in parts:
        raise ProtocolError(f"{parts['refused']}; nothing was taken from it")
    if "threw" in parts:
        if request.type != "capabilities/call":
            raise ProtocolError(f"the app's {request.type} threw {parts['name']}: {parts['threw'][:200]}")
        error = {"code": "OPERATION_FAILED", "message": f"the app threw {parts['name']}: {parts['threw'][:500]}"}
        return Message("capabilities/call-result", {"success": False, "error": error}, id=request.id)
    rest = parts["rest"]
    leaves: dict[Place, object] = {
        tuple(path): _leaf(kind, *values) for path, kind, *values in rest.get("binaries", ())
    }
    return Message(
        f"{request.type}-result", replace(parts["answer"], leaves), id=request.id, warnings=rest.get("warnings", ())
    )


def _leaf(kind: str, value: str, mime_type: str = "", name: str = "", size: int | None = None) -> BinaryData | Broken:
    if kind == "broken":
        return Broken(value)
    if kind == "held":
        return BinaryData(Handle(f"held:{value}", size), mime_type or None, None, name or None)
    return BinaryData(pybase64.b64decode(value, validate=True), mime_type or None, None, name or None)
