"""Apps that ``abp.toml`` describes: what their names stand for, and who may use them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..browser.process.extension import extension_folder
from ..errors import UsageError
from ..protocol.urls import redact_url
from .config_file import ConfigFile, read_config
from .secrets import Secrets
from .targets import takes_browser

if TYPE_CHECKING:
    from .app_tables import AppEntry, AppTables

__all__ = ["NamedApp", "app_entries", "find_app", "is_app_name", "secrets_for", "shares_browser"]

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
    from .app_tables import AppTables  # late: it loads pydantic, and most programs describe no app

    return AppTables.parse(file.tables or {}, file.path)


@cache
def _warn_once(path: Path | None, names: tuple[str, ...]) -> None:
    ConfigFile(path).warn_ignored([f"secrets.{name}" for name in names])
