"""The base of transports that drive a page (:class:`PageTransport`): opening, reconnection, messages, events, content.

Playwright's ``page.evaluate`` does not return binary content (docs/protocol.md 6.6: ``{}`` for an ``ArrayBuffer``).
So an agent in the page makes one JSON text of each answer. Small content is inside the text; larger content is a
reference, fetched over the ladder of :mod:`transports.playwright._content`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import time
from abc import abstractmethod
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, replace as replace_field
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from playwright.async_api import Error

from .._internal.tasks import backoff_delay, cancel_and_wait, mark_retrieved, start_task
from ..artifacts._base import DEFAULT_MAX_BYTES, ArtifactStore
from ..base import Transport
from ..errors import (
    ABPError,
    BrowserCrashed,
    CallTimeout,
    ConnectFailed,
    Disconnected,
    ProtocolError,
    TransportError,
    UsageError,
    format_seconds,
)
from ..protocol._plain_text import origin_of, redact_url
from ..protocol._strict_json import encode_json, in_thread_if_long
from ..protocol._times import checked_timeout
from ..protocol.binary import BinaryData, Handle
from ..protocol.messages import Message, Sender
from . import _page_tools as tools
from ._agent import OPAQUE, Agent, Document, FrameWatcher, PageAgent, is_closed
from ._browser import Browser
from ._channels import open_channel
from ._content import Ladder, Uploads
from ._diagnosis import explain_slow_load
from ._downloads import ByteLimits, CdpDownloads, PlaywrightDownloads
from ._effects import Dialogs, PageEffects
from ._process import SESSION_CONTEXTS
from ._received import HELD, Elicitation, Flood, is_reference, parse_reply
from ._source import PageSource, Tab, check_permissions

if TYPE_CHECKING:
    from playwright.async_api import Frame, Page, Response

logger = logging.getLogger("transports.playwright")

#: Events of a page that are passed on as they are, and their message types.
_EVENTS = {"notification": "notification", "progress": "progress", "capabilities": "capabilities/changed"}


@lru_cache(16)
def sender_of(
    url: str,
    origin: str,
    *,
    page_origin: str,
    page_domain: str,
    base: str = "",
    around: tuple[str, ...] = (),
    server_address: tuple[str, int] | None = None,
) -> Sender:
    """Return the sender for a document at ``url``. ``base`` is that of the document, ``around`` are the addresses of
    documents around a frame. The result is cached, as nearly all calls of a page have the same sender."""
    site = _site_of(origin, page_domain)
    domain = ""  # unknown for a document outside the page's domain
    if site.endswith(f"//{page_domain}"):
        domain = page_domain
    # A document with an origin may not be at its last known address any more.
    if origin not in (origin_of(url), OPAQUE):
        url = f"{origin}/"

    sites_around = [_site_of(origin_of(address) or "", page_domain) for address in around]
    return Sender(
        base or url,
        origin,
        domain=domain,
        page=_site_of(page_origin, page_domain),
        third_party=any(other != site for other in sites_around),
        server_address=server_address,
    )


def addresses_around(frames: Iterable[Frame]) -> list[str]:
    """Return the addresses of the documents around frames, up to the page's."""
    addresses: list[str] = []
    for frame in frames:
        parent = frame.parent_frame
        while parent is not None:
            addresses.append(parent.url)
            parent = parent.parent_frame
    return addresses


def sends_cookie(sender: Sender, same_site: str, partition: str | None) -> bool:
    """Return whether the browser would send a cookie. A third party gets it only with ``SameSite=None``, and a
    ``Partitioned`` cookie is sent only within the page of its partition."""
    may_cross_sites = same_site == "None"
    if sender.third_party and not may_cross_sites:
        return False
    return partition in (None, "", sender.page)


def _site_of(origin: str, domain: str) -> str:
    """Return the scheme and the registrable domain, or the whole host if its domain is not ``domain``."""
    parts = urlsplit(origin)
    host = parts.hostname or ""
    if not host:
        return OPAQUE
    if domain and f".{host}".endswith(f".{domain}"):
        host = domain
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}"


@dataclass(frozen=True, slots=True)
class DocumentAccess:
    """What calls and content of one document need. Handles of content in the document begin with ``handle_prefix``."""

    agent: Agent
    ladder: Ladder
    uploads: Uploads
    handle_prefix: str


def cancellation(payload: Any) -> tuple[str, str]:
    return payload["callId"], payload.get("reason", "")


class PageTransport(Transport):
    """Base class of transports to an app in a page. A subclass loads the app (:meth:`_load_app`). A lost page is opened
    again, unless it is the caller's."""

    _scripts: tuple[str, ...] = ("codec.js", "effects.js")
    _script_options: Mapping[str, str] = {}
    #: The time limit for opening the page.
    _time_limit: asyncio.Timeout

    def __init__(
        self,
        url: str,
        *,
        source: PageSource,
        timeout: float,
        dialogs: Dialogs = "dismiss",
        permissions: Collection[str] = (),
    ) -> None:
        if dialogs not in ("dismiss", "accept"):
            raise UsageError(f"dialogs= is 'dismiss' or 'accept', not {dialogs!r}")
        self._target = url
        self._source = source
        self._timeout = checked_timeout(timeout)
        self._dialogs = dialogs
        self._permissions = check_permissions(permissions)
        self._browser: Browser | None = None
        self._tab: Tab | None = None
        self._agent: PageAgent | None = None
        # Three stacks, for what ends with one document of the app, with its page, and with the browser.
        self._page_stack = contextlib.AsyncExitStack()
        self._tab_stack = contextlib.AsyncExitStack()
        self._stack = contextlib.AsyncExitStack()
        self._reconnect_task: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        # Origin of the app's document, and the address and port of its server.
        self._server: tuple[str, tuple[str, int]] | None = None
        self._limits = ByteLimits(DEFAULT_MAX_BYTES)
        # Outputs of lost pages that were to come with later calls.
        self._undelivered: list[str] = []
        # These are counted across reconnections.
        self._rungs = {"download": 0, "stream": 0, "slices": 0}
        self.features = replace_field(self.features, reconnects=source.page is None)

    @property
    def url(self) -> str | None:
        """Current address of the page; the target before the page is open."""
        return self._target if self._agent is None else self._agent.page.url

    @property
    def page(self) -> Page | None:
        """The page of ``playwright.async_api``; a new page after a reconnection, ``None`` before opening."""
        if self._agent is None:
            return None
        # The caller may now record a HAR in this context, which is written only if the context is closed properly.
        SESSION_CONTEXTS.discard(self._agent.page.context)
        return self._agent.page

    @property
    def server_address(self) -> tuple[str, int] | None:
        """Numeric address and port that the browser loaded the app from; ``None`` if the app is now at another host."""
        if self._server is None:
            return None
        origin, address = self._server
        return address if origin_of(self.url) == origin else None

    async def _read_server_address(self, response: Response | None) -> None:
        self._server = None
        if response is None:
            return
        # Playwright raises an error if the page goes away, or the response did not come from the network.
        with contextlib.suppress(Error):
            address = await response.server_addr()
            origin = origin_of(response.url)
            if address is not None and origin is not None:
                self._server = origin, (address["ipAddress"], address["port"])

    @property
    def rungs(self) -> Mapping[str, int]:
        """Counts of contents moved out of the app's pages, by rung: ``download``, ``stream`` and ``slices``."""
        return dict(self._rungs)

    def use_store(self, store: ArtifactStore) -> None:
        """Take over the limits of a session's store, before :meth:`open`."""
        max_total = None if store.retention is None else store.retention.max_session_bytes
        self._limits = ByteLimits(store.max_bytes, max_total)

    async def open(self) -> None:
        self._browser = await self._source.start(self._stack, self._target, timeout=self._timeout)
        agent = await self._open_page()
        if self.features.reconnects:
            self._reconnect_task = start_task(self._reconnect(agent))

    async def _open_page(self) -> PageAgent:
        """Open the app's page within the timeout.

        Raises :class:`~transports.errors.ConnectFailed` or :class:`~transports.errors.BrowserCrashed`."""
        try:
            async with asyncio.timeout(self._timeout) as self._time_limit:
                return await self._open_app()
        except TimeoutError:
            within = f"did not load within {format_seconds(self._timeout)}"
            reason = "its page did not open" if self._tab is None else await explain_slow_load(self._tab.page)
            message = f"{redact_url(self._target)} {within}; {reason}"
            raise ConnectFailed(message, details={"timeout": self._timeout}) from None
        except Exception as error:
            if isinstance(error, ABPError) or not is_closed(error):
                raise
            raise BrowserCrashed("the page or its browser was closed while the app was opened; connect again") from None

    async def _open_app(self) -> PageAgent:
        tab = await self._source.open(self._tab_stack, self._browser, self._tab)
        self._tab = tab
        agent = await self._install_agent(tab)
        preparing = await self._watch_effects(tab, agent)
        self._page_access = self._make_access(agent)
        await self._load_app(tab.page, agent)
        await preparing

        # Do this last, because an app may navigate while it loads.
        agent.lose_on_navigation()
        return agent

    async def _install_agent(self, tab: Tab) -> PageAgent:
        agent = PageAgent(tab.page, await open_channel(tab.page), self._on_event, self._on_loss)
        if self._browser is not None:
            self._page_stack.callback(self._browser.on_end(agent.on_disconnect))
        if tab.borrowed:
            self._page_stack.push_async_callback(agent.uninstall)
        else:
            self._page_stack.callback(agent.stop_listening)

        frames = self._watch_frames(agent)
        # Set these attributes before the scripts are installed: a page that is open already may have effects at once.
        self._agent = agent
        self._downloads: CdpDownloads | PlaywrightDownloads | None = None
        self._effects = PageEffects(
            agent,
            tab,
            dialogs=self._dialogs,
            print_page=self._print_page,
            emit=self._events.put_nowait,
            release=self.release,
            limits=self._limits,
        )
        self._page_stack.callback(self._close_downloads)
        self._page_stack.push_async_callback(self._effects.aclose)
        await agent.install(*self._scripts, now=tab.borrowed, frames=frames, **self._script_options)
        return agent

    async def _watch_effects(self, tab: Tab, agent: PageAgent) -> asyncio.Future[Any]:
        """Prepare the browser for side effects. Return a future that is done once the browser is ready."""
        self._downloads = tab.downloads(agent)
        if isinstance(self._downloads, CdpDownloads):
            folder = self._downloads.app_folder
            self._stack.push_async_callback(asyncio.to_thread, shutil.rmtree, folder, ignore_errors=True)
        # The browser takes commands in order, so it is enough to send these before the app is loaded; their answers may
        # come later. Only the agent's commands, which go to another process, had to be waited for.
        preparing = asyncio.gather(
            self._effects.prepare(self._downloads),
            tab.set_permissions(agent, self._permissions),
            tab.keep_active(agent),
        )
        # Nobody awaits the future if the app fails to load first.
        preparing.add_done_callback(mark_retrieved)
        self._page_stack.push_async_callback(cancel_and_wait, (preparing,))
        # Let these tasks, and those that they begin, send their commands.
        loop_turns = 3
        for _ in range(loop_turns):
            await asyncio.sleep(0)
        return preparing

    def _close_downloads(self) -> None:
        if self._downloads is not None:
            self._downloads.close()

    def _watch_frames(self, agent: PageAgent) -> FrameWatcher | None:
        return None

    def _make_access(self, agent: Agent, handle_prefix: str = HELD) -> DocumentAccess:
        tab = self._open_tab()
        ladder = Ladder(agent, self._downloads, max_bytes=self._limits.file, used=self._rungs)
        self._page_stack.push_async_callback(ladder.aclose)
        return DocumentAccess(agent, ladder, Uploads(agent, tab.folder, shares_disk=tab.shares_disk), handle_prefix)

    async def _reconnect(self, agent: PageAgent) -> None:
        """Open each lost page again. Failed attempts are retried with a back-off (docs/faults.md 1-5, 10)."""
        while True:
            loss = await asyncio.shield(agent.lost)
            if not self._can_reopen(loss):
                return

            self._events.put_nowait(Message("connection/lost", {"reason": loss.message}))
            for attempt in count(1):
                try:
                    agent = await self._reopen()
                    break
                except Exception as error:  # noqa: BLE001 - a driver that ends meanwhile may raise any
                    if not self._can_reopen(loss):
                        return
                    logger.info("the page could not be opened again: %s", error)
                    if isinstance(error, ABPError):
                        self._events.put_nowait(Message("connection/waiting", {"reason": error.message}))
                await asyncio.sleep(backoff_delay(attempt))
            self._events.put_nowait(Message("connection/restored", {"reason": loss.message}))

    def _can_reopen(self, lost: TransportError) -> bool:
        """Return whether the page can be opened again. If not, the feature ``reconnects`` ends."""
        if self._browser is not None:
            is_over = self._source.is_over(self._browser)
        else:
            # Only the owner of the page or the context can start its browser again.
            is_over = isinstance(lost, BrowserCrashed) or self._source.closed_option != ""
        if is_over:
            self.features = replace_field(self.features, reconnects=False)
        return self.features.reconnects

    def _on_loss(self, lost: TransportError) -> TransportError:
        """Add to the error what happens next. A browser is marked as ended, which notifies all its sessions."""
        consequence = "the app is opened again"
        can_reopen = self._can_reopen(lost)
        if self._browser is not None and isinstance(lost, BrowserCrashed):
            self._browser.mark_ended()
            consequence = self._browser.after_restart
        if not can_reopen:
            return type(lost)(f"{lost.message}; connect again", retryable=False)
        return type(lost)(f"{lost.message}; {consequence}")

    async def _reopen(self) -> PageAgent:
        """Open the app again, in a new browser if that has ended. Outputs of the old page become warnings."""
        self._undelivered += [output.what for output in self._effects.tracker.unattributed.outputs]
        await self._page_stack.aclose()
        if self._browser is not None:
            self._browser = browser = await self._source.revive(self._stack, self._browser)
            if self._tab is not None and self._tab.page.context.browser is not browser.playwright:
                # Page and context ended with their browser, so the old stack has nothing left to close.
                self._tab = None
                self._tab_stack = contextlib.AsyncExitStack()

        agent = await self._open_page()
        tracker = self._effects.tracker
        for what in self._undelivered:
            tracker.warn(tracker.unattributed, f"{what} is lost: its page was opened again")
        self._undelivered.clear()
        return agent

    @abstractmethod
    async def _load_app(self, page: Page, agent: PageAgent) -> None: ...

    async def aclose(self) -> None:
        """Close the page, and the browser if it was started here. This takes a few seconds at most."""
        try:
            if self._reconnect_task is not None:
                self._reconnect_task.cancel()
                await asyncio.wait((self._reconnect_task,))
        finally:
            self._events.put_nowait(None)
            # This closes all three stacks, the last one first, even if closing is cancelled.
            async with self._stack, self._tab_stack, self._page_stack:
                pass

    # --- messages -----------------------------------------------------------------------------------------------------

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Send a request to the app's page. While the page is opened again, it fails unsent with ``DISCONNECTED``."""
        agent = self._require_agent()
        if agent.is_lost:
            raise agent.loss_error(sent=False)
        payload: Any = message.payload
        match message.type:
            case "capabilities/call":
                return await self._send_call(message, self._page_access, timeout)
            case "initialize":
                return await self._invoke(message, "initialize", encode_json(payload).decode(), timeout=timeout)
            case "capabilities/list":
                return await self._invoke(message, "list", timeout=timeout)
            case "capabilities/cancel":
                return await self._cancel_call(message, agent, timeout)
            case "page/pdf" | "page/screenshot":
                return await self._use_page_tool(message, timeout)
        raise ProtocolError(f"this transport has no request {message.type!r}")

    async def _cancel_call(self, message: Message, agent: PageAgent, timeout: float) -> Message:
        try:
            return await self._invoke(message, "cancel", *cancellation(message.payload), timeout=timeout)
        except CallTimeout:
            # Either the app's own cancel() hangs, or the whole page does.
            await agent.check_responsive()
            raise

    async def _send_call(self, message: Message, access: DocumentAccess, timeout: float) -> Message:
        """Send a call to a document, and add the effects of the call to its reply."""
        payload: Any = message.payload
        if message.origins is not None:
            payload = {**payload, "origins": sorted(message.origins)}

        # Only this document may answer the call.
        document = await access.agent.document(timeout=timeout)
        deadline = time.monotonic() + timeout
        call = self._effects.tracker.begin_call(payload["options"]["callId"])
        try:
            async with access.uploads.prepare(payload, message.content, timeout=timeout) as (text, elements):
                reply = await self._invoke(
                    message, "call", text, *elements, timeout=timeout, access=access, document=document
                )
            reply.sender = self._sender(document)
            if self._effects.tracker.has_effects_for(call):
                # A call that used up its time still gets a second: its outputs may be ready already.
                seconds_left = max(deadline - time.monotonic(), 1.0)
                await self._effects.add_to_reply(call, reply, timeout=seconds_left)
            return reply
        finally:
            self._effects.end_call(call)

    def _sender(self, document: Document) -> Sender:
        address = self._address_of(document.origin)
        url = self._require_agent().page.url
        return sender_of(
            url,
            document.origin,
            page_origin=document.origin,
            page_domain=document.domain,
            base=document.base,
            server_address=address,
        )

    def _address_of(self, origin: str) -> tuple[str, int] | None:
        if origin_of(self.url) != origin:
            return None
        return self.server_address

    async def _invoke(
        self,
        message: Message,
        method: str,
        *args: object,
        timeout: float,
        access: DocumentAccess | None = None,
        document: Document | None = None,
    ) -> Message:
        """Call a method of the agent, and return its answer as the reply. With ``document``, only that document may
        answer. A very long answer is fetched in the same way as content."""
        access = access or self._page_access
        agent = None if document is None else document.agent
        text: str | bytes = await access.agent.invoke(method, *args, timeout=timeout, returns=str, agent=agent)

        if isinstance(text, str) and is_reference(text):
            text = await access.ladder.read_answer(text, self._open_tab().folder, timeout=timeout)
        return await in_thread_if_long(partial(parse_reply, message, handle_prefix=access.handle_prefix), text)

    async def notify(self, message: Message) -> None:
        agent = self._require_agent()
        payload = {} if message.payload is None else message.payload
        text = encode_json(payload).decode()
        if message.type == "shutdown":
            await agent.invoke("shutdown", text, timeout=2.0)
        elif message.type == "elicitation/response":
            origins = None if message.origins is None else sorted(message.origins)
            await agent.invoke("answer", message.id, text, origins, timeout=5.0)
        else:
            raise ProtocolError(f"this transport has no message {message.type!r}")

    async def events(self) -> AsyncIterator[Message]:
        while (message := await self._events.get()) is not None:
            yield message

    def _on_event(self, kind: str, payload: Any) -> None:
        if isinstance(payload, Elicitation):
            self._events.put_nowait(Message("elicitation/request", payload.request, id=payload.id))
        elif isinstance(payload, Flood):
            if payload.ended:
                self._require_agent().end_flood()
            else:
                logger.warning("the page sends too many events: the rest is left out")
        elif kind in _EVENTS:
            self._events.put_nowait(Message(_EVENTS[kind], payload))
        else:
            self._effects.on_event(kind, payload)

    async def _print_page(self, *, paper_height: float | None = None) -> BinaryData:
        """Print the page as a PDF. ``paper_height`` in inches overrides the ``@page`` rules of the page."""
        agent = self._require_agent()
        printing = agent.channel.print_to_pdf(paper_height)
        content = await agent.with_deadline(printing, "printing", timeout=self._timeout)
        if isinstance(content, str):
            content = Handle(f"stream:{content}")
        return BinaryData(content, "application/pdf")

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        kind, _, name = handle.id.partition(":")
        if kind == "stream":
            await self._page_access.ladder.save_stream(name, path, timeout=timeout)
        elif kind == "file":
            await self._effects.save(handle, path)
        elif kind == "blob":
            await self._page_access.ladder.save_url(handle.id, path, timeout=timeout)
        else:
            await self._page_access.ladder.save(Handle(name, handle.size), path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        kind, _, name = handle.id.partition(":")
        if kind == "file":
            self._effects.remove_download(handle)
        with contextlib.suppress(TransportError):
            if kind == "held":
                await self._require_agent().invoke("release", name, timeout=2.0)
            elif kind == "stream":
                await self._require_agent().send("IO.close", {"handle": name}, timeout=2.0)

    # --- page tools ---------------------------------------------------------------------------------------------------

    async def _use_page_tool(self, message: Message, timeout: float) -> Message:
        tab = self._open_tab()
        payload: Any = message.payload
        if message.type == "page/pdf":
            binary = await tools.render_to_pdf(
                tab, payload["html"], payload["options"], timeout=timeout, fetch=message.fetch
            )
        else:
            binary = await tools.screenshot(tab, payload, timeout=timeout)
        return Message(f"{message.type}-result", binary, id=message.id)

    def _open_tab(self) -> Tab:
        if self._tab is None:
            raise Disconnected("the page was closed")
        return self._tab

    async def cookies(self, url: str, sender: Sender | None = None) -> Mapping[str, str]:
        agent = self._require_agent()
        cookies = await agent.with_deadline(agent.page.context.cookies([url]), "cookies", timeout=5.0)
        if sender is not None:
            cookies = [
                cookie for cookie in cookies if sends_cookie(sender, cookie["sameSite"], cookie.get("partitionKey"))
            ]
        return {cookie["name"]: cookie["value"] for cookie in cookies}

    def _require_agent(self) -> PageAgent:
        if self._agent is None:
            raise TransportError("the transport is not open; use it inside `async with`")
        return self._agent
