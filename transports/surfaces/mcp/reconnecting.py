"""Connections that outlive their browser: a session that was closed for want of requests, or with the bridge, is opened
again under its name by the first call that names it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from ...errors import UsageError
from ...routing import Result
from ...tasks import spawn
from ..shared.apps import App, Apps
from ..shared.call_ledger import MAX_CONNECTIONS, CallLedger, KeptConnection

__all__ = ["Connections", "Open"]

#: Opens an app with the arguments of `abp_connect`, under a name.
Open: TypeAlias = Callable[[Mapping[str, object], str], Awaitable[App]]
#: The argument that stands for an app of the bridge's own settings.
_CONFIGURED = "configured"
_NOTE = (
    "the app was closed meanwhile and is opened anew: what it held, and who was signed in by hand, is gone; nobody was "
    "signed in again"
)


class Connections:
    """The connections of one user: those that are open, ``apps``, and those that ``ledger`` keeps.

    What is kept are the arguments that a model gave, so opening one again is a new `abp_connect` with the rules of now:
    no cookies and no secrets are kept."""

    def __init__(self, apps: Apps, ledger: CallLedger) -> None:
        self._apps = apps
        self._ledger = ledger
        self._scope = apps.scope
        self._kept: dict[str, KeptConnection] | None = None
        self._opening: dict[str, asyncio.Future[App]] = {}
        self._reopened: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()
        self._loading = asyncio.Lock()

    async def _known(self) -> dict[str, KeptConnection]:
        async with self._loading:
            if self._kept is None:
                self._kept = {one.session: one for one in await self._ledger.connections(self._scope)}
        return self._kept

    async def keep(self, app: App, arguments: Mapping[str, object]) -> None:
        """Keep the connection of ``app``, which was made with these arguments of `abp_connect`."""
        known = await self._known()
        known[app.key] = KeptConnection(app.key, dict(arguments))
        closed = [key for key in known if key not in self._apps]
        for key in closed[: max(len(known) - MAX_CONNECTIONS, 0)]:
            del known[key]
        await self._ledger.keep_connection(self._scope, known[app.key])

    def forget(self, key: str) -> None:
        """Keep a connection no longer. Idempotent."""
        if self._kept is not None:
            self._kept.pop(key, None)
        spawn(self._ledger.forget_connection(self._scope, key), self._writing)

    async def configured(self, target: str, connect: Callable[[str | None], Awaitable[App]]) -> App:
        """Connect a target of the bridge's settings, under the name that it had before."""
        arguments = {_CONFIGURED: target}
        known = await self._known()
        names = [one.session for one in known.values() if one.arguments == arguments and one.session not in self._apps]
        app = await connect(names[0] if names else None)
        await self.keep(app, arguments)
        return app

    async def closed(self) -> list[KeptConnection]:
        """Return the connections that are kept and not open."""
        known = await self._known()
        return [one for one in known.values() if one.session not in self._apps and _CONFIGURED not in one.arguments]

    async def select(self, key: object, open_app: Open, capability: str | None = None) -> App:
        """Return the app that :meth:`.Apps.select` does, and open it before if it was closed.

        Raises what that and connecting raise."""
        closed = {one.session: one for one in await self.closed()}
        if key is None and not self._apps and closed:
            if len(closed) > 1:
                raise UsageError(f"several apps were connected; say which with `session`: {', '.join(closed)}")
            key = next(iter(closed))
        if isinstance(key, str) and key in closed:
            if key not in self._opening:
                opening = self._opening[key] = asyncio.ensure_future(open_app(closed[key].arguments, key))
                opening.add_done_callback(partial(self._opened, key))
            await asyncio.shield(self._opening[key])
            self._reopened.add(key)
        return self._apps.select(key, capability)

    def _opened(self, key: str, opening: asyncio.Future[App]) -> None:
        del self._opening[key]
        if not opening.cancelled():
            opening.exception()  # the request that waited may be gone

    def noted(self, app: App, result: Result) -> Result:
        """Return the result of a call with a warning if it is the first since the app was opened again."""
        if app.key not in self._reopened:
            return result
        self._reopened.discard(app.key)
        return replace(result, warnings=(*result.warnings, _NOTE))

    async def aclose(self) -> None:
        """Stop opening apps, and finish writing."""
        for opening in tuple(self._opening.values()):
            opening.cancel()
        if self._writing:
            await asyncio.wait(self._writing)
