"""What one user has: apps, artifacts, calls that wait for an answer, and the connections that hear of changes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Coroutine

from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ServerEvent, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged

from ...activity import Activity
from ...apps import App, Apps, Connect
from ...artifacts import ArtifactStore
from ...callbacks import end
from ...errors import ABPError, UsageError
from ...events import CapabilitiesChanged, Event
from .running import Context, Running, is_modern

__all__ = ["Desk"]

logger = logging.getLogger("transports")

_CONNECTIONS = 100
#: Seconds that a question waits for its answer.
_PATIENCE = 600.0


class Desk:
    """One user's side of the bridge. Nothing here is seen by another user."""

    def __init__(
        self, store: ArtifactStore, connect: Connect, *, max_sessions: int, activity: Activity | None = None
    ) -> None:
        self.store = store
        self.apps = Apps(store, connect, self, most=max_sessions)
        self._activity = activity
        self.listen = ListenHandler(bus := InMemorySubscriptionBus(), max_subscriptions=_CONNECTIONS)
        self._bus = bus
        self._waiting: dict[str, Running] = {}
        self._connections: OrderedDict[str, ServerSession] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()
        self._first: asyncio.Task[App] | None = None

    # --- apps ---------------------------------------------------------------------------------------------------------

    def connected(self, app: App, apps: Apps) -> None:
        if self._activity:
            self._activity.connected(app, apps)
        self.tools_changed()

    def disconnected(self, app: App) -> None:
        if self._activity:
            self._activity.disconnected(app)
        self.tools_changed()

    def heard(self, app: App, event: Event) -> None:
        if self._activity:
            self._activity.heard(app, event)
        if isinstance(event, CapabilitiesChanged):
            self.tools_changed()

    async def connect(self, target: str, options: dict[str, object]) -> App:
        """Connect an app. Raises what :func:`transports.connect` and opening do."""
        return await self.apps.connect(target, options)

    async def disconnect(self, app: App) -> None:
        await self.apps.disconnect(app)

    def begin(self, target: str) -> None:
        """Connect an app in the background."""
        self._first = asyncio.ensure_future(self.connect(target, {}))

    async def ready(self, timeout: float | None = None) -> str | None:
        """Wait for the app that is connected from the start; why it could not be, if so."""
        if self._first is None:
            return None
        await asyncio.wait((self._first,), timeout=timeout)
        if not self._first.done() or self._first.cancelled() or not (error := self._first.exception()):
            return None
        return error.message if isinstance(error, ABPError) else str(error)

    async def aclose(self) -> None:
        """End everything, all apps at once."""
        await end([task for task in (self._first,) if task])
        for running in tuple(self._waiting.values()):
            await running.aclose()
        await self.apps.aclose()
        self.listen.close()
        await end(self._tasks)

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

    # --- changes ------------------------------------------------------------------------------------------------------

    def hears(self, ctx: Context) -> None:
        """This client is to be told of changes. Newer clients subscribe instead."""
        if is_modern(ctx):
            return
        key = ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
        self._connections[key] = ctx.session
        self._connections.move_to_end(key)
        if len(self._connections) > _CONNECTIONS:
            self._connections.popitem(last=False)

    def tools_changed(self) -> None:
        self._start(self._tell(ToolsListChanged(), ServerSession.send_tool_list_changed))

    def resources_changed(self) -> None:
        self._start(self._tell(ResourcesListChanged(), ServerSession.send_resource_list_changed))

    async def _tell(self, event: ServerEvent, send: Callable[[ServerSession], Coroutine[object, object, None]]) -> None:
        await self._bus.publish(event)
        for key, session in list(self._connections.items()):
            try:
                await send(session)
            except (MCPError, ClosedResourceError, BrokenResourceError):
                self._connections.pop(key, None)

    def _start(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
