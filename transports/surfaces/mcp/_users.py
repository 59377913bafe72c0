"""Users of the bridge: their connections, suspended calls, and subscriptions to changes."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TypeAlias, cast, get_args
from urllib.parse import urlsplit

import mcp_types as types
from anyio import BrokenResourceError, ClosedResourceError
from mcp.server.auth.middleware.auth_context import get_access_token
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

from ..._internal.recent import Recent
from ..._internal.tasks import cancel_and_wait, mark_retrieved, spawn
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import Scope
from ...errors import ABPError, UsageError
from ...playwright._scripts import EXTENSION_PAGE
from ...protocol._capabilities import CapabilitiesChanged
from ...protocol._payloads import Notification
from ...protocol._plain_text import is_address, origin_of, plain_tree, redact_url
from ...protocol._strict_json import JSONValue
from ...routing._guard import clamp
from ...routing._result import Result
from ...session._app_tables import AppEntry
from ...session._events import ConnectionChanged, Event
from ...session._evidence import with_default_evidence
from ...session._named_apps import is_app_name
from ..shared._activity import Activity, StoreChange, StoreWatcher
from ..shared._apps import App, Apps, Connect, PendingCall
from ..shared._detached import MAX_CONNECTIONS, CallLedger, DetachedCalls
from ._artifacts import ArtifactDescriber
from ._calls import QUESTION_TIMEOUT, Context, ToolCall, is_modern
from ._options import Options

logger = logging.getLogger("transports")

#: Function that opens an app with the arguments of `abp_connect`, under a session name.
Open: TypeAlias = Callable[[Mapping[str, object], str], Awaitable[App]]
#: Maximum number of a user's sessions of clients with a handshake (with ``isolate_sessions`` of all clients), and of
#: a user's streams of notifications for clients without one.
MAX_SESSIONS = 100
#: Key of the argument that marks a connection made by the bridge's settings, not by a model.
_CONFIGURED = "configured"


def _comparable_target(target: str) -> str:
    """Return a target in a form that is equal for equal addresses: the host in lower case, and a path."""
    if not is_address(target) or origin_of(target) is None:
        return target
    parts = urlsplit(target)  # its scheme is in lower case
    credentials, separator, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=credentials + separator + host.lower(), path=parts.path or "/").geturl()


class Connections:
    """The connections that a user has made, which outlive the apps and the bridge. Only the arguments of `abp_connect`
    are kept, no cookies and no secrets. Opening a connection again is therefore a new `abp_connect`, with the current
    rules."""

    def __init__(self, apps: Apps, ledger: CallLedger) -> None:
        self._apps = apps
        self._ledger = ledger
        self._scope = apps.scope
        #: Arguments of the kept connections by session; ``None`` until they are read from the ledger.
        self._kept: dict[str, dict[str, object]] | None = None
        self._loading = asyncio.Lock()
        self._opening: dict[str, asyncio.Future[App]] = {}
        #: Sessions that were opened again and had no call since.
        self._reopened: set[str] = set()
        self._writing: set[asyncio.Task[None]] = set()

    async def _kept_connections(self) -> dict[str, dict[str, object]]:
        async with self._loading:
            if self._kept is None:
                self._kept = await self._ledger.connections(self._scope)
        return self._kept

    async def keep(self, app: App, arguments: Mapping[str, object]) -> None:
        """Keep the connection of an app, with the arguments that opened it."""
        connections = await self._kept_connections()
        connections[app.key] = dict(arguments)

        # Above the limit, the oldest closed connections are forgotten.
        excess = max(len(connections) - MAX_CONNECTIONS, 0)
        closed_keys = [key for key in connections if key not in self._apps]
        for key in closed_keys[:excess]:
            del connections[key]
        await self._ledger.keep_connection(self._scope, app.key, arguments)

    async def find_open(self, target: str, arguments: Mapping[str, object]) -> App | None:
        """Return the oldest open app that these ``arguments`` of `abp_connect` could have opened, or ``None``: it has
        the same target, transport, browser and page."""
        connections = await self._kept_connections()
        transport = arguments.get("transport", "auto")
        defaults = {"browser": "chromium", "headless": True, "abpPage": EXTENSION_PAGE}
        wanted = {name: arguments.get(name, default) for name, default in defaults.items()}

        for key, app in self._apps.items():
            has_target = _comparable_target(app.target) == _comparable_target(target)
            has_transport = transport in ("auto", app.session.transport.name)
            if not has_target or not has_transport:
                continue
            app_arguments = connections.get(key, {})
            if {name: app_arguments.get(name, default) for name, default in defaults.items()} == wanted:
                return app
        return None

    def forget(self, key: str) -> None:
        if self._kept is not None:
            self._kept.pop(key, None)
        spawn(self._ledger.forget_connection(self._scope, key), self._writing)

    async def connect_configured(self, target: str, connect: Callable[[str | None], Awaitable[App]]) -> App:
        """Connect a target of the bridge's settings, under its previous session name if it had one."""
        arguments = {_CONFIGURED: target}
        previous_session = None
        for session, kept_arguments in (await self._kept_connections()).items():
            if kept_arguments == arguments and session not in self._apps:
                previous_session = session
                break
        app = await connect(previous_session)
        await self.keep(app, arguments)
        return app

    async def arguments_of_closed_apps(self) -> dict[str, dict[str, object]]:
        """Return the arguments of the kept connections whose apps are not open, by session. Connections of the bridge's
        settings are left out."""
        return {
            session: arguments
            for session, arguments in (await self._kept_connections()).items()
            if session not in self._apps and _CONFIGURED not in arguments
        }

    async def select(self, key: object, open_app: Open, capability: str | None = None) -> App:
        """Return an app; a closed one is opened again with ``open_app``, once for several calls at the same time.
        Without a ``key`` the only closed app is selected if no app is open."""
        is_open = bool(self._apps) if key is None else key in self._apps
        if is_open:
            return self._apps.select(key, capability)

        closed_apps = await self.arguments_of_closed_apps()
        selected_key = key
        if key is None and closed_apps:
            if len(closed_apps) > 1:
                raise UsageError(f"several apps were connected; choose one with `session`: {', '.join(closed_apps)}")
            (selected_key,) = closed_apps

        if isinstance(selected_key, str) and selected_key in closed_apps:
            await self._reopen(selected_key, closed_apps[selected_key], open_app)
        return self._apps.select(selected_key, capability)

    async def _reopen(self, key: str, arguments: Mapping[str, object], open_app: Open) -> None:
        """Open a closed app again. If it is being opened already, wait for that."""
        if key not in self._opening:
            opening = self._opening[key] = asyncio.ensure_future(open_app(arguments, key))
            opening.add_done_callback(partial(self._on_opened, key))
        await asyncio.shield(self._opening[key])
        self._reopened.add(key)

    def _on_opened(self, key: str, opening: asyncio.Future[App]) -> None:
        del self._opening[key]
        # The request that waited for the app may be gone, so its error may have no reader.
        mark_retrieved(opening)

    def with_warning_if_reopened(self, app: App, result: Result) -> Result:
        if app.key not in self._reopened:
            return result
        self._reopened.discard(app.key)
        warning = (
            "the app had been closed and was opened again: its state and manual sign-ins are lost; no sign-in was "
            "repeated"
        )
        return replace(result, warnings=(*result.warnings, warning))

    async def aclose(self) -> None:
        for opening in tuple(self._opening.values()):
            opening.cancel()
        if self._writing:
            await asyncio.wait(self._writing)


_ARTIFACT = "artifact://"
#: Maximum number of resources to which one client is subscribed.
_MAX_URIS = 1000


@dataclass(slots=True)
class _Client:
    """A client with a handshake: its session, the lowest log level that it wants, and its subscriptions."""

    session: ServerSession
    level: types.LoggingLevel = "info"
    uris: set[str] = field(default_factory=set)


class Subscribers:
    """Sends clients what they have subscribed to. Clients may subscribe to artifacts of ``store``, which is watched
    while there are such subscriptions, and to resources of the MCP servers among ``apps``. Notifications are sent in
    the background; an unreachable client is dropped. A client with a handshake is known by its connection; a newer one
    opens a stream with :meth:`listen`."""

    def __init__(self, store: ArtifactStore, apps: Apps) -> None:
        self._apps = apps
        self._bus = InMemorySubscriptionBus()
        self._streams = ListenHandler(self._bus, max_subscriptions=MAX_SESSIONS)
        #: Clients with a handshake by their connection's key, least recently used first.
        self._clients: Recent[str, _Client] = Recent(MAX_SESSIONS)
        #: Subscribed URIs of each open stream.
        self._stream_uris: list[list[str]] = []
        self._watcher = StoreWatcher(store, self._store_changed)
        #: Servers that have accepted a subscription, by URI.
        self._servers: dict[str, App] = {}
        self._update_lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    async def aclose(self) -> None:
        self._streams.close()
        self._clients.clear()
        await cancel_and_wait(self._tasks)
        await self._watcher.aclose()

    @property
    def is_empty(self) -> bool:
        return not self._stream_uris and not self._subscribed_uris()

    # --- clients ------------------------------------------------------------------------------------------------------

    def register(self, ctx: Context) -> None:
        """Let a client with a handshake receive notifications; others call :meth:`listen` instead."""
        if not is_modern(ctx):
            self._client_of(ctx)

    def _client_of(self, ctx: Context) -> _Client:
        """Return the client of a request, which is now the most recently used one."""
        key = connection_key(ctx)
        client = self._clients.get(key) or _Client(ctx.session)
        client.session = ctx.session
        self._clients[key] = client
        return client

    async def listen(
        self, ctx: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        """Answer the request with which a client without a handshake listens: send notifications until it ends."""
        uris = list(dict.fromkeys(params.notifications.resource_subscriptions or ()))[:_MAX_URIS]
        self._stream_uris.append(uris)
        try:
            await self.update_subscriptions()
            return await self._streams(ctx, params)
        finally:
            self._stream_uris.remove(uris)
            spawn(self.update_subscriptions(), self._tasks)

    async def subscribe(self, ctx: Context, uri: str) -> None:
        uris = self._client_of(ctx).uris
        if len(uris) >= _MAX_URIS and uri not in uris:
            raise MCPError(types.INVALID_PARAMS, f"{_MAX_URIS} resources are subscribed to, which is the limit")
        uris.add(uri)
        await self.update_subscriptions()

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        self._client_of(ctx).uris.discard(uri)
        await self.update_subscriptions()

    def set_level(self, ctx: Context, level: types.LoggingLevel) -> None:
        self._client_of(ctx).level = level

    # --- changes ------------------------------------------------------------------------------------------------------

    def tools_changed(self) -> None:
        """Announce changed lists of tools and of prompts, which come from the same apps, to all clients."""
        self._announce_change(ToolsListChanged(), ServerSession.send_tool_list_changed, self._clients)
        self._announce_change(PromptsListChanged(), ServerSession.send_prompt_list_changed, self._clients)

    def resources_changed(self) -> None:
        self._announce_change(ResourcesListChanged(), ServerSession.send_resource_list_changed, self._clients)

    def _store_changed(self, change: StoreChange) -> None:
        """Announce stored and removed artifacts: to subscribers of the artifact, and as a change of the list to all."""
        changed_ids = {ref.id for ref in (*change.stored, *change.updated)}
        changed_ids.update(artifact_id for artifact_id, _ in change.removed)
        for uri in self._subscribed_uris():
            artifact_id = uri.removeprefix(_ARTIFACT).partition("?")[0]
            if artifact_id in changed_ids:
                self.resource_updated(uri)
        self.resources_changed()

    def resource_updated(self, uri: str) -> None:
        keys = [key for key, client in self._clients.items() if uri in client.uris]
        self._announce_change(ResourceUpdated(uri), partial(ServerSession.send_resource_updated, uri=uri), keys)

    async def log(self, level: types.LoggingLevel, logger: str, data: JSONValue, ctx: Context | None) -> None:
        """Send a log message to the client of the request ``ctx``, or without a request to all clients with a
        handshake. Clients without a handshake get log messages only during a request that asks for them."""
        message = types.LoggingMessageNotification(
            params=types.LoggingMessageNotificationParams(level=level, logger=logger, data=clamp(data, 4096))
        )
        if ctx is not None:
            is_allowed = level in allowed_log_levels(ctx.protocol_version, ctx.meta)
            if is_allowed and self._wants_level(connection_key(ctx), level):
                await ctx.session.send_notification(message, ctx.request_id)
            return

        for key in [key for key in self._clients if self._wants_level(key, level)]:
            await self._notify_client(key, lambda session: session.send_notification(message))

    def _wants_level(self, key: str, level: types.LoggingLevel) -> bool:
        least_severe_first: tuple[str, ...] = get_args(types.LoggingLevel)
        client = self._clients.get(key)
        return client is None or least_severe_first.index(level) >= least_severe_first.index(client.level)

    def _announce_change(
        self, event: ServerEvent, send: Callable[[ServerSession], Coroutine[object, object, None]], keys: Iterable[str]
    ) -> None:
        """Send a change in the background: as ``event`` to streams, and with ``send`` to the clients with these
        keys."""

        async def publish(keys: list[str]) -> None:
            await self._bus.publish(event)
            for key in keys:
                await self._notify_client(key, send)

        spawn(publish(list(keys)), self._tasks)

    async def _notify_client(self, key: str, send: Callable[[ServerSession], Coroutine[object, object, None]]) -> None:
        client = self._clients.get(key)
        if client is None:
            return
        try:
            await send(client.session)
        except Exception as error:
            # The other clients must still be notified.
            if not isinstance(error, (MCPError, ClosedResourceError, BrokenResourceError)):
                logger.exception("a client could not be notified")
            self._clients.pop(key, None)
            spawn(self.update_subscriptions(), self._tasks)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def _subscribed_uris(self) -> set[str]:
        return set[str]().union(*self._stream_uris, *(client.uris for client in self._clients.values()))

    async def update_subscriptions(self) -> None:
        """Watch the store and subscribe at servers, as the clients' subscriptions now need it. After this returns, no
        change is missed."""
        async with self._update_lock:
            if any(uri.startswith(_ARTIFACT) for uri in self._subscribed_uris()):
                await self._watcher.start()
            else:
                await self._watcher.aclose()
            await self._update_servers({uri for uri in self._subscribed_uris() if not uri.startswith(_ARTIFACT)})

    async def _update_servers(self, uris: set[str]) -> None:
        """Subscribe to ``uris`` at servers, and end all other subscriptions there. A URI that no server accepts is
        tried again with the next update."""
        for uri, app in list(self._servers.items()):
            is_open = self._apps.get(app.key) is app
            if uri in uris and is_open:
                continue
            del self._servers[uri]
            if is_open:
                await _change_subscription(app, uri, app.session.resources.unsubscribe_for(self, uri))

        # Subscribe to each URI at the first server that accepts it.
        for uri in uris - self._servers.keys():
            for app in tuple(self._apps.values()):
                resources = app.session.resources
                if resources.available and await _change_subscription(app, uri, resources.subscribe_for(self, uri)):
                    self._servers[uri] = app
                    break


async def _change_subscription(app: App, uri: str, change: Awaitable[object]) -> bool:
    """Await the ``change`` of a subscription at a server. Return whether the server accepts it; an error is logged."""
    try:
        await change
    except ABPError as error:
        logger.info("%s: %s: %s", app.session.info.name, uri[:200], error.message)
        return False
    return True


def connection_key(ctx: Context) -> str:
    """Return the session id of a client with a handshake over HTTP; it is empty for all other clients."""
    if ctx.request is None or is_modern(ctx):
        return ""
    session: str = ctx.request.headers.get("mcp-session-id", "")
    return session


#: Named apps of a bridge without a settings file.
NO_APPS: Mapping[str, AppEntry] = MappingProxyType({})


class User:
    """A user with apps, calls and subscriptions, isolated from all other users. It is the
    :class:`~transports.surfaces.shared._apps.AppListener` of its apps."""

    def __init__(self, users: Users, name: str, store: ArtifactStore) -> None:
        self.store = store
        #: Apps that the user may connect by name.
        self.named = {app: entry for app, entry in users.named.items() if entry.is_for(name)}
        self.apps = Apps(
            store,
            with_default_evidence(users.connect, users.options.evidence),
            self,
            limit=users.options.max_sessions,
            # The limit is for all sessions of the user together.
            counted=partial(users.count_apps, name),
        )
        self.calls = users.calls
        self.describer = users.describer
        self.connections = Connections(self.apps, users.calls.ledger)
        self.subscribers = Subscribers(store, self.apps)
        #: Calls under way that concern no app.
        self.pending_calls: list[PendingCall] = []
        self.options = users.options
        self._activity = users.activity
        self._suspended: dict[str, ToolCall] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connecting: dict[str, asyncio.Task[App]] = {}
        #: True until the first request, and after :meth:`retire`.
        self._dormant = True
        self._closing = False
        self._last_used = time.monotonic()

    # --- apps ---------------------------------------------------------------------------------------------------------

    async def connect(self, target: str, options: dict[str, object], key: str | None = None) -> App:
        """Connect an app; ``key`` is its previous session name, if any."""
        entry = self.named.get(target)
        has_setting = entry is not None and entry.headless is not None
        if self.options.headless is not None and not has_setting:
            options = {**options, "headless": self.options.headless}
        return await self.apps.connect(target, options, key=key)

    async def connect_named(self, name: str, options: dict[str, object], key: str | None = None) -> App:
        """Connect a named app. Only the operator can set its options, except ``timeout``."""
        if name not in self.named:
            names = ", ".join(sorted(self.named)) or "none"
            message = f"unknown app {name[:100]!r}; apps to connect by name: {names}"
            raise UsageError(message, code="NOT_FOUND", details={"argument": "name"})
        operator_options = options.keys() - {"timeout"}
        if operator_options:
            raise UsageError(f"{', '.join(sorted(operator_options))}: omit it; only the operator can set it for {name}")
        return await self.connect(name, options, key)

    def on_connected(self, app: App) -> None:
        if self._activity:
            self._activity.on_connected(app)
        self.subscribers.tools_changed()
        if app.session.resources.available:
            spawn(self.subscribers.update_subscriptions(), self._tasks)

    def on_disconnected(self, app: App) -> None:
        """Forget the connection, but not if the app was disconnected because the user is retired or closed."""
        if not self._dormant and not self._closing:
            self.connections.forget(app.key)
        if self._activity:
            self._activity.on_disconnected(app)
        self.subscribers.tools_changed()

    def on_event(self, app: App, event: Event) -> None:
        if self._activity:
            self._activity.on_event(app, event)
        match event:
            case CapabilitiesChanged():
                self.subscribers.tools_changed()
            case Notification(event="notifications/resources/updated", data={"uri": str(uri)}):
                self.subscribers.resource_updated(uri)
            case Notification():
                spawn(self._forward_log(app, event.event, event.data), self._tasks)
            case ConnectionChanged():
                name = "connection/restored" if event.connected else "connection/lost"
                spawn(self._forward_log(app, name, {"reason": event.reason}), self._tasks)

    async def _forward_log(self, app: App, event: str, data: object) -> None:
        """Send an event to the client that waits for the app's latest call, or to all clients if there is none."""
        ctx: Context | None = None
        if app.pending_calls and isinstance(app.pending_calls[-1], ToolCall):
            ctx = app.pending_calls[-1].ctx
        level: types.LoggingLevel = "info"
        if event == "notifications/error":
            level = "error"
        elif event == "connection/lost":
            level = "warning"
        message = cast(JSONValue, plain_tree({"event": event, "data": data}))
        await self.subscribers.log(level, f"abp.{app.key}", message, ctx)

    async def wait_until_connected(self, timeout: float | None = None) -> str | None:
        """Wait until the apps of the options are connected. Return a text with those that failed and the reasons, or
        ``None`` if none failed."""
        if not self._connecting:
            return None
        await asyncio.wait(self._connecting.values(), timeout=timeout)

        failures = []
        for target, task in self._connecting.items():
            has_ended = task.done() and not task.cancelled()
            error = task.exception() if has_ended else None
            if error is not None:
                reason = error.message if isinstance(error, ABPError) else str(error)
                failures.append(f"{redact_url(target)} could not be connected: {reason}")
        return "; ".join(failures) or None

    async def aclose(self) -> None:
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
        """Keep a call that waits for an answer, and return its key for :meth:`resume`. After ten minutes without an
        answer the call is cancelled."""
        key = secrets.token_hex(16)
        self._suspended[key] = call
        asyncio.get_running_loop().call_later(QUESTION_TIMEOUT, self._cancel_suspended, key)
        return key

    def resume(self, key: str) -> ToolCall:
        """Return a suspended call. Raises :class:`~transports.errors.UsageError` if it has ended."""
        call = self._suspended.pop(key, None)
        if call is None:
            raise UsageError("the call that asked has ended; make it again", code="SESSION_EXPIRED", retryable=True)
        return call

    def _cancel_suspended(self, key: str) -> None:
        call = self._suspended.pop(key, None)
        if call is not None:
            spawn(call.aclose(), self._tasks)

    # --- activity of the user -----------------------------------------------------------------------------------------

    def mark_used(self) -> None:
        """Note the beginning or the end of a request. The first request connects the apps of the options."""
        self._last_used = time.monotonic()
        if not self._dormant:
            return

        self._dormant = False
        self._connecting = {}
        for target in self.options.apps:
            is_for_others = is_app_name(target) and target not in self.named
            if is_for_others:
                continue
            options: dict[str, object] = {}
            if self.options.adapter is not None:
                options["adapter"] = self.options.adapter
            connect = partial(self.connect, target, options)
            self._connecting[target] = asyncio.ensure_future(self.connections.connect_configured(target, connect))

    def idle_seconds(self) -> float:
        """Return the seconds since the last request; 0 while a call is running or an app is being connected."""
        if self._suspended or self.pending_calls or self.apps.busy:
            return 0.0
        return time.monotonic() - self._last_used

    async def retire(self) -> None:
        """Disconnect all apps until the user's next request."""
        if not self._dormant:
            self._dormant = True
            await cancel_and_wait(self._connecting.values())
            await self.apps.disconnect_all()


@dataclass(eq=False)
class Users:
    """The users of a server. Where methods take a ``connection``, it is the session id of a request, empty without a
    session. It only matters with ``isolate_sessions``, which makes each session a separate user."""

    store: ArtifactStore
    connect: Connect
    options: Options
    calls: DetachedCalls
    activity: Activity | None
    named: Mapping[str, AppEntry]
    describer: ArtifactDescriber = field(default_factory=ArtifactDescriber)
    _users: dict[tuple[str, str | None], User] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _run_id: str = field(default_factory=lambda: secrets.token_hex(8))

    def get(self, connection: str) -> User:
        """Return the user of the current request: the one of its token, or with ``isolate_sessions`` of its session."""
        name, session = key = self._user_key(connection)
        if key not in self._users:
            # The client's session is the tenant, since the session of a scope is that of an app.
            store = self.store.scoped(Scope(tenant=session, user=name))
            self._make_room(name)
            self._users[key] = User(self, name, store)
        self._users[key].mark_used()
        return self._users[key]

    def count_apps(self, name: str) -> int:
        """Count the apps of a user's sessions together."""
        return sum(user.apps.count for (owner, _), user in self._users.items() if owner == name)

    def _make_room(self, name: str) -> None:
        """Close the longest idle session of a user who has as many as are allowed."""
        keys = [(owner, session) for owner, session in self._users if owner == name]
        if len(keys) >= MAX_SESSIONS:
            longest_idle = max(keys, key=lambda key: self._users[key].idle_seconds())
            spawn(self._users.pop(longest_idle).aclose(), self._closing)

    def find(self, connection: str) -> User | None:
        """Return the user as :meth:`get` does, but ``None`` for an unknown session, which may not exist at all."""
        is_unknown = self._user_key(connection) not in self._users
        if self.options.isolate_sessions and connection and is_unknown:
            return None
        return self.get(connection)

    def _user_key(self, connection: str) -> tuple[str, str | None]:
        """Return the name in the current request's token, and the session with ``isolate_sessions`` (else ``None``)."""
        token = get_access_token()
        name = "local"
        if token is not None:
            name = token.subject or token.client_id
        if not self.options.isolate_sessions:
            return name, None
        return name, connection or self._run_id

    async def aclose(self) -> None:
        users = list(self._users.values())
        self._users.clear()
        await asyncio.gather(*(user.aclose() for user in users), *self._closing)

    async def retire_idle(self) -> None:
        """Disconnect the apps of users without a request for ``idle_minutes``, until cancelled."""
        limit = self.options.idle_minutes * 60
        while True:
            await asyncio.sleep(min(limit / 4, 30))
            idle_users = [(key, user) for key, user in self._users.items() if user.idle_seconds() > limit]
            for key, user in idle_users:
                await self._retire_user(key, user, limit)

    async def _retire_user(self, key: tuple[str, str | None], user: User, limit: float) -> None:
        """Disconnect the apps of a user who is still idle. A user without subscriptions is forgotten."""
        # The user may have made a request while other users were retired.
        is_still_idle = self._users.get(key) is user and user.idle_seconds() > limit
        if not is_still_idle:
            return
        if user.subscribers.is_empty:
            del self._users[key]
        try:
            await user.retire()
        except Exception:
            # The other users must still be retired.
            logger.exception("the apps of an idle user could not be disconnected")
