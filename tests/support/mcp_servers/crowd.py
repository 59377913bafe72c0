"""A server of very many: tools, resources, blocks, values. A script, which gets its number of tools."""

import json
import sys
from collections.abc import Callable
from typing import Any

VERSION = "2025-06-18"
LISTED: dict[str, tuple[str, Callable[[int], dict[str, Any]]]] = {
    "tools/list": ("tools", lambda n: {"name": f"t{n}", "inputSchema": {"type": "object"}}),
    "resources/list": ("resources", lambda n: {"uri": f"x://{n}", "name": f"{n}"}),
    "resources/templates/list": ("resourceTemplates", lambda n: {"uriTemplate": f"x://{n}/{{a}}", "name": f"{n}"}),
}
#: Answers of the tool ``t0``, by its argument ``kind``, of about as many values as its argument ``count`` says.
DATA: dict[str, Any] = {
    "fine": lambda _: {"content": [], "structuredContent": {"fine": True}},
    "lists": lambda count: {"content": [], "structuredContent": {"rows": [[]] * count}},
    "names": lambda count: {"content": [], "structuredContent": {f"{n:x}": 1 for n in range(count)}},
    "blocks": lambda count: {"content": [{"type": "text", "text": "a"}] * count},
    "text": lambda count: {
        "content": [{"type": "text", "text": json.dumps([[]] * count)}],
        "structuredContent": {"fine": True},
    },
}


def answer(request: dict[str, Any], tools: int) -> str | None:
    """Return the reply to a request as JSON; ``None`` for a notification."""
    method, params = request["method"], request.get("params") or {}
    if "id" not in request:
        return None
    result: dict[str, Any] = {}
    if method == "initialize":
        result = {
            "protocolVersion": VERSION,
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "crowd", "version": "1"},
        }
    elif method in LISTED:
        key, make = LISTED[method]
        result = {key: [make(n) for n in range(tools)]}
    elif method == "tools/call":
        result = DATA[params["arguments"]["kind"]](params["arguments"].get("count", 0))
    elif method != "ping":
        error = {"code": -32601, "message": f"no {method}"}
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error})
    reply = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
    if method == "tools/call" and (count := params["arguments"].get("tells")):
        notice = {"level": "info", "data": [1] * count}
        reply = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": notice}) + "\n" + reply
    return reply


if __name__ == "__main__":
    for line in iter(sys.stdin.readline, ""):
        if (reply := answer(json.loads(line), int(sys.argv[1]))) is not None:
            sys.stdout.write(reply + "\n")
            sys.stdout.flush()
