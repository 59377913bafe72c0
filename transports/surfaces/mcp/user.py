"""One user of the bridge: apps, artifacts, calls that wait for an answer, and subscribers to changes."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import cast

from mcp_types import LoggingLevel

from ...artifacts import ArtifactStore
from ...errors import ABPError, UsageError
from ...protocol.capabilities import CapabilitiesChanged
from ...protocol.payloads import Notification
from ...protocol.plain_text import plain_tree
from ...protocol.strict_json import JSONValue
from ...protocol.urls import redact_url
from ...session.app_tables import AppEntry
from ...session.events import ConnectionChanged, Event
from ...session.evidence import keeping
from ...session.named_apps import is_app_name
from ...tasks import cancel_and_wait, spawn
from ..shared.activity import Activity
from ..shared.apps import App, Apps, Connect, PendingCall
from ..shared.detached import DetachedCalls
from .options import Options
from .pending_call import QUESTION_TIMEOUT, ToolCall
from .reconnecting import Connections
from .server_subscriptions import ServerSubscriptions
from .subscribers import Subscribers

__all__ = ["NO_APPS", "User"]

#: What a bridge without a settings file describes.
NO_APPS: Mapping[str, AppEntry] = MappingProxyType({})

#: Log levels of an app's notifications (docs/protocol.md 4.3); all others are ``info``.
_LEVELS: dict[str, LoggingLevel] = {"notifications/error": "error", "connection/lost": "warning"}


class User:
    """One user's side of the bridge; no other user sees anything of it. The :class:`~..shared.apps.AppListener` of
    the user's apps."""

    def __init__(
        self,
        store: ArtifactStore,
        connect: Connect,
        options: Options,
        calls: DetachedCalls,
        activity: Activity | None = None,
        named: Mapping[str, AppEntry] = NO_APPS,
        connected: Callable[[], int] | None = None,
    ) -> None:
        """``connected`` returns how many apps this user has in all sessions, which count together."""
        self.store = store
        #: The apps that the user may connect by their names.
        self.named = named
        self.apps = Apps(store, keeping(connect, options.evidence), self, limit=options.max_sessions, counted=connected)
        self.calls = calls
        self.connections = Connections(self.apps, calls.ledger)
        self.subscribers = Subscribers(store, ServerSubscriptions(self.apps).update)
        #: Calls under way that concern no app.
        self.pending_calls: list[PendingCall] = []
        self._options = options
        self._activity = activity
        self._suspended: dict[str, ToolCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: dict[str, asyncio.Task[App]] = {}
        self._dormant, self._closing = True, False
        self._last_used = time.monotonic()

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def connect(self, target: str, options: dict[str, object], key: str | None = None) -> App:
        """Connect an app, under the session's name ``key`` if it had one before. Raises what
        :func:`transports.connect` and opening a session raise."""
        described = self.named.get(target)
        if self._options.headless is not None and (described is None or described.headless is None):
            options = {**options, "headless": self._options.headless}
        return await self.apps.connect(target, options, key=key)

    async def connect_named(self, name: str, options: dict[str, object], key: str | None = None) -> App:
        """Connect an app that the settings file describes. Raises :class:`~transports.errors.UsageError` for one that
        is not there or is for others, and for ``options`` that the file decides; and what :meth:`connect` raises."""
        if name not in self.named:
            known = ", ".join(sorted(self.named)) or "none"
            raise UsageError(f"there is no app {name[:100]!r} (for you); by name there is {known}", code="NOT_FOUND")
        if decided := options.keys() - {"timeout"}:
            raise UsageError(
                f"{', '.join(sorted(decided))}: leave it out; how {name} is reached is the operator's to say"
            )
        return await self.connect(name, options, key)

    def on_connected(self, app: App, apps: Apps) -> None:
        """Announce the app's tools, and subscribe to its resources for clients that asked for them."""
        if self._activity:
            self._activity.on_connected(app, apps)
        self.subscribers.tools_changed()
        if app.session.resources.available:
            spawn(self.subscribers.watch_or_stop(), self._tasks)

    def on_disconnected(self, app: App) -> None:
        """Announce that the app's tools are gone. The connection is kept only where nobody asked for its end."""
        if not self._dormant and not self._closing:
            self.connections.forget(app.key)
        if self._activity:
            self._activity.on_disconnected(app)
        self.subscribers.tools_changed()

    def on_event(self, app: App, event: Event) -> None:
        """Announce changed capabilities as changed tools and resources that a server updated; pass other notifications
        on as log messages."""
        if self._activity:
            self._activity.on_event(app, event)
        match event:
            case CapabilitiesChanged():
                self.subscribers.tools_changed()
            case Notification(event="notifications/resources/updated", data={"uri": str(uri)}):
                self.subscribers.resource_updated(uri)
            case Notification():
                spawn(self._log(app, event.event, event.data), self._tasks)
            case ConnectionChanged():
                name = "connection/restored" if event.connected else "connection/lost"
                spawn(self._log(app, name, {"reason": event.reason}), self._tasks)

    async def _log(self, app: App, event: str, data: object) -> None:
        """Send a log message to the client that waits for the app's latest call; to all if that is none of a
        client's."""
        latest = app.pending_calls[-1] if app.pending_calls else None
        ctx = latest.ctx if isinstance(latest, ToolCall) else None
        message = cast(JSONValue, plain_tree({"event": event, "data": data}))
        await self.subscribers.log(_LEVELS.get(event, "info"), f"abp.{app.key}", message, ctx)

    async def ready(self, timeout: float | None = None) -> str | None:
        """Wait until the apps of the options are connected, for ``timeout`` seconds at most. Return the targets that
        could not be connected, with the reasons, or ``None``."""
        if not self._connecting:
            return None
        await asyncio.wait(self._connecting.values(), timeout=timeout)
        failures = []
        for target, task in self._connecting.items():
            if task.done() and not task.cancelled() and (error := task.exception()):
                reason = error.message if isinstance(error, ABPError) else str(error)
                failures.append(f"{redact_url(target)} could not be connected: {reason}")
        return "; ".join(failures) or None

    async def aclose(self) -> None:
        """Cancel all calls, disconnect all apps at the same time and end all subscriptions."""
        self._closing = True
        await cancel_and_wait(self._connecting.values())
        for call in (*self._suspended.values(), *self.pending_calls):
            await call.aclose()
        await self.apps.aclose()
        await self.connections.aclose()
        await cancel_and_wait(self._tasks)
        await self.subscribers.aclose()

    # --- calls that wait for an answer --------------------------------------------------------------------------------

    def suspend(self, call: ToolCall) -> str:
        """Keep a call that waits for an answer, and return the key to :meth:`resume` it with. After ten minutes it is
        cancelled."""
        key = secrets.token_hex(16)
        self._suspended[key] = call
        asyncio.get_running_loop().call_later(QUESTION_TIMEOUT, self._cancel_suspended, key)
        return key

    def resume(self, key: str) -> ToolCall:
        """Return a suspended call; once. Raises :class:`~transports.errors.UsageError` for one that is over."""
        call = self._suspended.pop(key, None)
        if call is None:
            raise UsageError("the call that asked is over; make it again", code="SESSION_EXPIRED", retryable=True)
        return call

    def _cancel_suspended(self, key: str) -> None:
        if call := self._suspended.pop(key, None):
            spawn(call.aclose(), self._tasks)

    # --- activity of the user -----------------------------------------------------------------------------------------

    def touch(self) -> None:
        """Note that a request of this user has begun or ended. The first one connects the apps of the options, in the
        background."""
        self._last_used = time.monotonic()
        if self._dormant:
            self._dormant = False
            options = {"adapter": self._options.adapter} if self._options.adapter else {}
            self._connecting = {
                target: asyncio.ensure_future(
                    self.connections.configured(target, partial(self.connect, target, {**options}))
                )
                for target in self._options.apps
                if target in self.named or not is_app_name(target)
            }

    def idle_seconds(self) -> float:
        """Return the seconds since the last request; 0 while a call is under way or an app is being connected."""
        busy = self._suspended or self.pending_calls or self.apps.busy
        return 0.0 if busy else time.monotonic() - self._last_used

    async def retire(self) -> None:
        """Disconnect all apps until the user's next request."""
        if not self._dormant:
            self._dormant = True
            await cancel_and_wait(self._connecting.values())
            await asyncio.gather(*(self.apps.disconnect(app) for app in tuple(self.apps.values())))
