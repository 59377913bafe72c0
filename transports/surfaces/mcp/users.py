"""The users of one bridge, by the tokens and sessions of their requests."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

from mcp.server.auth.middleware.auth_context import get_access_token

from ...artifacts import ArtifactStore, Scope
from ...session.app_tables import AppEntry
from ...tasks import spawn
from ..shared.activity import Activity
from ..shared.apps import Connect
from ..shared.detached import DetachedCalls
from .options import Options
from .user import User
from .user_limits import MAX_SESSIONS

__all__ = ["Users"]

#: Seconds between two checks for idle users, at most.
_IDLE_CHECK = 30.0
#: The user over stdio, where there is only one.
_LOCAL = "local"


@dataclass(eq=False)
class Users:
    """Makes each user with its first request. ``connection`` is the name of a request's session, empty without one; it
    counts with ``isolate_sessions``."""

    store: ArtifactStore
    connect: Connect
    options: Options
    calls: DetachedCalls
    activity: Activity | None
    named: Mapping[str, AppEntry]
    _known: dict[tuple[str, str | None], User] = field(default_factory=dict)
    _closing: set[asyncio.Task[None]] = field(default_factory=set)
    _run: str = field(default_factory=lambda: secrets.token_hex(8))

    def get(self, connection: str) -> User:
        """Return the user of the token of the current request; with ``isolate_sessions``, in this session alone."""
        name, session = key = self._key(connection)
        if key not in self._known:
            # what apps store has a session of its own: theirs
            store = self.store.scoped(Scope(tenant=session, user=name))
            named = {app: entry for app, entry in self.named.items() if entry.is_for(name)}
            self._make_room(name)
            self._known[key] = User(
                store, self.connect, self.options, self.calls, self.activity, named, partial(self._connected, name)
            )
        self._known[key].touch()
        return self._known[key]

    def _connected(self, name: str) -> int:
        """How many apps a user has connected in all sessions."""
        return sum(user.apps.count for (owner, _), user in self._known.items() if owner == name)

    def _make_room(self, name: str) -> None:
        """End the session of a user that was used longest ago, where there are as many as there may be."""
        own = {key: user.idle_seconds() for key, user in self._known.items() if key[0] == name}
        if len(own) >= MAX_SESSIONS:
            spawn(self._known.pop(max(own, key=own.__getitem__)).aclose(), self._closing)

    def find(self, connection: str) -> User | None:
        """Return what :meth:`get` does; ``None`` for a session that has no user yet, and may be none."""
        if self.options.isolate_sessions and connection and self._key(connection) not in self._known:
            return None
        return self.get(connection)

    def _key(self, connection: str) -> tuple[str, str | None]:
        token = get_access_token()
        name = (token.subject or token.client_id) if token else _LOCAL
        return name, (connection or self._run) if self.options.isolate_sessions else None

    async def aclose(self) -> None:
        """Close all sessions of all users. Idempotent."""
        users = list(self._known.values())
        self._known.clear()
        await asyncio.gather(*(user.aclose() for user in users), *self._closing)

    async def retire_idle(self) -> None:
        """Disconnect the apps of users without a request for ``idle_minutes``, until cancelled."""
        limit = self.options.idle_minutes * 60
        while True:
            await asyncio.sleep(min(limit / 4, _IDLE_CHECK))
            for key, user in list(self._known.items()):
                if user.idle_seconds() > limit and self._known.get(key) is user:
                    if user.subscribers.empty:
                        del self._known[key]
                    await user.retire()
