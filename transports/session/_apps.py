"""Apps that ``abp.toml`` describes: what their names stand for, and who may use them."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..artifacts import replacing
from ..browser import extension_folder
from ..errors import ConnectFailed, StoreError, UsageError, first_line
from ..protocol import is_page, redact_url
from ..tasks import cancel_and_wait
from ._secrets import Secrets
from ._settings import ConfigFile, read_config
from ._targets import takes_browser

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext

    from ._app_tables import AppEntry, AppTables

#: Characters of a host that is part of too many words.
_SHORT = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class NamedApp:
    """An entry of the settings file, and its name."""

    name: str
    entry: AppEntry

    @property
    def hidden(self) -> tuple[str, ...]:
        """Texts that say how the app is reached and signed in: the user of a server must not see them."""
        paths = [one for one in (self.entry.profile, self.entry.storage_state, self.entry.adapter) if one is not None]
        names = [text for path in paths for text in (str(path), str(path.resolve()))]
        addresses = [text for url in (self.entry.url, self.entry.cdp_url) if url for text in _spellings_of(url)]
        found = dict.fromkeys((*names, *addresses, *(self.entry.headers or {}).values()))
        return tuple(sorted(filter(None, found), key=len, reverse=True))  # one may be part of another

    def require_state(self) -> None:
        """Raise :class:`~transports.errors.UsageError` if nobody has signed in yet."""
        state = self.entry.storage_state
        if state is not None and not state.exists():
            raise UsageError(
                f"nobody is signed in to {self.name}; the operator does that once with `abp login {self.name}`",
                code="PERMISSION_REQUIRED",
            )


def _spellings_of(target: str) -> Iterator[str]:
    """An address as messages have it: whole, as it is shown, without its query, and by its host."""
    for url in (target, target.removeprefix("mcp+")):
        yield from (url, redact_url(url), url.partition("?")[0], url.partition("?")[0].rstrip("/"))
    if "://" in target:
        with suppress(ValueError):
            parts = urlsplit(target)
            host = parts.hostname or ""
            yield from (parts.netloc, parts.netloc.rpartition("@")[2], host if len(host) > _SHORT else "")


def is_app_name(target: str) -> bool:
    """Whether a target can only be the name of an app: one word, and no folder of an extension."""
    return _NAME.fullmatch(target) is not None and extension_folder(target) is None


def shares_browser(
    target: str, config: Path | None = None, *, headless: bool | None = None, new_context: bool = True
) -> bool:
    """Return whether sessions with ``target``, an address or the name of an app, can share a running browser.

    An app does so whose page has no browser of its own and no other ``headless``; without a ``new_context`` none that
    brings its state. ``config`` is the settings file; of one that makes no sense, connecting tells."""
    if not is_app_name(target):
        return takes_browser(target)
    try:
        entry = app_entries(read_config(config)).get(target)
    except UsageError:
        return False
    if entry is None or not takes_browser(entry.url, entry.transport):
        return False
    own = entry.profile or entry.cdp_url or entry.browser or (entry.storage_state and not new_context)
    return not own and entry.headless in (None, headless)


def app_entries(file: ConfigFile) -> Mapping[str, AppEntry]:
    """Return the apps that a file describes, by name; none if it is not trusted. Raises
    :class:`~transports.errors.UsageError` for tables that make no sense."""
    return tables.apps if (tables := _tables(file)) else {}


def find_app(file: ConfigFile, target: str, user: str | None) -> NamedApp | None:
    """Return the app that ``target`` names, ``None`` if it can be no name. ``user`` is who asks, ``None`` the operator.

    Raises :class:`~transports.errors.UsageError` for a name that the file does not have, which is also what another
    user's app is, for a file that is not trusted, and for tables that make no sense.
    """
    if not is_app_name(target):
        return None
    if file.path is not None and not file.trusted and target in file.table("apps"):
        raise UsageError(
            f"{file.path} describes {target}, but was only found and may be somebody else's; if you trust it, say "
            f"`abp mcp --trust` in its folder, or name it: ABP_CONFIG={file.path}",
            code="PERMISSION_DENIED",
        )
    entries = {name: entry for name, entry in app_entries(file).items() if entry.is_for(user)}
    if target in entries:
        return NamedApp(target, entries[target])
    if not entries:
        return None
    close = difflib.get_close_matches(target, entries, n=1)
    known = ", ".join(sorted(entries)[:20])
    raise UsageError(
        f"there is no app {target!r}" + (f"; do you mean {close[0]}?" if close else f"; there is {known}"),
        code="NOT_FOUND",
    )


def secrets_for(file: ConfigFile, user: str | None) -> Secrets:
    """Return the secrets of a file that this user may use; none if it is not trusted, which a warning says once."""
    if not file.trusted and file.table("secrets"):
        _warn_once(file.path, tuple(file.table("secrets")))
    tables = _tables(file)
    return Secrets(tables.secrets if tables else {}, user)


def _tables(file: ConfigFile) -> AppTables | None:
    if not file.trusted or file.path is None or not (file.table("apps") or file.table("secrets")):
        return None
    from ._app_tables import AppTables  # late: it loads pydantic, and most programs describe no app

    return AppTables.parse(file.tables or {}, file.path)


@cache
def _warn_once(path: Path | None, names: tuple[str, ...]) -> None:
    ConfigFile(path).warn_ignored([f"secrets.{name}" for name in names])


#: Seconds between two reads of what the browser holds: a window that is closed takes its state along.
_POLL_INTERVAL = 1.0
_START_TIMEOUT, _CLOSE_TIMEOUT = 60.0, 5.0


async def sign_in(app: NamedApp, done: Callable[[], Awaitable[object]], *, headless: bool = False) -> Path:
    """Open the app's page in a visible browser until the person closes its windows, or what ``done`` begins then has
    ended; return where what they are signed in to is kept: the file ``storage_state`` of the app's entry (mode 0600),
    else its ``profile``.

    Raises :class:`~transports.errors.UsageError` for an app that is no page, or whose entry names neither,
    :class:`~transports.errors.TransportError` for a browser or a page that does not open, and
    :class:`~transports.errors.StoreError` if the file cannot be written."""
    entry = app.entry
    kept = entry.storage_state or entry.profile
    if not is_page(entry.url) or entry.cdp_url is not None:
        raise UsageError(f"{app.name} is no page in a browser of ours; sign in to it with headers, or where it runs")
    if kept is None:
        raise UsageError(f'[apps.{app.name}] says nowhere what to keep; add storage_state = "{app.name}.json"')
    from ..browser import Browser  # late: every session imports this module, and Browser takes 20 ms

    async with Browser(headless=headless, name=entry.browser, profile=entry.profile, timeout=_START_TIMEOUT) as browser:
        from playwright.async_api import Error

        try:
            context = browser.context or await browser.playwright.new_context(
                storage_state=entry.storage_state if entry.storage_state and entry.storage_state.exists() else None,
                no_viewport=True,
            )
            page = await context.new_page()
            await page.goto(entry.url)
        except Error as error:
            raise ConnectFailed(f"{redact_url(entry.url)} does not open: {first_line(error)}") from None
        state = await _until_closed(context, done)
        if entry.storage_state is not None:
            if state is None:
                raise ConnectFailed("the browser ended before it said what it holds; sign in once more")
            await asyncio.to_thread(_write, entry.storage_state, json.dumps(state))
    return kept


async def _until_closed(context: BrowserContext, done: Callable[[], Awaitable[object]]) -> dict[str, Any] | None:
    """Return the state of the context as it was last, ``None`` if it was never read."""
    from playwright.async_api import Error

    state: dict[str, Any] | None = None
    ended = asyncio.Event()
    context.on("close", lambda _: ended.set())
    waiting = [asyncio.ensure_future(done()), asyncio.ensure_future(ended.wait())]
    try:
        over = False
        while not over:
            finished, _ = await asyncio.wait(waiting, timeout=_POLL_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
            over = bool(finished) or not context.pages
            with contextlib.suppress(Error, TimeoutError):
                async with asyncio.timeout(_CLOSE_TIMEOUT):
                    state = dict(await context.storage_state(indexed_db=True))
    finally:
        await cancel_and_wait(waiting)
    return state


def _write(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, whole or not at all."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, mode=0o600) as file:
            file.write(text.encode())
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
