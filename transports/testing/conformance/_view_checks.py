"""Checks of an MCP server whose tools have views, by the ids of the rules of MCP Apps (docs/conformance.md).

``APP-001`` to ``APP-011`` judge the server, ``APP-100`` to ``APP-106`` its views; ``view.…`` are rules of this kit.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pybase64

from ...protocol._strict_json import items_of, members_of
from ._evidence import (
    LEGACY_VIEW_KEYS,
    Evidence,
    Finding,
    NotApplicable,
    Rules,
    ServerViews,
    ViewTrial,
    view_address,
    view_addresses,
)

RULES = Rules()

#: Type of the documents of views. That of `adapters.mcp` would need the extra [mcp] for every check.
VIEW_TYPE = "text/html;profile=mcp-app"
_FORMAT = "MCP Apps, UI Resource Format"
_DISCOVERY = "MCP Apps, Resource Discovery"
_DOMAINS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS = ("camera", "microphone", "geolocation", "clipboardWrite")
_METHODS = {
    "ui/initialize",
    "ui/notifications/initialized",
    "ui/notifications/size-changed",
    "ui/notifications/request-teardown",
    "ui/open-link",
    "ui/download-file",
    "ui/message",
    "ui/update-model-context",
    "ui/request-display-mode",
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "prompts/list",
    "sampling/createMessage",
    "ping",
}


def _ui_metadata(entry: Mapping[str, Any]) -> object:
    return members_of(entry.get("_meta")).get("ui")


def _require_views(app: Evidence) -> ServerViews:
    if not any(isinstance(address, str) for address in view_addresses(app.views.tools).values()):
        raise NotApplicable("an MCP server is judged by its views, and no tool of this one has _meta.ui.resourceUri")
    return app.views


def _contents(app: Evidence) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for uri, exchange in _require_views(app).documents.items():
        for content in items_of(exchange.fields.get("contents")):
            if isinstance(content, Mapping):
                yield uri, content


def _resource_metadata(app: Evidence) -> Iterator[tuple[str, object]]:
    listed = [(str(resource.get("uri")), resource) for resource in _require_views(app).resources]
    of_views = [(uri, resource) for uri, resource in listed if uri.startswith("ui://")]
    for uri, entry in (*of_views, *_contents(app)):
        ui = _ui_metadata(entry)
        if ui is not None:
            yield uri, ui


def _html_of(content: Mapping[str, Any]) -> str | None:
    """Return ``None`` if there is no document, an empty text if it is not valid base64."""
    text = content.get("text")
    blob = content.get("blob")
    if isinstance(text, str):
        return text
    if not isinstance(blob, str):
        return None
    try:
        return pybase64.b64decode(blob, validate=True).decode(errors="replace")
    except ValueError:
        return ""


@RULES.must(
    "APP-001",
    "The address of a view begins with ui://",
    source=_FORMAT,
    fix="name the resource ui://…, in the tool and in the list of resources",
)
def _judge_scheme(app: Evidence) -> Iterator[str]:
    _require_views(app)
    for name, address in view_addresses(app.views.tools).items():
        if isinstance(address, str) and not address.startswith("ui://"):
            yield f"the tool {name} has the view {address}"
    for resource in app.views.resources:
        uri = str(resource.get("uri"))
        is_view = _ui_metadata(resource) is not None or resource.get("mimeType") == VIEW_TYPE
        if is_view and not uri.startswith("ui://"):
            yield f"the resource {uri} is a view by its type or its metadata"


@RULES.must(
    "APP-002",
    "The MIME type of a view is text/html;profile=mcp-app",
    source=_FORMAT,
    fix="return this type, without a space, in resources/list and resources/read; hosts show no other",
)
def _judge_type(app: Evidence) -> Iterator[str]:
    for resource in _require_views(app).resources:
        uri = str(resource.get("uri"))
        mime_type = resource.get("mimeType")
        if uri.startswith("ui://") and mime_type != VIEW_TYPE:
            yield f"{uri}: the listed type is {mime_type!r}"
    for uri, content in _contents(app):
        if content.get("mimeType") != VIEW_TYPE:
            yield f"{uri}: the type is {content.get('mimeType')!r}"


@RULES.must(
    "APP-003",
    "A view is given as text or as blob",
    source=_FORMAT,
    fix="return the HTML in text, or its base64 in blob",
)
def _judge_given(app: Evidence) -> Iterator[str]:
    for uri, exchange in _require_views(app).documents.items():
        if exchange.error is not None and _lacks_content(exchange.error.message):
            yield f"{uri}: neither text nor blob"
    for uri, content in _contents(app):
        if _html_of(content) is None:
            yield f"{uri}: neither text nor blob"


def _lacks_content(message: str) -> bool:
    return bool(re.search(r"not valid MCP: contents\.\d+.*\b(?:text|blob): Field required", message))


@RULES.must(
    "APP-004",
    "A view is an HTML document",
    source=_FORMAT,
    fix="begin it with <!doctype html>; the beginning must be within its first 1,024 characters",
)
def _judge_document(app: Evidence) -> Iterator[str]:
    for uri, content in _contents(app):
        html = _html_of(content)
        if html is None:
            continue
        head = html.strip()[:1024]
        if not head:
            yield f"{uri} is empty, or is not base64"
        elif not head.lower().startswith("<!doctype html") and not re.search(r"<html[\s>]", head, re.IGNORECASE):
            yield f"{uri} begins with {head[:40]!r}"


@RULES.must(
    "APP-005",
    "The view that a tool names exists",
    source=_DISCOVERY,
    fix="answer resources/read for the address in the tool's metadata",
)
def _judge_exists(app: Evidence) -> Iterator[str]:
    for uri, exchange in _require_views(app).documents.items():
        if exchange.error is not None and not _lacks_content(exchange.error.message):
            yield f"{uri}: {exchange.error.message}"
        elif exchange.error is None and not exchange.fields.get("contents"):
            yield f"{uri}: resources/read answered no contents"


@RULES.should(
    "APP-006",
    "A tool names its view in _meta.ui.resourceUri",
    source=_DISCOVERY,
    fix="add _meta.ui.resourceUri beside the older key, which some hosts do not read",
)
def _judge_current_key(app: Evidence) -> Iterator[str]:
    for name, tool in _require_views(app).tools.items():
        older_keys = [key for key in LEGACY_VIEW_KEYS if key in members_of(tool.get("_meta"))]
        has_current_key = members_of(_ui_metadata(tool)).get("resourceUri") is not None
        if older_keys and not has_current_key:
            yield f"{name}: {older_keys[0]} alone"


@RULES.must(
    "APP-007",
    "The metadata of a tool has the declared form",
    source=_DISCOVERY,
    fix="_meta.ui is {resourceUri: text, visibility: [texts]}; csp and permissions belong to the resource",
)
def _judge_tool_metadata(app: Evidence) -> Iterator[str]:
    faults = [f"{name}: {fault}" for name, tool in app.views.tools.items() for fault in _faults_of_tool(tool)]
    if not faults:
        _require_views(app)
    yield from faults


def _faults_of_tool(tool: Mapping[str, Any]) -> Iterator[str]:
    ui = _ui_metadata(tool)
    if isinstance(ui, Mapping):
        if not isinstance(ui.get("resourceUri", ""), str):
            yield f"resourceUri is {_describe_type(ui['resourceUri'])}"
        if not isinstance(ui.get("visibility", []), list):
            yield f"visibility is {_describe_type(ui['visibility'])}"
        yield from (f"{key} belongs to the resource" for key in ("csp", "permissions") if key in ui)
        yield from _misspelt_keys("_meta.ui", ui, ("visibility",))
    elif ui is not None:
        yield f"_meta.ui is {_describe_type(ui)}"

    if view_address(tool) is not None:
        return
    place = _misplaced_address("_meta", tool.get("_meta"))
    if place is not None:
        yield f"no host reads {place}, so its view was not checked; did you mean _meta.ui.resourceUri?"


def _misplaced_address(place: str, metadata: object) -> str | None:
    """Return the place of a text in a tool's metadata that is likely meant as the address of its view."""
    keys_of_views = ("resourceUri", *LEGACY_VIEW_KEYS)
    for key, value in members_of(metadata).items():
        inner = f"{place}.{key}" if key.isidentifier() else f'{place}["{key}"]'
        if isinstance(value, str) and (value.startswith("ui://") or _similar_key(key, keys_of_views) is not None):
            return inner
        deeper = _misplaced_address(inner, value)
        if deeper is not None:
            return deeper
    return None


def _misspelt_keys(place: str, declared: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    for key in declared:
        meant = _similar_key(key, keys)
        if key not in keys and meant is not None:
            yield f"{place}.{key} is not known; did you mean {meant}?"


def _similar_key(key: str, keys: Iterable[str]) -> str | None:
    by_letters = {_letters_of(name): name for name in keys}
    close = difflib.get_close_matches(_letters_of(key), by_letters, n=1, cutoff=0.85)
    if not close:
        return None
    return by_letters[close[0]]


def _letters_of(key: str) -> str:
    return re.sub(r"[\W_]", "", key[:100]).lower()


@RULES.must(
    "APP-008",
    "The metadata of a view has the declared form",
    source=_FORMAT,
    fix="_meta.ui is {csp: {…Domains: [texts]}, permissions: {camera: {}}, domain: text, prefersBorder: true}",
)
def _judge_view_metadata(app: Evidence) -> Iterator[str]:
    for uri, ui in _resource_metadata(app):
        yield from (f"{uri}: {fault}" for fault in _faults_of_metadata(ui))


def _faults_of_metadata(ui: object) -> Iterator[str]:
    if not isinstance(ui, Mapping):
        yield f"_meta.ui is {_describe_type(ui)}"
        return

    yield from _faults_of_csp(ui.get("csp", {}))
    yield from _faults_of_permissions(ui.get("permissions", {}))
    if not isinstance(ui.get("domain", ""), str):
        yield f"domain is {_describe_type(ui['domain'])}"
    if not isinstance(ui.get("prefersBorder", True), bool):
        yield f"prefersBorder is {_describe_type(ui['prefersBorder'])}"


def _faults_of_csp(csp: object) -> Iterator[str]:
    if not isinstance(csp, Mapping):
        yield f"csp is {_describe_type(csp)}"
        return
    for key in _DOMAINS:
        domains = csp.get(key, [])
        if not isinstance(domains, list) or not all(isinstance(domain, str) for domain in domains):
            yield f"csp.{key} is not a list of texts"
    yield from _misspelt_keys("csp", csp, _DOMAINS)


def _faults_of_permissions(permissions: object) -> Iterator[str]:
    if not isinstance(permissions, Mapping):
        yield f"permissions is {_describe_type(permissions)}"
        return
    for key in _PERMISSIONS:
        if not isinstance(permissions.get(key, {}), Mapping):
            yield f"permissions.{key} is {_describe_type(permissions[key])}, not {{}}"
    yield from _misspelt_keys("permissions", permissions, _PERMISSIONS)


@RULES.must(
    "APP-009",
    "The declared domains are origins",
    source="MCP Apps, UI Resource Format, McpUiResourceCsp",
    fix="write https://api.example.com or https://*.example.com: a scheme and a host, no path and no bare *",
)
def _judge_origins(app: Evidence) -> Iterator[str]:
    for uri, ui in _resource_metadata(app):
        for key, domains in members_of(members_of(ui).get("csp")).items():
            for domain in items_of(domains):
                if isinstance(domain, str) and not re.fullmatch(r"(?:https?|wss?)://(?:\*\.)?[^\s/*]+", domain):
                    yield f"{uri}: csp.{key} has {domain[:80]!r}"


@RULES.should(
    "APP-010",
    "A tool with a view returns content for hosts without views, too",
    source="MCP Apps, Graceful Degradation",
    fix="add a text to the result that says what the view shows",
)
def _judge_degrades(app: Evidence) -> Iterator[str]:
    results = _require_views(app).results
    if not results:
        raise NotApplicable("no tool with a view was called, or none succeeded")
    for name, result in results.items():
        content = result.get("content")
        if not content:
            yield f"{name} answered no content"
        elif not any(map(_is_meaningful, items_of(content))):
            yield f"{name} answered empty texts alone"


def _is_meaningful(block: object) -> bool:
    if not isinstance(block, Mapping):
        return False
    return block.get("type") != "text" or str(block.get("text", "")).strip() != ""


@RULES.must(
    "APP-011",
    'visibility holds "model" and "app" only',
    source="MCP Apps, Resource Discovery, Visibility",
    fix='write ["model"], ["app"] or both, or leave it out',
)
def _judge_visibility(app: Evidence) -> Iterator[str]:
    unknown: list[str] = []
    for name, tool in app.views.tools.items():
        for audience in items_of(members_of(_ui_metadata(tool)).get("visibility")):
            if audience not in ("model", "app"):
                unknown.append(f"{name}: {audience!r}")
    if not unknown:
        _require_views(app)
    yield from unknown


# --- the views themselves ---------------------------------------------------------------------------------------------


def _opened_views(app: Evidence) -> Sequence[ViewTrial]:
    _require_views(app)
    opened = [view for view in app.views.trials if view.opened]
    if opened:
        return opened
    for view in app.views.trials:
        if view.error is not None:
            raise NotApplicable(f"no view was opened: {view.uri}: {view.error.message}")
    raise NotApplicable("no view was opened")


def _initializing_views(app: Evidence) -> Sequence[ViewTrial]:
    begun = [view for view in _opened_views(app) if view.asked("ui/initialize")]
    if not begun:
        raise NotApplicable("no view sent ui/initialize")
    return begun


@RULES.must(
    "APP-100",
    "A view sends ui/initialize when it loads",
    source="MCP Apps, Lifecycle",
    fix="connect to the host while the document loads, with the App of the SDK or by hand",
)
def _judge_initializes(app: Evidence) -> Iterator[Finding]:
    silent = [view for view in _opened_views(app) if not view.asked("ui/initialize")]
    if silent and all(view.is_cut_off for view in silent):
        raise NotApplicable(f"{silent[0].uri}: {silent[0].why_blank.text}")
    for view in silent:
        if not view.is_cut_off:
            yield Finding(f"{view.uri} sent none: {view.why_blank.text}", view.why_blank.fix)


@RULES.must(
    "APP-101",
    "ui/initialize names the capabilities of the view",
    source="MCP Apps, App Capabilities in ui/initialize",
    fix="send appCapabilities, {} if there are none",
)
def _judge_capabilities(app: Evidence) -> Iterator[str]:
    for view in _initializing_views(app):
        if not isinstance(view.asked("ui/initialize")[0].get("appCapabilities"), Mapping):
            yield f"{view.uri}: no appCapabilities"


@RULES.must(
    "APP-102",
    "A view sends ui/notifications/initialized after the answer to ui/initialize",
    source="MCP Apps, Lifecycle",
    fix="send the notification once the answer is there; until then the host sends nothing",
)
def _judge_initialized(app: Evidence) -> Iterator[Finding]:
    for view in _initializing_views(app):
        if not view.asked("ui/notifications/initialized"):
            yield Finding(f"{view.uri} sent none: {view.why_blank.text}", view.why_blank.fix)


@RULES.must(
    "APP-103",
    "The messages of a view are JSON-RPC 2.0, with methods that MCP Apps knows",
    source="MCP Apps, Communication Protocol",
    fix="send {jsonrpc: '2.0', method, params} with a method of the specification, and nothing else to the parent",
)
def _judge_messages(app: Evidence) -> Iterator[str]:
    for view in _opened_views(app):
        yield from (f"{view.uri} sent {text}" for text in view.malformed)
        for method in dict.fromkeys(method for method, _ in view.messages):
            if method not in _METHODS and not method.startswith("notifications/"):
                yield f"{view.uri} sent the unknown method {method!r}"


@RULES.should(
    "APP-104",
    "A view tells its size",
    source="MCP Apps, Notifications (View to Host)",
    fix="send ui/notifications/size-changed from a ResizeObserver, as the App of the SDK does with autoResize",
)
def _judge_tells_size(app: Evidence) -> Iterator[str]:
    for view in _initializing_views(app):
        if view.error is None and not view.asked("ui/notifications/size-changed"):
            yield f"{view.uri}: no ui/notifications/size-changed"


@RULES.must(
    "APP-105",
    "A view that declares tools answers tools/list",
    source="MCP Apps, Requests (Host to App)",
    fix="return {tools: [{name, inputSchema}, …]}, or leave tools out of appCapabilities",
)
def _judge_lists_tools(app: Evidence) -> Iterator[str]:
    declaring = [view for view in _initializing_views(app) if view.tools_answer is not None]
    if not declaring:
        raise NotApplicable("no view declares tools")

    for view in declaring:
        assert view.tools_answer is not None
        answer = view.tools_answer.fields
        tools = members_of(answer.get("result")).get("tools")
        if isinstance(tools, list):
            continue
        if view.tools_answer.error is not None:
            yield f"{view.uri}: {view.tools_answer.error.message}"
        else:
            yield f"{view.uri}: {answer.get('error') or answer}"


@RULES.must(
    "APP-106",
    "A view asks only for display modes that its host has",
    source="MCP Apps, Display Modes",
    fix="look into availableDisplayModes of the host's context first; this host has inline alone",
)
def _judge_modes(app: Evidence) -> Iterator[str]:
    for view in _initializing_views(app):
        for params in view.asked("ui/request-display-mode"):
            if params.get("mode") != "inline":
                yield f"{view.uri} asked for {params.get('mode')!r}"


@RULES.should(
    "view.shown",
    "A view does not stay blank",
    source="docs/conformance.md, Views of MCP servers",
    fix="see the reason; `abp view TARGET TOOL --headed` shows the view",
)
def _judge_shown(app: Evidence) -> Iterator[Finding]:
    if not _require_views(app).trials:
        raise NotApplicable("no view was opened")
    for view in app.views.trials:
        if view.blank:
            yield Finding(f"{view.uri}: {view.why_blank.text}", view.why_blank.fix)


@RULES.should(
    "view.policy",
    "The policy of a view forbids nothing that the view asks for",
    source="MCP Apps, UI Resource Format, McpUiResourceCsp",
    fix="declare the origin in _meta.ui.csp of the resource, or put the file into the document",
)
def _judge_policy(app: Evidence) -> Iterator[Finding]:
    for view in _opened_views(app):
        yield from (Finding(f"{view.uri}: {violation.text}", violation.fix) for violation in view.violations)


@RULES.should(
    "view.scripts",
    "No script of a view fails",
    source="docs/conformance.md, Views of MCP servers",
    fix="see the line; a view also opens with arguments and results that its author did not think of",
)
def _judge_scripts(app: Evidence) -> Iterator[str]:
    for view in _opened_views(app):
        yield from (f"{view.uri}: {text}" for text in view.script_errors)


def _describe_type(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
