"""``/apps``: the apps that are connected, here or by an MCP bridge beside, and what each can do."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from aiohttp import web

from ...artifacts import Scope
from ...protocol.capabilities import find_capability
from ...protocol.plain_text import plain_line
from ...protocol.urls import is_address
from ...session.named_apps import is_app_name
from ..shared.activity import Activity, ConnectedApp
from ..shared.apps import Apps
from .access import Visitor
from .responses import RequestRefused, json_response, read_json, scope_in

__all__ = ["AppRoutes"]

#: Capabilities of one app in a list; docs/faults.md 22: an app may have a hundred thousand.
_MAX_LISTED = 1000
#: Characters of a description in a list.
_MAX_DESCRIPTION = 500


class AppRoutes:
    """Handlers for connected apps. ``apps`` are those that this server connects itself; ``named`` are the names of
    those that the settings file describes."""

    def __init__(self, activity: Activity, apps: Apps, named: Collection[str]) -> None:
        self._named = sorted(named)
        self._activity = activity
        self._apps = apps

    async def list(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /apps``, oldest connection first; to the operator also which may be connected by name."""
        visible = [one for one in self._activity.apps.values() if visitor.scope.covers(one.scope)]
        named = self._named if visitor.operator else []
        return json_response({"apps": [_document(one) for one in visible], "names": named})

    async def connect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /apps`` when the app is connected; for the operator alone, who may name its owner. With
        ``reuse`` an app that is connected already will do, and anyone may ask for one of theirs."""
        body = await read_json(request)
        url, transport = body.get("url"), body.get("transport", "auto")
        if body.get("reuse") is not True:
            visitor.require_operator()
        known = isinstance(url, str) and (is_address(url) or is_app_name(url))
        if not known or not isinstance(url, str) or not isinstance(transport, str):
            message = "url must be an http(s):// or ws(s):// address, or the name of an app; transport is a name"
            raise RequestRefused(400, "INVALID_PARAMS", message)
        owner = scope_in(body, "tenant", "user")
        if body.get("reuse") is True:
            if connected := self._find_connected(visitor, owner, url, transport):
                return json_response(_document(connected))
            visitor.require_operator()
        app = await self._apps.connect(url, {"transport": transport}, owner=owner)
        return json_response(_document(self._activity.apps[app.key]), status=201)

    def _find_connected(self, visitor: Visitor, owner: Scope, url: str, transport: str) -> ConnectedApp | None:
        """The app of ``url`` that may be used instead of a new one: any of the visitor's; to the operator one that
        this server has connected for ``owner``, as the others are not the operator's."""
        wanted = self._apps.scope.within(owner)
        for one in self._activity.apps.values():
            if visitor.operator:
                own = one.apps is self._apps and (one.scope.tenant, one.scope.user) == (wanted.tenant, wanted.user)
            else:
                own = visitor.scope.covers(one.scope)
            if own and one.app.target == url and transport in ("auto", one.app.session.transport.name):
                return one
        return None

    async def disconnect(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``DELETE /apps/{session}``. Calls of the app that are under way are cancelled."""
        connected = self.find(request, visitor)
        await connected.apps.disconnect(connected.app)
        return web.Response(status=204)

    async def capability(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /apps/{session}/capabilities/{name}`` with the capability as the app declares it."""
        session, name = self.find(request, visitor).app.session, request.match_info["name"]
        found = find_capability(session.info.name, name, session.capabilities)
        return json_response(found.model_dump(by_alias=True))

    def find(self, request: web.Request, visitor: Visitor) -> ConnectedApp:
        """Return the app that the path names. Raises :class:`~.responses.RequestRefused` (404) if the visitor sees no
        such app."""
        connected = self._activity.apps.get(request.match_info["session"])
        if connected is None or not visitor.scope.covers(connected.scope):
            raise RequestRefused(404, "SESSION_INVALID", "there is no such app (any more)")
        return connected


def _document(connected: ConnectedApp) -> dict[str, object]:
    session = connected.app.session
    known = session.capabilities
    return {
        "session": connected.app.key,
        "url": connected.app.shown_target,
        "signed_in_as": connected.scope.user if connected.app.is_named else None,
        "name": plain_line(session.info.name),
        "version": plain_line(session.info.version),
        "transport": session.transport.name,
        "resources": session.resources.available,
        "capabilities": [
            {
                "name": capability.name,
                "description": plain_line(capability.description, _MAX_DESCRIPTION),
                "available": capability.available,
                "experimental": capability.experimental,
                "deprecated": capability.deprecated,
            }
            for capability in (known[name] for name in islice(known, _MAX_LISTED))
        ],
    }
