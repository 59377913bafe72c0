"""Apps of the settings file ``abp.toml``: lookup by name, access of users, shared browsers."""

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

from ..errors import UsageError
from ..playwright._scripts import extension_folder
from ..protocol._plain_text import redact_url
from ._secrets import Secrets
from ._settings import ConfigFile, read_config, untrusted_file_advice
from ._targets import takes_browser

if TYPE_CHECKING:
    from ._app_tables import AppEntry, AppTables

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class NamedApp:
    """An app of the settings file: its name and its entry."""

    name: str
    entry: AppEntry

    @property
    def hidden(self) -> tuple[str, ...]:
        """Texts that reveal how the app is reached and signed in: the user of a server must not see them."""
        entry = self.entry
        texts = {*(entry.headers or {}).values()}
        for path in (entry.profile, entry.storage_state, entry.adapter):
            if path is not None:
                texts |= {str(path), str(path.resolve())}
        for url in (entry.url, entry.cdp_url):
            if url:
                texts |= {*_spellings_of(url)}
        return tuple(sorted(filter(None, texts), key=len, reverse=True))  # longest first: one may be part of another

    def require_state(self) -> None:
        """Raise :class:`~transports.errors.UsageError` if the operator has not signed in yet."""
        state = self.entry.storage_state
        if state is not None and not state.exists():
            raise UsageError(
                f"{self.name} is not signed in; the operator signs in once with `abp login {self.name}`",
                code="PERMISSION_REQUIRED",
            )


def _spellings_of(target: str) -> Iterator[str]:
    """Yield the forms of an address in messages: whole, redacted, without its query, and its host alone."""
    for url in (target, target.removeprefix("mcp+")):
        without_query = url.partition("?")[0]
        yield from (url, redact_url(url), without_query, without_query.rstrip("/"))
    if "://" in target:
        with suppress(ValueError):
            parts = urlsplit(target)
            host = parts.hostname or ""
            yield from (parts.netloc, parts.netloc.rpartition("@")[2])
            if len(host) > 3:  # a shorter name of a host is part of too many words
                yield host


def is_app_name(target: str) -> bool:
    """Return whether a target can only be the name of an app: one word that is not the folder of an extension."""
    return _NAME.fullmatch(target) is not None and extension_folder(target) is None


def shares_browser(
    target: str, config: Path | None = None, *, headless: bool | None = None, new_context: bool = True
) -> bool:
    """Return whether sessions with ``target``, an address or the name of an app, can share a running browser.

    An app of the settings file can if its page needs no browser of its own and no other value of ``headless``; without
    ``new_context``, one with a ``storage_state`` cannot. An invalid file is reported by :func:`~transports.connect`."""
    if not is_app_name(target):
        return takes_browser(target)
    try:
        entry = app_entries(read_config(config)).get(target)
    except UsageError:
        return False
    if entry is None or not takes_browser(entry.url, entry.transport):
        return False
    needs_own_browser = entry.profile or entry.cdp_url or entry.browser or (entry.storage_state and not new_context)
    return not needs_own_browser and entry.headless in (None, headless)


def app_entries(file: ConfigFile) -> Mapping[str, AppEntry]:
    """Return the apps of a settings file by name; none if the file is not trusted."""
    tables = _trusted_tables(file)
    return tables.apps if tables else {}


def find_app(file: ConfigFile, target: str, user: str | None) -> NamedApp | None:
    """Return the app of the settings file that ``target`` names, for this user (``None``: the operator).

    ``None`` means that the target is not a name, or that the file has no apps for this user. An app of another user is
    reported as an unknown name, so that its existence is not revealed."""
    if not is_app_name(target):
        return None
    if not file.trusted and target in file.table("apps"):
        advice = untrusted_file_advice(file.path)
        raise UsageError(f"this folder's {file.path} has an app {target}, but {advice}", code="PERMISSION_DENIED")

    entries = {name: entry for name, entry in app_entries(file).items() if entry.is_for(user)}
    if target in entries:
        return NamedApp(target, entries[target])
    if not entries:
        return None

    similar = difflib.get_close_matches(target, entries, n=1)
    hint = f"did you mean {similar[0]}?" if similar else f"use one of {', '.join(sorted(entries)[:20])}"
    raise UsageError(f"unknown app {target!r}; {hint}", code="NOT_FOUND")


def secrets_for(file: ConfigFile, user: str | None) -> Secrets:
    """Return the secrets of a file for this user; none if the file is not trusted, which is logged once."""
    if not file.trusted and file.table("secrets"):
        _warn_once(file.path, tuple(file.table("secrets")))
    tables = _trusted_tables(file)
    return Secrets(tables.secrets if tables else {}, user)


def _trusted_tables(file: ConfigFile) -> AppTables | None:
    has_tables = file.table("apps") or file.table("secrets")
    if not file.trusted or file.path is None or not has_tables:
        return None
    from ._app_tables import AppTables  # late: it loads pydantic, and most programs describe no app

    return AppTables.parse(file.tables or {}, file.path)


@cache
def _warn_once(path: Path | None, names: tuple[str, ...]) -> None:
    ConfigFile(path).warn_ignored([f"secrets.{name}" for name in names])
