"""Tools of a browser besides driving an app: HTML to PDF, screenshots."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error, TimeoutError as PlaywrightTimeout

from ..base import Fetch, PdfOptions, ScreenshotOptions
from ..errors import NOTHING_LISTENS, ABPError, CallTimeout, TransportError, UsageError, first_line, format_seconds
from ..protocol._plain_text import is_page, redact_url
from ..protocol.binary import BinaryData
from ._browser import Browser
from ._diagnosis import explain_load_failure
from ._process import playwright_timeout
from ._source import Tab, opened

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page, ProxySettings, Request, Route, ViewportSize, WebSocket


_CHUNK = 64 << 10
#: Header that forbids WebRTC to a document in Chromium, and to its frames, windows and workers.
_WITHOUT_WEBRTC = {"Connection-Allowlist": '("*://*:*/*");redirects=allow;webrtc=block'}
#: Script before the first script of a frame: WebRTC would send datagrams past the proxy. Chromium starts a sandboxed
#: ``srcdoc`` frame in a process of its own, sometimes before the script is there.
NO_WEBRTC = "for (const name of ['RTCPeerConnection', 'webkitRTCPeerConnection']) delete globalThis[name];"


class FetchedRequests:
    """Requests of HTML that is rendered without a network. Only GET is allowed, within limits for number and size."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._requests_left = 500
        self._bytes_left = 64 << 20
        #: For requests at the same time.
        self._slots = asyncio.Semaphore(6)

    async def answer(self, route: Route) -> None:
        """Answer a request of the page. Never raises: the page may be gone already."""
        request = route.request
        self._requests_left -= 1
        with contextlib.suppress(Error):
            if not request.url.lower().startswith(("http:", "https:")):
                # blob: and data: URLs need no network.
                await route.continue_()
            elif request.method != "GET" or self._requests_left < 0:
                await route.abort("blockedbyclient")
            else:
                await self._answer_get(route)

    async def _answer_get(self, route: Route) -> None:
        async with self._slots:
            try:
                accept = route.request.headers.get("accept", "")
                resource = await self._fetch(route.request.url, accept, self._bytes_left)
            except ABPError:
                await route.abort("blockedbyclient")
                return
            self._bytes_left = max(0, self._bytes_left - len(resource.body))
            await route.fulfill(status=200, headers={**resource.headers, **_WITHOUT_WEBRTC}, body=resource.body)


#: Function that returns the numeric addresses for a connection to this host and port, in the order of the attempts. It
#: raises an :class:`~transports.errors.ABPError` if no address is allowed.
Judge: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
#: Host and port.
_Server: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Limits of the network for one page; docs/security.md lists them."""

    at_once: int = 64
    connections: int = 1000
    received_bytes: int = 256 << 20
    #: Seconds for the handshake with the browser, and for a server to accept a connection.
    step: float = 10.0


class JudgedNetwork:
    """SOCKS 5 proxy (RFC 1928) of one page. ``judge`` decides about each connection before it is made.

    All connections of the page's context go through the proxy: of frames, redirects, sockets, workers, popups,
    downloads and speculative ones. The proxy resolves names itself and connects to an address that was judged, so a
    name cannot lead elsewhere afterwards (DNS rebinding).

    Chromium's own background requests (for autofill, say) use the proxy, too. They are judged in the same way, but not
    reported: only requests that :meth:`watch` has seen are the page's."""

    def __init__(self, judge: Judge, limits: NetworkLimits = NetworkLimits()) -> None:
        self._judge = judge
        self._limits = limits
        # Each judgement uses one of the few threads that look up names for the whole process.
        self._judging = asyncio.Semaphore(4)
        self._connections: set[asyncio.Task[None]] = set()
        self._connection_count = 0
        self._received_bytes = 0
        self._refused: dict[_Server | None, str] = {}
        self._failed: dict[_Server | None, str] = {}
        self._requested: set[_Server | None] = {None}  # limits of the proxy itself have no server

    def watch(self, context: BrowserContext) -> None:
        def note(request: Request | WebSocket) -> None:
            self.record_request(request.url)

        context.on("request", note)
        context.on("page", lambda page: page.on("websocket", note))

    def record_request(self, url: str) -> None:
        self._requested.add(_server_of(url))

    @property
    def refused(self) -> list[str]:
        """The reasons why connections of the page were refused, at most 20."""
        max_reasons = 20
        reasons = [reason for server, reason in self._refused.items() if server in self._requested]
        return list(dict.fromkeys(reasons))[:max_reasons]

    @property
    def failed(self) -> str:
        """Why the page's last connection that failed did so, whether it was allowed or not; empty if none failed."""
        reasons = [reason for server, reason in self._failed.items() if server in self._requested]
        return reasons[-1] if reasons else ""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve_connection, "127.0.0.1", 0, limit=_CHUNK)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections, timeout=2.0)

    @property
    def proxy(self) -> ProxySettings:
        return {"server": f"socks5://127.0.0.1:{self.port}"}

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._connection_count += 1
        # __aexit__ cancels connections, and asyncio would log a cancelled connection as an error.
        with contextlib.suppress(asyncio.CancelledError):
            try:
                await self._serve_within_limits(reader, writer)
            finally:
                self._connections.discard(task)
                writer.transport.abort()

    async def _serve_within_limits(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connection_count > self._limits.connections:
            self._note_refusal(None, f"more than {self._limits.connections:,} connections")
            return
        if len(self._connections) > self._limits.at_once:
            self._note_refusal(None, f"more than {self._limits.at_once} connections at a time")
            return
        if await _is_of_another_user(writer):
            return
        # A peer that breaks the protocol or goes away ends its own connection.
        with contextlib.suppress(OSError, EOFError, ValueError):
            await self._relay(reader, writer)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request of the browser, connect to its server if that is allowed, and copy bytes both ways."""
        # Replies to a request (RFC 1928 6).
        connected, not_allowed_by_ruleset = b"\5\0\0\1\0\0\0\0\0\0", b"\5\2\0\1\0\0\0\0\0\0"
        async with asyncio.timeout(self._limits.step):
            host, port = await _read_request(reader, writer)
        try:
            server_reader, server_writer = await self._connect_to(host, port)
        except ABPError as error:
            self._note_failure((host, port), error.message)
            writer.write(not_allowed_by_ruleset)
            await writer.drain()
            return

        try:
            writer.write(connected)
            await asyncio.gather(
                _copy_bytes(reader, server_writer, lambda _: None),
                _copy_bytes(server_reader, writer, self._count_received),
            )
        finally:
            server_writer.transport.abort()

    async def _connect_to(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            async with self._judging:
                addresses = await self._judge(host, port)
        except ABPError as error:
            self._note_refusal((host, port), error.message)
            raise

        reason = f"{NOTHING_LISTENS}; correct the address"
        for address in addresses:
            try:
                async with asyncio.timeout(self._limits.step):
                    return await asyncio.open_connection(address, port, limit=_CHUNK)
            except TimeoutError:
                reason = "the host does not answer; correct the address or check the network"
            except OSError:
                continue
        raise TransportError(f"{host} (port {port}): {reason}")

    def _count_received(self, size: int) -> None:
        self._received_bytes += size
        if self._received_bytes > self._limits.received_bytes:
            self._note_refusal(None, f"more than {self._limits.received_bytes:,} bytes")
            raise EOFError

    def _note_refusal(self, server: _Server | None, reason: str) -> None:
        self._refused[server] = reason
        self._note_failure(server, reason)

    def _note_failure(self, server: _Server | None, reason: str) -> None:
        # Remove an earlier failure first, so that the last failure is the last item.
        self._failed.pop(server, None)
        self._failed[server] = reason


def _server_of(url: str) -> _Server | None:
    """Return the server of a URL, or ``None`` for a URL without a server, such as ``data:``."""
    scheme = url.partition(":")[0]
    default_port = {"http": 80, "ws": 80, "https": 443, "wss": 443}.get(scheme)
    if default_port is None:
        return None

    parts = urlsplit(url)
    host = parts.hostname or ""
    is_ipv6 = ":" in host
    if is_ipv6:
        # An address has several spellings; _read_request() returns this one, too.
        host = str(ipaddress.ip_address(host))
    return host, parts.port or default_port


async def _copy_bytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    while data := await reader.read(_CHUNK):
        count(len(data))
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[str, int]:
    """Read the host and the port of a CONNECT request without authentication (RFC 1928).

    Raises :class:`ValueError` for anything else."""
    no_authentication, no_acceptable_method = 0, 0xFF
    connect = 1
    ipv4, domain_name, ipv6 = 1, 3, 4

    version, method_count = await reader.readexactly(2)
    methods = await reader.readexactly(method_count)
    if version != 5 or no_authentication not in methods:
        writer.write(bytes((5, no_acceptable_method)))
        raise ValueError
    writer.write(bytes((5, no_authentication)))

    version, command, _, address_type = await reader.readexactly(4)
    if version != 5 or command != connect:
        raise ValueError
    if address_type == domain_name:
        (length,) = await reader.readexactly(1)
        host = (await reader.readexactly(length)).decode("ascii")
    else:
        # For an unknown type, no bytes are read, and ip_address() raises ValueError.
        size = {ipv4: 4, ipv6: 16}.get(address_type, 0)
        host = str(ipaddress.ip_address(await reader.readexactly(size)))
    port = int.from_bytes(await reader.readexactly(2), "big")
    return host.strip("[]").lower(), port


async def _is_of_another_user(writer: asyncio.StreamWriter) -> bool:
    """Return whether a process of another user has connected. This is known only on Linux."""
    # There is no peer name if the peer has disconnected already.
    _, port, *_ = writer.get_extra_info("peername") or ("", 0)
    _, own_port, *_ = writer.get_extra_info("sockname") or ("", 0)
    return sys.platform == "linux" and await asyncio.to_thread(_is_connection_of_another_user, port, own_port)


def _is_connection_of_another_user(from_port: int, to_port: int) -> bool:
    try:
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    except OSError:
        return False

    # Fields 1 and 2 are the local and the remote address in hexadecimal digits, field 7 the user's id. A port alone
    # proves nothing: several connections may have it, and a connection that was closed lately is listed as root's.
    owners = {(fields[1], fields[2]): int(fields[7]) for fields in map(str.split, lines)}
    addresses = f"0100007F:{from_port:04X}", f"0100007F:{to_port:04X}"
    return owners.get(addresses) != os.geteuid()


async def render_to_pdf(tab: Tab, html: str, options: PdfOptions, *, timeout: float, fetch: Fetch | None) -> BinaryData:
    """Print HTML, which sees neither the app nor its cookies, nor a network but for the resources of ``fetch``.

    Raises :class:`~transports.errors.UsageError` if the browser of a caller's page cannot open another context."""
    pdf_options: dict[str, Any] = {"print_background": True, **_checked_options(options, PdfOptions, "render_to_pdf")}
    if not pdf_options.keys() & {"format", "width", "height"}:
        pdf_options = {"format": "A4", "prefer_css_page_size": True, **pdf_options}
    with _map_errors("render_to_pdf", timeout):
        async with asyncio.timeout(timeout), _page_without_network(tab, fetch) as page:
            await page.set_content(html, wait_until="load", timeout=playwright_timeout(timeout))
            return BinaryData(await page.pdf(**pdf_options), "application/pdf")


async def screenshot(tab: Tab, options: ScreenshotOptions, *, timeout: float) -> BinaryData:
    """Return a picture of the app's page or, with the option ``url``, of that page in a new context. If all sessions
    share the app's context, that is used."""
    picture = _Picture(options, timeout, tab.browser)
    with _map_errors("screenshot", timeout):
        async with asyncio.timeout(timeout):
            if picture.url is None:
                return await picture.of_page(tab.page)
            async with _separate_page(tab) as page:
                return await picture.of_url(page, picture.url)


class PictureBrowser(Browser):
    """Browser for pictures of foreign pages. Its WebRTC connects through the proxy of a page, or not at all."""

    #: One switch under two names: Chromium's headless shell knows only the second.
    _switches = (
        "--webrtc-ip-handling-policy=disable_non_proxied_udp",
        "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    )


async def screenshot_of_url(
    browser: PictureBrowser, url: str, options: ScreenshotOptions, judge: Judge, *, timeout: float
) -> tuple[BinaryData, list[str]]:
    """Return a picture of a foreign page, and the reasons of refused connections, whose content may be missing there.

    A refusal of the page itself, also of a later document, raises :class:`~transports.errors.UsageError`."""
    picture = _Picture({**options, "url": url}, timeout)
    with _map_errors("screenshot", timeout):
        async with asyncio.timeout(timeout), JudgedNetwork(judge) as network:
            opening = browser.playwright.new_context(
                accept_downloads=False, service_workers="block", proxy=network.proxy
            )
            async with opened(opening) as context:
                network.watch(context)
                await context.add_init_script(NO_WEBRTC)
                image = await picture.of_url(await context.new_page(), url, network)
    return image, network.refused


class _Picture:
    """Checked options of a screenshot, and the ways to take it."""

    def __init__(self, options: ScreenshotOptions, timeout: float, browser: Browser | None = None) -> None:
        self._browser = browser
        self._options = _checked_options(options, ScreenshotOptions, "screenshot")
        self.url: str | None = self._options.pop("url", None)
        if self.url is not None and not is_page(str(self.url)):
            raise UsageError("screenshot: url must begin with http:// or https://")
        self._width = self._pop_size("width", 1920)
        self._height = self._pop_size("height", 1080)
        self._timeout = timeout

    def _pop_size(self, name: str, limit: int) -> int | None:
        size = self._options.pop(name, None)
        if size is None:
            return None
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= limit:
            raise UsageError(f"screenshot: {name} must be a whole number from 1 to {limit}, not {size!r}")
        return size

    async def of_page(self, page: Page) -> BinaryData:
        """Return a picture of the app's page in the wanted size. The page then gets back the size that it had."""
        if self._width is None and self._height is None:
            return await self._take_picture(page)

        original_size = page.viewport_size
        if original_size is None:
            raise UsageError("screenshot: this page has the size of its window; leave width and height out")
        await page.set_viewport_size(self._viewport(original_size))
        try:
            await self._wait_for_idle(page)
            return await self._take_picture(page)
        finally:
            with contextlib.suppress(Error):
                await page.set_viewport_size(original_size)

    async def of_url(self, page: Page, url: str, network: JudgedNetwork | None = None) -> BinaryData:
        """Open an address in ``page`` and return a picture.

        Raises :class:`~transports.errors.UsageError` if the page, or a later document, cannot be opened."""
        await page.set_viewport_size(self._viewport({"width": 1280, "height": 800}))
        try:
            # No limit: the caller limits the whole.
            await page.goto(url, wait_until="load", timeout=0)
        except Error as error:
            reason = explain_load_failure(str(error), url)
            if "ERR_SOCKS_CONNECTION" in error.message and network is not None:
                reason = network.failed or reason
            raise _open_error(url, reason) from error

        await self._wait_for_idle(page)
        image = await self._take_picture(page)
        is_error_page = page.url.startswith("chrome-error:")
        if is_error_page and network is not None and network.failed:
            raise _open_error(url, network.failed)
        return image

    def _viewport(self, default: ViewportSize) -> ViewportSize:
        return {"width": self._width or default["width"], "height": self._height or default["height"]}

    async def _wait_for_idle(self, page: Page) -> None:
        """Wait until the page loads nothing more, but only for a while, as some pages are never idle."""
        with contextlib.suppress(PlaywrightTimeout):
            patience = min(15.0, self._timeout / 2)
            await page.wait_for_load_state("networkidle", timeout=playwright_timeout(patience))

    async def _take_picture(self, page: Page) -> BinaryData:
        async with self._brought_to_front(page):
            data = await page.screenshot(**self._options, timeout=playwright_timeout(self._timeout))
        return BinaryData(data, f"image/{self._options.get('type', 'png')}")

    @contextlib.asynccontextmanager
    async def _brought_to_front(self, page: Page) -> AsyncIterator[None]:
        """Bring a page of an attached browser to the front: a hidden page may never be drawn (crbug.com/377715191)."""
        if self._browser is None or not self._browser.attached:
            yield
            return
        async with self._browser.picture_lock:
            await page.bring_to_front()
            yield


def _open_error(url: str, reason: str) -> UsageError:
    return UsageError(f"screenshot: cannot open {redact_url(url)}: {reason}")


def _checked_options(options: Mapping[str, Any], kind: type, tool: str) -> dict[str, Any]:
    """Return options by their names in Python. They may come as JSON, and in ``camelCase`` as in JavaScript."""
    by_name = {re.sub(r"(?<=[a-z])([A-Z])", r"_\1", name).lower(): value for name, value in options.items()}
    unknown = sorted(set(by_name) - set(kind.__annotations__))
    if unknown:
        raise UsageError(f"{tool}: unknown option {', '.join(unknown)}; use {', '.join(sorted(kind.__annotations__))}")
    return by_name


@contextlib.asynccontextmanager
async def _separate_page(tab: Tab) -> AsyncIterator[Page]:
    browser = tab.browser
    if browser is None or browser.shares_context:
        async with opened(tab.page.context.new_page()) as page:
            yield page
        return

    async with opened(browser.playwright.new_context()) as context:
        yield await context.new_page()


@contextlib.asynccontextmanager
async def _page_without_network(tab: Tab, fetch: Fetch | None) -> AsyncIterator[Page]:
    """Open a page without a network: a dead proxy swallows every connection and name look-up, also of frames, workers
    and popups. WebRTC, which would bypass the proxy, is forbidden. ``fetch`` answers requests before the proxy."""
    browser = tab.page.context.browser if tab.browser is None else tab.browser.playwright
    if browser is None:
        raise UsageError("render_to_pdf: this browser has one context only; HTML needs one that has no network")

    # Nothing listens at the port of RFC 863. Playwright sends connections to loopback addresses there, too.
    dead_proxy: ProxySettings = {"server": "socks5://127.0.0.1:9"}
    # In an offline context, requests fail at once, before they reach the proxy.
    is_offline = fetch is None
    opening = browser.new_context(offline=is_offline, service_workers="block", proxy=dead_proxy)
    async with opened(opening) as context:
        await context.add_init_script(NO_WEBRTC)
        if fetch is not None:
            await context.route("**/*", FetchedRequests(fetch).answer)
        # Later routes take precedence. The page needs an address for the header that forbids WebRTC.
        address = "http://html.invalid/"
        await context.route(f"{address}**", _answer_empty)
        page = await context.new_page()
        await page.goto(address)
        yield page


async def _answer_empty(route: Route) -> None:
    # The page may be gone already.
    with contextlib.suppress(Error):
        await route.fulfill(content_type="text/html", body="", headers=_WITHOUT_WEBRTC)


@contextlib.contextmanager
def _map_errors(tool: str, timeout: float) -> Iterator[None]:
    too_late = CallTimeout(f"{tool} was not ready within {format_seconds(timeout)}")
    try:
        yield
    except TimeoutError:
        raise too_late from None
    except Error as error:
        reason = first_line(error)
        if "Timeout" in reason and "exceeded" in reason:
            raise too_late from None
        if "closed" in reason or "crashed" in reason:
            raise TransportError(f"{tool}: {reason}") from None
        raise UsageError(f"{tool}: the browser refused: {reason}") from None
