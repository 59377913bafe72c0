"""Apps that a server keeps connected for one user, by key: the MCP bridge and the web server share this."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, TypeAlias

from ...artifacts import ArtifactStore, Scope
from ...errors import UsageError
from ...protocol.elicitation import default_answer
from ...protocol.payloads import ElicitationRequest
from ...session.events import Event
from ...session.session import Session
from ...tasks import cancel_and_wait, spawn

__all__ = ["App", "Apps", "Asker", "Connect", "Watcher", "new_key"]

logger = logging.getLogger("transports")

#: ``transports.connect``, or what stands for it.
Connect: TypeAlias = Callable[..., Session]


def new_key() -> str:
    """A name for a session that nobody can guess."""
    return secrets.token_hex(4)


class Asker(Protocol):
    """Somebody who can be asked what an app wants to know, for as long as a call runs."""

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        """``{success, data}`` for the app."""

    async def aclose(self) -> None:
        """Cancel the call, in the app too."""


class Watcher(Protocol):
    """Somebody who is told what becomes of apps. May not block."""

    def connected(self, app: App, apps: Apps) -> None:
        """It is open and among the others."""

    def disconnected(self, app: App) -> None:
        """It is no longer among the others; its session closes."""

    def heard(self, app: App, event: Event) -> None:
        """An event of its session."""


class App:
    """One connected app. A task of its own opens and closes the session, since requests come and go in others."""

    def __init__(self, key: str, target: str) -> None:
        self.key = key
        self.target = target
        self.session: Session
        #: Calls under way, oldest first.
        self.running: list[Asker] = []
        self._opened = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, session: Session, heard: Callable[[App, Event], object]) -> None:
        """Connect, and give every event of the session to ``heard``. Raises what opening a session does; whoever is
        cancelled meanwhile has to close."""
        self.session = session
        self._task = asyncio.ensure_future(self._live(heard))
        opened = asyncio.ensure_future(self._opened.wait())
        try:
            await asyncio.wait((opened, self._task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
        if not self._opened.is_set():
            await self._task  # raises why

    async def _live(self, heard: Callable[[App, Event], object]) -> None:
        async with self.session as session, session.events() as events:
            watching = asyncio.ensure_future(self._watch(events, heard))
            self._opened.set()
            try:
                await self._stop.wait()
            finally:
                await cancel_and_wait((watching,))

    async def aclose(self) -> None:
        """Close, or stop opening; what closing complains of is logged."""
        self._stop.set()
        if self._task is not None:
            if not self._opened.is_set():
                self._task.cancel()
            await asyncio.wait((self._task,))
            if not self._task.cancelled() and (error := self._task.exception()):
                logger.warning("closing %s: %s", self.key, error)

    async def asked(self, request: ElicitationRequest) -> Mapping[str, object]:
        """The app has a question. ABP does not say which call it belongs to: the latest one is taken."""
        return await self.running[-1].ask(request) if self.running else default_answer(request)

    async def _watch(self, events: AsyncIterator[Event], heard: Callable[[App, Event], object]) -> None:
        async for event in events:
            heard(self, event)


class Apps(dict[str, App]):
    """The connected apps of one user, by key, oldest first. What they store belongs to a scope of their key within that
    of ``store``. At most ``most`` are connected; ``connect`` stands for :func:`transports.connect`."""

    def __init__(self, store: ArtifactStore, connect: Connect, watcher: Watcher, *, most: int) -> None:
        super().__init__()
        self._store = store
        self._connect = connect
        self._watcher = watcher
        self._most = most
        self._opening: set[App] = set()
        self._abandoned: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        """Whether a call or the opening of an app is under way."""
        return bool(self._opening) or any(app.running for app in self.values())

    async def connect(self, target: str, options: Mapping[str, object]) -> App:
        """Connect an app. Raises what :func:`transports.connect` and opening do."""
        if len(self) + len(self._opening) >= self._most:
            words = f"{self._most} apps are connected, which is the limit; disconnect one first"
            raise UsageError(words, code="LIMIT_REACHED")
        app = App(new_key(), target)
        session = self._connect(
            target, store=self._store.scoped(Scope(session=app.key)), on_elicitation=app.asked, **options
        )
        self._opening.add(app)
        try:
            await app.open(session, self._watcher.heard)
        except asyncio.CancelledError:
            spawn(self._abandon(app), self._abandoned)
            raise
        except BaseException:
            self._opening.discard(app)
            raise
        self._opening.discard(app)
        self[app.key] = app
        self._watcher.connected(app, self)
        return app

    async def _abandon(self, app: App) -> None:
        await app.aclose()
        self._opening.discard(app)

    async def disconnect(self, app: App) -> None:
        """Close one; once."""
        if self.pop(app.key, None) is not None:
            self._watcher.disconnected(app)
            await app.aclose()

    async def aclose(self) -> None:
        """End all calls and close all apps, at once."""
        for running in [call for app in self.values() for call in app.running]:
            await running.aclose()
        await asyncio.gather(*(self.disconnect(app) for app in tuple(self.values())))
        await asyncio.gather(*(app.aclose() for app in tuple(self._opening)), *self._abandoned)

    def chosen(self, key: object, capability: str | None = None) -> App:
        """The app that ``key`` names; without one the only app there is, or the only one with that capability. Raises
        :class:`~transports.errors.UsageError`."""
        if isinstance(key, str):
            if key in self:
                return self[key]
            raise UsageError(f"there is no session {key!r}; {self._known()}", code="SESSION_INVALID")
        able = [app for app in self.values() if capability is None or capability in app.session.capabilities]
        if len(self) == 1 or len(able) == 1:
            return able[0] if len(able) == 1 else next(iter(self.values()))
        if not self:
            raise UsageError("no app is connected; connect one first, with its url", code="NOT_INITIALIZED")
        raise UsageError(f"several apps are connected; say which with `session`: {self._known()}")

    def _known(self) -> str:
        if not self:
            return "no app is connected"
        return "there is " + ", ".join(f"{key} ({app.session.info.name})" for key, app in self.items())
