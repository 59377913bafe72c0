"""The web server as a whole: its parts, its socket, its end."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from ...artifacts import ArtifactRef, ArtifactStore, Scope
from ...errors import StoreError, UsageError
from ...protocol.urls import is_loopback
from ...session.connect import connect as connect_app
from ...session.evidence import keeping
from ...telemetry import use_global_providers
from ..shared.activity import Activity
from ..shared.apps import Apps, Connect
from ..shared.call_ledger import CallLedger
from ..shared.connections import Connections
from ..shared.detached import DetachedCalls
from ..shared.listening import cannot_listen
from ..shared.store_watcher import StoreWatcher
from .access import Access
from .options import Options
from .runs import states_document
from .served_runs import ServedRuns
from .signing import Signer
from .site import Site
from .state import registered, signing_key

__all__ = ["Served", "serve"]

logger = logging.getLogger("transports")

#: aiohttp would log every malformed request with its address, which may hold a link.
_NO_LOG = logging.Logger("aiohttp", logging.CRITICAL)
#: Seconds for responses under way when the server ends.
_SHUTDOWN_TIMEOUT = 1.0
#: Seconds until a link in an answer of the MCP bridge expires.
_LINK_SECONDS = 86400.0


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. ``url`` ends in a slash, and so does ``public_url``, where others reach it: the same without a
    proxy. ``token`` is the operator's; another server of the process shares its ``connections`` and its detached
    ``calls``."""

    url: str
    token: str
    apps: Apps
    activity: Activity
    signer: Signer
    connections: Connections
    calls: DetachedCalls
    public_url: str

    @property
    def page(self) -> str:
        """The URL of the gallery, with the operator's token in its fragment."""
        return f"{self.public_url}#token={self.token}"

    def link(self, ref: ArtifactRef) -> str:
        """Return a URL that opens an artifact without a token, for a day."""
        return self.public_url.rstrip("/") + self.signer.link_path(ref.id, self.signer.clock() + _LINK_SECONDS)


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
    signer: Signer | None = None,
    runs: Sequence[str] = (),
    ledger: CallLedger | None = None,
    named: Collection[str] = (),
) -> AsyncIterator[Served]:
    """Serve ``store`` while the context lasts; then calls end, apps are disconnected and connections are closed.

    ``activity`` is a log that another surface writes to as well; ``users`` maps tokens beside the operator's to their
    scopes; ``connect`` stands for :func:`transports.connect`; ``signer`` signs links, tokens and cookies; ``runs`` are
    the folders and addresses of batch runs that it shows, ``named`` the apps that it connects by their names.
    ``ledger`` keeps the calls that are made here, and is closed at the end; without one they are kept in memory.

    Raises :class:`~transports.errors.UsageError` if other machines can reach ``host`` and ``options`` has no token, and
    if the address cannot be listened on (``ADDRESS_UNAVAILABLE``).
    """
    if not is_loopback(host) and options.token is None:
        raise UsageError(
            f"others can reach {host}: choose a token (--token, ABP_SERVE_TOKEN), or leave --host out to serve this "
            "machine alone"
        )
    token = options.token or secrets.token_urlsafe()
    activity = Activity() if activity is None else activity
    signer = signer or Signer(options.key or _key())
    watcher = StoreWatcher(store, activity.store_changed)
    apps = Apps(store, keeping(connect, options.evidence), activity, limit=options.max_apps)
    users = {**options.tenant_scopes, **(users or {})}
    connections = Connections()
    access = Access(
        token, signer, host=host, users=users, public_url=options.public_url, max_requests=connections.share
    )
    calls = DetachedCalls(ledger, activity)
    served_runs = ServedRuns(runs, lambda run_id, overview: activity.run_changed(states_document(run_id, overview)))
    site = Site(store, options, activity, calls, watcher, apps, signer, access, served_runs, named)
    use_global_providers()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(calls.aclose)
        await calls.restore()
        stack.enter_context(site.metrics.recording())
        await watcher.start()
        stack.push_async_callback(watcher.aclose)
        stack.push_async_callback(served_runs.aclose)
        activity.on_artifacts = watcher.check_now
        stack.push_async_callback(apps.aclose)
        app = site.app()

        @web.middleware
        async def serving(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            with connections.serving():
                return await handler(request)

        app.middlewares.insert(0, serving)
        runner = web.AppRunner(
            app,
            access_log=None,
            logger=_NO_LOG,
            shutdown_timeout=_SHUTDOWN_TIMEOUT,
            handle_signals=False,
            handler_cancellation=True,  # nothing goes on for a client that is gone
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(calls.cancel_all)  # a request may wait for one
        stack.push_async_callback(site.aclose)
        try:
            assert runner.server is not None
            listener = await asyncio.get_running_loop().create_server(
                connections.protocol_factory(runner.server), "127.0.0.1" if host == "localhost" else host, port
            )
        except OSError as error:
            raise cannot_listen(host, port, error, "--port") from error
        stack.callback(listener.close)
        display_host = "127.0.0.1" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
        url = f"http://{display_host}:{listener.sockets[0].getsockname()[1]}/"
        public_url = f"{options.public_url}/" if options.public_url else url
        stack.enter_context(registered(public_url, store.url))
        yield Served(url, token, apps, activity, signer, connections, calls, public_url)


def _key() -> str:
    try:
        return signing_key()
    except StoreError as error:
        logger.warning("%s; until then links work only while this server runs", error.message)
        return secrets.token_urlsafe(32)
