"""Everything that answers requests: the routes, and what stands before and after each of them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
from aiohttp import web
from aiohttp.hdrs import METH_ALL
from aiohttp.web import RequestPayloadError

from ...artifacts import ArtifactStore, Scope
from ...errors import ABPError
from ...protocol.timestamps import iso_utc
from ..shared.activity import Activity
from ..shared.apps import Apps
from .access import Access, Visitor
from .answers import Refused, body_of, failure, json_answer
from .arrivals import Arrivals
from .artifacts import Artifacts, seconds_in
from .calls import Calls
from .connected import Connections
from .events import Events
from .links import Links
from .metrics import CONTENT_TYPE, Metrics
from .options import Options
from .uploads import Uploads

__all__ = ["Site"]

logger = logging.getLogger("transports")

_PAGE = Path(__file__).parent / "page"
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
#: Seconds that a session's token holds unless it is said.
_DAY = 86400.0
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; frame-src 'self'; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'"
)
_ALWAYS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Robots-Tag": "noindex",
    "Server": "abp",
}


class Site:
    """Everything that answers requests."""

    def __init__(
        self,
        store: ArtifactStore,
        options: Options,
        activity: Activity,
        arrivals: Arrivals,
        apps: Apps,
        links: Links,
        access: Access,
    ) -> None:
        self._access = access
        self._links = links
        self._metrics = Metrics()
        self._artifacts = Artifacts(store, arrivals, links, self._metrics)
        self._uploads = Uploads(self._artifacts, arrivals, options, self._metrics)
        self._events = Events(activity, self._metrics, most=options.max_listeners)
        self._connections = Connections(activity, apps)
        self._calls = Calls(activity, self._connections, self._artifacts, patience=options.question_timeout)
        self._metrics.gauge("abp_apps", lambda: {(): len(activity.apps)})
        self._metrics.gauge("abp_calls", lambda: _by_status(activity))
        self._metrics.gauge("abp_memory_bytes", lambda: {(): psutil.Process().memory_info().rss})

    def app(self) -> web.Application:
        """The aiohttp application."""
        app = web.Application(middlewares=[self._around])
        app.on_response_prepare.append(_harmless)
        guarded, artifacts, calls, apps = self._access.guarded, self._artifacts, self._calls, self._connections
        fetch = guarded(artifacts.fetch)

        async def opened(request: web.Request) -> web.StreamResponse:
            return await (artifacts.linked(request) if "link" in request.query else fetch(request))

        app.add_routes(
            [
                web.get("/", _page),
                web.get("/assets/{name}", _asset),
                web.get("/favicon.ico", _nothing),
                web.get("/healthz", _healthy),
                web.post("/login", self._login),
                web.post("/logout", self._logout),
                web.post("/tokens", guarded(self._tokens)),
                web.get("/metrics", guarded(self._numbers)),
                web.get("/events", guarded(self._events.listen), allow_head=False),
                web.get("/artifacts", guarded(artifacts.list)),
                web.post("/artifacts", guarded(self._uploads.accept)),
                web.get("/artifacts/{id}", opened),
                web.delete("/artifacts/{id}", guarded(artifacts.delete)),
                web.get("/artifacts/{id}/meta", guarded(artifacts.meta)),
                web.post("/artifacts/{id}/verify", guarded(artifacts.verify)),
                web.post("/artifacts/{id}/link", guarded(artifacts.link)),
                web.get("/calls", guarded(calls.list)),
                web.get("/calls/{id}", guarded(calls.show)),
                web.delete("/calls/{id}", guarded(calls.cancel)),
                web.post("/calls/{id}/answer", guarded(calls.answer)),
                web.get("/apps", guarded(apps.list)),
                web.post("/apps", guarded(apps.connect)),
                web.delete("/apps/{session}", guarded(apps.disconnect)),
                web.get("/apps/{session}/capabilities/{name}", guarded(apps.capability)),
                web.post("/apps/{session}/calls", guarded(calls.make)),
            ]
        )
        return app

    async def aclose(self) -> None:
        """End what would hold the server up."""
        self._events.close()
        await self._calls.aclose()

    @web.middleware
    async def _around(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Where requests may come from; errors as JSON; counting."""
        try:
            self._access.check(request)
            answer = await handler(request)
        except ABPError as error:
            answer = failure(error)
        except web.HTTPException as error:
            headers = {name: error.headers[name] for name in ("Allow",) if name in error.headers}
            code = "INVALID_PARAMS" if error.status < 500 else "INTERNAL_ERROR"
            answer = failure(Refused(error.status, code, error.reason, headers=headers))
        except (ConnectionError, RequestPayloadError):  # the client is gone, and nothing came of it
            answer = web.Response(status=400)
        except Exception as error:
            logger.exception("%s %s failed", request.method, request.path)
            answer = failure(ABPError(f"this should not have happened ({type(error).__name__}); the log has more"))
        resource = request.match_info.route.resource
        route = resource.canonical if resource else "none"
        method = request.method if request.method in METH_ALL else "other"
        self._metrics.count("abp_requests_total", method=method, route=route, status=str(answer.status))
        return answer

    async def _login(self, request: web.Request) -> web.StreamResponse:
        body, answer = await body_of(request), web.Response(status=204)
        self._access.login(request, answer, str(body.get("token", "")))
        return answer

    async def _logout(self, request: web.Request) -> web.StreamResponse:
        answer = web.Response(status=204)
        self._access.logout(request, answer)
        return answer

    async def _tokens(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        visitor.require_operator()
        body = await body_of(request)
        session = body.get("session")
        if not isinstance(session, str) or not session:
            raise Refused(400, "INVALID_PARAMS", "name the session")
        until = self._links.clock() + seconds_in(body, "expires", _DAY)
        token = self._links.token(Scope(session=session).session or "", until)
        return json_answer({"token": token, "expires_at": iso_utc(until, timespec="seconds")}, status=201)

    async def _numbers(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        visitor.require_operator()
        return web.Response(body=self._metrics.text().encode(), headers={"Content-Type": CONTENT_TYPE})


async def _harmless(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in _ALWAYS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")


async def _page(_: web.Request) -> web.StreamResponse:
    return _static("gallery.html")


async def _asset(request: web.Request) -> web.StreamResponse:
    return _static(request.match_info["name"])


def _static(name: str) -> web.StreamResponse:
    """A file of the page: one that is listed in its folder, so that no name leads elsewhere."""
    files = {file.name: file for file in _PAGE.iterdir() if file.is_file()} if _PAGE.is_dir() else {}
    if name not in files:
        raise Refused(404, "NOT_FOUND", "there is nothing here")
    headers = {"Content-Security-Policy": _PAGE_POLICY, "Cache-Control": "no-cache"}
    return web.FileResponse(files[name], headers=headers)


async def _nothing(_: web.Request) -> web.StreamResponse:
    return web.Response(status=204)


async def _healthy(_: web.Request) -> web.StreamResponse:
    return json_answer({"status": "ok"})


def _by_status(activity: Activity) -> dict[tuple[tuple[str, str], ...], float]:
    counts: dict[tuple[tuple[str, str], ...], float] = {}
    for record in activity.calls.values():
        key = (("status", record.status),)
        counts[key] = counts.get(key, 0) + 1
    return counts
