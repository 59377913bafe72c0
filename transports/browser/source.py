"""Which browser, which profile, whose page: where a session's page comes from, and what becomes of it afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ConnectFailed, UsageError, first_line
from .page.agent import PageAgent
from .process.launch import Browser
from .process.runfolder import RunFolder
from .transfer.cdp_downloads import Downloads
from .transfer.playwright_downloads import ExpectedDownloads

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

__all__ = ["Source", "StorageState", "Tab", "closing"]

#: Cookies and local storage, as Playwright's ``context.storage_state()`` gives them, or a file of that.
StorageState: TypeAlias = str | Path | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Tab:
    """A page for one session. ``given``: it is the caller's, may hold an app already, and goes on without us.
    ``folder`` is for files of ours; ``browser`` is ``None`` where we know only the page."""

    page: Page
    folder: Path
    browser: Browser | None
    given: bool = False

    async def downloads(self, agent: PageAgent) -> Downloads | ExpectedDownloads | None:
        """How the browser itself can write content to our disk, without changing what its user's own downloads do."""
        browser = self.browser
        if browser is None:
            return ExpectedDownloads(agent, asyncio.Semaphore(1))
        if browser.attached:
            return None
        if browser.engine != "chromium" or agent.channel.cdp is None:
            return ExpectedDownloads(agent, browser.download_slots)
        context_id = (await agent.target())["browserContextId"]
        # In a context that sessions share they would turn each other's folder; one folder serves all.
        shared = None if browser.context is None else self.folder
        return Downloads(agent, browser.cdp, context_id, browser.download_slots, folder=shared)


@dataclass(frozen=True, slots=True)
class Source:
    """The options that say where a page comes from; :class:`~transports.errors.UsageError` where they contradict."""

    browser: Browser | str | None = None
    page: Page | None = None
    context: BrowserContext | None = None
    profile: str | Path | None = None
    storage_state: StorageState | None = None
    cdp_url: str | None = None
    extension: Path | None = None
    headless: bool = True

    def __post_init__(self) -> None:
        whose = {
            "browser": self.browser if isinstance(self.browser, Browser) else None,
            "page": self.page,
            "context": self.context,
            "profile": self.profile,
            "cdp_url": self.cdp_url,
        }
        given = [name for name, value in whose.items() if value is not None]
        if len(given) > 1:
            raise UsageError(f"{'= and '.join(given)}= each say whose page it is; give one of them")
        elsewhere = given and given[0] in ("page", "context", "cdp_url")
        if elsewhere and isinstance(self.browser, str):
            raise UsageError(f"{given[0]}= is in a browser that runs already; leave browser= out")
        if elsewhere and self.extension is not None:
            raise UsageError(f"an extension is loaded into a browser of ours; leave {given[0]}= out")
        shared = isinstance(self.browser, Browser) and self.browser.shares_context
        if self.storage_state is not None and (elsewhere or self.profile or self.extension or shared):
            raise UsageError("storage_state= is for a new context; one that is there already keeps its own")
        for name, kind in (("page", "Page"), ("context", "BrowserContext")):
            _require_async(name, whose[name], kind)

    async def start(self, stack: AsyncExitStack, *, timeout: float) -> Browser | None:
        """The browser, running; ``None`` if the page or context is the caller's."""
        if self.page is not None or self.context is not None:
            return None
        if isinstance(self.browser, Browser):
            return self.browser
        browser = Browser(
            headless=self.headless,
            timeout=timeout,
            name=self.browser,
            profile=self.profile,
            extensions=[self.extension] if self.extension else [],
            cdp_url=self.cdp_url,
        )
        return await stack.enter_async_context(browser)

    async def open(self, stack: AsyncExitStack, browser: Browser | None, before: Tab | None = None) -> Tab:
        """The page; ``stack`` gets what is to be undone. With ``before``, one in that page's place: in the same
        context, with its cookies and storage. Raises :class:`~transports.errors.ConnectFailed`."""
        from playwright.async_api import Error

        try:
            if before is None:
                return await self._open(stack, browser)
            await closing(before.page)
            page = await before.page.context.new_page()
            stack.push_async_callback(closing, page)
            return replace(before, page=page)
        except Error as error:
            first = first_line(error)
            hint = ""
            if browser is not None and browser.engine == "firefox" and "unknown command" in first:
                hint = (
                    "; this Firefox is older than this Playwright wants: update it, or run `playwright install firefox`"
                )
            raise ConnectFailed(f"the browser opens no page: {first}{hint}") from error

    async def _open(self, stack: AsyncExitStack, browser: Browser | None) -> Tab:
        if self.page is not None:
            return Tab(self.page, stack.enter_context(RunFolder()), None, given=True)
        context = self.context or (browser.context if browser else None)
        if context is not None:
            page = await context.new_page()
            stack.push_async_callback(closing, page)
            return Tab(page, browser.folder if browser else stack.enter_context(RunFolder()), browser)
        assert browser is not None
        context = await browser.playwright.new_context(
            accept_downloads=browser.engine != "chromium", storage_state=self._state()
        )
        if browser is self.browser:  # a browser of our own takes its context along
            stack.push_async_callback(closing, context)
        return Tab(await context.new_page(), browser.folder, browser)

    def _state(self) -> Any:
        state = self.storage_state
        if state is None:
            return None
        try:
            if isinstance(state, (str, Path)):
                state = json.loads(Path(state).expanduser().read_text(encoding="utf-8"))
            if not isinstance(state, Mapping) or not {"cookies", "origins"} & set(state):
                raise ValueError("it holds neither cookies nor origins")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not what context.storage_state() writes"
            where = f" {self.storage_state}" if isinstance(self.storage_state, (str, Path)) else ""
            raise UsageError(f"storage_state={where} cannot be read: {reason}") from error
        return dict(state)


def _require_async(option: str, value: object, kind: str) -> None:
    if value is None:
        return
    from playwright import async_api

    if not isinstance(value, getattr(async_api, kind)):
        raise UsageError(f"{option}= takes a {kind} of playwright.async_api, not {type(value).__module__}")


async def closing(thing: Page | BrowserContext) -> None:
    """Close a page or context, in time; one whose browser hangs is ended with the browser."""
    from playwright.async_api import Error

    with contextlib.suppress(Error, TimeoutError):
        async with asyncio.timeout(2.0):
            await thing.close()
