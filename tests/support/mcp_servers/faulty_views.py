"""A server with one view that breaks a rule of MCP Apps, named by the first argument; without one it keeps all rules.

It speaks JSON-RPC by hand: no SDK would let it.
"""

import base64
import json
import sys
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else ""
ADDRESS, TYPE = "ui://planted/view.html", "text/html;profile=mcp-app"
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


def document() -> str:
    script = SCRIPT.replace(*REPLACED[FAULT]) if FAULT in REPLACED else SCRIPT
    body = "" if FAULT in ("nothing drawn", "a foreign library") else "<h1>Planted</h1>"
    return f"<!doctype html>{HEADS.get(FAULT, '')}{body}<script>{script}</script>"


def tool() -> dict[str, Any]:
    ui: Any = {"resourceUri": ADDRESS}
    meta: dict[str, Any] = {"ui": ui}
    match FAULT:
        case "the tool names https://":
            ui["resourceUri"] = "https://planted.example/view.html"
        case "the older key alone":
            meta = {"ui/resourceUri": ADDRESS}
        case "the key of ChatGPT alone":
            meta = {"openai/outputTemplate": ADDRESS}
        case "both keys":
            meta["ui/resourceUri"] = ADDRESS
        case "metadata of the tool is a text":
            meta["ui"] = ADDRESS
        case "resourceUri is a number":
            ui["resourceUri"] = 1
        case "visibility is a text":
            ui["visibility"] = "model"
        case "a policy at the tool":
            ui["csp"] = {"connectDomains": []}
        case "resourceURI":
            meta = {"ui": {"resourceURI": ADDRESS}}
        case "resource_uri beside visibility":
            meta = {"ui": {"resource_uri": ADDRESS, "visibility": ["model"]}}
        case "ui/resourceuri":
            meta = {"ui/resourceuri": ADDRESS}
        case "the address at another key":
            meta = {"planted": {"view": ADDRESS}}
        case "visibilty":
            ui["visibilty"] = ["app"]
        case "no view":
            meta = {"ui": {"visibility": ["model"]}, "planted": {"sourceUrl": "https://planted.example/"}}
        case "visible to users":
            ui["visibility"] = ["model", "app", "user"]
    return {"name": "show", "description": "Show it", "inputSchema": {"type": "object"}, "_meta": meta}


def metadata() -> dict[str, Any] | None:
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
    ui = answers.get(FAULT)
    return {"ui": ui} if ui else None


def resources() -> list[dict[str, Any]]:
    if FAULT == "not listed":
        return []
    listed = {
        "uri": ADDRESS,
        "name": "view",
        "mimeType": "text/html" if FAULT == "the listed type is text/html" else TYPE,
    }
    if (meta := metadata()) is not None:
        listed["_meta"] = meta  # type: ignore[assignment]
    if FAULT == "a view at file://":
        return [listed, {"uri": "file:///view.html", "name": "other", "mimeType": TYPE}]
    return [listed]


def read() -> dict[str, Any]:
    content: dict[str, Any] = {"uri": ADDRESS, "mimeType": TYPE, "text": document()}
    match FAULT:
        case "the type is text/html":
            content["mimeType"] = "text/html"
        case "a space in the type":
            content["mimeType"] = "text/html; profile=mcp-app"
        case "neither text nor blob":
            del content["text"]
        case "as a blob":
            content["blob"] = base64.b64encode(content.pop("text").encode()).decode()
        case "JSON instead of HTML":
            content["text"] = '{"html": true}'
        case "an empty text":
            content["text"] = ""
        case "a blob that is not base64":
            content = {"uri": ADDRESS, "mimeType": TYPE, "blob": "%%%"}
        case "no contents":
            return {"contents": []}
    if (meta := metadata()) is not None:
        content["_meta"] = meta
    return {"contents": [content]}


def call() -> dict[str, Any]:
    match FAULT:
        case "no content":
            return {"content": [], "structuredContent": {"a": 1}}
        case "an empty text alone":
            return {"content": [{"type": "text", "text": " "}]}
        case "the tool fails":
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
                result = {"tools": [tool()]}
            case "resources/list":
                result = {"resources": resources()}
            case "resources/read" if FAULT != "no such resource":
                result = read()
            case "tools/call":
                result = call()
        if "id" in request:
            failed = {"error": {"code": -32601, "message": "Method not found"}}
            answer = failed if result is None else {"result": result}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}) + "\n")
            sys.stdout.flush()


main()
