"""Routes of ``/resources``: listing, reading and watching resources of MCP servers (docs/requirements.md R2-6.3)."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from ...artifacts._ref import ArtifactRef
from ...errors import CapabilityError
from ...protocol._declarations import Resource, ResourceTemplate
from ...protocol._plain_text import plain_line
from ...routing._result import Result
from ..shared._activity import Activity, ConnectedApp
from ._access import Visitor
from ._content import artifact_meta
from ._responses import RequestRefused, json_response, read_json

#: Maximum number of resources in a list; a server may have any number.
_MAX_LISTED = 5000
#: JSON-RPC codes of MCP servers for an unknown resource: the one of MCP, and "invalid params".
_NOT_FOUND = (-32002, -32602)


class ResourceRoutes:
    """Handlers for resources. A server is identified by its session or by a unique name."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /resources/{namespace}`` with the server's resources and URI templates."""
        app = self._find(request, visitor).app
        resources = app.session.resources
        listed, templates = await resources.list(), await resources.templates()
        return json_response(
            {
                "session": app.key,
                "name": plain_line(app.session.info.name),
                "available": resources.available,
                "resources": [_shown(one) for one in listed[:_MAX_LISTED]],
                "templates": [_shown(one) for one in templates[:_MAX_LISTED]],
                "total": len(listed),
                "watched": sorted(resources.subscriptions),
            }
        )

    async def read(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /resources/{namespace}/{uri}`` with the contents of the resource: short text inline, other
        contents as artifacts. They come from the session's cache unless the query has ``fresh``."""
        app, uri = self._find(request, visitor).app, request.match_info["uri"]
        try:
            result = await app.session.resources.read(uri, fresh="fresh" in request.query)
        except CapabilityError as error:
            raise _refusal(error) from error
        contents = result.data.get("contents") if isinstance(result.data, dict) else None
        items = contents if isinstance(contents, list) else []
        document = {"session": app.key, "uri": uri, "warnings": list(result.warnings)}
        return json_response({**document, "contents": [_content(result, at, item) for at, item in enumerate(items)]})

    async def watch(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``POST /resources/{namespace}`` with the body ``{watch: URI}`` or ``{unwatch: URI}``: start or stop to
        report the server's changes of the resource as events."""
        resources, body = self._find(request, visitor).app.session.resources, await read_json(request)
        try:
            match body:
                case {"watch": str(uri)} if len(body) == 1:
                    await resources.subscribe(uri)
                case {"unwatch": str(uri)} if len(body) == 1:
                    await resources.unsubscribe(uri)
                case _:
                    raise RequestRefused(400, "INVALID_PARAMS", "send {watch: URI} or {unwatch: URI}")
        except CapabilityError as error:
            raise _refusal(error) from error
        return web.Response(status=204)

    def _find(self, request: web.Request, visitor: Visitor) -> ConnectedApp:
        """Return the server named in the path. Raises :class:`~._responses.RequestRefused`: 404 if the visitor sees no
        server of that name, 409 if several."""
        namespace = request.match_info["namespace"]
        visible = [one for one in self._activity.apps.values() if visitor.scope.covers(one.scope)]
        named = [one for one in visible if namespace == one.app.key] or [
            one for one in visible if namespace in (one.app.session.info.name, one.app.session.info.id)
        ]
        if not named:
            raise RequestRefused(404, "SESSION_INVALID", "there is no such server (any more)")
        if len(named) > 1:
            keys = ", ".join(one.app.key for one in named)
            raise RequestRefused(409, "INVALID_PARAMS", f"several servers have this name; name a session: {keys}")
        return named[0]


def _shown(one: Resource | ResourceTemplate) -> dict[str, object]:
    texts = {"name": one.name, "title": one.title, "description": one.description}
    return one.model_dump(by_alias=True) | {key: plain_line(text) for key, text in texts.items()}


def _content(result: Result, at: int, item: object) -> dict[str, object]:
    """Return one item of ``contents``: ``{uri, mime_type, text, artifact}`` with either a text or an artifact."""
    given: Mapping[str, object] = item if isinstance(item, dict) else {}
    places = (f"contents.{at}.blob", f"contents.{at}.text")
    ref: ArtifactRef | None = next((result.artifacts[place] for place in places if place in result.artifacts), None)
    text = given.get("text")
    return {
        "uri": given.get("uri"),
        "mime_type": given.get("mimeType"),
        "text": text if ref is None and isinstance(text, str) else None,
        "artifact": artifact_meta(ref) if ref else None,
    }


def _refusal(error: CapabilityError) -> RequestRefused:
    unknown = error.details.get("code") in _NOT_FOUND
    return RequestRefused(404 if unknown else 502, error.code, error.message)
