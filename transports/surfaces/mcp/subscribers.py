"""Clients that are told of changes: connections of older clients, and the streams on which newer ones listen."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Set
from dataclasses import dataclass, field
from functools import partial

from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.connection import allowed_log_levels
from mcp.server.session import ServerSession
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated
from mcp_types import (
    INVALID_PARAMS,
    LoggingLevel,
    LoggingMessageNotification,
    LoggingMessageNotificationParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from ...artifacts import ArtifactStore
from ...protocol.strict_json import JSONValue
from ...routing import clamp
from ...tasks import cancel_and_wait, spawn
from ..shared.store_watcher import StoreChange, StoreWatcher
from .pending_call import Context, is_modern

__all__ = ["Subscribers", "connection_key"]

_ARTIFACT = "artifact://"
_MAX_CONNECTIONS = 100
#: Resources that one client may subscribe to.
_MAX_URIS = 1000
#: Bytes of an app's data in a log message.
_MAX_LOG_BYTES = 4096
#: RFC 5424, least severe first.
_LEVELS: tuple[LoggingLevel, ...] = (
    "debug",
    "info",
    "notice",
    "warning",
    "error",
    "critical",
    "alert",
    "emergency",
)


@dataclass(slots=True)
class _Connection:
    """A connection of an older client, with its log level and the URIs it is subscribed to."""

    session: ServerSession
    level: LoggingLevel = "info"
    uris: set[str] = field(default_factory=set)


class Subscribers:
    """The clients of one user that are told of changes.

    They may subscribe to artifacts of ``store`` and to resources of connected servers; ``update_servers`` is given the
    URIs of the latter whenever they change.

    Notifications are sent in the background; a client that cannot be reached is forgotten. The store is watched while
    there are subscriptions.
    """

    def __init__(self, store: ArtifactStore, update_servers: Callable[[Set[str]], Awaitable[object]]) -> None:
        self._update_servers = update_servers
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=_MAX_CONNECTIONS)
        self._open_streams = 0
        #: Connections of older clients by key; the one used longest ago is first, and is forgotten first.
        self._connections: OrderedDict[str, _Connection] = OrderedDict()
        #: How many newer clients subscribe to each URI; the streams know which ones.
        self._stream_uris: Counter[str] = Counter()
        self._watcher = StoreWatcher(store, self._store_changed)
        self._watcher_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        """End all streams and stop watching the store."""
        self._streams.close()
        self._connections.clear()
        await cancel_and_wait(self._tasks)
        await self._watcher.aclose()

    @property
    def empty(self) -> bool:
        """Whether no client listens or is subscribed to anything."""
        return not self._open_streams and not self._uris()

    # --- clients ------------------------------------------------------------------------------------------------------

    def register(self, ctx: Context) -> None:
        """Tell the client of this request of changes from now on. Newer clients call :meth:`listen` for that."""
        if not is_modern(ctx):
            self._connection(ctx)

    def _connection(self, ctx: Context) -> _Connection:
        key = connection_key(ctx)
        if key not in self._connections:
            self._connections[key] = _Connection(ctx.session)
            if len(self._connections) > _MAX_CONNECTIONS:
                self._connections.popitem(last=False)
        self._connections[key].session = ctx.session
        self._connections.move_to_end(key)
        return self._connections[key]

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """Send changes to a newer client, for as long as it listens."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))[:_MAX_URIS]
        self._stream_uris.update(uris)
        self._open_streams += 1
        try:
            await self.watch_or_stop()
            return await self._streams(ctx, params)
        finally:
            self._open_streams -= 1
            self._stream_uris.subtract(uris)
            self._stream_uris += Counter()  # drops URIs with a count of zero
            spawn(self.watch_or_stop(), self._tasks)

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """Tell an older client of changes of one resource. Raises :class:`MCPError` above 1,000 resources."""
        uris = self._connection(ctx).uris
        if len(uris) >= _MAX_URIS and uri not in uris:
            raise MCPError(INVALID_PARAMS, f"{_MAX_URIS} resources are subscribed to, which is the limit")
        uris.add(uri)
        await self.watch_or_stop()

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        """End a subscription of an older client; one that does not exist is no error."""
        self._connection(ctx).uris.discard(uri)
        await self.watch_or_stop()

    def set_level(self, ctx: Context, level: LoggingLevel) -> None:
        """Set the least severe log level that an older client is sent; it is ``info`` before."""
        self._connection(ctx).level = level

    # --- changes ------------------------------------------------------------------------------------------------------

    def tools_changed(self) -> None:
        """Announce a changed list of tools, and of prompts, which are made of the same apps, to all clients."""
        self._announce(ToolsListChanged(), ServerSession.send_tool_list_changed, self._connections)
        self._announce(PromptsListChanged(), ServerSession.send_prompt_list_changed, self._connections)

    def resources_changed(self) -> None:
        """Announce a changed list of resources to all clients."""
        self._announce(ResourcesListChanged(), ServerSession.send_resource_list_changed, self._connections)

    def _store_changed(self, change: StoreChange) -> None:
        """An id stands for its content, so a resource changes when it is removed, or stored (again)."""
        changed = {ref.id for ref in (*change.stored, *change.updated)}
        changed.update(artifact_id for artifact_id, _ in change.removed)
        for uri in self._uris():
            if uri.removeprefix(_ARTIFACT).partition("?")[0] in changed:
                self.resource_updated(uri)
        self.resources_changed()

    def resource_updated(self, uri: str) -> None:
        """Announce a changed resource to the clients that are subscribed to it."""
        keys = [key for key, connection in self._connections.items() if uri in connection.uris]
        self._announce(ResourceUpdated(uri), partial(ServerSession.send_resource_updated, uri=uri), keys)

    async def log(self, level: LoggingLevel, logger: str, data: JSONValue, ctx: Context | None) -> None:
        """Send an app's ``data`` as a log message: to the client that made the request ``ctx``, without one to all
        older clients. Newer clients are sent log messages only during a request, and only if it asks for them."""
        message = LoggingMessageNotification(
            params=LoggingMessageNotificationParams(level=level, logger=logger, data=clamp(data, _MAX_LOG_BYTES))
        )
        if ctx is not None:
            if level in allowed_log_levels(ctx.protocol_version, ctx.meta) and self._wants(connection_key(ctx), level):
                await ctx.session.send_notification(message, ctx.request_id)
            return
        keys = [key for key in self._connections if self._wants(key, level)]
        await self._send(keys, lambda session: session.send_notification(message))

    def _wants(self, key: str, level: LoggingLevel) -> bool:
        connection = self._connections.get(key)
        return connection is None or _LEVELS.index(level) >= _LEVELS.index(connection.level)

    def _announce(
        self, event: ServerEvent, send: Callable[[ServerSession], Coroutine[object, object, None]], keys: Iterable[str]
    ) -> None:
        """Publish ``event`` to the streams, and ``send`` it on the connections of older clients."""

        async def publish(keys: list[str]) -> None:
            await self._bus.publish(event)
            await self._send(keys, send)

        spawn(publish(list(keys)), self._tasks)

    async def _send(self, keys: list[str], send: Callable[[ServerSession], Coroutine[object, object, None]]) -> None:
        for key in keys:
            if connection := self._connections.get(key):
                try:
                    await send(connection.session)
                except (MCPError, ClosedResourceError, BrokenResourceError):
                    self._connections.pop(key, None)
                    spawn(self.watch_or_stop(), self._tasks)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _uris(self) -> set[str]:
        return {*self._stream_uris, *(uri for connection in self._connections.values() for uri in connection.uris)}

    async def watch_or_stop(self) -> None:
        """Watch the store exactly while there are subscriptions to artifacts, and the servers for the others, also
        those that were connected since. When this returns, no change will be missed."""
        async with self._watcher_lock:
            if any(uri.startswith(_ARTIFACT) for uri in self._uris()):
                await self._watcher.start()
            else:
                await self._watcher.aclose()
        await self._update_servers({uri for uri in self._uris() if not uri.startswith(_ARTIFACT)})


def connection_key(ctx: Context) -> str:
    """Return the name of a request's session: empty over stdio, and for newer clients, which have none, whatever their
    headers say."""
    return ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None and not is_modern(ctx) else ""
