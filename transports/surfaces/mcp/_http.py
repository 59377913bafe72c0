"""MCP over streamable HTTP: the ASGI application with its checks, limits of a user, its server, and bearer tokens.

Tokens are secrets of the operator (:func:`parse_tokens`) or JSON Web Tokens of an issuer (:class:`JwtVerifier`)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import jwt
import uvicorn
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken, TokenVerifier
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

from ..._internal.files import read_regular
from ..._internal.tasks import cancel_and_wait, start_task
from ..._internal.telemetry._prometheus import CONTENT_TYPE, Exposition
from ...artifacts._ref import Scope as ArtifactScope
from ...errors import ProtocolError, UsageError, first_line
from ...protocol._plain_text import is_address, is_loopback, is_page, origin_of, plain_line
from ...protocol._strict_json import decode_json, members_of
from ...protocol.messages import package_version
from ..shared._listening import Connections, cannot_listen, counting, holder_of, url_host
from ._bridge import Bridge
from ._messages import MessageCheck, error_body, receive_again
from ._options import Options
from ._users import MAX_SESSIONS

logger = logging.getLogger("transports")

PATH = "/mcp"
_SESSION = "mcp-session-id"
#: Seconds for running requests when the server ends.
_SHUTDOWN_TIMEOUT = 1


def _metrics_route(exposition: Exposition, security: TransportSecuritySettings, scopes: Sequence[str]) -> Route:
    """Make the route ``/metrics``. It shows sums over all users: counts, durations, sizes, and names of capabilities,
    but no names of users."""
    checks = TransportSecurityMiddleware(security)

    async def show(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = await checks.validate_request(Request(scope, receive))
        response = refusal or Response(exposition.render(), headers={"Content-Type": CONTENT_TYPE})
        await response(scope, receive, send)

    return Route("/metrics", endpoint=RequireAuthMiddleware(show, [*scopes]), methods=["GET"])


def security_for(host: str, public_url: str | None = None) -> TransportSecuritySettings:
    """Return settings that admit only requests to this machine, to ``host`` and to the public address. They protect
    against web pages that rebind a DNS name to this machine."""
    names = {"127.0.0.1", "localhost", "[::1]", url_host(host)}
    hosts = [*(f"{name}:*" for name in names), *names]
    origins = [f"http://{name}:*" for name in names]
    if public_url is not None:
        parts = urlsplit(public_url)
        hosts.append(parts.netloc)
        origins.append(f"{parts.scheme}://{parts.netloc}")
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def _http_app(bridge: Bridge, users: Mapping[str, str], host: str, url: str, exposition: Exposition) -> Starlette:
    """Make the application, in which every request needs a bearer token of ``users`` (token to user) or a signed token.
    With signed tokens the bridge is an OAuth resource server and publishes its issuer and scopes (RFC 9728).
    ``exposition`` is served at ``/metrics``, behind the same checks."""
    options = bridge.options
    if options.public_url is not None:
        url = options.public_url + PATH
    security = security_for(host, options.public_url)
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

    challenge = None
    if auth.resource_server_url is not None:
        # This route comes before that of the SDK, which lacks the scopes of apps and tools.
        app.router.routes[:0] = create_protected_resource_routes(
            auth.resource_server_url, [auth.issuer_url], scopes or None, resource_name="Web apps that speak ABP"
        )
        metadata_url = str(build_resource_metadata_url(auth.resource_server_url))
        challenge = ScopeChallenge(bridge.require_scopes, metadata_url).response

    # Appended middleware runs after the authentication of the SDK.
    app.user_middleware += [
        Middleware(_WithoutLastEventId),
        Middleware(
            MessageCheck,
            max_bytes=options.max_request_bytes,
            max_file_bytes=options.max_file_bytes,
            challenge=challenge,
        ),
    ]
    return app


def _auth_settings(options: Options, url: str) -> AuthSettings:
    """Return the settings of the SDK's authentication. The issuer of signed tokens is published only if it is a URL,
    since clients then ask its server for tokens."""
    if not options.jwt_issuer or not is_address(options.jwt_issuer):
        # The SDK requires an issuer, but publishes it only with the URL of a resource server.
        return AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1"), resource_server_url=None)

    # The URLs stay texts: AnyHttpUrl would add a slash, but issuers are compared exactly.
    return AuthSettings.model_validate(
        {
            "issuer_url": options.jwt_issuer,
            "resource_server_url": url,
            "required_scopes": [*options.required_scopes],
            "validate_token_resource": False,  # the verifier compares the audience
        }
    )


class _WithoutLastEventId:
    """Removes the header Last-Event-ID, so that a client gets a new stream. Events have no ids here, and with the
    header the SDK would answer nothing."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = [(name, value) for name, value in scope["headers"] if name != b"last-event-id"]
            scope = {**scope, "headers": headers}
        await self._app(scope, receive, send)


class UserLimits:
    """Limits the running requests and the sessions of each user. A new session above ``max_sessions`` (by default
    :data:`MAX_SESSIONS`) ends the user's least recently used session that has no running request. If all sessions are
    in use, and for a request above ``max_requests``, the reply has status 429 and a JSON-RPC error with the code
    ``LIMIT_REACHED``."""

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
        token_holder = scope.get("user")
        if scope["type"] != "http" or not isinstance(token_holder, AuthenticatedUser):
            await self._app(scope, receive, send)
            return

        user = token_holder.access_token.subject or token_holder.access_token.client_id
        if self._requests[user] >= self._max_requests:
            message = f"this user has {self._max_requests} running requests, which is the limit; wait for one to end"
            await _limit_response(message)(scope, receive, send)
            return

        with counting(self._requests, user):
            await self._serve_user(user, scope, receive, send)

    async def _serve_user(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request of a user. While it runs, its session counts as used. A request without a session may open a
        session."""
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
            return

        version = headers.get("mcp-protocol-version")
        has_handshake = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        opens_session = session is None and scope["method"] == "POST" and has_handshake
        if opens_session:
            await self._open_session(user, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _open_session(self, user: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that opens a session, or refuse it if all sessions of the user are in use."""
        sessions = self._sessions[user]
        sessions_in_use = sum(1 for running_requests in sessions.values() if running_requests)
        if sessions_in_use + self._opening[user] >= self._max_sessions:
            message = (
                f"{self._max_sessions} sessions of this user are in use, which is the limit; end one of them first"
            )
            await _limit_response(message)(scope, receive, send)
            return

        async def send_and_note_session(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                session = Headers(raw=message["headers"]).get(_SESSION)
                if session:
                    sessions[session] = 0
            await send(message)

        with counting(self._opening, user):
            await self._app(scope, receive, send_and_note_session)
        await self._end_idle_sessions(sessions, scope)

    async def _end_idle_sessions(self, sessions: OrderedDict[str, int], scope: Scope) -> None:
        while len(sessions) > self._max_sessions:
            idle_sessions = (session for session, running_requests in sessions.items() if not running_requests)
            oldest = next(idle_sessions, None)
            if oldest is None:
                break
            del sessions[oldest]
            await self._end_session(oldest, scope)

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


def _limit_response(message: str) -> JSONResponse:
    return JSONResponse(error_body(message, code="LIMIT_REACHED", retryable=True), 429)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # the command line handles signals

    def end(self) -> None:
        """Let :meth:`serve` return once the running requests have ended."""
        self.should_exit = True


def _uvicorn_server(app: ASGIApp, host: str, port: int, connections: Connections) -> _Uvicorn:
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
    """Serve the bridge over HTTP until cancelled, then close all sessions. ``on_started`` is called with the local URL.
    Port 0 takes a free port. With the ``connections`` of another server of this process, both share their limits."""
    exposition = Exposition(package_version())

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        retiring = start_task(bridge.retire_idle())
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
    """Serve an application, which ``make`` returns when it is called with the application's URL. ``on_started`` is
    called with the URL, and ``running`` is open while the application is served. A user may have ``max_sessions`` with
    a handshake (100 by default)."""
    connections = connections or Connections()
    with _open_socket(host, port) as listening:
        bound_port = listening.getsockname()[1]
        url = f"http://{url_host(host)}:{bound_port}{PATH}"

        app = make(url)
        # No redirect for /mcp/: behind a reverse proxy it would have the wrong scheme and prefix.
        (route,) = [route for route in app.routes if isinstance(route, Route) and route.path == PATH]
        app.router.routes.append(Route(f"{PATH}/", endpoint=route.endpoint))
        # The last middleware, since it needs the authenticated user.
        app.user_middleware.append(
            Middleware(UserLimits, max_requests=connections.max_requests_per_user, max_sessions=max_sessions)
        )
        server = _uvicorn_server(app, host, port, connections)

        async with contextlib.AsyncExitStack() as stack:
            serving = asyncio.ensure_future(server.serve(sockets=[listening]))
            stack.push_async_callback(asyncio.wait, (serving,), timeout=2 * _SHUTDOWN_TIMEOUT)
            await stack.enter_async_context(running)
            # The server ends while `running` is closed.
            stack.callback(server.end)
            on_started(url)
            await asyncio.shield(serving)


def _open_socket(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
    except OSError as error:
        raise cannot_listen(host, port, error, f"--http {host}:PORT") from error
    # Accepted connections inherit this option. Without it, each answer waits 40 ms for the client's delayed
    # acknowledgement of its head. Asyncio sets the option itself only for sockets that name their protocol.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


# --- tokens -----------------------------------------------------------------------------------------------------------

#: Seconds for an issuer's keys to be fetched.
_FETCH_TIMEOUT = 10.0
#: Most bytes of an issuer's key set, and of a file with one key.
_MAX_KEY_SET = 1 << 20


def parse_tokens(tokens: str) -> dict[str, str]:
    """Return the users by their secrets. ``tokens`` are separated by commas; each is ``USER=TOKEN``, or ``TOKEN`` for
    the user ``local``."""
    users: dict[str, str] = {}
    for part in tokens.split(","):
        name, equals, secret = part.strip().partition("=")
        if not equals:
            # The part is a secret alone.
            secret = name
            name = "local"
        is_strong = len(secret) >= 16 and secret.isascii()
        if not is_strong or not name or secret in users:
            raise UsageError(
                "a token must have at least 16 ASCII characters and belong to one user: TOKEN or USER=TOKEN, "
                'with commas between them; python -c "import secrets; print(secrets.token_urlsafe())" makes one'
            )
        users[secret] = name
    return users


class JwtVerifier:
    """Verifies JSON Web Tokens (RFC 7519). The user is ``signed:`` plus the ``sub``, so that an issuer's names never
    equal those of the operator's secrets. The algorithms are a fixed list, all with public keys, so that a token cannot
    choose another (RFC 8725)."""

    def __init__(self, options: Options, resource: str) -> None:
        """``resource`` is this bridge's address, the audience unless the options set another (RFC 8707)."""
        self._options = options
        self._audience = options.jwt_audience or resource
        self._key_set = _KeySet(options.jwt_jwks_url) if options.jwt_jwks_url else None
        self._key = _public_key(options.jwt_key_file) if options.jwt_key_file else None

    async def verify(self, token: str) -> AccessToken | None:
        """Return the user of a token, or ``None`` for an invalid token; the reason is logged."""
        max_token_chars = 16 * 1024
        has_three_parts = token.count(".") == 2
        if not has_three_parts or len(token) > max_token_chars:
            return None
        try:
            return await self._verify_token(token)
        except Exception as error:  # noqa: BLE001 - the libraries parse untrusted input and may raise anything
            logger.warning("refused a signed token: %s", plain_line(first_line(error), 300))
            return None

    async def _verify_token(self, token: str) -> AccessToken:
        key: Any = self._key
        if self._key_set is not None:
            key = await self._key_set.key(jwt.get_unverified_header(token).get("kid"))
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=list(self._options.jwt_algorithms),
            audience=self._audience,
            issuer=self._options.jwt_issuer,
            # Seconds by which the clocks of the issuer and this machine may differ.
            leeway=30,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )

        subject = f"signed:{claims['sub']}"
        for user in (claims["sub"], subject):
            # The scope raises for a name that it cannot have, such as a long one.
            ArtifactScope(user=user)

        return AccessToken(
            token=token,
            client_id=subject,
            scopes=_scopes_in(claims),
            subject=subject,
            expires_at=int(claims["exp"]),
            claims=claims,
        )


def _scopes_in(claims: Mapping[str, Any]) -> list[str]:
    """Read the scopes, in ``scope`` (RFC 9068) or ``scp`` of some issuers, as a text or a list of texts."""
    scopes = claims.get("scope", claims.get("scp", ""))
    if isinstance(scopes, str):
        scopes = scopes.split()
    is_list_of_texts = isinstance(scopes, list) and all(isinstance(scope, str) for scope in scopes)
    if not is_list_of_texts or not all(scope.isprintable() for scope in scopes):
        raise jwt.InvalidTokenError("its scopes are neither a text nor a list of texts")
    return list(scopes)


class BearerVerifier(TokenVerifier):
    """Verifies the operator's secrets and JSON Web Tokens. ``users`` maps secrets to users; a secret has all
    ``scopes``."""

    def __init__(self, users: Mapping[str, str], jwt_verifier: JwtVerifier | None, scopes: Sequence[str] = ()) -> None:
        self._users = users
        self._scopes = list(scopes)
        self._jwt_verifier = jwt_verifier

    async def verify_token(self, token: str) -> AccessToken | None:
        user = holder_of(token, self._users)
        if user is not None:
            return AccessToken(token=token, client_id=user, scopes=self._scopes, subject=user)
        if self._jwt_verifier is None:
            return None
        return await self._jwt_verifier.verify(token)


class _KeySet:
    """The keys of an issuer. They are fetched again after five minutes, and when a token names an unknown key. Since
    anyone can send tokens, there is one fetch at a time, at most every five seconds, also after a failure. A known key
    never waits for a fetch. :class:`jwt.PyJWKClient` is not used: its cooldown begins only with a success, its lock
    blocks a thread for each token during a fetch, and it limits neither the size of the answer nor the total time."""

    def __init__(self, url: str) -> None:
        """``url`` is the address of the keys. Raises :class:`~transports.errors.UsageError` if the keys could be
        altered in transit from there."""
        origin = urlsplit(origin_of(url) or "")
        is_protected = origin.scheme == "https" or is_loopback(origin.hostname)
        if not is_page(url) or not is_protected:
            raise UsageError("jwt_jwks_url: give an https:// address, or an http:// one of this machine")

        self._url = url
        self._by_id: dict[str, jwt.PyJWK] = {}
        self._expires_at = self._next_fetch = float("-inf")
        self._fetch_lock = asyncio.Lock()

    async def key(self, kid: object) -> jwt.PyJWK:
        """Return the key with the id ``kid``, and fetch the keys first if it is unknown. Raises PyJWT's errors."""
        if not self._has_key(kid):
            async with self._fetch_lock:
                # Another token may have fetched the key meanwhile.
                if not self._has_key(kid) and time.monotonic() >= self._next_fetch:
                    await self._fetch_keys()
        if not self._has_key(kid):
            raise jwt.PyJWKClientError("its key is not one of the issuer's")
        return self._by_id[str(kid)]

    def _has_key(self, kid: object) -> bool:
        return kid in self._by_id and time.monotonic() < self._expires_at

    async def _fetch_keys(self) -> None:
        lifetime_seconds = 300
        seconds_between_fetches = 5
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT):
                body = await self._download_key_set()
            self._by_id = await asyncio.to_thread(_usable_keys, body)
            self._expires_at = time.monotonic() + lifetime_seconds
        finally:
            self._next_fetch = time.monotonic() + seconds_between_fetches

    async def _download_key_set(self) -> bytes:
        from aiohttp import ClientSession  # late: a bridge without signed tokens must not load it

        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        # Without redirects, which could lead to an address where the keys can be altered in transit.
        async with (
            ClientSession(auto_decompress=False, trust_env=True) as http,
            http.get(self._url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != 200:
                raise jwt.PyJWKClientConnectionError(f"the issuer's keys: the server answered {response.status}")

            body = bytearray()
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > _MAX_KEY_SET:
                    raise jwt.PyJWKClientError(f"the issuer's keys have more than {_MAX_KEY_SET:,} bytes")
            return bytes(body)


def _usable_keys(body: bytes) -> dict[str, jwt.PyJWK]:
    """Return the signature keys by id; other keys are left out, as RFC 7517 5 asks."""
    try:
        key_set = decode_json(body)
    except ProtocolError as error:
        raise jwt.PyJWKSetError("the issuer's keys are not JSON") from error
    keys = key_set.get("keys") if isinstance(key_set, dict) else None
    if not isinstance(keys, list):
        raise jwt.PyJWKSetError("the issuer's keys are not a JSON Web Key Set")

    usable: dict[str, jwt.PyJWK] = {}
    for key in keys[:100]:
        match key:
            case {"kid": str() as kid} if kid and key.get("use") in ("sig", None):
                # The libraries may raise anything for an invalid key.
                with suppress(Exception):
                    usable[kid] = jwt.PyJWK.from_dict(key)
    return usable


def _public_key(file: Path) -> Any:
    try:
        return load_pem_public_key(read_regular(file, _MAX_KEY_SET))
    except (OSError, ValueError) as error:
        raise UsageError(f"jwt_key_file: {file} is not a public key in PEM: {error}") from error


@dataclass(frozen=True, slots=True)
class ScopeChallenge:
    """Answers a call with too few scopes: status 403, with the needed scopes in a header (RFC 6750 3.1), so that a
    client can ask its user for them.
    ``check`` takes a tool, its arguments and the session id (empty without one), and raises
    :class:`~transports.errors.UsageError`. ``metadata_url`` is the address of the resource's metadata (RFC 9728)."""

    check: Callable[[str, Mapping[str, Any], str], None]
    metadata_url: str

    def response(self, scope: Scope, body: bytes) -> JSONResponse | None:
        """Return the answer 403 if the body is a call with too few scopes, otherwise ``None``."""
        max_body_bytes = 256 * 1024
        if len(body) > max_body_bytes:
            # The bridge itself refuses such a call; only the header with the needed scopes is missing.
            return None
        try:
            match decode_json(body):
                case {"method": "tools/call", "params": {"name": name, **params}}:
                    connection = Headers(scope=scope).get(_SESSION, "")
                    self.check(str(name), members_of(params.get("arguments")), connection)
        except UsageError as error:
            return self._challenge_response(error)
        except ProtocolError:
            pass  # the server reports the invalid request
        return None

    def _challenge_response(self, error: UsageError) -> JSONResponse:
        scopes = error.details["scopes"]
        assert isinstance(scopes, list)
        parts = [
            'error="insufficient_scope"',
            f'scope="{" ".join(scopes)}"',
            f'resource_metadata="{self.metadata_url}"',
            'error_description="this call needs more scopes"',
        ]
        body = {"error": "insufficient_scope", "error_description": error.message}
        return JSONResponse(body, 403, headers={"WWW-Authenticate": f"Bearer {', '.join(parts)}"})
