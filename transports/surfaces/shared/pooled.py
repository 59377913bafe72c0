"""Sessions of a server in few browsers, that a pool starts, watches and replaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ...artifacts import ArtifactStore
from ...errors import UsageError
from ...session.named_apps import shares_browser
from ...session.session import Session
from ...session.settings import Settings
from .apps import Connect

__all__ = ["pooled"]

#: Sessions at once in one browser. Before that many, memory is the limit.
_SESSIONS = 32


@asynccontextmanager
async def pooled(
    connect: Connect,
    browsers: int | None,
    store: ArtifactStore,
    *,
    config: Path | None = None,
    headless: bool | None = None,
) -> AsyncIterator[Connect]:
    """Give a function like ``connect`` whose sessions with pages share ``browsers``, each with a context of its own;
    without a number, ``connect`` itself. ``config`` is the settings file that ``connect`` reads.

    All windows are shown or none, as ``headless`` says: a session that asks for the other, or names a browser, raises
    :class:`~transports.errors.UsageError`."""
    if browsers is None:
        yield connect
        return
    from ...batch import Pool  # late: most servers have none

    headless = Settings.load().headless if headless is None else headless
    async with Pool(browsers, _SESSIONS, store=store, headless=headless) as pool:

        def connect_pooled(target: str, **options: object) -> Session:
            if not shares_browser(target, config, headless=headless):
                return connect(target, **options)
            if "browser" in options or options.get("headless", headless) not in (None, headless):
                raise UsageError("the browsers are shared here: leave browser and headless out")
            return connect(target, browser=pool, **options)

        yield connect_pooled
