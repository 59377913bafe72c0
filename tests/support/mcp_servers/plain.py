"""A server without an SDK, so that what is measured is the client: a blob of so many bytes, a text of so many."""

import base64
import json
import random
import sys

BLOBS: dict[int, str] = {}


def result(name: str, size: int) -> object:
    if name == "text":
        return {"content": [{"type": "text", "text": "x" * size}]}
    if size not in BLOBS:
        BLOBS[size] = base64.b64encode(random.Random(1).randbytes(size)).decode()
    resource = {"uri": "plain://file.bin", "mimeType": "application/octet-stream", "blob": BLOBS[size]}
    return {"content": [{"type": "resource", "resource": resource}]}


for line in sys.stdin:
    request = json.loads(line)
    answer: dict[str, object] = {"jsonrpc": "2.0", "id": request.get("id")}
    match request.get("method"):
        case "initialize":
            answer["result"] = {
                "protocolVersion": request["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            }
        case "tools/list":
            schema = {"type": "object", "properties": {"size": {"type": "integer"}}}
            answer["result"] = {"tools": [{"name": name, "inputSchema": schema} for name in ("blob", "text")]}
        case "tools/call":
            answer["result"] = result(request["params"]["name"], request["params"]["arguments"]["size"])
        case _:
            answer["error"] = {"code": -32601, "message": "Method not found"}
    if request.get("id") is not None:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
