"""Routes of ``/resources``: listing, reading and watching resources of MCP servers (docs/requirements.md R2-6.3)."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from ...errors import CapabilityError
from ...protocol._declarations import Resource, ResourceTemplate
from ...protocol._plain_text import plain_line
from ...routing._result import Result
from ..shared._activity import Activity, ConnectedApp
from ._access import Visitor
from ._content import artifact_meta
from ._options import Limits
from ._responses import RequestRefused, json_response, read_json


class ResourceRoutes:
    """Handlers for resources. A server is identified by its session or by a unique name."""

    def __init__(self, activity: Activity, limits: Limits) -> None:
        self._activity = activity
        self._max_listed = limits.resources

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        app = self._find_server(request, visitor).app
        resources = app.session.resources
        listed = await resources.list()
        templates = await resources.templates()
        return json_response(
            {
                "session": app.key,
                "name": plain_line(app.session.info.name),
                "available": resources.available,
                "resources": [_declaration(resource) for resource in listed[: self._max_listed]],
                "templates": [_declaration(template) for template in templates[: self._max_listed]],
                "total": len(listed),
                "watched": sorted(resources.subscriptions),
            }
        )

    async def read(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Return the contents of a resource: short text inline, other contents as artifacts. They come from the
        session's cache unless the query has ``fresh``."""
        app = self._find_server(request, visitor).app
        uri = request.match_info["uri"]
        try:
            result = await app.session.resources.read(uri, fresh="fresh" in request.query)
        except CapabilityError as error:
            raise _refusal(error) from error

        contents: list[object] = []
        match result.data:
            case {"contents": [*items]}:
                contents += [_content_document(result, index, item) for index, item in enumerate(items)]
        return json_response({"session": app.key, "uri": uri, "warnings": list(result.warnings), "contents": contents})

    async def watch(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Start or stop reporting the server's changes of a resource as events."""
        resources = self._find_server(request, visitor).app.session.resources
        body = await read_json(request)
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

    def _find_server(self, request: web.Request, visitor: Visitor) -> ConnectedApp:
        """Return the server whose session or name is in the path.

        Raises :class:`~._responses.RequestRefused`: 404 if the visitor sees no such server, 409 if several have the
        name."""
        namespace = request.match_info["namespace"]
        visible = [server for server in self._activity.apps.values() if visitor.scope.covers(server.scope)]
        for server in visible:
            if server.app.key == namespace:
                return server

        named = []
        for server in visible:
            info = server.app.session.info
            if namespace in (info.name, info.id):
                named.append(server)

        if not named:
            raise RequestRefused(404, "SESSION_INVALID", "no connected server has this name")
        if len(named) > 1:
            keys = ", ".join(server.app.key for server in named)
            raise RequestRefused(409, "INVALID_PARAMS", f"several servers have this name; name a session: {keys}")
        return named[0]


def _declaration(resource: Resource | ResourceTemplate) -> dict[str, object]:
    texts = {"name": resource.name, "title": resource.title, "description": resource.description}
    return resource.model_dump(by_alias=True) | {key: plain_line(text) for key, text in texts.items()}


def _content_document(result: Result, index: int, item: object) -> dict[str, object]:
    """Return one item of ``contents``: ``{uri, mime_type, text, artifact}`` with either a text or an artifact."""
    content: Mapping[str, object] = {}
    if isinstance(item, dict):
        content = item
    document = {"uri": content.get("uri"), "mime_type": content.get("mimeType"), "text": None, "artifact": None}
    ref = result.artifacts.get(f"contents.{index}.blob") or result.artifacts.get(f"contents.{index}.text")
    if ref is not None:
        document["artifact"] = artifact_meta(ref)
    elif isinstance(content.get("text"), str):
        document["text"] = content["text"]
    return document


def _refusal(error: CapabilityError) -> RequestRefused:
    """Return the response for a failed request to an MCP server: 404 for an unknown resource, otherwise 502."""
    resource_not_found, invalid_params = -32002, -32602
    # Servers use both codes for an unknown resource.
    if error.details.get("code") in (resource_not_found, invalid_params):
        return RequestRefused(404, error.code, error.message)
    return RequestRefused(502, error.code, error.message)
