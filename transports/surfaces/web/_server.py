"""Web server: application with its routes, security headers and tracing, and the lifecycle of a running server."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web
from aiohttp.hdrs import METH_ALL
from aiohttp.web import RequestPayloadError

from ..._internal.telemetry import annotate, continue_trace, is_tracing, span, use_global_providers
from ..._internal.telemetry._prometheus import CONTENT_TYPE
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef, Scope
from ...artifacts._signing import Signer, registered, signing_key
from ...errors import ABPError, StoreError, UsageError
from ...protocol._plain_text import is_loopback
from ...session._evidence import with_default_evidence
from ..shared._activity import Activity, StoreWatcher
from ..shared._apps import Apps, Connect, connect as connect_app
from ..shared._detached import CallLedger, DetachedCalls
from ..shared._listening import Connections, listening, url_host
from ._access import LIMITS, Access, Limits, Options, Visitor
from ._artifacts import ArtifactRoutes, ThumbnailRoutes, UploadRoutes
from ._calls import AppRoutes, CallRoutes, EventStream
from ._parts import Parts
from ._responses import Metrics, RequestRefused, error_response, json_response
from ._runs import RunRoutes, ServedRuns
from ._views import ResourceRoutes, ViewRoutes, frames_of_views

logger = logging.getLogger("transports")

_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; frame-src 'self'{}; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)
_SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
    "Server": "abp",
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def trace_request(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Record a span of a request. Requests that only read are traced only if the client sends a trace context. The span
    has the route, never the path, which may hold the signature of a link."""
    is_reading = request.method in ("GET", "HEAD", "OPTIONS")
    is_wanted = not is_reading or "traceparent" in request.headers
    if not is_tracing() or not is_wanted:
        return await handler(request)

    unknown_method = "_OTHER"  # OpenTelemetry's name for it
    method = request.method if request.method in METH_ALL else unknown_method
    route = _route(request)
    attributes = {"http.request.method": method, "url.scheme": request.scheme, "http.route": route}
    carrier = {name.lower(): value for name, value in request.headers.items()}
    with continue_trace(carrier), span(f"{method} {route}".rstrip(), attributes, "server"):
        response = await handler(request)
        annotate({"http.response.status_code": response.status})
        return response


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource else ""


class Site:
    """The routes of a server, with the checks of each request."""

    def __init__(self, access: Access, parts: Parts) -> None:
        self._access = access
        self._parts = parts
        self._artifacts = ArtifactRoutes(parts)
        self._thumbnails = ThumbnailRoutes(parts)
        self._uploads = UploadRoutes(parts)
        self._events = EventStream(parts)
        #: Ends all event streams, which would delay the shutdown of the application.
        self.close_streams = self._events.close
        self._apps = AppRoutes(parts)
        self._views = ViewRoutes(parts.limits)
        self._calls = CallRoutes(parts, self._apps, self._views)
        self._resources = ResourceRoutes(parts.activity, parts.limits)
        self._runs = RunRoutes(parts.runs)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[trace_request, self._guard_request])
        app.on_response_prepare.append(_add_security_headers)
        authorized = self._access.authorized
        fetch = authorized(self._artifacts.fetch)

        async def fetch_or_link(request: web.Request) -> web.StreamResponse:
            if "link" in request.query:
                return await self._artifacts.fetch_by_link(request)
            return await fetch(request)

        app.add_routes(
            [
                web.get("/", _gallery_page),
                web.get("/assets/{name}", _asset),
                web.get("/healthz", _health),
                web.post("/login", self._access.login),
                web.post("/logout", self._access.logout),
                web.post("/tokens", authorized(self._access.make_token)),
                web.get("/resources/{namespace}", authorized(self._resources.list)),
                web.post("/resources/{namespace}", authorized(self._resources.watch)),
                web.get("/resources/{namespace}/{uri:.+}", authorized(self._resources.read), allow_head=False),
                web.get("/runs", authorized(self._runs.list)),
                web.get("/runs/{run}", authorized(self._runs.show)),
                web.get("/runs/{run}/jobs", authorized(self._runs.jobs)),
                web.get("/runs/{run}/jobs/{key}", authorized(self._runs.job)),
                web.get("/metrics", authorized(self._show_metrics)),
                web.get("/events", authorized(self._events.listen), allow_head=False),
                web.get("/artifacts", authorized(self._artifacts.list)),
                web.post("/artifacts", authorized(self._uploads.accept)),
                web.get("/artifacts/{id}", fetch_or_link),
                web.delete("/artifacts/{id}", authorized(self._artifacts.delete)),
                web.get("/artifacts/{id}/meta", authorized(self._artifacts.meta)),
                web.get("/artifacts/{id}/thumbnail", authorized(self._thumbnails.show)),
                web.post("/artifacts/{id}/verify", authorized(self._artifacts.verify)),
                web.post("/artifacts/{id}/link", authorized(self._artifacts.link)),
                web.get("/calls", authorized(self._calls.list)),
                web.get("/calls/{id}", authorized(self._calls.show)),
                web.delete("/calls/{id}", authorized(self._calls.cancel)),
                web.post("/calls/{id}/answer", authorized(self._calls.answer)),
                web.get("/views/{call}", authorized(self._views.show), allow_head=False),
                web.post("/views/{call}", authorized(self._views.answer)),
                web.delete("/views/{call}", authorized(self._views.close)),
                web.get("/apps", authorized(self._apps.list)),
                web.post("/apps", authorized(self._apps.connect)),
                web.delete("/apps/{session}", authorized(self._apps.disconnect)),
                web.get("/apps/{session}/capabilities/{name}", authorized(self._apps.capability)),
                web.post("/apps/{session}/calls", authorized(self._calls.start)),
            ]
        )
        return app

    @web.middleware
    async def _guard_request(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Check and answer each request; an exception becomes an error response. At the origin of a view only its
        sandbox is served."""
        try:
            response: web.StreamResponse | None = await self._views.sandbox(request)
            if response is None:
                self._access.check_origin(request)
                response = await handler(request)
        except ABPError as error:
            response = error_response(error)
        except web.HTTPException as error:
            response = _response_of_framework(error)
        except (ConnectionError, RequestPayloadError):  # the client has disconnected
            response = web.Response(status=400)
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            response = error_response(
                ABPError(f"this should not have happened ({type(error).__name__}); the log has more")
            )

        # Each value of a label makes a time series, so clients must not choose the values.
        method = request.method if request.method in METH_ALL else "other"
        self._parts.metrics.requests.labels(method, _route(request) or "none", str(response.status)).inc()
        return response

    async def _show_metrics(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        visitor.require_operator()
        self._parts.metrics.calls.clear()
        for record in self._parts.activity.calls.values():
            self._parts.metrics.calls.labels(record.status).inc()
        return web.Response(body=self._parts.metrics.render(), headers={"Content-Type": CONTENT_TYPE})


def _response_of_framework(error: web.HTTPException) -> web.StreamResponse:
    """Return the kit's response for an error of aiohttp, such as 404 and 405."""
    headers = {name: value for name, value in error.headers.items() if name == "Allow"}
    code = "INVALID_PARAMS" if error.status < 500 else "INTERNAL_ERROR"
    return error_response(RequestRefused(error.status, code, error.reason, headers=headers))


async def _add_security_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


async def _gallery_page(request: web.Request) -> web.StreamResponse:
    return _page_file("gallery.html", frames_of_views(request))


async def _asset(request: web.Request) -> web.StreamResponse:
    return _page_file(request.match_info["name"])


def _page_file(name: str, frames: str = "") -> web.StreamResponse:
    """Serve a file of the page, which may show ``frames``. The name is looked up in a listing of the folder, so that it
    cannot lead to another folder."""
    folder = Path(__file__).parent / "page"
    files = {file.name: file for file in folder.iterdir() if file.is_file()}
    if name not in files:
        raise RequestRefused(404, "NOT_FOUND", "not found")
    headers = {"Content-Security-Policy": _PAGE_POLICY.format(frames), "Cache-Control": "no-cache"}
    return web.FileResponse(files[name], headers=headers)


async def _health(_: web.Request) -> web.StreamResponse:
    return json_response({"status": "ok"})


@dataclass(frozen=True, slots=True)
class Served:
    """A running server. ``public_url`` is its address behind a proxy, by default ``url``; both end in a slash.
    ``token`` is the operator's. Another server of the process may share its ``connections`` and detached ``calls``."""

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
        return f"{self.public_url}#token={self.token}"

    def link(self, ref: ArtifactRef) -> str:
        """Return a URL that opens an artifact without a token, for a day."""
        return self.public_url.rstrip("/") + self.signer.link_path(ref.id, self.signer.clock() + 86400.0)


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
    limits: Limits = LIMITS,
) -> AsyncIterator[Served]:
    """Run a web server. At the end, calls are cancelled, apps are disconnected and connections are closed. ``connect``
    replaces :func:`transports.connect`; ``activity`` is a log shared with another surface; ``users`` maps tokens other
    than the operator's to their scopes; ``signer`` signs links, tokens and cookies. ``runs`` are folders and addresses
    of batch runs. ``ledger`` keeps the calls made over HTTP, by default in memory, and is closed at the end."""
    if not is_loopback(host) and options.token is None:
        raise UsageError(
            f"other machines can reach {host}: choose a token (--token, ABP_SERVE_TOKEN), or omit --host to serve "
            "this machine only"
        )

    token = options.token or secrets.token_urlsafe()
    if activity is None:
        activity = Activity()
    if signer is None:
        signer = Signer(options.key or _read_signing_key())

    connections = Connections()
    access = Access(
        token,
        signer,
        host=host,
        users={**options.tenant_scopes, **(users or {})},
        public_url=options.public_url,
        max_requests=connections.max_requests_per_user,
    )
    parts = Parts(
        store=store,
        options=options,
        limits=limits,
        metrics=Metrics(),
        signer=signer,
        watcher=StoreWatcher(store, activity.store_changed),
        activity=activity,
        apps=Apps(store, with_default_evidence(connect, options.evidence), activity, limit=options.max_apps),
        calls=DetachedCalls(ledger, activity),
        runs=ServedRuns(runs, activity.run_changed, limits),
        named=named,
    )
    parts.metrics.apps.set_function(lambda: len(activity.apps))
    use_global_providers()

    async with (
        _running_parts(parts),
        _run_application(Site(access, parts), parts, connections) as protocol_factory,
        listening(host, port, "--port", protocol_factory) as actual_port,
    ):
        # A server on all addresses can be reached at this one.
        reachable_host = "127.0.0.1" if host in ("0.0.0.0", "::") else url_host(host)
        url = f"http://{reachable_host}:{actual_port}/"
        public_url = f"{options.public_url}/" if options.public_url else url
        with registered(public_url, store.url):
            yield Served(url, token, parts.apps, activity, signer, connections, parts.calls, public_url)


@asynccontextmanager
async def _running_parts(parts: Parts) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        stack.push_async_callback(parts.calls.aclose)
        await parts.calls.restore()
        await parts.watcher.start()
        stack.push_async_callback(parts.watcher.aclose)
        stack.push_async_callback(parts.runs.aclose)
        parts.activity.on_artifacts = parts.watcher.check_now
        stack.push_async_callback(parts.apps.aclose)
        yield


@asynccontextmanager
async def _run_application(
    site: Site, parts: Parts, connections: Connections
) -> AsyncIterator[Callable[[], asyncio.Protocol]]:
    @web.middleware
    async def mark_serving(request: web.Request, handler: _Handler) -> web.StreamResponse:
        with connections.serving():
            return await handler(request)

    app = site.app()
    app.middlewares.insert(0, mark_serving)
    runner = web.AppRunner(
        app,
        access_log=None,
        # aiohttp's logger would log the URLs of malformed requests, which may hold a signed link
        logger=logging.Logger("aiohttp", logging.CRITICAL),
        shutdown_timeout=parts.limits.shutdown_timeout,
        handle_signals=False,
        handler_cancellation=True,  # stop work for clients that have disconnected
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(parts.metrics.recording())
        await runner.setup()
        assert runner.server is not None
        stack.push_async_callback(runner.cleanup)
        # Requests may wait for the end of a call, or for events, which would delay the shutdown.
        stack.push_async_callback(parts.calls.cancel_all)
        stack.callback(site.close_streams)
        yield connections.protocol_factory(runner.server)


def _read_signing_key() -> str:
    """Return the key of this user. If it cannot be read, log that and return a random key."""
    try:
        return signing_key()
    except StoreError as error:
        logger.warning("%s; until then links work only while this server runs", error.message)
        return secrets.token_urlsafe(32)
