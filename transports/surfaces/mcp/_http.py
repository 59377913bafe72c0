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
from ._messages import MessageCheck, error_body, receive_again
from ._options import Options
from ._users import MAX_SESSIONS

PATH = "/mcp"
_SESSION = "mcp-session-id"
#: Seconds for running requests when the server ends.
_SHUTDOWN_TIMEOUT = 1


def _metrics_route(exposition: Exposition, security: TransportSecuritySettings, scopes: Sequence[str]) -> Route:
    """Return the route of Prometheus metrics. Requests need a bearer token of the bridge with these scopes, and a
    ``Host`` and ``Origin`` that ``security`` allows.

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
    auth = _auth_settings(options, url)
    jwt_verifier = JwtVerifier(options, url) if options.jwt_issuer else None
    app = bridge.server.streamable_http_app(
        streamable_http_path=PATH,
        host=host,
        transport_security=security,
        max_request_body_size=options.max_request_bytes,
        token_verifier=BearerVerifier(users, jwt_verifier, scopes),
        auth=auth,
        custom_starlette_routes=[_metrics_route(exposition, security, auth.required_scopes or ())],
    )

    # The middlewares are appended, to run after the authentication of the SDK.
    app.user_middleware.append(
        Middleware(MessageCheck, max_bytes=options.max_request_bytes, max_file_bytes=options.max_file_bytes)
    )
    if auth.resource_server_url is not None:
        # This route comes before that of the SDK, which lacks the scopes of apps and tools.
        app.router.routes[:0] = create_protected_resource_routes(
            auth.resource_server_url, [auth.issuer_url], scopes or None, resource_name="Web apps that speak ABP"
        )
        metadata_url = str(build_resource_metadata_url(auth.resource_server_url))
        app.user_middleware.append(Middleware(ScopeChallenge, check=bridge.require_scopes, metadata_url=metadata_url))
    return app


def _auth_settings(options: Options, url: str) -> AuthSettings:
    """Return the SDK's settings. The issuer of signed tokens is published only if it is a URL, whose server can be
    asked for tokens."""
    if not options.jwt_issuer or not is_address(options.jwt_issuer):
        return AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None)

    # From texts, since AnyHttpUrl would add a slash, and issuers are compared exactly.
    return AuthSettings.model_validate(
        {
            "issuer_url": options.jwt_issuer,
            "resource_server_url": url,
            "required_scopes": [*options.required_scopes],
            "validate_token_resource": False,  # the verifier compares the audience
        }
    )


class UserLimits:
    """ASGI middleware that limits the concurrent requests of a user to ``max_requests``, and the user's sessions to
    ``max_sessions`` (by default :data:`MAX_SESSIONS`).

    A new session above the limit ends the user's least recently used session that has no running request, as its client
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
        authenticated = scope.get("user")
        if scope["type"] != "http" or not isinstance(authenticated, AuthenticatedUser):
            await self._app(scope, receive, send)
            return

        user = authenticated.access_token.subject or authenticated.access_token.client_id
        if self._requests[user] >= self._max_requests:
            message = f"this user has {self._max_requests} running requests, which is the limit; wait for one to end"
            await _limit_response(message)(scope, receive, send)
            return

        self._requests[user] += 1
        try:
            await self._serve_user(user, scope, receive, send)
        finally:
            self._requests[user] -= 1
            if not self._requests[user]:
                del self._requests[user]

    async def _serve_user(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, and note that its session is in use meanwhile."""
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
        """Serve a request that opens a session, then end idle sessions above the limit."""
        sessions = self._sessions[user]
        sessions_in_use = sum(1 for running_requests in sessions.values() if running_requests)
        if sessions_in_use + self._opening[user] >= self._max_sessions:
            message = (
                f"{self._max_sessions} sessions of this user are in use, which is the limit; end one of them first"
            )
            await _limit_response(message)(scope, receive, send)
            return

        async def send_and_note_session(message: Message) -> None:
            if message["type"] == "http.response.start":
                opened = Headers(raw=message["headers"]).get(_SESSION)
                if opened:
                    sessions[opened] = 0
            await send(message)

        self._opening[user] += 1
        try:
            await self._app(scope, receive, send_and_note_session)
        finally:
            self._opening[user] -= 1

        while len(sessions) > self._max_sessions:
            oldest_idle = next((session for session, requests in sessions.items() if not requests), None)
            if oldest_idle is None:
                break
            del sessions[oldest_idle]
            await self._end_session(oldest_idle, scope)

    async def _end_session(self, session: str, scope: Scope) -> None:
        """End a session as its client would, with the request DELETE."""
        headers = [(name, value) for name, value in scope["headers"] if name in (b"host", b"origin")]
        headers.append((_SESSION.encode(), session.encode()))
        request = {**scope, "method": "DELETE", "headers": headers}

        async def never_disconnect() -> Message:
            disconnected: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
            return await disconnected

        async def ignore_response(_: Message) -> None:
            pass

        empty_body: Message = {"type": "http.request", "body": b"", "more_body": False}
        await self._app(request, receive_again(empty_body, never_disconnect), ignore_response)


def _has_handshake(headers: Headers) -> bool:
    version = headers.get("mcp-protocol-version")
    return version is None or version in HANDSHAKE_PROTOCOL_VERSIONS


def _limit_response(message: str) -> JSONResponse:
    return JSONResponse(error_body(message, code="LIMIT_REACHED", retryable=True), 429)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line handles signals


def _uvicorn_server(app: ASGIApp, host: str, port: int, connections: Connections) -> _Uvicorn:
    """Return a server of the application whose open connections ``connections`` limits."""

    async def counted_app(scope: Scope, receive: Receive, send: Send) -> None:
        with connections.serving():
            await app(scope, receive, send)

    def protocol(**options: Any) -> asyncio.Protocol:
        make_protocol = connections.protocol_factory(lambda: H11Protocol(**options))
        return make_protocol()

    config = uvicorn.Config(
        counted_app,
        # Uvicorn asks for a class, but only calls it.
        http=cast("type[asyncio.Protocol]", protocol),
        ws="none",
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        # X-Forwarded-* of a reverse proxy is not used.
        proxy_headers=False,
        timeout_graceful_shutdown=_SHUTDOWN_TIMEOUT,
    )
    return _Uvicorn(config)


async def serve_http(
    bridge: Bridge,
    host: str,
    port: int,
    users: Mapping[str, str],
    on_started: Callable[[str], object],
    *,
    connections: Connections | None = None,
) -> None:
    """Serve until cancelled, then close all sessions. ``on_started`` is called with the local URL. Port 0 takes a free
    port. With the ``connections`` of another server of this process, both share their limits.

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
            # Before the server ends, since running calls would delay its end.
            await bridge.aclose()

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
    """Serve the application that ``make`` returns for its URL, until cancelled. ``running`` is open while it is served.
    A user may have ``max_sessions`` with a handshake (100 by default).

    Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``) if the address cannot be listened on."""
    if connections is None:
        connections = Connections()
    with _listen(host, port) as listening:
        url_host = f"[{host}]" if ":" in host else host
        bound_port = listening.getsockname()[1]
        url = f"http://{url_host}:{bound_port}{PATH}"

        app = make(url)
        # The last middleware, since it needs the authenticated user.
        app.user_middleware.append(Middleware(UserLimits, max_requests=connections.share, max_sessions=max_sessions))
        server = _uvicorn_server(app, host, port, connections)

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


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises :class:`~transports.errors.UsageError` (``ADDRESS_UNAVAILABLE``)."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise cannot_listen(host, port, error, f"--http {host}:PORT") from error
