"""What one user has: apps, artifacts, calls that wait for an answer, and an audience that hears of changes."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import cast

from mcp_types import LoggingLevel

from ...artifacts import ArtifactStore
from ...errors import ABPError, UsageError
from ...protocol.capabilities import CapabilitiesChanged
from ...protocol.payloads import Notification
from ...protocol.strict_json import JSONValue
from ...protocol.urls import redact_url
from ...session.events import ConnectionChanged, Event
from ...tasks import cancel_and_wait, spawn
from ..shared.activity import Activity
from ..shared.apps import App, Apps, Connect
from .options import Options
from .running import Running
from .subscribers import Audience

__all__ = ["Desk"]

#: Seconds that a question waits for its answer.
_PATIENCE = 600.0
#: What is worse than news (PROTOCOL "App → client").
_BAD: dict[str, LoggingLevel] = {"notifications/error": "error", "connection/lost": "warning"}


class Desk:
    """One user's side of the bridge. Nothing here is seen by another user."""

    def __init__(
        self, store: ArtifactStore, connect: Connect, options: Options, activity: Activity | None = None
    ) -> None:
        self.store = store
        self.apps = Apps(store, connect, self, most=options.max_sessions)
        self.audience = Audience(store)
        self._options = options
        self._activity = activity
        self._waiting: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._first: dict[str, asyncio.Task[App]] = {}
        self._resting = True
        self._used = time.monotonic()

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def connect(self, target: str, options: dict[str, object]) -> App:
        """Connect an app. Raises what :func:`transports.connect` and opening do."""
        if self._options.headless is not None:
            options = {**options, "headless": self._options.headless}
        return await self.apps.connect(target, options)

    async def disconnect(self, app: App) -> None:
        await self.apps.disconnect(app)

    def connected(self, app: App, apps: Apps) -> None:
        if self._activity:
            self._activity.connected(app, apps)
        self.audience.tools_changed()

    def disconnected(self, app: App) -> None:
        if self._activity:
            self._activity.disconnected(app)
        self.audience.tools_changed()

    def heard(self, app: App, event: Event) -> None:
        if self._activity:
            self._activity.heard(app, event)
        match event:
            case CapabilitiesChanged():
                self.audience.tools_changed()
            case Notification():
                spawn(self._told(app, event.event, event.data), self._tasks)
            case ConnectionChanged():
                name = "connection/restored" if event.connected else "connection/lost"
                spawn(self._told(app, name, {"reason": event.reason}), self._tasks)

    async def _told(self, app: App, event: str, data: object) -> None:
        """What an app says goes to whoever waits for a call of it, else to all."""
        call = cast(Running, app.running[-1]).ctx if app.running else None
        said = cast(JSONValue, {"event": event, "data": data})
        await self.audience.said(_BAD.get(event, "info"), f"abp.{app.key}", said, call)

    async def ready(self, timeout: float | None = None) -> str | None:
        """Wait for the apps that are connected from the start; why some could not be, if so."""
        if not self._first:
            return None
        await asyncio.wait(self._first.values(), timeout=timeout)
        troubles = []
        for target, task in self._first.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                reason = error.message if isinstance(error, ABPError) else str(error)
                troubles.append(f"{redact_url(target)} could not be connected: {reason}")
        return "; ".join(troubles) or None

    async def aclose(self) -> None:
        """End everything, all apps at once."""
        await cancel_and_wait(self._first.values())
        for running in tuple(self._waiting.values()):
            await running.aclose()
        await self.apps.aclose()
        await cancel_and_wait(self._tasks)
        await self.audience.aclose()

    # --- calls that wait ----------------------------------------------------------------------------------------------

    def wait(self, running: Running) -> str:
        """Keep a call until its question is answered; what is returned gets it back. After ten minutes it is
        cancelled."""
        key = secrets.token_hex(16)
        self._waiting[key] = running
        asyncio.get_running_loop().call_later(_PATIENCE, self._forget, key)
        return key

    def taken_up(self, key: str) -> Running:
        """The call that :meth:`wait` kept. Raises :class:`~transports.errors.UsageError` if it is gone."""
        running = self._waiting.pop(key, None)
        if running is None:
            raise UsageError("the call that asked is over; make it again", code="SESSION_EXPIRED", retryable=True)
        return running

    def _forget(self, key: str) -> None:
        if running := self._waiting.pop(key, None):
            spawn(running.aclose(), self._tasks)

    # --- whether anybody is there -------------------------------------------------------------------------------------

    def used(self) -> None:
        """A request of this user has come or has been answered: the apps of the options are connected, in the
        background, if they are not."""
        self._used = time.monotonic()
        if self._resting:
            self._resting = False
            self._first = {target: asyncio.ensure_future(self.connect(target, {})) for target in self._options.apps}

    def idle(self) -> float:
        """Seconds since then; none while a call or an app's connecting is under way."""
        return 0.0 if self._waiting or self.apps.busy else time.monotonic() - self._used

    async def rest(self) -> None:
        """Disconnect all apps until this user comes again."""
        if not self._resting:
            self._resting = True
            await cancel_and_wait(self._first.values())
            await asyncio.gather(*(self.apps.disconnect(app) for app in tuple(self.apps.values())))
