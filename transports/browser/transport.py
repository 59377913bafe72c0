"""What the transports that drive a page of their own share: the page, its agent, its events, its content.

What ``page.evaluate`` gives back for content is not the content (PROTOCOL: ``{}`` for an ``ArrayBuffer``), so an agent
in the page makes one JSON text of each answer: small content inside it, larger content by reference, fetched over the
ladder of :mod:`transports.browser.transfer.ladder`.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace as replace_field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..base import Transport
from ..binary import BinaryData, Handle
from ..errors import BrowserCrashed, CallTimeout, ConnectFailed, Disconnected, ProtocolError, TransportError, UsageError
from ..protocol.messages import Message
from ..protocol.strict_json import decode_json, encode_json
from ..protocol.urls import redact_url
from . import tools
from .effects.effects import Dialogs, Effects
from .effects.permissions import check_permissions, set_permissions
from .page.agent import PageAgent
from .page.channel import open_channel
from .page.reply import reply_to
from .reconnect import keep
from .source import Source, Tab
from .transfer.ladder import Ladder
from .transfer.uploads import Inputs

if TYPE_CHECKING:
    from playwright.async_api import Page

    from .process.launch import Browser

__all__ = ["PageTransport"]

_EVENTS = {"notification": "notification", "progress": "progress", "capabilities": "capabilities/changed"}


class PageTransport(Transport):
    """An app reached through one page; how the app gets into that page is the subclass's (:meth:`_enter`).

    ``source`` says where the page comes from. ``timeout`` in seconds covers starting and loading.
    """

    _scripts: ClassVar[tuple[str, ...]] = ("codec.js", "effects.js")

    def __init__(
        self,
        url: str,
        *,
        source: Source,
        timeout: float,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
    ) -> None:
        if dialogs not in ("dismiss", "accept"):
            raise UsageError(f"dialogs= is 'dismiss' or 'accept', not {dialogs!r}")
        self._target = url
        self._source = source
        self._browser: Browser | None = None
        self._timeout = timeout
        self._stack = contextlib.AsyncExitStack()
        self._page_stack = contextlib.AsyncExitStack()
        self._tab: Tab | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._dialogs: Dialogs = dialogs
        self._permissions = check_permissions(permissions)
        self._agent: PageAgent | None = None
        self.features = replace_field(self.features, reconnects=source.page is None)

    @property
    def url(self) -> str | None:
        return self._agent.page.url if self._agent else self._target

    @property
    def page(self) -> Page | None:
        """The page, for what a caller wants of it beside calls (tracing, say); another one after a reconnection, and
        ``None`` while there is none."""
        return self._agent.page if self._agent else None

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
                self._effects = Effects(
                    agent,
                    tab,
                    dialogs=self._dialogs,
                    print_page=self._print_page,
                    announce=self._events.put_nowait,
                    release=self.release,
                )
                self._page_stack.push_async_callback(self._effects.aclose)
                await self._effects.prepare(downloads)
                await set_permissions(tab, agent, self._permissions)
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
                greeting = encode_json(payload).decode()
                return reply_to(message, await self._asked("initialize", greeting, timeout=timeout))
            case "capabilities/list":
                return reply_to(message, await self._asked("list", timeout=timeout))
            case "capabilities/call":
                return await self._call(message, timeout)
            case "capabilities/cancel":
                try:
                    text = await agent.invoke("cancel", payload["callId"], payload.get("reason", ""), timeout=timeout)
                except CallTimeout:
                    await agent.require_responding()
                    raise
                return reply_to(message, text)
        raise ProtocolError(f"this transport has no request {message.type!r}")

    async def _call(self, message: Message, timeout: float) -> Message:
        payload: Any = message.payload
        call_id = payload["options"]["callId"]
        deadline = asyncio.get_running_loop().time() + timeout
        with self._effects.during(call_id) as call:
            async with self._inputs.prepared(payload, message.content, timeout=timeout) as (text, elements):
                answer = await self._asked("call", text, *elements, timeout=timeout)
            reply = reply_to(message, answer)
            left = max(deadline - asyncio.get_running_loop().time(), 1.0)
            await self._effects.settle(call, reply, timeout=left)
            return reply

    async def _asked(self, method: str, *args: object, timeout: float) -> str | bytes:
        """What the agent answers; very long text is fetched as content is."""
        agent = self._page_agent()
        answer: str = await agent.invoke(method, *args, timeout=timeout)
        if not answer.startswith('{"text":'):
            return answer
        held: Any = decode_json(answer)
        with tempfile.TemporaryDirectory(prefix="answer-", dir=self._open_tab().folder) as folder:
            path = Path(folder) / "text"
            try:
                await self._ladder.save(Handle(held["text"], held["size"]), path, timeout=timeout)
            finally:
                await self.release(Handle(f"held:{held['text']}"))
            return await asyncio.to_thread(path.read_bytes)

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

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """The page as it is now, as a PDF; ``paper_height`` in inches, if the page's own rules are not to decide."""
        agent = self._page_agent()
        printed = await agent.bounded(agent.channel.pdf(paper_height), "printing", timeout=self._timeout)
        return BinaryData(Handle(f"stream:{printed}") if isinstance(printed, str) else printed, "application/pdf")

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

    # --- what a browser can do beside ---------------------------------------------------------------------------------

    async def render_to_pdf(self, html: str, options: Mapping[str, object], *, timeout: float) -> BinaryData:
        return await tools.render_to_pdf(self._open_tab(), html, options, timeout=timeout)

    async def screenshot(self, options: Mapping[str, object], *, timeout: float) -> BinaryData:
        return await tools.screenshot(self._open_tab().page, options, timeout=timeout)

    def _open_tab(self) -> Tab:
        if self._tab is None:
            raise Disconnected("the page is gone; call again")
        return self._tab

    async def cookies(self, url: str) -> Mapping[str, str]:
        agent = self._page_agent()
        found = await agent.bounded(agent.page.context.cookies([url]), "cookies", timeout=5.0)
        return {cookie["name"]: cookie["value"] for cookie in found}

    def _page_agent(self) -> PageAgent:
        if self._agent is None:
            raise TransportError("the transport is not open; use it inside `async with`")
        return self._agent
