"""State of a running server: its secrets, its addresses, and the requests that tests look at."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

SESSION_COOKIE = "workbench_session"
RECORDED = ("/downloads", "/faults")


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """A request as it arrived. The path is as it was sent; names of ``headers`` are case-insensitive."""

    method: str
    path_qs: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class State:
    interface: bool = True
    """Whether pages have the user interface; without it they offer the same to programs."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    origin: str = ""
    other_origin: str = ""
    requests: list[RequestRecord] = field(default_factory=list)
    handshakes: list[RequestRecord] = field(default_factory=list)
    sockets: set[object] = field(default_factory=set)
    """The WebSocket connections that are open."""
    seen: dict[str, int] = field(default_factory=dict)
    """Requests so far for each address that counts them (``cut_once``, ``status``)."""

    def visit(self, key: str) -> int:
        """Count a request for ``key`` and return the number of earlier ones."""
        before = self.seen.get(key, 0)
        self.seen[key] = before + 1
        return before


STATE = web.AppKey("state", State)


@web.middleware
async def record_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Record method, path and headers of each request to ``/downloads`` and ``/faults``."""
    if request.path.startswith(RECORDED):
        request.app[STATE].requests.append(RequestRecord(request.method, request.raw_path, request.headers))
    return await handler(request)
