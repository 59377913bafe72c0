"""The life of the web server: what it is made of, where it listens, how it ends."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from ...artifacts import ArtifactRef, ArtifactStore, Scope
from ...errors import ABPError, StoreError, UsageError
from ...protocol.urls import is_loopback
from ...session.connect import connect as connect_app
from ...tasks import cancel_and_wait
from ..shared.activity import Activity
from ..shared.apps import Apps, Connect
from .access import Access
from .arrivals import Arrivals
from .links import Links
from .options import Options
from .site import Site
from .state import noted, state_key

__all__ = ["Served", "serve"]

logger = logging.getLogger("transports")

#: aiohttp would tell of every malformed request, with its address, link and all.
_UNHEARD = logging.Logger("aiohttp", logging.CRITICAL)
#: Seconds for answers under way when the server ends.
_GOODBYE = 1.0
#: Seconds that a link in an answer holds.
_LINK = 86400.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. ``url`` ends in a slash."""

    url: str
    token: str
    apps: Apps
    activity: Activity
    links: Links

    @property
    def page(self) -> str:
        """The gallery's address for the operator."""
        return f"{self.url}#token={self.token}"

    def link(self, ref: ArtifactRef) -> str:
        """An address that opens an artifact for a day, without a token."""
        return self.url.rstrip("/") + self.links.path(ref.id, self.links.clock() + _LINK)


@asynccontextmanager
async def serve(
    store: ArtifactStore,
    options: Options,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    connect: Connect = connect_app,
    activity: Activity | None = None,
    users: Mapping[str, Scope] | None = None,
    links: Links | None = None,
) -> AsyncIterator[Served]:
    """Serve ``store`` while the context lasts. ``activity`` is a log that others feed too; ``users`` are tokens beside
    the operator's with what each opens; ``connect`` stands for :func:`transports.connect`.

    Raises :class:`~transports.errors.UsageError` for a ``host`` that others can reach without a token that was chosen,
    and :class:`~transports.errors.ABPError` where nothing can listen.
    """
    if not is_loopback(host) and options.token is None:
        raise UsageError(
            f"others can reach {host}: choose a token (--token, ABP_SERVE_TOKEN), or leave --host out to serve this "
            "machine alone"
        )
    token = options.token or secrets.token_urlsafe()
    activity = Activity() if activity is None else activity
    links = links or Links(options.key or _key())
    arrivals = Arrivals(store, activity)
    apps = Apps(store, connect, activity, most=options.max_apps)
    site = Site(store, options, activity, arrivals, apps, links, Access(token, links, host=host, users=users))
    async with AsyncExitStack() as stack:
        await arrivals.first()
        activity.on_artifacts = arrivals.look
        watching = asyncio.ensure_future(arrivals.run())
        stack.push_async_callback(cancel_and_wait, (watching,))
        stack.push_async_callback(apps.aclose)
        runner = web.AppRunner(
            site.app(),
            access_log=None,
            logger=_UNHEARD,
            shutdown_timeout=_GOODBYE,
            handle_signals=False,
            handler_cancellation=True,  # nothing goes on for a client that is gone
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(site.aclose)
        try:
            await web.TCPSite(runner, "127.0.0.1" if host == "localhost" else host, port).start()
        except OSError as error:
            raise ABPError(
                f"cannot listen on {host}:{port} ({error.strerror or error}); name another with --port, or leave it "
                "out for a free one"
            ) from error
        shown = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{runner.addresses[0][1]}/"
        stack.enter_context(noted(url, store.url))
        yield Served(url, token, apps, activity, links)


def _key() -> str:
    try:
        return state_key()
    except StoreError as error:
        logger.warning("%s; until then links hold only while this server runs", error.message)
        return secrets.token_urlsafe(32)
