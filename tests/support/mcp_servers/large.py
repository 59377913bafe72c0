"""A server without an SDK that gives what it is asked for: ``--bare`` leaves out resources, ``--once FILE`` dies at the
first call of ``risky`` and notes that in FILE."""

import base64
import hashlib
import json
import os
import random
import sys

SERVER = sys.argv[1:]
HTML = "<p>" + "view " * 40_000
STRING, ANY = {"type": "string"}, {"type": "object"}
FILES = {
    "type": "object",
    "properties": {
        "file": {**STRING, "format": "uri", "x-mcp-file": {"maxSize": 1_000_000}},
        "files": {"type": "array", "items": {**STRING, "x-mcp-file": {}}},
        "bytes": {**STRING, "contentEncoding": "base64"},
        "text": STRING,
        "pages": {"type": "array", "items": {"$ref": "#/$defs/Page"}},
        "cover": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Page"}]},
    },
    "$defs": {
        "Page": {
            "type": "object",
            "properties": {
                "picture": {**STRING, "x-mcp-file": {"maxSize": 1_000_000}},
                "title": STRING,
                "next": {"$ref": "#/$defs/Page"},
            },
        }
    },
}
LOOSE = {"type": "object", "properties": {"data": STRING, "rows": {"type": "array", "items": ANY}}}
STRICT = {
    "type": "object",
    "properties": {"data": {**STRING, "minLength": 1000}, "rows": {"type": "array", "minItems": 900}},
}
TOOLS = [
    {"name": "give", "inputSchema": ANY},
    {"name": "loose", "inputSchema": ANY, "outputSchema": LOOSE},
    {"name": "strict", "inputSchema": ANY, "outputSchema": STRICT},
    {"name": "take", "inputSchema": FILES},
    {"name": "risky", "inputSchema": ANY},
    {"name": "ask", "inputSchema": ANY},
    {"name": "huge", "inputSchema": ANY},
    {"name": "raw", "inputSchema": ANY},
]


def made(value: object) -> object:
    """``value`` with ``@base64:SIZE``, ``@text:SIZE`` and ``@rows:COUNT`` replaced."""
    if isinstance(value, dict):
        return {key: made(item) for key, item in value.items()}
    if isinstance(value, list):
        return [made(item) for item in value]
    if isinstance(value, str) and value.startswith("@"):
        kind, _, size = value[1:].partition(":")
        if kind == "rows":
            return [{"id": number, "name": f"row {number}"} for number in range(int(size))]
        if kind == "text":
            return ("line é\n" * int(size))[: int(size)]
        return base64.b64encode(random.Random(1).randbytes(int(size))).decode()
    return value


def write(message: object) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")  # type: ignore[dict-item]
    sys.stdout.flush()


def huge(identity: object, size: int) -> None:
    """Write ``size`` bytes of base64 without having them in memory."""
    sys.stdout.write('{"result":{"content":[{"type":"image","mimeType":"application/x-huge","data":"')
    piece = base64.b64encode(b"\x00\x01\x02" * 65536).decode()
    for _ in range(size // (3 * 65536)):
        sys.stdout.write(piece)
    sys.stdout.write(f'"}}]}},"jsonrpc":"2.0","id":{json.dumps(identity)}}}\n')
    sys.stdout.flush()


def raw(identity: object, lines: list[str]) -> None:
    """Write lines as they are, with ``@id``, ``@deep`` (601 levels) and ``@wide`` (a million and one values)."""
    for text in lines:
        text = text.replace("@id", json.dumps(identity))
        text = text.replace("@deep", "[" * 601 + "]" * 601).replace("@wide", "[" + "1," * 1_000_000 + "1]")
        sys.stdout.write(text + "\n")
    sys.stdout.flush()


def died() -> None:
    if "--once" in SERVER:
        note = SERVER[SERVER.index("--once") + 1]
        if not os.path.exists(note):  # noqa: PTH110
            open(note, "w").close()  # noqa: PTH123
            sys.stderr.write("the server dies\n")
            sys.stderr.flush()
            os._exit(3)


def called(identity: object, name: str, arguments: dict) -> object:  # type: ignore[type-arg]
    match name:
        case "give" | "loose" | "strict":
            return made(arguments["result"])
        case "take":
            texts = {key: list(strings(value)) for key, value in arguments.items()}
            heads = {key: [text[:1000] for text in values] for key, values in texts.items()}
            sums = {key: [digest(text) for text in values] for key, values in texts.items()}
            return {"content": [], "structuredContent": {"heads": heads, "sums": sums}}
        case "risky":
            died()
            return {"content": [{"type": "text", "text": "alive"}]}
        case "ask":
            write({"id": "q1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}})
            answer = json.loads(sys.stdin.readline())
            write({"method": "notifications/progress", "params": {"progressToken": "p", "progress": 1}})
            return {"content": [{"type": "text", "text": json.dumps(answer)}]}
    raise KeyError(name)


def strings(value: object):  # type: ignore[no-untyped-def]
    """The texts of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from strings(item)


def digest(text: str) -> str:
    body = text.rpartition(",")[2]
    try:
        return hashlib.sha256(base64.b64decode(body, validate=True)).hexdigest()
    except ValueError:
        return ""


seen: list[str] = []
for line in sys.stdin:
    request = json.loads(line)
    seen.append(request.get("method"))
    identity, params = request.get("id"), request.get("params") or {}
    if identity is None or "method" not in request:
        continue
    match request["method"]:
        case "initialize":
            able = {"tools": {}} if "--bare" in SERVER else {"tools": {}, "resources": {"subscribe": True}}
            info = {"name": "large", "version": "1.0"}
            result: object = {"protocolVersion": params["protocolVersion"], "capabilities": able, "serverInfo": info}
        case "tools/list":
            result = {"tools": TOOLS}
        case "tools/call" if params["name"] == "seen":
            result = [method for method in seen[:-1] if method != "notifications/initialized"]
        case "tools/call" if params["name"] == "raw":
            raw(identity, params["arguments"]["lines"])
            continue
        case "tools/call" if params["name"] == "huge":
            huge(identity, params["arguments"]["size"])
            continue
        case "tools/call":
            result = called(identity, params["name"], params.get("arguments") or {})
        case "resources/read":
            uri = params["uri"]
            kind, _, size = uri.partition("://")
            if kind == "ui":
                item = {"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": HTML}
            else:
                item = {"uri": uri, "mimeType": "application/x-thing", "blob": made(f"@base64:{size}")}
            result = {"contents": [item]}
        case "prompts/get":
            result = made(params["arguments"]["result"])
        case "ping":
            result = {}
        case method:
            write({"id": identity, "error": {"code": -32601, "message": f"no {method}"}})
            continue
    write({"id": identity, "result": result})
