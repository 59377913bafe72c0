"""Settings and limits of the web server, and access control: allowed hosts and origins, tokens, cookies."""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, TypeAlias
from urllib.parse import urlsplit

from aiohttp import web
from pydantic import AfterValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from ..._internal.recent import Recent
from ...artifacts._ref import Scope
from ...artifacts._signing import Expired, Signer
from ...protocol._plain_text import is_loopback
from ...protocol._times import iso_utc
from ...session._app_tables import settings_error
from ...session._evidence import checked_evidence
from ...session._settings import require_known
from ..shared._listening import base_url, counting, holder_of, hostname
from ._responses import RequestRefused, json_response, read_json, scope_in, seconds_in


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits that are not settings. Times are in seconds."""

    #: For running responses when the server ends.
    shutdown_timeout: float = 1.0
    #: For a client to take one piece of an artifact.
    piece_timeout: float = 30.0
    #: For the head of the next file in a form. Slower bodies are ended by ``pieces_in_time``.
    part_timeout: float = 60.0
    #: For a client of ``/events`` to take what was written for it.
    stall_timeout: float = 10.0
    #: Listed resources, of which a server may have any number.
    resources: int = 5000
    #: Without a request for a run, until its ledger is closed.
    run_idle: float = 60.0
    #: Between two reads of a watched run.
    run_interval: float = 1.0
    #: Views that are open. Opening another one closes the oldest.
    views: int = 8
    #: Characters of a view's document, bytes of its tool's arguments and result as JSON, and files that it hands out.
    view_document: int = 8 << 20
    view_input: int = 16 << 20
    view_files: int = 200
    #: For a call whose view is requested, and for the server's answer to a view.
    view_timeout: float = 60.0


LIMITS = Limits()


def _checked_secret(secret: str) -> str:
    if len(secret) < 16 or not secret.isascii() or not secret.isprintable():
        raise ValueError(
            "a secret needs 16 ASCII characters or more; "
            'python -c "import secrets; print(secrets.token_urlsafe())" makes one'
        )
    return secret


def _tenants_in(tenants: str) -> list[tuple[str, str, str]]:
    """Return each ``TENANT=TOKEN`` as its name, the equals sign (empty if missing) and its token."""
    parts = (part.strip() for part in tenants.split(","))
    return [part.partition("=") for part in parts if part]


def _checked_tenants(tenants: str) -> str:
    tokens = set()
    for tenant, equals, token in _tenants_in(tenants):
        if not equals or not tenant.strip():
            raise ValueError("write TENANT=TOKEN, with commas between them")
        if _checked_secret(token) in tokens:
            raise ValueError("each tenant needs a different token")
        tokens.add(token)
    return tenants


_Secret = Annotated[str, AfterValidator(_checked_secret)]


class Options(BaseSettings):
    """Settings from ``ABP_SERVE_*`` variables, or from arguments of the same names."""

    model_config = SettingsConfigDict(env_prefix="ABP_SERVE_", env_ignore_empty=True, frozen=True)

    #: The operator's token; random by default.
    token: _Secret | None = Field(default=None, repr=False)
    #: Tokens of tenants: ``TENANT=TOKEN``, with commas between them. Each tenant sees only their own scope.
    tenants: Annotated[str, AfterValidator(_checked_tenants)] | None = Field(default=None, repr=False)
    #: Signing key of links, scope tokens and cookies; by default the key in the user's state folder.
    key: _Secret | None = Field(default=None, repr=False)
    #: Address of this server behind a reverse proxy, such as ``https://files.example``; links begin with it.
    public_url: Annotated[str, AfterValidator(base_url)] | None = None
    #: Maximum size of an uploaded file in bytes; the limit of the store applies, too.
    max_upload_bytes: int = Field(default=1 << 30, gt=0)
    #: MIME types of uploads, as patterns with commas between them: ``image/*, application/pdf``.
    upload_types: str = "*/*"
    #: Number of browsers shared by all apps, each app with a context of its own; by default each app starts its own.
    browsers: int | None = Field(default=None, gt=0)
    #: Maximum number of connected apps.
    max_apps: int = Field(default=16, gt=0)
    #: Maximum number of clients of ``/events``.
    max_listeners: int = Field(default=1000, gt=0)
    #: Seconds that an app's question waits for an answer before the default answer is given.
    question_timeout: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    #: Evidence that is kept of each call of an app: ``trace=on-failure,console`` (docs/evidence.md).
    evidence: Annotated[str, AfterValidator(checked_evidence)] = ""

    @property
    def tenant_scopes(self) -> dict[str, Scope]:
        return {token: Scope(tenant=tenant.strip()) for tenant, _, token in _tenants_in(self.tenants or "")}

    @classmethod
    def load(cls, *, token: str | None = None, browsers: int | None = None) -> Options:
        """Load the settings. Arguments other than ``None`` take precedence over the environment."""
        require_known("ABP_SERVE_", cls.model_fields)
        arguments = {"token": token, "browsers": browsers}
        settings = {name: value for name, value in arguments.items() if value is not None}
        try:
            return cls(**settings)  # type: ignore[arg-type]
        except ValidationError as error:
            raise settings_error(error, lambda field: f"ABP_SERVE_{field.upper()}") from error


@dataclass(frozen=True, slots=True)
class Visitor:
    """Sender of a request. Objects outside of the ``scope`` do not exist for a visitor. ``expires_at`` is the time when
    the token expires, in seconds since 1970."""

    scope: Scope
    operator: bool = False
    expires_at: float | None = None

    def require_operator(self) -> None:
        if not self.operator:
            raise RequestRefused(403, "PERMISSION_DENIED", "this needs the operator's token")


def _encode_scope(scope: Scope) -> str:
    return json.dumps(dict(scope.items()))


def _decode_scope(text: str) -> Scope:
    return Scope(**json.loads(text))


AuthorizedHandler: TypeAlias = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]


class Access:
    """Decides who may make which request. ``users`` maps tokens other than the operator's to their scopes. ``host`` is
    the listening address, ``public_url`` the address behind a proxy. Other names are refused, and ``X-Forwarded-*``
    headers of a proxy are ignored. ``signer`` signs scope tokens and cookies. The holders of one scope may have
    ``max_requests`` running requests, the operator any number."""

    def __init__(
        self,
        token: str,
        signer: Signer,
        *,
        host: str,
        users: Mapping[str, Scope] | None = None,
        public_url: str | None = None,
        max_requests: int,
    ) -> None:
        self._tokens = {token: Visitor(Scope(), operator=True)}
        self._tokens |= {secret: Visitor(scope) for secret, scope in (users or {}).items()}
        self._signer = signer
        self._max_requests = max_requests
        self._requests: Counter[Scope] = Counter()
        self._host = host.strip("[]").lower()
        public = urlsplit(public_url or "")
        self._public_host = public.hostname
        self._public_origin = f"{public.scheme}://{public.netloc}".lower()
        #: Signed-out cookies that may not have expired.
        self._ended_cookies: Recent[str, None] = Recent(1000)

    # --- host and origin ----------------------------------------------------------------------------------------------

    def check_origin(self, request: web.Request) -> None:
        """Refuse requests of foreign pages, which may reach the server by DNS rebinding or send it forms (CSRF)."""
        host = hostname(request.host)
        if host is None or not self._is_own_name(host):
            message = "this is not a name of this server; use the address that it printed"
            raise RequestRefused(421, "PERMISSION_DENIED", message)

        origin = request.headers.get("Origin")
        address = request.host.lower()
        # A proxy may change Host, so the public origin is allowed. A proxy may also add TLS, so https is allowed.
        origins_of_server = (self._public_origin, f"http://{address}", f"https://{address}")
        if origin is not None and origin.lower() not in origins_of_server:
            raise RequestRefused(403, "PERMISSION_DENIED", "requests from other origins are refused")

    def _is_own_name(self, host: str) -> bool:
        if is_loopback(host) or host in (self._host, self._public_host):
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        # A server that other machines can reach accepts any IP address, since only names can be rebound.
        return not is_loopback(self._host)

    # --- tokens and cookies -------------------------------------------------------------------------------------------

    def authorized(self, handler: AuthorizedHandler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return a handler that first identifies the visitor. It refuses a request without a valid token or cookie
        (401), and a visitor with too many running requests (429)."""

        async def handle(request: web.Request) -> web.StreamResponse:
            visitor = self._identify_visitor(request)
            if visitor is None:
                message = "a token is needed: `Authorization: Bearer TOKEN`"
                headers = {"WWW-Authenticate": "Bearer"}
                raise RequestRefused(401, "PERMISSION_REQUIRED", message, headers=headers)
            if self._requests[visitor.scope] >= self._max_requests and not visitor.operator:
                message = f"your limit of {self._max_requests} running requests is reached; wait for one to end"
                raise RequestRefused(429, "LIMIT_REACHED", message)
            with counting(self._requests, visitor.scope):
                return await handler(request, visitor)

        return handle

    def _identify_visitor(self, request: web.Request) -> Visitor | None:
        """Return the holder of the token in ``Authorization``, or without that header the holder of the cookie."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self._holder_of_token(token.strip())
        if scheme:
            return None

        # Pages on other ports of this machine are the same site, so browsers send the cookie with their requests, too.
        if request.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            return None
        return self._holder_of_cookie(request.cookies.get(_cookie_name(request), ""))

    def _holder_of_cookie(self, cookie: str) -> Visitor | None:
        try:
            content = self._signer.read_cookie(cookie)
        except Expired:
            return None
        if content is None or cookie in self._ended_cookies:
            return None

        # The holder is "scope SCOPE", or "token DIGEST" for a configured token.
        holder, expires_at = content
        kind, _, subject = holder.partition(" ")
        if kind == "scope":
            return Visitor(_decode_scope(subject), expires_at=expires_at)
        for token, visitor in self._tokens.items():
            if _token_digest(token) == subject:
                return visitor
        return None

    def _holder_of_token(self, token: str) -> Visitor | None:
        visitor = holder_of(token, self._tokens)
        if visitor is not None:
            return visitor
        try:
            content = self._signer.read_scope_token(token)
        except Expired:
            return None
        if content is None:
            return None
        scope, expires_at = content
        return Visitor(_decode_scope(scope), expires_at=expires_at)

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Set a cookie that stands for the token in the body, for twelve hours at most."""
        body = await read_json(request)
        token = str(body.get("token", ""))
        visitor = self._holder_of_token(token)
        if visitor is None:
            raise RequestRefused(401, "PERMISSION_REQUIRED", "this is not a token of this server")

        lifetime_seconds = 12 * 3600
        expires_at = self._signer.clock() + lifetime_seconds
        if visitor.expires_at is not None:
            expires_at = min(expires_at, visitor.expires_at)
        # _holder_of_cookie() reads this text.
        holder = f"scope {_encode_scope(visitor.scope)}"
        if token in self._tokens:
            holder = f"token {_token_digest(token)}"

        response = web.Response(status=204)
        response.set_cookie(
            _cookie_name(request),
            self._signer.cookie(holder, expires_at),
            httponly=True,
            samesite="Strict",
            secure=self._public_origin.startswith("https:") and not is_loopback(hostname(request.host)),
            max_age=lifetime_seconds,
            path="/",
        )
        return response

    async def logout(self, request: web.Request) -> web.StreamResponse:
        name = _cookie_name(request)
        cookie = request.cookies.get(name, "")
        if self._holder_of_cookie(cookie):
            self._ended_cookies[cookie] = None

        response = web.Response(status=204)
        response.del_cookie(name, path="/", httponly=True, samesite="Strict")
        return response

    async def make_token(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Make a token for the scope in the body, which is valid for ``expires`` seconds, by default a day. Only the
        operator may ask for it."""
        visitor.require_operator()
        body = await read_json(request)
        scope = scope_in(body, "tenant", "user", "session")
        if not scope:
            raise RequestRefused(400, "INVALID_PARAMS", "name the owner of the token: tenant, user or session")

        expires_at = self._signer.clock() + seconds_in(body, "expires", 86400.0)
        token = self._signer.scope_token(_encode_scope(scope), expires_at)
        return json_response({"token": token, "expires_at": iso_utc(expires_at, timespec="seconds")}, status=201)


def _token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _cookie_name(request: web.Request) -> str:
    """Return a name with the port, since browsers send cookies to all ports of a host."""
    port = request.host.rpartition(":")[2]
    if port.isdigit():
        return f"abp_serve_{port}"
    return "abp_serve"
