"""What the server keeps while it runs: its secrets, where it listens, and the requests that tests ask about."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.typedefs import Handler

SESSION_COOKIE = "workbench_session"
RECORDED = ("/downloads", "/faults")


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as it arrived, its address as it was sent; ``headers`` takes names in any case."""

    method: str
    path_qs: str
    headers: Mapping[str, str]


@dataclass(slots=True)
class State:
    """One server's state."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    session: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    origin: str = ""
    other_origin: str = ""
    requests: list[RequestRecord] = field(default_factory=list)
    handshakes: list[RequestRecord] = field(default_factory=list)
    sockets: set[object] = field(default_factory=set)
    """The WebSocket connections that are open."""
    seen: dict[str, int] = field(default_factory=dict)
    """How often each address that counts its visits (``cut_once``, ``status``) was asked for."""

    def visit(self, key: str) -> int:
        """Count a visit and return how many came before it."""
        before = self.seen.get(key, 0)
        self.seen[key] = before + 1
        return before


STATE = web.AppKey("state", State)


@web.middleware
async def record_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Keep method, address and headers of what reaches ``/downloads`` and ``/faults``."""
    if request.path.startswith(RECORDED):
        request.app[STATE].requests.append(RequestRecord(request.method, request.raw_path, request.headers))
    return await handler(request)
