"""The source of a session's page (browser, profile, context or the caller's own page), and the closing of the page."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar
from weakref import WeakSet

from playwright import async_api
from playwright.async_api import Error

from .._internal.files import expand_home, read_regular
from .._internal.tasks import spawn
from ..errors import ConnectFailed, UsageError, first_line, spelled
from ..protocol._strict_json import parser_limits
from ._agent import PageAgent, is_closed
from ._browser import Browser, BrowserLender
from ._downloads import CdpDownloads, PlaywrightDownloads
from ._find import require_listener
from ._process import SESSION_CONTEXTS, Remote, RunFolder

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

PageOrContext = TypeVar("PageOrContext", "Page", "BrowserContext")

#: Pages of callers that have a session. A second agent in a page would take over the functions of the first.
_PAGES_IN_USE: WeakSet[Page] = WeakSet()
#: Tasks that close pages and contexts. They are kept here because the event loop itself holds no task.
_closing: set[asyncio.Task[None]] = set()
#: Cookies and local storage: the value of Playwright's ``context.storage_state()``, or the path of a file with it.
StorageState: TypeAlias = str | Path | Mapping[str, object]

#: Names of ``navigator.permissions.query`` (W3C Permissions), except local-network-access: if that were denied, an app
#: on this machine would not load at all.
_PERMISSIONS = (
    "camera", "captured-surface-control", "clipboard-read", "display-capture", "geolocation", "idle-detection",
    "keyboard-lock", "local-fonts", "microphone", "midi", "nfc", "notifications", "persistent-storage", "pointer-lock",
    "storage-access", "window-management",
)  # fmt: skip


def check_permissions(names: Collection[str]) -> frozenset[str]:
    unknown = [names] if isinstance(names, str) else sorted(set(names) - set(_PERMISSIONS))
    if unknown:
        raise UsageError(f"permissions= takes names of {', '.join(_PERMISSIONS)}; not {', '.join(unknown)!r}")
    return frozenset(names)


def _state_of_existing_context() -> UsageError:
    return UsageError(f"{spelled('storage_state=')} is for a new context; an existing context keeps its own state")


@dataclass(frozen=True, slots=True)
class Tab:
    """A page of a session. A ``borrowed`` page is the caller's: it may hold an app already, and stays open after the
    session. ``browser`` is ``None`` if the page or its context is the caller's."""

    page: Page
    folder: Path
    browser: Browser | None
    borrowed: bool = False

    @property
    def shares_disk(self) -> bool:
        return self.browser is not None and not self.browser.attached

    async def set_permissions(self, agent: PageAgent, granted: Collection[str]) -> None:
        """Grant these permissions and deny all others, so that the browser never prompts, for any origin. Contexts of
        the caller or of an attached browser are left as they are."""
        if self.browser is None or not self.shares_disk or agent.channel.cdp is None:
            return
        cdp = self.browser.cdp
        context_id = agent.channel.target["browserContextId"]

        async def decide(permission: dict[str, object]) -> None:
            setting = "granted" if permission["name"] in granted else "denied"
            decision = {"permission": permission, "setting": setting, "browserContextId": context_id}
            # An older browser does not know some permissions, and never asks for them.
            with contextlib.suppress(Error):
                await cdp.send("Browser.setPermission", decision)

        permissions: list[dict[str, object]] = [{"name": name} for name in _PERMISSIONS]
        permissions.append({"name": "midi", "sysex": True})
        await asyncio.gather(*map(decide, permissions))

    async def keep_active(self, agent: PageAgent) -> None:
        """Let the page draw and run its timers while another tab is shown, as it does in Playwright's own browsers."""
        if self.borrowed or self.shares_disk or agent.channel.cdp is None:
            return
        # A browser of another maker may not know the command.
        with contextlib.suppress(Error):
            await agent.cdp.send("Emulation.setFocusEmulationEnabled", {"enabled": True})

    def downloads(self, agent: PageAgent) -> CdpDownloads | PlaywrightDownloads | None:
        """Return the way to download content, or ``None`` if the browser must not write content to the local disk."""
        browser = self.browser
        if browser is None:
            return PlaywrightDownloads(asyncio.Semaphore(1))
        if browser.attached and browser.engine == "chromium":
            # This browser keeps its user's download settings. A stream over CDP, the next rung, needs no settings.
            return None
        if browser.engine != "chromium" or agent.channel.cdp is None:
            return PlaywrightDownloads(browser.download_slots)

        # Sessions that share a context would change each other's download folder, so one folder serves all of them.
        shared_folder = None if browser.context is None else self.folder
        return CdpDownloads(
            agent,
            browser.cdp,
            agent.channel.target["browserContextId"],
            browser.download_slots,
            temporary=browser.folder,
            folder=shared_folder,
            note_download=browser.note_download,
        )


class PageOptions(TypedDict, total=False):
    browser: Browser | BrowserLender | str | None
    context: BrowserContext | None
    profile: str | Path | None
    storage_state: StorageState | None
    cdp_url: str | None
    browser_server: str | None
    headers: Mapping[str, str] | None
    headless: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSource:
    """Where a session's page comes from. At most one of ``browser`` (a running browser, or a :class:`BrowserLender`),
    ``page``, ``context``, ``profile``, ``cdp_url`` and ``browser_server`` may be set. ``headers`` are sent to
    ``cdp_url`` or ``browser_server``. A context that is made for the page has ``locale`` (BCP 47) and ``timezone``
    (IANA)."""

    browser: Browser | BrowserLender | str | None = None
    page: Page | None = None
    context: BrowserContext | None = None
    profile: str | Path | None = None
    storage_state: StorageState | None = None
    cdp_url: str | None = None
    extension: Path | None = None
    headless: bool = True
    browser_server: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    locale: str | None = None
    timezone: str | None = None

    def __post_init__(self) -> None:
        source = self._source_option()
        has_context = source in ("page", "context", "cdp_url")
        has_address = source in ("cdp_url", "browser_server")
        if has_context and isinstance(self.browser, str):
            raise UsageError(
                f"{spelled(f'{source}=')} belongs to a browser that runs already; leave {spelled('browser=')} out"
            )
        if self.extension is not None and (has_context or has_address):
            raise UsageError(f"an extension needs a browser that is started here; leave {spelled(f'{source}=')} out")
        # This refuses headers without an address.
        Remote.from_options(self.cdp_url, self.browser_server, self.headers)

        shares_context = isinstance(self.browser, Browser) and self.browser.shares_context
        keeps_own_state = has_context or shares_context or self.profile or self.extension
        if self.storage_state is not None and keeps_own_state:
            raise _state_of_existing_context()

        _require_async("page", self.page, "Page")
        _require_async("context", self.context, "BrowserContext")

    def _source_option(self) -> str:
        """Return the name of the option that the page comes from; empty for a new browser."""
        sources = {
            "browser": self.browser if isinstance(self.browser, Browser | BrowserLender) else None,
            "page": self.page,
            "context": self.context,
            "profile": self.profile,
            "cdp_url": self.cdp_url,
            "browser_server": self.browser_server,
        }
        names = [name for name, value in sources.items() if value is not None]
        if len(names) > 1:
            spelled_names = " and ".join(spelled(f"{name}=") for name in names)
            raise UsageError(f"{spelled_names} are mutually exclusive")
        return names[0] if names else ""

    @property
    def _patience(self) -> float:
        """Seconds until a silent browser counts as dead. They are more for a shared browser, because all its sessions
        lose their apps when it is ended."""
        if isinstance(self.browser, Browser | BrowserLender):
            return 15.0
        return 3.0

    def is_over(self, browser: Browser) -> bool:
        owner = self.browser if isinstance(self.browser, BrowserLender) else browser
        return owner.closed

    @property
    def closed_option(self) -> str:
        """The name of the option whose page or context is closed; empty if neither is."""
        for name, page_or_context in (("page", self.page), ("context", self.context)):
            if page_or_context is not None and page_or_context.is_closed():
                return name
        return ""

    async def start(self, stack: AsyncExitStack, url: str, *, timeout: float) -> Browser | None:
        """Return a running browser for the page, or ``None`` if the page or context is the caller's.

        A shared browser that has died is started again. A browser that is started here is closed with ``stack``. Raises
        :class:`~transports.errors.ConnectFailed`, without starting a browser, if nothing listens at a ``url`` of this
        machine."""
        if self.closed_option:
            raise UsageError(f"{spelled(f'{self.closed_option}=')} is closed; give an open one")
        if self.page is not None or self.context is not None:
            return None
        if isinstance(self.browser, Browser):
            await self.browser.ensure_running(patience=self._patience)
            return self.browser
        if isinstance(self.browser, BrowserLender):
            return await stack.enter_async_context(self.browser.lend())

        is_remote = self.cdp_url or self.browser_server
        # A service worker of a profile may answer for the app, and a remote browser has another localhost.
        if not (is_remote or self.profile or self.extension):
            await require_listener(url)

        browser = Browser(
            headless=self.headless,
            timeout=timeout,
            name=self.browser,
            profile=self.profile,
            extensions=[self.extension] if self.extension else [],
            cdp_url=self.cdp_url,
            browser_server=self.browser_server,
            headers=self.headers,
        )
        return await stack.enter_async_context(browser)

    async def revive(self, stack: AsyncExitStack, browser: Browser) -> Browser:
        """Return a running browser after a page was lost: the same one, or another one if it was lent and has died."""
        if not isinstance(self.browser, BrowserLender):
            await browser.ensure_running(patience=self._patience)
            return browser
        if not browser.closed and await browser.responds(self._patience):
            return browser
        await stack.aclose()
        return await stack.enter_async_context(self.browser.lend())

    async def open(self, stack: AsyncExitStack, browser: Browser | None, previous: Tab | None = None) -> Tab:
        """Open a page, which is closed with ``stack``. It takes the place of the page ``previous`` in its context.

        Raises :class:`~transports.errors.ConnectFailed`, and :class:`~transports.errors.UsageError` for an unknown
        locale or time zone."""
        try:
            if previous is None:
                return await self._open_tab(stack, browser)
            await close_quietly(previous.page)
            page = await stack.enter_async_context(opened(previous.page.context.new_page()))
            return replace(previous, page=page)
        except Error as error:
            if is_closed(error):
                raise
            raise self._open_error(browser, first_line(error)) from None

    def _open_error(self, browser: Browser | None, reason: str) -> UsageError | ConnectFailed:
        for name, value in (("timezone", self.timezone), ("locale", self.locale)):
            if value is not None and f"invalid {name}" in reason.lower():
                return UsageError(f"unknown {name} {value!r:.100}")

        if browser is not None and browser.engine == "firefox" and "unknown command" in reason:
            reason += "; this Firefox is too old for this Playwright: update it, or run `playwright install firefox`"
        return ConnectFailed(f"the browser could not open a page: {reason}")

    async def _open_tab(self, stack: AsyncExitStack, browser: Browser | None) -> Tab:
        if self.page is not None:
            return self._borrow_page(stack, self.page)
        context = self.context
        if context is None and browser is not None:
            context = browser.context
        if context is not None:
            return await self._open_in_context(stack, browser, context)
        assert browser is not None
        return await self._open_in_new_context(stack, browser)

    async def _open_in_new_context(self, stack: AsyncExitStack, browser: Browser) -> Tab:
        state = None
        if self.storage_state is not None:
            state = await asyncio.to_thread(self._load_storage_state)
        opening = browser.playwright.new_context(
            accept_downloads=browser.engine != "chromium",
            storage_state=state,
            locale=self.locale,
            timezone_id=self.timezone,
        )
        context = await open_or_close(opening)
        SESSION_CONTEXTS.add(context)
        # A browser that was started here closes its contexts itself; a shared browser does not.
        if isinstance(self.browser, Browser | BrowserLender):
            stack.push_async_callback(close_quietly, context)
        return Tab(await context.new_page(), browser.folder, browser)

    def _borrow_page(self, stack: AsyncExitStack, page: Page) -> Tab:
        """Take the caller's page, which can have one session at a time."""
        if page in _PAGES_IN_USE:
            raise UsageError("this page has a session already; close that session, or give another page=")
        _PAGES_IN_USE.add(page)
        stack.callback(_PAGES_IN_USE.discard, page)
        return Tab(page, stack.enter_context(RunFolder()), None, borrowed=True)

    async def _open_in_context(self, stack: AsyncExitStack, browser: Browser | None, context: BrowserContext) -> Tab:
        # For a browser that was lent, it was not known before that all its sessions share a context.
        if self.storage_state is not None:
            raise _state_of_existing_context()
        page = await stack.enter_async_context(opened(context.new_page()))
        folder = stack.enter_context(RunFolder()) if browser is None else browser.folder
        return Tab(page, folder, browser)

    def _load_storage_state(self) -> Any:
        """Return the cookies and storage for a new context, read from a file if ``storage_state`` is a path."""
        name = spelled("storage_state=")
        state: object = self.storage_state
        reason = "it is not a value of context.storage_state()"
        if isinstance(state, (str, Path)):
            name += f" {state}"
            try:
                state = _read_json(expand_home(state))
            except OSError as error:
                raise UsageError(f"{name} cannot be read: {error.strerror}") from None
            except ValueError:
                raise UsageError(f"{name} cannot be read: {reason}") from None

        if not isinstance(state, Mapping) or not {"cookies", "origins"} & set(state):
            raise UsageError(f"{name} cannot be read: {reason}")
        return dict(state)


def _read_json(path: Path) -> object:
    content = read_regular(path, 64 << 20)
    # Not decode_user_json(): storage may hold half of a surrogate pair.
    with parser_limits(content):
        return json.loads(content)


def _require_async(option: str, value: object, class_name: str) -> None:
    if value is not None and not isinstance(value, getattr(async_api, class_name)):
        raise UsageError(f"{option}= takes a {class_name} of playwright.async_api, not {type(value).__module__}")


@contextlib.asynccontextmanager
async def opened(opening: Coroutine[Any, Any, PageOrContext]) -> AsyncIterator[PageOrContext]:
    page_or_context = await open_or_close(opening)
    try:
        yield page_or_context
    finally:
        await close_quietly(page_or_context)


async def open_or_close(opening: Coroutine[Any, Any, PageOrContext]) -> PageOrContext:
    """Open a page or context. If this is cancelled, the browser still opens it; then it is closed at once."""
    task = asyncio.ensure_future(opening)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        spawn(_close_when_open(task), _closing)
        raise


async def _close_when_open(opening: Awaitable[Page | BrowserContext]) -> None:
    # Ignore even what the opening raised.
    with contextlib.suppress(Exception):
        await close_quietly(await opening)


async def close_quietly(page_or_context: Page | BrowserContext) -> None:
    """Close a page or context, and wait two seconds at most. Never raises.

    A slow page is closed in the background: a page that floods the driver delays all its answers, and Playwright waits
    for an answer before it sends the command that closes. If the task were cancelled, the page would stay."""

    async def close() -> None:
        # Ignore even what an ended driver raises.
        with contextlib.suppress(Exception):
            if isinstance(page_or_context, async_api.Page):
                await _close_page(page_or_context)
            else:
                await page_or_context.close()

    closing = asyncio.create_task(close(), name="abp-close-page")
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)
    await asyncio.wait({closing}, timeout=2.0)


async def _close_page(page: Page) -> None:
    """Close a page. While Chromium commits a navigation, it ignores the command, but reports success
    (crbug.com/536385539). Playwright then waits for ever, so the command is sent again until the page is closed."""
    interval = 0.25
    closing = asyncio.ensure_future(page.close())
    await asyncio.wait({closing}, timeout=interval)
    if not closing.done():
        with contextlib.suppress(Error):
            cdp = await page.context.new_cdp_session(page)
            target = (await cdp.send("Target.getTargetInfo"))["targetInfo"]
            while not closing.done():
                await cdp.send("Target.closeTarget", {"targetId": target["targetId"]})
                await asyncio.wait({closing}, timeout=interval)
    await closing
