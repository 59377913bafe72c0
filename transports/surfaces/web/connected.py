"""``/apps``: the apps that are connected, here or by the MCP bridge beside, and what each can do."""

from __future__ import annotations

from itertools import islice

from aiohttp import web

from ...protocol.capabilities import unknown_capability
from ...protocol.urls import redact_url
from ..shared.activity import Activity, Connected
from ..shared.apps import Apps
from .access import Visitor
from .answers import Refused, body_of, json_answer

__all__ = ["Connections"]

#: Capabilities of one app that a list has; FAULTS: an app may have a hundred thousand.
_LISTED = 1000
#: Others run programs and load extensions: not for a page to say.
_SCHEMES = ("http://", "https://", "ws://", "wss://")


class Connections:
    """``apps`` are those that this server connects itself."""

    def __init__(self, activity: Activity, apps: Apps) -> None:
        self._activity = activity
        self._apps = apps

    async def list(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /apps``."""
        seen = [one for one in self._activity.apps.values() if visitor.scope.covers(one.scope)]
        return json_answer({"apps": [_described(one) for one in seen]})

    async def connect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``POST /apps``."""
        visitor.require_operator()
        body = await body_of(request)
        url, transport = body.get("url"), body.get("transport", "auto")
        if not isinstance(url, str) or not url.lower().startswith(_SCHEMES) or not isinstance(transport, str):
            raise Refused(400, "INVALID_PARAMS", f"url must begin with {', '.join(_SCHEMES)}; transport is a name")
        app = await self._apps.connect(url, {"transport": transport})
        return json_answer(_described(self._activity.apps[app.key]), status=201)

    async def disconnect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``DELETE /apps/{session}``."""
        one = self.found(request, visitor)
        await one.apps.disconnect(one.app)
        return web.Response(status=204)

    async def capability(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """``GET /apps/{session}/capabilities/{name}``, as the app declares it."""
        session, name = self.found(request, visitor).app.session, request.match_info["name"]
        if name not in session.capabilities:
            raise unknown_capability(session.info.name, name, session.capabilities)
        return json_answer(session.capabilities[name].model_dump(by_alias=True))

    def found(self, request: web.Request, visitor: Visitor) -> Connected:
        """The app that the path names, if the visitor may see it. Raises :class:`~.answers.Refused`."""
        one = self._activity.apps.get(request.match_info["session"])
        if one is None or not visitor.scope.covers(one.scope):
            raise Refused(404, "SESSION_INVALID", "there is no such app (any more)")
        return one


def _described(one: Connected) -> dict[str, object]:
    session = one.app.session
    known = session.capabilities
    return {
        "session": one.app.key,
        "url": redact_url(one.app.target),
        "name": session.info.name,
        "version": session.info.version,
        "transport": session.transport.name,
        "capabilities": [
            {
                "name": capability.name,
                "description": capability.description[:500],
                "available": capability.available,
                "experimental": capability.experimental,
                "deprecated": capability.deprecated,
            }
            for capability in (known[name] for name in islice(known, _LISTED))
        ],
    }
