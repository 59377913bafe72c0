"""MCP over streamable HTTP: the ASGI application with its checks, limits of a user, its server, and the metrics
route."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, cast
from urllib.parse import urlsplit

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, RequireAuthMiddleware
from mcp.server.auth.routes import build_resource_metadata_url, create_protected_resource_routes
from mcp.server.auth.settings import AuthSettings
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..._internal.tasks import begin, cancel_and_wait
from ..._internal.telemetry._prometheus import CONTENT_TYPE, Exposition
from ...protocol._plain_text import is_address
from ...protocol.messages import package_version
from ..shared._listening import Connections, cannot_listen
from ._access import BearerVerifier, JwtVerifier, ScopeChallenge
from ._bridge import Bridge
from ._messages import MessageCheck, error_body
from ._users import MAX_SESSIONS

PATH = "/mcp"
_SESSION = "mcp-session-id"
#: Seconds for running requests when the server ends.
_SHUTDOWN_TIMEOUT = 1


def _metrics_route(exposition: Exposition, security: TransportSecuritySettings, scopes: Sequence[str]) -> Route:
    """Return the route of Prometheus metrics. It needs a bearer token of the bridge with these scopes, and a ``Host``
    and ``Origin`` that ``security`` allows.

    The metrics are sums over all users: counts, durations, sizes, and names of capabilities, but no users."""
    checks = TransportSecurityMiddleware(security)

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        refused = await checks.validate_request(Request(scope, receive))
        response = refused or Response(exposition.render(), headers={"Content-Type": CONTENT_TYPE})
        await response(scope, receive, send)

    return Route("/metrics", endpoint=RequireAuthMiddleware(show, [*scopes]), methods=["GET"])


def local_security(host: str) -> TransportSecuritySettings:
    names = {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}
    return TransportSecuritySettings(
        allowed_hosts=[*(f"{name}:*" for name in names), *names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )


def _http_app(bridge: Bridge, users: Mapping[str, str], host: str, url: str, exposition: Exposition) -> Starlette:
    """Return the ASGI application at the address ``url``. ``exposition`` is served at ``/metrics``, behind the same
    checks.

    Every request needs a bearer token of ``users`` (token to user) or a signed token, and a ``Host`` and ``Origin`` of
    this machine, ``host`` or the public address, against DNS rebinding by other web pages. With signed tokens the
    bridge is an OAuth resource server and publishes its issuer and scopes (RFC 9728). Raises
    :class:`~transports.errors.UsageError` for keys of signed tokens that cannot be used."""
    security = local_security(host)
    options = bridge.options
    if options.public_url is not None:
        url = options.public_url + PATH
        security.allowed_hosts.append(urlsplit(url).netloc)
        security.allowed_origins.append(f"{urlsplit(url).scheme}://{urlsplit(url).netloc}")
    scopes = bridge.scopes()
    auth = AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None)
    if options.jwt_issuer and is_address(options.jwt_issuer):  # an issuer that is not a URL has no server to name
        auth = AuthSettings.model_validate(  # from texts: AnyHttpUrl adds a slash, and issuers are compared exactly
            {
                "issuer_url": options.jwt_issuer,
                "resource_server_url": url,
                "required_scopes": [*options.required_scopes],
                "validate_token_resource": False,  # the verifier compares the audience
            }
        )
    app = bridge.server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security,
        max_request_body_size=options.max_request_bytes,
        token_verifier=BearerVerifier(users, JwtVerifier(options, url) if options.jwt_issuer else None, scopes),
        auth=auth,
        custom_starlette_routes=[_metrics_route(exposition, security, auth.required_scopes or ())],
    )
    # appended: it reads the bodies of authenticated users only
    app.user_middleware.append(
        Middleware(MessageCheck, max_bytes=options.max_request_bytes, max_file_bytes=options.max_file_bytes)
    )
    if auth.resource_server_url is not None:
        # before the SDK's own route, which lacks the scopes of apps and tools
        app.router.routes[:0] = create_protected_resource_routes(
            auth.resource_server_url, [auth.issuer_url], scopes or None, resource_name="Web apps that speak ABP"
        )
        metadata_url = str(build_resource_metadata_url(auth.resource_server_url))
        app.user_middleware.append(Middleware(ScopeChallenge, check=bridge.require_scopes, metadata_url=metadata_url))
    return app


class UserLimits:
    """ASGI middleware that limits the concurrent requests of a user to ``max_requests``, and the user's sessions to
    ``max_sessions`` (:data:`MAX_SESSIONS`).

    A new session above the limit ends the user's least recently used session without running requests, as its client
    would end it. If all sessions are in use, and for requests above the limit, the reply has status 429 and a JSON-RPC
    error with the code ``LIMIT_REACHED``."""

    def __init__(self, app: ASGIApp, *, max_requests: int, max_sessions: int | None = None) -> None:
        self._app = app
        self._max_requests = max_requests
        self._max_sessions = MAX_SESSIONS if max_sessions is None else max_sessions
        self._requests: Counter[str] = Counter()
        self._opening: Counter[str] = Counter()
        #: Number of running requests of each session, by user, least recently used session first. Sessions that ended
        #: by themselves stay until they are the oldest; they are never in use.
        self._sessions: defaultdict[str, OrderedDict[str, int]] = defaultdict(OrderedDict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        holder = scope.get("user")
        if scope["type"] != "http" or not isinstance(holder, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        user = holder.access_token.subject or holder.access_token.client_id
        if self._requests[user] >= self._max_requests:
            await _refusal(
                f"this user has {self._max_requests} running requests, which is the limit; wait for one to end"
            )(scope, receive, send)
            return
        self._requests[user] += 1
        try:
            await self._serve(user, scope, receive, send)
        finally:
            self._requests[user] -= 1
            if not self._requests[user]:
                del self._requests[user]

    async def _serve(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        sessions = self._sessions[user]
        headers = Headers(scope=scope)
        session = headers.get(_SESSION)
        if session is not None and session in sessions:
            sessions[session] += 1
            sessions.move_to_end(session)
            try:
                await self._app(scope, receive, send)
            finally:
                if session in sessions:
                    sessions[session] -= 1
                    sessions.move_to_end(session)
        elif session is None and scope["method"] == "POST" and _has_handshake(headers):
            await self._open_session(user, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open_session(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        sessions = self._sessions[user]
        if sum(map(bool, sessions.values())) + self._opening[user] >= self._max_sessions:
            message = (
                f"{self._max_sessions} sessions of this user are in use, which is the limit; end one of them first"
            )
            await _refusal(message)(scope, receive, send)
            return

        async def noting_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(_SESSION)
                if opened:
                    sessions[opened] = 0
            await send(message)

        self._opening[user] += 1
        try:
            await self._app(scope, receive, noting_send)
        finally:
            self._opening[user] -= 1
        while len(sessions) > self._max_sessions:
            idle = [session for session, requests in sessions.items() if not requests]
            if not idle:
                break
            del sessions[idle[0]]
            await self._end_session(idle[0], scope)

    async def _end_session(self, session: str, scope: Scope) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        headers.append((_SESSION.encode(), session.encode()))
        request = {**scope, "method": "DELETE", "headers": headers}

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(_: Message) -> None:
            pass

        await self._app(request, receive, send)


def _has_handshake(headers: Headers) -> bool:
    version = headers.get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _refusal(message: str) -> JSONResponse:
    return JSONResponse(error_body(message, code="LIMIT_REACHED", retryable=True), 429)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line handles signals


async def serve_http(
    bridge: Bridge,
    host: str,
    port: int,
    users: Mapping[str, str],
    on_started: Callable[[str], object],
    *,
    connections: Connections | None = None,
) -> None:
    """Serve until cancelled, then close all sessions. ``on_started`` is called with the local URL. ``connections`` are
    those of another server of this process, to share its limits. Port 0 takes a free port.

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on."""
    exposition = Exposition(package_version())

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        retiring = begin(bridge.retire_idle())
        try:
            with exposition.recording():
                yield
        finally:
            await cancel_and_wait((retiring,))
            await bridge.aclose()  # first: running calls would delay the end of the server

    def app(url: str) -> Starlette:
        return _http_app(bridge, users, host, url, exposition)

    await serve_app(app, host, port, on_started, running(), connections=connections)


async def serve_app(
    make: Callable[[str], Starlette],
    host: str,
    port: int,
    on_started: Callable[[str], object],
    running: AbstractAsyncContextManager[None],
    *,
    connections: Connections | None = None,
    max_sessions: int | None = None,
) -> None:
    """Serve the application that ``make`` returns for its address until cancelled; ``running`` is open meanwhile. A
    user may have ``max_sessions`` with a handshake (100 by default).

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on."""
    connections = connections or Connections()
    try:
        listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise cannot_listen(host, port, error, f"--http {host}:PORT") from error
    display_host = f"[{host}]" if ":" in host else host
    url = f"http://{display_host}:{listening.getsockname()[1]}{PATH}"
    try:
        app = make(url)
    except BaseException:
        listening.close()
        raise
    # appended, as the last middleware: it needs the authenticated user
    app.user_middleware.append(Middleware(UserLimits, max_requests=connections.share, max_sessions=max_sessions))

    async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
        with connections.serving():
            await app(scope, receive, send)

    def protocol(**options: Any) -> asyncio.Protocol:
        return connections.protocol_factory(lambda: H11Protocol(**options))()

    config = uvicorn.Config(
        counted_app,
        http=cast("type[asyncio.Protocol]", protocol),  # it is only called
        ws="none",
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        proxy_headers=False,  # X-Forwarded-* of a proxy is not used
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    server = _Uvicorn(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listening]))
    try:
        async with running:
            try:
                on_started(url)
                await asyncio.shield(serving)
            finally:
                server.should_exit = True
    finally:
        await asyncio.wait((serving,), timeout=2 * _SHUTDOWN_TIMEOUT)
        listening.close()
