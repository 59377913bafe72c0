"""What one user has: apps, artifacts, calls that wait for an answer, and an audience that hears of changes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from typing import TypeAlias, cast

from mcp_types import LoggingLevel

from ...apps import App, Apps, new_key
from ...artifacts import ArtifactStore, Scope
from ...callbacks import end
from ...errors import ABPError, UsageError
from ...messages import JSONValue, Notification
from ...session import Session
from .audience import Audience
from .options import Options
from .running import Running

__all__ = ["Connect", "Desk"]

#: ``transports.connect``, or what stands for it.
Connect: TypeAlias = Callable[..., Session]

#: Seconds that a question waits for its answer.
_PATIENCE = 600.0
#: What is worse than news (PROTOCOL "App → client").
_BAD: dict[str, LoggingLevel] = {"notifications/error": "error", "connection/lost": "warning"}


class Desk:
    """One user's side of the bridge. Nothing here is seen by another user."""

    def __init__(self, store: ArtifactStore, connect: Connect, options: Options) -> None:
        self.store = store
        self.apps = Apps()
        self.audience = Audience(store)
        self._connect = connect
        self._options = options
        self._waiting: dict[str, Running] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: set[App] = set()
        self._first: dict[str, asyncio.Task[App]] = {}
        self._resting = True
        self._used = time.monotonic()

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def connect(self, target: str, options: dict[str, object]) -> App:
        """Connect an app. Raises what :func:`transports.connect` and opening do."""
        most = self._options.max_sessions
        if len(self.apps) + len(self._opening) >= most:
            raise UsageError(f"{most} apps are connected, which is the limit; disconnect one with abp_disconnect")
        if self._options.headless is not None:
            options = {**options, "headless": self._options.headless}
        app = App(new_key(), target)

        async def told(notification: Notification) -> None:
            await self._told(app, notification)

        session = self._connect(
            target,
            store=self.store.scoped(Scope(session=app.key)),
            on_elicitation=app.asked,
            on_notification=told,
            **options,
        )
        self._opening.add(app)
        try:
            await app.open(session, self.audience.tools_changed)
        except asyncio.CancelledError:
            self._start(self._abandon(app))
            raise
        except BaseException:
            self._opening.discard(app)
            raise
        self._opening.discard(app)
        self.apps[app.key] = app
        self.audience.tools_changed()
        return app

    async def _abandon(self, app: App) -> None:
        await app.aclose()
        self._opening.discard(app)

    async def _told(self, app: App, notification: Notification) -> None:
        """What an app says goes to whoever waits for a call of it, else to all."""
        call = cast(Running, app.running[-1]).ctx if app.running else None
        level: LoggingLevel = _BAD.get(notification.event, "info")
        data = cast(JSONValue, {"event": notification.event, "data": notification.data})
        await self.audience.said(level, f"abp.{app.key}", data, call)

    async def ready(self, timeout: float | None = None) -> str | None:
        """Wait for the apps that are connected from the start; why some could not be, if so."""
        if not self._first:
            return None
        await asyncio.wait(self._first.values(), timeout=timeout)
        troubles = []
        for target, task in self._first.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                reason = error.message if isinstance(error, ABPError) else str(error)
                troubles.append(f"{target} could not be connected: {reason}")
        return "; ".join(troubles) or None

    async def disconnect(self, app: App) -> None:
        del self.apps[app.key]
        self.audience.tools_changed()
        await app.aclose()

    async def aclose(self) -> None:
        """End everything, all apps at once."""
        await end(self._first.values())
        for running in [*self._waiting.values(), *(call for app in self.apps.values() for call in app.running)]:
            await running.aclose()
        await asyncio.gather(*(app.aclose() for app in (*self.apps.values(), *self._opening)))
        self.apps.clear()
        await end(self._tasks)
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
            self._start(running.aclose())

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
        busy = self._waiting or self._opening or any(app.running for app in self.apps.values())
        return 0.0 if busy else time.monotonic() - self._used

    async def rest(self) -> None:
        """Disconnect all apps until this user comes again."""
        if not self._resting:
            self._resting = True
            await end(self._first.values())
            apps = list(self.apps.values())
            self.apps.clear()
            self.audience.tools_changed()
            await asyncio.gather(*(app.aclose() for app in apps))
