"""A server with a view for each argument, which breaks the rules of MCP Apps that the argument names, with `+` between
them. Without arguments there is one view, which keeps all rules.

It speaks JSON-RPC by hand: no SDK would let it.
"""

import base64
import json
import sys
from typing import Any

#: The faults of each view, by what the names of its tool and its resource end with.
VIEWS = {f"-{number}" if number else "": set(text.split("+")) for number, text in enumerate(sys.argv[1:] or [""])}
TYPE = "text/html;profile=mcp-app"
#: The script of the view. Faults replace parts of it, or add to it.
SCRIPT = """
const post = (message) => parent.postMessage(message, "*");
const tell = (method, params = {}) => post({ jsonrpc: "2.0", method, params });
const appInfo = { name: "Planted", version: "1" };
const params = { appInfo, appCapabilities: { tools: {} }, protocolVersion: "2026-01-26" };
addEventListener("message", ({ data }) => {
  if (data.id === 1 && data.result) {
    tell("ui/notifications/initialized");
    tell("ui/notifications/size-changed", { width: 100, height: 50 });
  }
  if (data.method === "tools/list") post({ jsonrpc: "2.0", id: data.id, result: { tools: [] } });
  if (data.method === "ui/resource-teardown") post({ jsonrpc: "2.0", id: data.id, result: {} });
});
post({ jsonrpc: "2.0", id: 1, method: "ui/initialize", params });
"""
SIZE = 'tell("ui/notifications/size-changed", { width: 100, height: 50 });'
TOOLS = "result: { tools: [] }"
REPLACED = {
    "no ui/initialize": ('post({ jsonrpc: "2.0", id: 1, method: "ui/initialize", params });', ""),
    "ping instead of ui/initialize": ('method: "ui/initialize"', 'method: "ping"'),
    "no appCapabilities": ("appCapabilities: { tools: {} }, ", ""),
    "appCapabilities are a list": ("appCapabilities: { tools: {} }", "appCapabilities: []"),
    "no initialized": ('tell("ui/notifications/initialized");', ""),
    "an unknown method": (SIZE, SIZE + ' tell("ui/notifications/hello");'),
    "a request of an unknown method": (
        SIZE,
        SIZE + ' post({ jsonrpc: "2.0", id: 2, method: "ui/dance", params: {} });',
    ),
    "no JSON-RPC": (SIZE, SIZE + ' post("ready");'),
    "no version of JSON-RPC": (SIZE, SIZE + ' post({ method: "ui/notifications/size-changed", params: {} });'),
    "no size": (SIZE, ""),
    "tools/list refused": (TOOLS, 'error: { code: -32601, message: "no such method" }'),
    "tools/list answers an object": (TOOLS, "result: { tools: {} }"),
    "tools/list is not answered": ('data.method === "tools/list"', "false"),
    "fullscreen unasked": (
        SIZE,
        SIZE + ' post({ jsonrpc: "2.0", id: 2, method: "ui/request-display-mode", params: { mode: "fullscreen" } });',
    ),
    "a script fails": (SIZE, SIZE + "\nundefined.value;"),
    "a script does not parse": ("const post", "const const post"),
}
HEADS = {
    "a foreign picture": '<img src="https://cdn.example/a.png">',
    "a foreign library": '<script src="https://cdn.example/lib.js"></script>',
}


def address_of(end: str) -> str:
    return f"ui://planted/view{end}.html"


def document(faults: set[str]) -> str:
    script = SCRIPT
    for fault in sorted(faults & REPLACED.keys()):
        script = script.replace(*REPLACED[fault])
    body = "" if {"nothing drawn", "a foreign library"} & faults else "<h1>Planted</h1>"
    head = "".join(HEADS[fault] for fault in HEADS if fault in faults)
    return f"<!doctype html>{head}{body}<script>{script}</script>"


def tool(end: str) -> dict[str, Any]:
    address = address_of(end)
    good = {"resourceUri": address}
    faulty: dict[str, dict[str, Any]] = {
        "the tool names https://": {"ui": {"resourceUri": f"https://planted.example/view{end}.html"}},
        "the older key alone": {"ui/resourceUri": address},
        "the key of ChatGPT alone": {"openai/outputTemplate": address},
        "both keys": {"ui": good, "ui/resourceUri": address},
        "metadata of the tool is a text": {"ui": address},
        "resourceUri is a number": {"ui": {"resourceUri": 1}},
        "visibility is a text": {"ui": {**good, "visibility": "model"}},
        "a policy at the tool": {"ui": {**good, "csp": {"connectDomains": []}}},
        "resourceURI": {"ui": {"resourceURI": address}},
        "resource_uri beside visibility": {"ui": {"resource_uri": address, "visibility": ["model"]}},
        "ui/resourceuri": {"ui/resourceuri": address},
        "the address at another key": {"planted": {"view": address}},
        "visibilty": {"ui": {**good, "visibilty": ["app"]}},
        "no view": {"ui": {"visibility": ["model"]}, "planted": {"sourceUrl": "https://planted.example/"}},
        "visible to users": {"ui": {**good, "visibility": ["model", "app", "user"]}},
    }
    meta = faulty.get(one_of(end), {"ui": good})
    return {"name": f"show{end}", "description": "Show it", "inputSchema": {"type": "object"}, "_meta": meta}


def one_of(end: str) -> str:
    """The fault of a view that has just one."""
    return next(iter(VIEWS[end]))


def metadata(end: str) -> dict[str, Any] | None:
    """The metadata of the view, listed and read."""
    answers: dict[str, dict[str, Any]] = {
        "the policy is a list": {"csp": ["https://api.example"]},
        "domains are a text": {"csp": {"connectDomains": "https://api.example"}},
        "a permission is true": {"permissions": {"camera": True}},
        "prefersBorder is a text": {"prefersBorder": "yes"},
        "domain is a number": {"domain": 7},
        "resource_domains": {"csp": {"resource_domains": ["https://cdn.example"]}},
        "clipboard-write": {"permissions": {"clipboard-write": {}}},
        "any domain": {"csp": {"connectDomains": ["*"]}},
        "a domain without a scheme": {"csp": {"resourceDomains": ["cdn.example"]}},
        "a domain with a path": {"csp": {"resourceDomains": ["https://cdn.example/lib"]}},
        "good metadata": {
            "csp": {"connectDomains": ["https://api.example", "wss://*.example.com:8443"]},
            "permissions": {"camera": {}},
            "prefersBorder": True,
            "domain": "x",
        },
    }
    ui = answers.get(one_of(end))
    return {"ui": ui} if ui else None


def resources(end: str) -> list[dict[str, Any]]:
    fault = one_of(end)
    if fault == "not listed":
        return []
    listed: dict[str, Any] = {
        "uri": address_of(end),
        "name": "view",
        "mimeType": "text/html" if fault == "the listed type is text/html" else TYPE,
    }
    if (meta := metadata(end)) is not None:
        listed["_meta"] = meta
    if fault == "a view at file://":
        return [listed, {"uri": f"file:///view{end}.html", "name": "other", "mimeType": TYPE}]
    return [listed]


def read(end: str) -> dict[str, Any] | None:
    html = document(VIEWS[end])
    #: What is different; ``None`` is left out.
    faulty: dict[str, dict[str, str | None]] = {
        "the type is text/html": {"mimeType": "text/html"},
        "a space in the type": {"mimeType": "text/html; profile=mcp-app"},
        "neither text nor blob": {"text": None},
        "as a blob": {"text": None, "blob": base64.b64encode(html.encode()).decode()},
        "JSON instead of HTML": {"text": '{"html": true}'},
        "an empty text": {"text": ""},
        "a blob that is not base64": {"text": None, "blob": "%%%"},
    }
    if one_of(end) == "no such resource":
        return None
    if one_of(end) == "no contents":
        return {"contents": []}
    whole = {"uri": address_of(end), "mimeType": TYPE, "text": html} | faulty.get(one_of(end), {})
    content: dict[str, Any] = {key: value for key, value in whole.items() if value is not None}
    if (meta := metadata(end)) is not None:
        content["_meta"] = meta
    return {"contents": [content]}


def call(end: str) -> dict[str, Any]:
    faults = VIEWS[end]
    if "no content" in faults:
        return {"content": [], "structuredContent": {"a": 1}}
    if "an empty text alone" in faults:
        return {"content": [{"type": "text", "text": " "}]}
    if "the tool fails" in faults:
        return {"content": [{"type": "text", "text": "not today"}], "isError": True}
    return {"content": [{"type": "text", "text": "It is shown."}]}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        result: Any = None
        match request.get("method"):
            case "initialize":
                info = {"name": "planted", "version": "1"}
                version = request["params"]["protocolVersion"]
                able: dict[str, Any] = {"tools": {}, "resources": {}}
                result = {"protocolVersion": version, "capabilities": able, "serverInfo": info}
            case "tools/list":
                result = {"tools": [tool(end) for end in VIEWS]}
            case "resources/list":
                result = {"resources": [resource for end in VIEWS for resource in resources(end)]}
            case "resources/read":
                ends = [end for end in VIEWS if address_of(end) == request["params"]["uri"]]
                result = read(ends[0]) if ends else None
            case "tools/call":
                result = call(request["params"]["name"].removeprefix("show"))
        if "id" in request:
            failed = {"error": {"code": -32601, "message": "Method not found"}}
            answer = failed if result is None else {"result": result}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
            sys.stdout.flush()


main()
