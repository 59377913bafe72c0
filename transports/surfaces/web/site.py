"""The routes of the web server, and the middleware around them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from aiohttp import web
from aiohttp.hdrs import METH_ALL
from aiohttp.web import RequestPayloadError

from ...artifacts import ArtifactStore
from ...errors import ABPError
from ...protocol.timestamps import iso_utc
from ..shared.activity import Activity
from ..shared.apps import Apps
from ..shared.detached import DetachedCalls
from ..shared.store_watcher import StoreWatcher
from .access import Access, Visitor
from .apps import AppRoutes
from .artifacts import ArtifactRoutes, seconds_in
from .calls import CallRoutes
from .events import EventStream
from .metrics import CONTENT_TYPE, Metrics
from .options import Options
from .resources import ResourceRoutes
from .responses import RequestRefused, error_response, json_response, read_json, scope_in
from .runs import RunRoutes
from .served_runs import ServedRuns
from .signing import Signer
from .thumbnails import ThumbnailRoutes
from .tracing import trace_request
from .uploads import UploadRoutes

__all__ = ["Site"]

logger = logging.getLogger("transports")

_PAGE = Path(__file__).parent / "page"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Seconds until a token for a scope expires, unless the request says otherwise.
_DAY = 86400.0
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; frame-src 'self'; "
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


class Site:
    """The aiohttp application of one server, made of the handlers for each part of the interface."""

    def __init__(
        self,
        store: ArtifactStore,
        options: Options,
        activity: Activity,
        calls: DetachedCalls,
        watcher: StoreWatcher,
        apps: Apps,
        signer: Signer,
        access: Access,
        runs: ServedRuns,
        named: Collection[str] = (),
    ) -> None:
        self._access = access
        self._signer = signer
        self._activity = activity
        #: The numbers of this server; they count while :func:`~.server.serve` takes measurements.
        self.metrics = self._metrics = Metrics()
        self._artifacts = ArtifactRoutes(store, watcher, signer, self._metrics, runs, options.public_url)
        self._thumbnails = ThumbnailRoutes(self._artifacts)
        self._uploads = UploadRoutes(self._artifacts, watcher, options, self._metrics)
        self._events = EventStream(activity, self._metrics, max_listeners=options.max_listeners)
        self._apps = AppRoutes(activity, apps, named)
        self._calls = CallRoutes(
            activity, calls, self._apps, self._artifacts, question_timeout=options.question_timeout
        )
        self._resources = ResourceRoutes(activity)
        self._runs = RunRoutes(runs)
        self._metrics.apps.set_function(lambda: len(activity.apps))

    def app(self) -> web.Application:
        """Return the application; without its :meth:`aclose` streams hold its shutdown up."""
        app = web.Application(middlewares=[trace_request, self._middleware])
        app.on_response_prepare.append(_add_security_headers)
        authorized, artifacts, calls, apps = self._access.authorized, self._artifacts, self._calls, self._apps
        resources, runs, fetch = self._resources, self._runs, authorized(artifacts.fetch)

        async def fetch_or_link(request: web.Request) -> web.StreamResponse:
            return await (artifacts.fetch_by_link(request) if "link" in request.query else fetch(request))

        app.add_routes(
            [
                web.get("/", _gallery_page),
                web.get("/assets/{name}", _asset),
                web.get("/favicon.ico", _empty_icon),
                web.get("/healthz", _health),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.post("/tokens", authorized(self._make_token)),
                web.get("/resources/{namespace}", authorized(resources.list)),
                web.post("/resources/{namespace}", authorized(resources.watch)),
                web.get("/resources/{namespace}/{uri:.+}", authorized(resources.read), allow_head=False),
                web.get("/runs", authorized(runs.list)),
                web.get("/runs/{run}", authorized(runs.show)),
                web.get("/runs/{run}/jobs", authorized(runs.jobs)),
                web.get("/runs/{run}/jobs/{key}", authorized(runs.job)),
                web.get("/metrics", authorized(self._show_metrics)),
                web.get("/events", authorized(self._events.listen), allow_head=False),
                web.get("/artifacts", authorized(artifacts.list)),
                web.post("/artifacts", authorized(self._uploads.accept)),
                web.get("/artifacts/{id}", fetch_or_link),
                web.delete("/artifacts/{id}", authorized(artifacts.delete)),
                web.get("/artifacts/{id}/meta", authorized(artifacts.meta)),
                web.get("/artifacts/{id}/thumbnail", authorized(self._thumbnails.show)),
                web.post("/artifacts/{id}/verify", authorized(artifacts.verify)),
                web.post("/artifacts/{id}/link", authorized(artifacts.link)),
                web.get("/calls", authorized(calls.list)),
                web.get("/calls/{id}", authorized(calls.show)),
                web.delete("/calls/{id}", authorized(calls.cancel)),
                web.post("/calls/{id}/answer", authorized(calls.answer)),
                web.get("/apps", authorized(apps.list)),
                web.post("/apps", authorized(apps.connect)),
                web.delete("/apps/{session}", authorized(apps.disconnect)),
                web.get("/apps/{session}/capabilities/{name}", authorized(apps.capability)),
                web.post("/apps/{session}/calls", authorized(calls.make)),
            ]
        )
        return app

    async def aclose(self) -> None:
        """End event streams."""
        self._events.close()

    @web.middleware
    async def _middleware(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuse foreign hosts and origins, turn errors into JSON, count requests."""
        try:
            self._access.check_origin(request)
            response = await handler(request)
        except ABPError as error:
            response = error_response(error)
        except web.HTTPException as error:
            headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            code = "INVALID_PARAMS" if error.status < 500 else "INTERNAL_ERROR"
            response = error_response(RequestRefused(error.status, code, error.reason, headers=headers))
        except (ConnectionError, RequestPayloadError):  # the client is gone
            response = web.Response(status=400)
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            response = error_response(
                ABPError(f"this should not have happened ({type(error).__name__}); the log has more")
            )
        resource = request.match_info.route.resource
        route = resource.canonical if resource else "none"
        method = request.method if request.method in METH_ALL else "other"
        self._metrics.requests.labels(method, route, str(response.status)).inc()
        return response

    async def _login(self, request: web.Request) -> web.StreamResponse:
        body, response = await read_json(request), web.Response(status=204)
        self._access.login(request, response, str(body.get("token", "")))
        return response

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        response = web.Response(status=204)
        self._access.logout(request, response)
        return response

    async def _make_token(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        visitor.require_operator()
        body = await read_json(request)
        scope = scope_in(body, "tenant", "user", "session")
        if not scope:
            raise RequestRefused(400, "INVALID_PARAMS", "name whom the token is for: tenant, user or session")
        expires_at = self._signer.clock() + seconds_in(body, "expires", _DAY)
        token = self._signer.scope_token(scope, expires_at)
        return json_response({"token": token, "expires_at": iso_utc(expires_at, timespec="seconds")}, status=201)

    async def _show_metrics(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        visitor.require_operator()
        self._metrics.calls.clear()
        for record in self._activity.calls.values():
            self._metrics.calls.labels(record.status).inc()
        return web.Response(body=self._metrics.render(), headers={"Content-Type": CONTENT_TYPE})


async def _add_security_headers(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _SECURITY_HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


async def _gallery_page(_: web.Request) -> web.StreamResponse:
    return _static("gallery.html")


async def _asset(request: web.Request) -> web.StreamResponse:
    return _static(request.match_info["name"])


def _static(name: str) -> web.StreamResponse:
    """A file of the page. The folder is listed first, so that no name leads out of it."""
    files = {file.name: file for file in _PAGE.iterdir() if file.is_file()} if _PAGE.is_dir() else {}
    if name not in files:
        raise RequestRefused(404, "NOT_FOUND", "there is nothing here")
    headers = {"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}
    return web.FileResponse(files[name], headers=headers)


async def _empty_icon(_: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


async def _health(_: web.Request) -> web.StreamResponse:
    return json_response({"status": "ok"})
