"""Who may see what: hosts, origins, tokens, cookies."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from aiohttp import web

from ...artifacts import Scope
from ...protocol.urls import is_loopback
from .answers import Refused
from .links import Expired, Links

__all__ = ["Access", "Guarded", "Visitor"]

#: Seconds that a cookie is good for, and how many that were given back are known.
_COOKIE_SECONDS, _COOKIES = 12 * 3600, 1000
_COOKIE = "abp_serve"
_SAME = ("same-origin", "none")


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: what lies within ``scope`` is theirs, and nothing else is there for them. ``until`` is when their token
    ends, in seconds since 1970."""

    scope: Scope
    operator: bool = False
    until: float | None = None

    def require_operator(self) -> None:
        """Raises :class:`~.answers.Refused`."""
        if not self.operator:
            raise Refused(403, "PERMISSION_DENIED", "this needs the operator's token")


Guarded: TypeAlias = Callable[[web.Request, Visitor], Awaitable[web.StreamResponse]]


class Access:
    """``token`` is the operator's; ``users`` are other tokens with what they open; ``host`` is where the server
    listens. Session tokens are signed by ``links``."""

    def __init__(self, token: str, links: Links, *, host: str, users: Mapping[str, Scope] | None = None) -> None:
        self._tokens = {token: Visitor(Scope(), operator=True)}
        self._tokens |= {secret: Visitor(scope) for secret, scope in (users or {}).items()}
        self._links = links
        self._host = host.strip("[]").lower()
        #: Cookies that were given back before their time.
        self._ended: OrderedDict[str, None] = OrderedDict()

    # --- where a request comes from -----------------------------------------------------------------------------------

    def check(self, request: web.Request) -> None:
        """A page elsewhere must not get in by a name that leads here (DNS rebinding), nor send forms. Raises
        :class:`~.answers.Refused`."""
        host = _hostname(request.host)
        if host is None or not self._known(host):
            raise Refused(421, "PERMISSION_DENIED", "this server does not go by that name; use the address it printed")
        origin = request.headers.get("Origin")
        if origin is not None and origin.lower() not in (f"{scheme}://{request.host.lower()}" for scheme in _SCHEMES):
            raise Refused(403, "PERMISSION_DENIED", "requests of other origins are refused")

    def _known(self, host: str) -> bool:
        if is_loopback(host) or host == self._host:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return not is_loopback(self._host)  # listening on all addresses: any of them may be meant, but no foreign name

    # --- who it comes from --------------------------------------------------------------------------------------------

    def guarded(self, handler: Guarded) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """``handler`` for those who may come in; 401 for others."""

        async def handle(request: web.Request) -> web.StreamResponse:
            visitor = self.visitor(request)
            if visitor is None:
                raise Refused(
                    401,
                    "PERMISSION_REQUIRED",
                    "a token is needed: `Authorization: Bearer TOKEN`",
                    headers={"WWW-Authenticate": "Bearer"},
                )
            return await handler(request, visitor)

        return handle

    def visitor(self, request: web.Request) -> Visitor | None:
        """Who asks, by bearer token or cookie."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme:
            return self.holder(token.strip()) if scheme.lower() == "bearer" else None
        # a page on another port of this machine is the same site to a browser, and its requests carry the cookie
        if request.headers.get("Sec-Fetch-Site", "none") not in _SAME:
            return None
        return self._remembered(request.cookies.get(_cookie_name(request), ""))

    def _remembered(self, cookie: str) -> Visitor | None:
        """Who a cookie stands for: a token that this server still has, or a session."""
        try:
            said = self._links.holder_of(cookie)
        except Expired:
            return None
        if said is None or cookie in self._ended:
            return None
        kind, _, whose = said[0].partition(" ")
        if kind == "session":
            return Visitor(Scope(session=whose), until=said[1])
        return next((visitor for token, visitor in self._tokens.items() if _digest(token) == whose), None)

    def holder(self, token: str) -> Visitor | None:
        """Whose token it is."""
        found = None
        for secret, visitor in self._tokens.items():  # all of them: the time tells nothing
            if hmac.compare_digest(secret.encode(), token.encode()):
                found = visitor
        if found is not None:
            return found
        try:
            said = self._links.session_of(token)
        except Expired:
            return None
        return Visitor(Scope(session=said[0]), until=said[1]) if said else None

    def login(self, request: web.Request, answer: web.Response, token: str) -> None:
        """Have ``answer`` set a cookie that stands for the token. Raises :class:`~.answers.Refused`."""
        visitor = self.holder(token)
        if visitor is None:
            raise Refused(401, "PERMISSION_REQUIRED", "this is no token of this server")
        until = self._links.clock() + _COOKIE_SECONDS
        who = f"token {_digest(token)}" if token in self._tokens else f"session {visitor.scope.session}"
        cookie = self._links.cookie(who, min(until, visitor.until or until))
        answer.set_cookie(
            _cookie_name(request), cookie, httponly=True, samesite="Strict", max_age=_COOKIE_SECONDS, path="/"
        )

    def logout(self, request: web.Request, answer: web.Response) -> None:
        """End the cookie, and have the browser forget it."""
        name = _cookie_name(request)
        if self._remembered(cookie := request.cookies.get(name, "")):
            self._ended[cookie] = None
            if len(self._ended) > _COOKIES:
                self._ended.popitem(last=False)
        answer.del_cookie(name, path="/", httponly=True, samesite="Strict")


_SCHEMES = ("http", "https")  # https: behind a proxy


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _cookie_name(request: web.Request) -> str:
    """Cookies do not tell ports apart, so their names do."""
    port = request.host.rpartition(":")[2]
    return f"{_COOKIE}_{port}" if port.isdigit() else _COOKIE


def _hostname(host: str) -> str | None:
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for one that is none
        return parts.hostname if parts.username is None and not parts.path else None
    except ValueError:
        return None
