"""Routes of ``/resources`` and ``/views``: what MCP servers have besides tools (docs/requirements.md R2-6.3)."""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from ..._internal.tasks import in_thread, mark_retrieved
from ...artifacts._ref import Scope
from ...errors import ABPError, CapabilityError, TooLarge, UsageError, first_line, format_seconds
from ...protocol._declarations import Resource, ResourceTemplate
from ...protocol._plain_text import is_loopback, plain_line
from ...protocol._strict_json import encode_json, members_of
from ...routing._result import Result
from ...routing._router import Router
from ...session._call import keeping_server_calls
from ..shared._activity import Activity
from ..shared._apps import App
from ..shared._listening import hostname
from ._access import Limits, Visitor
from ._responses import RequestRefused, artifact_meta, json_response, read_json, whole_number

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ...mcp.views._host import Host
    from ...mcp.views._transport import OpenedTool
    from ...protocol.binary import BinaryData
    from ...protocol.messages import ServerCall
    from ...session._views import ViewServer


class ResourceRoutes:
    """Handlers for the resources of MCP servers. A path names a server by its session or by a unique name."""

    def __init__(self, activity: Activity, limits: Limits) -> None:
        self._activity = activity
        self._max_listed = limits.resources

    async def list(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        app = self._find_server(request, visitor)
        resources = app.session.resources
        all_resources = await resources.list()
        templates = await resources.templates()
        return json_response(
            {
                "session": app.key,
                "name": plain_line(app.session.info.name),
                "available": resources.available,
                "resources": [_resource_document(resource) for resource in all_resources[: self._max_listed]],
                "templates": [_resource_document(template) for template in templates[: self._max_listed]],
                "total": len(all_resources),
                "watched": sorted(resources.subscriptions_of(self)),
            }
        )

    async def read(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Read a resource, from the session's cache unless the query has ``fresh``."""
        app = self._find_server(request, visitor)
        uri = request.match_info["uri"]
        try:
            result = await app.session.resources.read(uri, fresh="fresh" in request.query)
        except CapabilityError as error:
            raise _refusal(error) from error

        data: Any = result.data
        contents = [_content_document(result, index, item) for index, item in enumerate(data["contents"])]
        return json_response({"session": app.key, "uri": uri, "warnings": list(result.warnings), "contents": contents})

    async def watch(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        resources = self._find_server(request, visitor).session.resources
        body = await read_json(request)
        try:
            match body:
                case {"watch": str(uri)} if len(body) == 1:
                    await resources.subscribe_for(self, uri)
                case {"unwatch": str(uri)} if len(body) == 1:
                    await resources.unsubscribe_for(self, uri)
                case _:
                    raise RequestRefused(400, "INVALID_PARAMS", "send {watch: URI} or {unwatch: URI}")
        except CapabilityError as error:
            raise _refusal(error) from error
        return web.Response(status=204)

    def _find_server(self, request: web.Request, visitor: Visitor) -> App:
        """Return the server that the path names. Answer 404 if the visitor sees no such server, 409 if several have the
        name."""
        namespace = request.match_info["namespace"]
        visible = [server for server in self._activity.apps.values() if visitor.scope.covers(server.scope)]
        for server in visible:
            if server.key == namespace:
                return server

        matches = [server for server in visible if namespace in (server.session.info.name, server.session.info.id)]
        if not matches:
            raise RequestRefused(404, "SESSION_INVALID", "no connected server has this name")
        if len(matches) > 1:
            keys = ", ".join(server.key for server in matches)
            raise RequestRefused(409, "INVALID_PARAMS", f"several servers have this name; name a session: {keys}")
        (server,) = matches
        return server


def _resource_document(resource: Resource | ResourceTemplate) -> dict[str, object]:
    texts = {"name": resource.name, "title": resource.title, "description": resource.description}
    return resource.model_dump(by_alias=True) | {key: plain_line(text) for key, text in texts.items()}


def _content_document(result: Result, index: int, item: object) -> dict[str, object]:
    """Return ``{uri, mime_type, text, artifact}`` with either a text or an artifact."""
    content = members_of(item)
    document = {"uri": content.get("uri"), "mime_type": content.get("mimeType"), "text": None, "artifact": None}
    ref = result.artifacts.get(f"contents.{index}.blob") or result.artifacts.get(f"contents.{index}.text")
    if ref is not None:
        document["artifact"] = artifact_meta(ref)
    elif isinstance(content.get("text"), str):
        document["text"] = content["text"]
    return document


def _refusal(error: CapabilityError) -> RequestRefused:
    """Answer 404 for an unknown resource, otherwise 502."""
    resource_not_found, invalid_params = -32002, -32602
    # Servers use both codes for an unknown resource.
    if error.details.get("code") in (resource_not_found, invalid_params):
        return RequestRefused(404, error.code, error.message)
    return RequestRefused(502, error.code, error.message)


logger = logging.getLogger("transports")

_PROXY = """<!doctype html><meta charset="utf-8"><title>View</title>
<style>html,body{margin:0;height:100%}iframe{display:block;border:0;width:100%;height:100%}</style><body><script>
(() => {
  "use strict";
  const OWN = "ui/notifications/sandbox-";
  let inner = null, host = null;
  const isOwn = (message) => typeof message?.method === "string" && message.method.startsWith(OWN);
  addEventListener("message", ({ source, origin, data }) => {
    if (source === parent && (host === null || origin === host)) {
      if (inner !== null) {
        if (!isOwn(data)) inner.contentWindow.postMessage(data, location.origin);
      } else if (data?.method === OWN + "resource-ready") {
        host = origin;
        inner = document.createElement("iframe");
        inner.setAttribute("sandbox", data.params.sandbox);
        inner.allow = data.params.allow;
        inner.srcdoc = data.params.html;
        document.body.append(inner);
      }
    } else if (inner !== null && source === inner.contentWindow && origin === location.origin && !isOwn(data)) {
      parent.postMessage(data, host);
    }
  });
  parent.postMessage({ jsonrpc: "2.0", method: OWN + "proxy-ready", params: {} }, "*");
})();
</script>"""


@dataclass(eq=False)
class LiveView:
    """A view that a visitor has open. ``name`` is the host name of its origin, ``opened`` has its document,
    ``tool_input`` the arguments and the result of its tool as JSON, and ``host`` answers its requests. ``files`` are
    the ids of the artifacts that it has handed out, and ``violations`` is what its policy has forbidden, as the browser
    reports."""

    name: str
    scope: Scope
    opened: OpenedTool
    tool_input: bytes
    host: Host
    files: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def state(self) -> dict[str, object]:
        """Files and warnings, to which more are added while the view is shown."""
        forbidden = [f"forbidden by its policy: {text}" for text in self.violations]
        return {"files": self.files, "warnings": [*self.opened.document.warnings, *self.host.warnings, *forbidden]}


async def _store_view_file(store: ArtifactStore, ids: list[str], max_files: int, content: BinaryData) -> None:
    """Store a file that a view hands out, and add its id to ``ids``. Raises :class:`~transports.errors.UsageError` once
    there are ``max_files``."""
    if len(ids) >= max_files:
        raise UsageError(f"the view has handed out {max_files} files, which is the limit")
    result = await Router(store).route(
        {"file": content}, capability="ui/download-file", transport="view", started=time.perf_counter()
    )
    ids.extend(ref.id for ref in result.artifacts.values())


class ViewRoutes:
    """Handlers for open views, which are identified by the call that has opened them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        #: Views by the id of their call, oldest first. The futures of running calls are not done yet.
        self._views: OrderedDict[str, asyncio.Future[LiveView]] = OrderedDict()

    # --- opening ------------------------------------------------------------------------------------------------------

    async def call(
        self, app: App, capability: str, params: dict[str, object], timeout: float | None, call_id: str
    ) -> Result:
        """Call a capability with a view, and keep what the view needs. If the view cannot be shown, the result has a
        warning."""
        from ...session._views import ViewServer  # needs the extra [mcp]

        view = self._add_view(call_id)
        try:
            server = ViewServer(app.session.transport)
        except UsageError as error:
            # Any app may declare a view, but only an MCP server has one.
            view.set_exception(error)
            return await app.session.call(capability, params, timeout=timeout, call_id=call_id)

        try:
            with keeping_server_calls() as server_calls:
                result = await app.session.call(capability, params, timeout=timeout, call_id=call_id)
            # The page may have closed the view while the call ran.
            if view.done():
                return result

            problem = await self._try_to_prepare_view(view, server, app, capability, call_id, server_calls)
            if problem is None:
                return result
            return replace(result, warnings=(*result.warnings, f"the view is not shown: {problem.message}"))
        finally:
            if not view.done():
                self._forget_view(call_id)

    def _add_view(self, call_id: str) -> asyncio.Future[LiveView]:
        """Add a view that is not ready yet. Above the limit, the oldest view is removed."""
        view: asyncio.Future[LiveView] = asyncio.get_running_loop().create_future()
        # The page may never ask for the view, and then nobody retrieves its error.
        view.add_done_callback(mark_retrieved)
        self._views[call_id] = view
        if len(self._views) > self._limits.views:
            oldest = next(iter(self._views))
            self._forget_view(oldest)
        return view

    async def _try_to_prepare_view(
        self,
        view: asyncio.Future[LiveView],
        server: ViewServer,
        app: App,
        capability: str,
        call_id: str,
        server_calls: Sequence[ServerCall],
    ) -> ABPError | None:
        """Prepare a view. An error is returned and not raised, as the call itself has succeeded. ``server_calls`` are
        the calls of the server's tools that the call made."""
        error: ABPError
        try:
            if not server_calls:
                raise UsageError("the tool's result did not come from its server")
            live = await self._prepare_view(server, app, capability, call_id, server_calls[-1])
            if not view.done():
                view.set_result(live)
            return None
        except ABPError as refusal:
            error = refusal
        except Exception as failure:
            logger.exception("the view of %s cannot be shown", capability)
            error = ABPError(f"it failed: {first_line(failure)}")
        if not view.done():
            view.set_exception(error)
        return error

    async def _prepare_view(
        self, server: ViewServer, app: App, capability: str, call_id: str, server_call: ServerCall
    ) -> LiveView:
        from ...mcp.views._host import Host, HostContext, ViewHandlers  # needs the extra [mcp]
        from ...mcp.views._transport import OpenedTool

        limits = self._limits
        store = app.session.store
        uri = app.session.capabilities[capability].view or ""
        document = await server.document(uri, timeout=limits.view_timeout)
        tool_input = {"arguments": server_call.arguments, "result": server_call.result}
        encoded_input = await in_thread(encode_json, tool_input)
        if len(document.html) > limits.view_document or len(encoded_input) > limits.view_input:
            raise TooLarge(
                f"the page shows views of at most {limits.view_document:,} characters, with results of at most "
                f"{limits.view_input:,} bytes"
            )

        opened_tool = OpenedTool(server_call.tool, server_call.arguments, {}, document)
        files: list[str] = []
        host = Host(
            HostContext(),
            opened_tool.tool,
            ViewHandlers(on_display_mode=lambda mode: mode == "inline"),
            relay=partial(server.relay, timeout=limits.view_timeout),
            save_file=partial(_store_view_file, store, files, limits.view_files),
            current_call=lambda: call_id,
        )
        name = f"view-{secrets.token_hex(8)}.localhost"
        return LiveView(name, store.scope, opened_tool, encoded_input, host, files=files)

    def _forget_view(self, call_id: str) -> None:
        view = self._views.pop(call_id, None)
        if view is not None:
            view.cancel()

    # --- routes -------------------------------------------------------------------------------------------------------

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Show a view in the surroundings of the query: ``theme``, ``locale``, ``timezone``, ``width``, ``height``."""
        live = await self._find_view(request, visitor)
        port = _local_port(request)
        if port is None:
            message = "views are only shown on the server's machine, with this page opened at 127.0.0.1 or localhost"
            raise RequestRefused(409, "NOT_SUPPORTED", message)
        live.host.context = replace(live.host.context, **_host_context_in(request.query))

        document = live.opened.document
        description = {
            "origin": f"http://{live.name}{port}",
            "uri": document.uri,
            "html": document.html,
            "allow": "; ".join(document.permissions),
            **live.state,
        }
        # The tool's input is JSON already, and may be long, so it is inserted as it is.
        body = encode_json(description)[:-1] + b',"given":' + live.tool_input + b"}"
        return web.Response(body=body, content_type="application/json")

    async def answer(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Let the host answer a message of the view. The answer to a notification is ``null``."""
        live = await self._find_view(request, visitor)
        body = await read_json(request)
        match body:
            case {"method": str(method), "params": dict(params), "request": bool(is_request)}:
                answer = await live.host.answer(method, encode_json(params).decode(), is_request=is_request)
                return json_response({"answer": answer, **live.state})
        raise RequestRefused(400, "INVALID_PARAMS", "a message must be {method, params: {…}, request: true or false}")

    async def close(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        await self._find_view(request, visitor)
        self._forget_view(request.match_info["call"])
        return web.Response(status=204)

    async def _find_view(self, request: web.Request, visitor: Visitor) -> LiveView:
        """Return a view once its call has ended. Answer 404 if the visitor sees no such view, 504 if the call takes too
        long."""
        view = self._views.get(request.match_info["call"])
        not_found = RequestRefused(404, "NOT_FOUND", "the view of this call is no longer kept; call again")
        if view is None:
            raise not_found

        await asyncio.wait((view,), timeout=self._limits.view_timeout)
        if view.cancelled():
            raise not_found
        if not view.done():
            duration = format_seconds(self._limits.view_timeout)
            raise RequestRefused(504, "TIMEOUT", f"the call has not ended within {duration}")

        live = view.result()
        if not visitor.scope.covers(live.scope):
            raise not_found
        return live

    # --- the sandbox --------------------------------------------------------------------------------------------------

    async def sandbox(self, request: web.Request) -> web.Response | None:
        """Answer a request to the origin of a view, which has only the sandbox proxy, and takes the browser's reports
        about the view's policy. Return ``None`` for a request to another origin."""
        name = hostname(request.host)
        if name is None or not re.fullmatch(r"view-[0-9a-f]{16}\.localhost", name):
            return None

        report_path = "/violations"
        live = self._find_by_name(name)
        resource = (request.method, request.path_qs)
        if live is not None and resource == ("POST", report_path):
            return await _keep_report(live, request)
        if live is None or resource != ("GET", "/"):
            raise RequestRefused(404, "NOT_FOUND", "not found")

        port = request.host[len(name) :]  # with its colon, or empty
        directives = (
            f"frame-ancestors http://127.0.0.1{port} http://localhost{port}",
            f"report-uri http://{live.name}{port}{report_path}",
        )
        headers = dict(live.opened.document.policy_headers("declared", further=directives))
        headers["Origin-Agent-Cluster"] = "?1"
        return web.Response(text=_PROXY, content_type="text/html", headers=headers)

    def _find_by_name(self, name: str) -> LiveView | None:
        """Return the view with this host name. The comparison does not reveal other names by its duration."""
        for view in self._views.values():
            is_ready = view.done() and not view.cancelled() and view.exception() is None
            if is_ready and secrets.compare_digest(view.result().name, name):
                return view.result()
        return None


async def _keep_report(live: LiveView, request: web.Request) -> web.Response:
    """Keep a browser's report about a policy (CSP 5.3), 50 at most. A view can forge a report, so it is only shown as
    text."""
    match await read_json(request, "application/csp-report", 64 << 10):
        case {"csp-report": {"effective-directive": str(directive), "blocked-uri": str(blocked)}}:
            from ...mcp.views._document import policy_remedy  # needs the extra [mcp]

            violation = f"{directive}, {blocked}"[:300]
            text = f"{violation}; {policy_remedy(directive, blocked)}"
            max_violations = 50
            if len(live.violations) < max_violations and text not in live.violations:
                live.violations.append(text)
            return web.Response(status=204)
    raise RequestRefused(400, "INVALID_PARAMS", "a report must be {csp-report: {…}}")


def frames_of_views(request: web.Request) -> str:
    port = _local_port(request)
    if port is None:
        return ""
    return f" http://*.localhost{port}"


def _local_port(request: web.Request) -> str | None:
    """Return the port with its colon, or ``None`` for an address that is not on this machine."""
    name = hostname(request.host)
    if request.scheme != "http" or not is_loopback(name):
        return None
    _, _, after_ipv6_address = request.host.rpartition("]")
    _, colon, port = after_ipv6_address.partition(":")
    return colon + port


def _host_context_in(query: Mapping[str, str]) -> dict[str, Any]:
    """Read the view's surroundings from a query. An invalid size is left out."""
    fields: dict[str, Any] = {"theme": "dark" if query.get("theme") == "dark" else "light"}
    for name in ("locale", "timezone"):
        if query.get(name):
            fields[name] = query[name][:100]
    width = whole_number(query.get("width", ""))
    height = whole_number(query.get("height", ""))
    max_side = 10_000
    if width and height and max(width, height) < max_side:
        fields["size"] = (width, height)
    return fields
