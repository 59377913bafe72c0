"""Connected apps of one user of a server, by key. The MCP bridge and the web server share this module."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from ... import batch
from ..._internal.tasks import cancel_and_wait, spawn, start_task
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import Scope
from ...errors import Disconnected, UsageError
from ...playwright._scripts import read_adapter
from ...protocol._elicitation import default_answer
from ...protocol._payloads import ElicitationRequest
from ...protocol._plain_text import plain_line, redact_url
from ...routing._result import Result
from ...session._events import Event
from ...session._named_apps import is_app_name, shares_browser
from ...session._settings import Settings

if TYPE_CHECKING:
    from ...session._session import Session
    from ...session._views import View

logger = logging.getLogger("transports")

#: :func:`transports.connect`, or a function that replaces it.
Connect: TypeAlias = "Callable[..., Session]"


def connect(target: str, **options: Any) -> Session:
    """Connect as :func:`transports.connect` does, but import it only with the first app: a server starts faster so."""
    from ...session._connect import connect

    return connect(target, **options)


def new_session_key() -> str:
    return secrets.token_hex(4)


def adapter_options(targets: Sequence[str], adapter: Path | None) -> dict[str, object]:
    """Return the connect options for an ``adapter``, after checking it. It is for a single target, which is a page.
    Without an adapter return no options, and accept any ``targets``."""
    if adapter is None:
        return {}
    if len(targets) != 1:
        raise UsageError(
            f"an adapter ({adapter.name}) is for one app, and {len(targets)} are given; name just that app"
        )
    read_adapter(adapter, targets[0])
    return {"adapter": adapter}


class PendingCall(Protocol):
    """Protocol of a running call and its answers to the app's questions."""

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Return the answer to a question as ``{"success": …, "data": …}``."""

    async def aclose(self) -> None:
        """Cancel the call, in the app too."""


C = TypeVar("C", bound=PendingCall)


async def run_as_pending(
    pending: list[PendingCall], call: C, work: Callable[[C], Coroutine[object, object, Result]]
) -> Result:
    """Await ``work``, and keep the call in the list ``pending`` meanwhile."""
    pending.append(call)
    try:
        return await work(call)
    finally:
        pending.remove(call)


class AppListener(Protocol):
    """Protocol of a receiver of apps' events. The methods may not block."""

    def on_connected(self, app: App) -> None:
        """Handle a new ``app``, which is open."""

    def on_disconnected(self, app: App) -> None:
        """Handle the removal of ``app``, before its session is closed."""

    def on_event(self, app: App, event: Event) -> None: ...


class App:
    """Connected app of ``apps``. A separate task opens and closes the session, since requests run in other tasks."""

    def __init__(self, key: str, target: str, apps: Apps) -> None:
        self.key = key
        self.target = target
        self.apps = apps
        self.session: Session
        #: For a view: the app whose tool has opened it, together with which it is disconnected, and its session.
        self.opened_by: App | None = None
        self.view: View | None = None
        #: Running calls, oldest first.
        self.pending_calls: list[PendingCall] = []
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        #: Set by :meth:`open`.
        self._task: asyncio.Task[None]

    @property
    def is_named(self) -> bool:
        return is_app_name(self.target)

    @property
    def scope(self) -> Scope:
        return self.session.store.scope

    @property
    def shown_target(self) -> str:
        return redact_url(self.target)

    async def open(self, session: Session) -> None:
        """Open the session in a separate task. A caller that is cancelled meanwhile has to call :meth:`aclose`."""
        self.session = session
        self._task = asyncio.ensure_future(self._keep_open())
        await asyncio.wait((self._opened, self._task), return_when=asyncio.FIRST_COMPLETED)
        failed = not self._opened.done()
        if failed:
            await self._task  # raises the error of opening

    async def _keep_open(self) -> None:
        """Open the session, and close it in the same task when :meth:`aclose` asks for it."""
        async with self.session as session, session.events() as events:
            forwarding = start_task(self._forward_events(events))
            self._opened.set_result(None)
            try:
                await self._stop.wait()
            finally:
                await cancel_and_wait((forwarding,))

    async def _forward_events(self, events: AsyncIterator[Event]) -> None:
        async for event in events:
            try:
                self.apps.listener.on_event(self, event)
            except Exception:  # the next events must still arrive
                logger.exception("an event of %s could not be handled", self.key)

    async def aclose(self) -> None:
        """Close the session, or stop opening it. An error while closing is logged, not raised."""
        self._stop.set()
        if not self._opened.done():
            self._task.cancel()
        await asyncio.wait((self._task,))
        if not self._task.cancelled() and self._task.exception():
            logger.warning("closing %s: %s", self.key, self._task.exception())

    async def on_elicitation(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Answer a question of the app: let the latest running call ask, since ABP does not say which call it is
        for."""
        if not self.pending_calls:
            return default_answer(request)
        return await self.pending_calls[-1].ask(request)


class Apps(dict[str, App]):
    """Apps by key, oldest first, at most ``limit``. ``counted`` returns the number of apps that count for the limit, by
    default the number of these apps. The artifacts of an app have its key as their session, within the scope of
    ``store``. ``connect`` replaces :func:`transports.connect`."""

    def __init__(
        self,
        store: ArtifactStore,
        connect: Connect,
        listener: AppListener,
        *,
        limit: int,
        counted: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._connect = connect
        self.listener = listener
        self._limit = limit
        self._counted = counted or (lambda: self.count)
        self._opening: set[App] = set()
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def scope(self) -> Scope:
        return self._store.scope

    @property
    def count(self) -> int:
        return len(self) + len(self._opening)

    @property
    def busy(self) -> bool:
        return bool(self._opening) or any(app.pending_calls for app in self.values())

    async def connect(
        self, target: str, options: Mapping[str, object], *, owner: Scope | None = None, key: str | None = None
    ) -> App:
        """Connect an app. Its artifacts belong to ``owner``, a tenant or a user, if there is one. ``key`` is the key of
        an earlier session, by default a new one."""
        self._check_limit()
        app = App(key or new_session_key(), target, self)
        session = self._connect(
            target,
            store=self._store.scoped(replace(owner or Scope(), session=app.key)),
            on_elicitation=app.on_elicitation,
            **options,
        )
        return await self._open_app(app, session)

    async def open_view(self, opener: App, view: View, uri: str) -> App:
        """Open a view, which is disconnected with ``opener``. Its artifacts are those of ``opener``."""
        self._check_limit()
        app = App(new_session_key(), uri, self)
        app.opened_by = opener
        app.view = view
        return await self._open_app(app, view)

    def _check_limit(self) -> None:
        if self._counted() >= self._limit:
            message = f"{self._limit} apps are connected, which is the limit; disconnect one first"
            raise UsageError(message, code="LIMIT_REACHED")

    async def _open_app(self, app: App, session: Session) -> App:
        """Open the session of an app and add the app. It counts for the limit while it is being opened."""
        self._opening.add(app)
        try:
            await app.open(session)
        except asyncio.CancelledError:
            # The caller must not wait for a session to close. The app counts for the limit until it has closed.
            spawn(self._abandon(app), self._abandoned)
            raise
        except BaseException:
            self._opening.discard(app)
            raise
        self._opening.discard(app)

        opener_is_gone = app.opened_by is not None and app.opened_by.key not in self
        if opener_is_gone:
            await app.aclose()
            raise Disconnected("the app was disconnected while its view was opened")

        self[app.key] = app
        self.listener.on_connected(app)
        return app

    async def _abandon(self, app: App) -> None:
        await app.aclose()
        self._opening.discard(app)

    async def disconnect(self, app: App) -> None:
        """Remove one app and close its session, after its views. Idempotent."""
        if self.pop(app.key, None) is None:
            return
        self.listener.on_disconnected(app)
        views = [view for view in self.values() if view.opened_by is app]
        await asyncio.gather(*(self.disconnect(view) for view in views))
        await app.aclose()

    async def disconnect_all(self) -> None:
        # Disconnecting an app also disconnects its views.
        apps = [app for app in self.values() if app.opened_by is None]
        await asyncio.gather(*(self.disconnect(app) for app in apps))

    async def aclose(self) -> None:
        pending_calls = [call for app in self.values() for call in app.pending_calls]
        for call in pending_calls:
            await call.aclose()
        await self.disconnect_all()
        await asyncio.gather(*(app.aclose() for app in tuple(self._opening)), *self._abandoned)

    def select(self, key: object, capability: str | None = None) -> App:
        """Return the app with this key; without a key the only app, or the only one with ``capability``."""
        none_connected = "no app is connected; connect one first, with its url"
        if isinstance(key, str):
            if key in self:
                return self[key]
            advice = f"use one of {self._names()}" if self else none_connected
            raise UsageError(f"unknown session {key!r}; {advice}", code="SESSION_INVALID")

        candidates = [app for app in self.values() if capability is None or capability in app.session.capabilities]
        if len(candidates) == 1:
            return candidates[0]
        # The only app is returned even if it lacks the capability: its error will name similar capabilities.
        if len(self) == 1:
            return next(iter(self.values()))
        if not self:
            raise UsageError(none_connected, code="NOT_INITIALIZED")
        raise UsageError(f"several apps are connected; choose one with `session`: {self._names()}")

    def _names(self) -> str:
        return ", ".join(f"{key} ({plain_line(app.session.info.name)})" for key, app in self.items())


@asynccontextmanager
async def pooled(
    connect: Connect,
    browsers: int | None,
    store: ArtifactStore,
    *,
    config: Path | None = None,
    headless: bool | None = None,
) -> AsyncIterator[Connect]:
    """Yield a ``connect`` whose sessions with pages share this number of ``browsers``, each session in a separate
    context. If ``browsers`` is ``None``, yield ``connect`` itself. ``config`` is the settings file that ``connect``
    reads. ``headless`` applies to all sessions: a session with another value, or with its own browser, raises
    :class:`~transports.errors.UsageError`."""
    if browsers is None:
        yield connect
        return

    if headless is None:
        headless = Settings.load().headless
    max_sessions = 32  # of each browser; its memory is usually the lower limit
    async with batch.Pool(browsers, max_sessions, store=store, headless=headless) as pool:

        def connect_pooled(target: str, **options: object) -> Session:
            if not shares_browser(target, config, headless=headless):
                return connect(target, **options)
            if "browser" in options or options.get("headless", headless) not in (None, headless):
                raise UsageError("the browsers are shared here: leave browser and headless out")
            return connect(target, browser=pool, **options)

        yield connect_pooled
