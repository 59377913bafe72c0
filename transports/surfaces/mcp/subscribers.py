"""Who hears of changes: connections of older clients, and the streams that newer ones listen on."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.connection import allowed_log_levels
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ServerEvent, ToolsListChanged
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
from ...errors import ABPError
from ...protocol.strict_json import JSONValue
from ...routing import clamp
from ...tasks import cancel_and_wait, spawn
from .running import Context, is_modern

__all__ = ["Audience"]

logger = logging.getLogger("transports")

_CONNECTIONS = 100
_URIS = 1000
#: Seconds between two looks whether subscribed artifacts are still there: other processes delete them too.
_LOOK = 1.0
_LARGEST_LOG = 4096
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
class _Listener:
    """A connection of an older client, and what it wants to hear."""

    session: ServerSession
    level: LoggingLevel = "info"
    uris: set[str] = field(default_factory=set)


class Audience:
    """The connections of one user. ``store`` is what they may subscribe to."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=_CONNECTIONS)
        self._listeners: OrderedDict[str, _Listener] = OrderedDict()
        #: What newer clients subscribe to; the streams know who.
        self._wanted: Counter[str] = Counter()
        self._listening = 0
        self._there: dict[str, bool] = {}
        self._watching: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        self._streams.close()
        await cancel_and_wait([*self._tasks, *([self._watching] if self._watching else [])])

    @property
    def empty(self) -> bool:
        """Whether nobody would miss it."""
        return not self._listening and not self._subscribed()

    # --- who ----------------------------------------------------------------------------------------------------------

    def hears(self, ctx: Context) -> None:
        """This client is to be told of changes. Newer clients listen instead (:meth:`listen`)."""
        if not is_modern(ctx):
            self._listener(ctx)

    def _listener(self, ctx: Context) -> _Listener:
        key = _key(ctx)
        if key not in self._listeners:
            self._listeners[key] = _Listener(ctx.session)
            if len(self._listeners) > _CONNECTIONS:
                self._listeners.popitem(last=False)
        self._listeners[key].session = ctx.session
        self._listeners.move_to_end(key)
        return self._listeners[key]

    async def listen(self, ctx: Context, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
        """A stream of changes, for as long as a newer client listens."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))[:_URIS]
        self._wanted.update(uris)
        self._listening += 1
        try:
            await self._watch()
            return await self._streams(ctx, params)
        finally:
            self._listening -= 1
            self._wanted.subtract(uris)
            self._wanted += Counter()  # forgets what nobody wants any more

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """An older client wants to hear of one resource. Raises :class:`MCPError` for too many."""
        uris = self._listener(ctx).uris
        if len(uris) >= _URIS and uri not in uris:
            raise MCPError(INVALID_PARAMS, f"{_URIS} resources are subscribed to, which is the limit")
        uris.add(uri)
        await self._watch()

    def unsubscribe(self, ctx: Context, uri: str) -> None:
        self._listener(ctx).uris.discard(uri)

    def set_level(self, ctx: Context, level: LoggingLevel) -> None:
        """What an older client wants to hear of what apps say; ``info`` and above before it says so."""
        self._listener(ctx).level = level

    # --- what ---------------------------------------------------------------------------------------------------------

    def tools_changed(self) -> None:
        spawn(self._tell(ToolsListChanged(), ServerSession.send_tool_list_changed, self._listeners), self._tasks)

    def resources_changed(self) -> None:
        spawn(
            self._tell(ResourcesListChanged(), ServerSession.send_resource_list_changed, self._listeners), self._tasks
        )

    def _updated(self, uri: str) -> None:
        keys = [key for key, listener in self._listeners.items() if uri in listener.uris]
        spawn(
            self._tell(ResourceUpdated(uri), partial(ServerSession.send_resource_updated, uri=uri), keys), self._tasks
        )

    async def said(self, level: LoggingLevel, who: str, data: JSONValue, call: Context | None) -> None:
        """What an app says, as a log message: to the client whose ``call`` is under way, else to all older ones. Newer
        ones hear it only during a call, and only if they ask for it."""
        message = LoggingMessageNotification(
            params=LoggingMessageNotificationParams(level=level, logger=who, data=clamp(data, _LARGEST_LOG))
        )
        if call is not None:
            if level in allowed_log_levels(call.protocol_version, call.meta) and self._wants(_key(call), level):
                await call.session.send_notification(message, call.request_id)
            return
        keys = [key for key in self._listeners if self._wants(key, level)]
        await self._send(keys, lambda session: session.send_notification(message))

    def _wants(self, key: str, level: LoggingLevel) -> bool:
        listener = self._listeners.get(key)
        return listener is None or _LEVELS.index(level) >= _LEVELS.index(listener.level)

    async def _tell(
        self,
        event: ServerEvent,
        send: Callable[[ServerSession], Coroutine[object, object, None]],
        keys: list[str] | OrderedDict[str, _Listener],
    ) -> None:
        await self._bus.publish(event)
        await self._send(list(keys), send)

    async def _send(self, keys: list[str], send: Callable[[ServerSession], Coroutine[object, object, None]]) -> None:
        for key in keys:
            if listener := self._listeners.get(key):
                try:
                    await send(listener.session)
                except (MCPError, ClosedResourceError, BrokenResourceError):
                    self._listeners.pop(key, None)

    # --- subscribed artifacts -----------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look at once, so that nothing that happens from now on is missed, and then again and again."""
        await self._look()
        if self._subscribed() and (self._watching is None or self._watching.done()):
            self._watching = asyncio.ensure_future(self._keep_looking())

    async def _keep_looking(self) -> None:
        while self._subscribed():
            await asyncio.sleep(_LOOK)
            try:
                await self._look()
            except ABPError as error:
                logger.warning("cannot look after subscribed artifacts: %s", error.message)

    def _subscribed(self) -> set[str]:
        return {*self._wanted, *(uri for listener in self._listeners.values() for uri in listener.uris)}

    async def _look(self) -> None:
        """An id stands for its content, so all that can happen to an artifact is that it goes, or comes (back)."""
        ids = {ref.id for ref in await self._store.list()}
        before = self._there
        self._there = {uri: uri.removeprefix("artifact://").partition("?")[0] in ids for uri in self._subscribed()}
        changed = [uri for uri, there in self._there.items() if uri in before and before[uri] != there]
        for uri in changed:
            self._updated(uri)
        if changed:
            self.resources_changed()


def _key(ctx: Context) -> str:
    """The connection of a request; over stdio there is one."""
    return ctx.request.headers.get("mcp-session-id", "") if ctx.request is not None else ""
