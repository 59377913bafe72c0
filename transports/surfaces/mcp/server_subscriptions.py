"""Subscriptions of clients to resources of connected servers: each is passed on to the server that has the resource."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Set

from ...errors import ABPError
from ..shared.apps import App, Apps

__all__ = ["ServerSubscriptions"]

logger = logging.getLogger("transports")


class ServerSubscriptions:
    """The subscriptions of one user at the servers among ``apps``. For one event loop."""

    def __init__(self, apps: Apps) -> None:
        self._apps = apps
        self._subscribed: dict[str, App] = {}
        self._lock = asyncio.Lock()

    async def update(self, uris: Set[str]) -> None:
        """Be subscribed to these URIs and no others, at the first server that accepts each. One that no server accepts
        is asked for again with the next update, such as when an app was connected."""
        async with self._lock:
            for uri, app in list(self._subscribed.items()):
                if uri not in uris or self._apps.get(app.key) is not app:
                    del self._subscribed[uri]
                    if self._apps.get(app.key) is app:
                        await self._request(app, uri, subscribe=False)
            for uri in uris - self._subscribed.keys():
                for app in tuple(self._apps.values()):
                    if app.session.resources.available and await self._request(app, uri, subscribe=True):
                        self._subscribed[uri] = app
                        break

    async def _request(self, app: App, uri: str, *, subscribe: bool) -> bool:
        resources = app.session.resources
        try:
            await (resources.subscribe(uri) if subscribe else resources.unsubscribe(uri))
        except ABPError as error:
            logger.info("%s: %s: %s", app.session.info.name, uri[:200], error.message)
            return False
        return True
