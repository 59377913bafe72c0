"""What the transports that drive a page of their own share: the page, its agent, its events, its content.

What ``page.evaluate`` gives back for content is not the content (PROTOCOL: ``{}`` for an ``ArrayBuffer``), so an agent
in the page makes one JSON text of each answer: small content inside it, larger content by reference, fetched over the
ladder of :mod:`transports.browser.ladder`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace as replace_field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pybase64

from ..base import Transport
from ..binary import BinaryData, Broken, Handle
from ..detect import Place, replace
from ..errors import BrowserCrashed, CallTimeout, ConnectFailed, Disconnected, ProtocolError, TransportError, redact_url
from ..messages import Message, decode_json, encode_json
from .agent import PageAgent
from .channel import open_channel
from .inputs import Inputs
from .keep import keep
from .ladder import Ladder
from .source import Source, Tab

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .launch import Browser

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
    """An app reached through one page; how the app gets into that page is the subclass's (:meth:`_enter`).

    ``source`` says where the page comes from. ``timeout`` in seconds covers starting and loading.
    """

    _scripts: ClassVar[tuple[str, ...]] = ("codec.js",)

    def __init__(self, url: str, *, source: Source, timeout: float) -> None:
        self._target = url
        self._source = source
        self._browser: Browser | None = None
        self._timeout = timeout
        self._stack = contextlib.AsyncExitStack()
        self._page_stack = contextlib.AsyncExitStack()
        self._tab: Tab | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._prints: dict[str, list[asyncio.Task[BinaryData]]] = {}
        self._agent: PageAgent | None = None
        self.features = replace_field(self.features, reconnects=source.page is None)

    @property
    def url(self) -> str | None:
        return self._agent.page.url if self._agent else self._target

    @property
    def ladder(self) -> Ladder:
        """The ladder of this page; its ``used`` counts what each rung has moved."""
        return self._ladder

    async def open(self) -> None:
        self._browser = await self._source.start(self._stack, timeout=self._timeout)
        agent = await self._open_page()
        if self.features.reconnects:
            keeping = keep(agent, ours=self._is_ours, reopen=self._opened_again, tell=self._events.put_nowait)
            self._keeper = asyncio.ensure_future(keeping)

    async def _open_page(self) -> PageAgent:
        try:
            async with asyncio.timeout(self._timeout):
                self._tab = tab = await self._source.open(self._stack, self._browser, self._tab)
                agent = PageAgent(tab.page, await open_channel(tab.page), self._on_event)
                if tab.given:
                    self._page_stack.push_async_callback(agent.leave)
                else:
                    self._page_stack.callback(agent.ignore)
                await agent.install(*self._scripts, now=tab.given)
                downloads = await tab.downloads(agent)
                if downloads is not None:
                    self._page_stack.callback(downloads.close)
                self._agent = agent
                self._ladder = Ladder(agent, downloads)
                self._inputs = Inputs(agent, tab.folder)
                await self._enter(tab.page, agent)
                agent.pin()
                return agent
        except TimeoutError as error:
            raise ConnectFailed(
                f"{redact_url(self._target)} did not load within {self._timeout:g} s; is it the right address?"
            ) from error

    def _is_ours(self, lost: TransportError) -> bool:
        if isinstance(lost, BrowserCrashed) and (self._browser is None or self._browser is self._source.browser):
            self.features = replace_field(self.features, reconnects=False)  # whoever started it starts it again
        return self.features.reconnects

    async def _opened_again(self) -> PageAgent:
        await self._page_stack.aclose()
        browser = self._browser
        if browser is not None and browser is not self._source.browser and not await browser.responds():
            self._tab = None
            await browser.restart()
        return await self._open_page()

    @abstractmethod
    async def _enter(self, page: Page, agent: PageAgent) -> None:
        """Bring the app into the page, whose agent is installed. Raises :class:`~transports.errors.ConnectFailed` and
        :class:`~transports.errors.NotAbpApp`."""

    async def aclose(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait((self._keeper,))
        for task in [task for tasks in self._prints.values() for task in tasks]:
            task.cancel()
        self._events.put_nowait(None)
        await self._page_stack.aclose()
        await self._stack.aclose()

    # --- messages -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        agent = self._page_agent()
        if agent.is_lost and self.features.reconnects:
            raise Disconnected("the page is gone", details={"sent": False})
        payload: Any = message.payload
        match message.type:
            case "initialize":
                return _reply(message, await agent.invoke("initialize", encode_json(payload).decode(), timeout=timeout))
            case "capabilities/list":
                return _reply(message, await agent.invoke("list", timeout=timeout))
            case "capabilities/call":
                return await self._call(message, timeout)
            case "capabilities/cancel":
                try:
                    text = await agent.invoke("cancel", payload["callId"], payload.get("reason", ""), timeout=timeout)
                except CallTimeout:
                    await agent.require_responding()
                    raise
                return _reply(message, text)
        raise ProtocolError(f"this transport has no request {message.type!r}")

    async def _call(self, message: Message, timeout: float) -> Message:
        payload: Any = message.payload
        call_id = payload["options"]["callId"]
        deadline = asyncio.get_running_loop().time() + timeout
        printed = self._prints.setdefault(call_id, [])
        try:
            async with self._inputs.prepared(payload, message.content, timeout=timeout) as (text, elements):
                answer = await self._page_agent().invoke("call", text, *elements, timeout=timeout)
            reply = _reply(message, answer)
            left = max(deadline - asyncio.get_running_loop().time(), 1.0)
            reply.outputs = [await self._printed(task, left) for task in printed]
            return reply
        finally:
            del self._prints[call_id]

    async def _printed(self, task: asyncio.Task[BinaryData], timeout: float) -> BinaryData:
        try:
            return await asyncio.wait_for(task, timeout)
        except TimeoutError as error:
            raise CallTimeout(f"the page was printed but its PDF was not ready within {timeout:g} s") from error

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
        if kind == "print":
            tasks = self._prints.get(payload["call"])
            if tasks is not None:
                tasks.append(asyncio.ensure_future(self._print(tasks[-1] if tasks else None)))
        elif kind == "elicitation":
            self._events.put_nowait(Message("elicitation/request", payload["request"], id=payload["id"]))
        else:
            self._events.put_nowait(Message(_EVENTS[kind], payload))

    async def _print(self, before: asyncio.Task[BinaryData] | None) -> BinaryData:
        """The page as it is now, as a PDF that waits in the browser. ``window.print`` is the signal (PROTOCOL)."""
        if before is not None:
            await asyncio.wait((before,))
        return await self._print_page()

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """``paper_height`` in inches, if the page's own rules are not to decide."""
        agent = self._page_agent()
        printed = await agent.bounded(agent.channel.pdf(paper_height), "printing", timeout=self._timeout)
        return BinaryData(Handle(f"stream:{printed}") if isinstance(printed, str) else printed, "application/pdf")

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        kind, _, name = handle.id.partition(":")
        if kind == "stream":
            await self._ladder.save_stream(name, path, timeout=timeout)
        elif kind == "blob":
            await self._ladder.save_url(handle.id, path, timeout=timeout)
        else:
            await self._ladder.save(Handle(name, handle.size), path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        kind, _, name = handle.id.partition(":")
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
