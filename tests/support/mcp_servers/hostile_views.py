"""A server whose views break the rules, one way per tool. It speaks JSON-RPC by hand: no SDK would let it."""

import json
import sys
from pathlib import Path
from typing import Any

TYPE = "text/html;profile=mcp-app"
CLIENT = (Path(__file__).parent / "view.html").read_text()
BEGINS = f"{CLIENT}<script>begin();</script>"
#: The content of the view, by the name of its tool.
CONTENTS: dict[str, Any] = {
    "frames": {
        "mimeType": TYPE,
        "text": BEGINS,
        "_meta": {"ui": {"csp": {"frameDomains": ["blob:", "data:", "*.localhost"], "resourceDomains": ["blob:"]}}},
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
            return {"tools": [tool(name, f"ui://hostile/{name}") for name in CONTENTS]}
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
