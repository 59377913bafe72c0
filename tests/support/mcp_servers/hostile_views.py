"""A server whose views break the rules, one way per tool. It speaks JSON-RPC by hand: no SDK would let it."""

import json
import sys
from pathlib import Path
from typing import Any

TYPE = "text/html;profile=mcp-app"
CLIENT = (Path(__file__).parent / "view.html").read_text()
BEGINS = f"{CLIENT}<script>begin();</script>"
INJECTED = [
    "https://good.example",
    "https://a.example; script-src *",
    "https://b.example\n; script-src *",
    "*",
    "https:",
    "'unsafe-eval'",
    "https://*.example.org:8443",
    "x" * 3000,
    7,
]

#: The content of the view, by the name of its tool.
CONTENTS: dict[str, Any] = {
    "at_the_limit": {"mimeType": TYPE, "text": BEGINS + " " * ((8 << 20) - len(BEGINS))},
    "huge": {"mimeType": TYPE, "text": " " * ((8 << 20) + 1)},
    "plain_html": {"mimeType": "text/html", "text": BEGINS},
    "no_type": {"text": BEGINS},
    "not_base64": {"mimeType": TYPE, "blob": "%%%"},
    "not_text": {"mimeType": TYPE, "blob": "/w=="},
    "empty": {"mimeType": TYPE},
    "injection": {
        "mimeType": TYPE,
        "text": BEGINS,
        "_meta": {"ui": {"csp": dict.fromkeys(("resourceDomains", "connectDomains", "frameDomains"), INJECTED)}},
    },
    "many_sources": {
        "mimeType": TYPE,
        "text": BEGINS,
        "_meta": {"ui": {"csp": {"connectDomains": [f"https://a{n}.example" for n in range(101)]}}},
    },
    "frames": {
        "mimeType": TYPE,
        "text": BEGINS,
        "_meta": {"ui": {"csp": {"frameDomains": ["blob:", "data:", "*.localhost"], "resourceDomains": ["blob:"]}}},
    },
    "odd_meta": {
        "mimeType": TYPE,
        "text": BEGINS,
        "_meta": {"ui": {"csp": "script-src *", "permissions": {"camera": {}, "everything": {}}}},
    },
    "listed": {"mimeType": TYPE, "text": BEGINS},
    "slow_goodbye": {"mimeType": TYPE, "text": BEGINS + "<script>goodbye = () => new Promise(() => {});</script>"},
    "last_words": {
        "mimeType": TYPE,
        "text": BEGINS
        + "<script>goodbye = async () => { await rpc('ui/update-model-context', {structuredContent: {saved: 1}}); "
        "return {}; };</script>",
    },
}
#: Addresses of views that are not ``ui://…``, by the name of their tool.
ELSEWHERE = {
    "web": "https://evil.example/view.html",
    "disk": "file:///etc/passwd",
    "number": 7,
    "long": "ui://" + "x" * 3000,
}
LISTED = {"uri": "ui://hostile/listed", "name": "listed", "mimeType": TYPE,
          "_meta": {"ui": {"csp": {"connectDomains": ["https://listed.example"]}}}}  # fmt: skip


def tool(name: str, uri: object) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": uri}}}


def result_of(method: str, params: Any) -> dict[str, Any] | None:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}, "resources": {}},
                "serverInfo": {"name": "hostile", "version": "1"},
            }
        case "tools/list":
            tools = [tool(name, f"ui://hostile/{name}") for name in CONTENTS]
            return {"tools": [*tools, *(tool(name, uri) for name, uri in ELSEWHERE.items())]}
        case "tools/call":
            return {"content": [{"type": "text", "text": "done"}]}
        case "resources/list":
            return {"resources": [LISTED]}
        case "resources/read":
            name = params["uri"].rpartition("/")[2]
            return {"contents": [{"uri": params["uri"], **CONTENTS[name]}]}
    return None


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
    if (result := result_of(asked.get("method", ""), asked.get("params"))) is None:
        answer["error"] = {"code": -32601, "message": "not here"}
    else:
        answer["result"] = result
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
