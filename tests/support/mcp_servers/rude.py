"""A server that breaks the rules, one way per tool. It speaks JSON-RPC by hand: no SDK would let it.

Its first argument is a way to break more of them. Three are of a second start, and have a folder as the next argument:
``once`` ends at once then; ``dying`` closes its stdout, is not ended by SIGTERM, and writes a file ``terminated`` into
the folder at that; ``refusing`` refuses everything, and is silent then.
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

PDF = "JVBERi0xLjQK" + "QUJD" * 500
BOMB: dict[str, Any] = {"type": "string"}
for _ in range(200):
    BOMB = {"type": "object", "properties": {"a": BOMB}}
DOUBLING: dict[str, Any] = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
SCHEMAS: dict[str, Any] = {
    "deep_schema": BOMB,
    "doubling_schema": {"$defs": {**DOUBLING, "d40": {"type": "object"}}, "$ref": "#/$defs/d0"},
    "regex_schema": {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}},
    "remote_schema": {"$ref": "http://127.0.0.1:9/schema.json", "type": "object"},
}
NAMES = [
    "fine",
    "garbage",
    "half_json",
    "huge_text",
    "huge_line",
    "bad_blob",
    "never",
    "dies",
    "killed",
    "killed_midway",
    "no_result",
    "wrong_shape",
    "deep",
    "twice",
    "floods",
    "secret",
    *SCHEMAS,
]


def write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def reply(request: Any, result: object) -> None:
    write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")


def text(value: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": value}]}


def blob(value: str) -> dict[str, Any]:
    return {
        "content": [{"type": "resource", "resource": {"uri": "x://f", "mimeType": "application/pdf", "blob": value}}]
    }


def call(request: Any) -> None:
    name = request["params"]["name"]
    match name:
        case "garbage":
            write('Starting…\n\x00\x01 this is no JSON\n{"jsonrpc": "2.0"}\n[]\n\n')
            reply(request, text("after the garbage"))
        case "half_json":
            write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[{{"type":"te\n')
        case "huge_text":
            head, rest = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": text("@")}).split("@")
            write(head)
            for _ in range(4):
                write("lorem ip" * (1 << 17))
            write(rest + "\n")
        case "huge_line":
            for _ in range(4):
                write("x" * (1 << 20))
            write(f'","id":{request["id"]}}}\n')
        case "bad_blob":
            reply(request, blob(PDF + "*" + "QUJD" * 100_000))
        case "never":
            pass
        case "dies":
            print("Traceback: out of cheese", file=sys.stderr, flush=True)
            sys.exit(3)
        case "killed" | "killed_midway":
            if name == "killed_midway":
                write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[{{"type":"te')
            os.kill(os.getpid(), signal.SIGKILL)
        case "no_result":
            write(json.dumps({"jsonrpc": "2.0", "id": request["id"]}) + "\n")
        case "wrong_shape":
            reply(request, {"content": "just text"})
        case "deep":
            write(f'{{"jsonrpc":"2.0","id":{request["id"]},"result":{{"content":[],"structuredContent":{{"a":')
            write("[" * 400 + "]" * 400 + "}}}\n")
        case "twice":
            reply(request, text("first"))
            reply(request, text("second"))
        case "floods":
            for n in range(request["params"]["arguments"]["count"]):
                params = {"level": "info", "logger": "rude", "data": n}
                write(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}) + "\n")
            reply(request, text("done"))
        case "secret":
            key = os.environ.get("RUDE_API_KEY", "")
            print(f"the key is {key}", file=sys.stderr, flush=True)
            sys.exit(4)
        case _ if name in NAMES:
            reply(request, text("fine"))
        case _:
            reply(request, {**text(f"no tool {name}"), "isError": True})


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "deaf":  # ignores its stdin's end and SIGTERM
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.fork() == 0:  # and so does its child, which holds its pipes
            time.sleep(600)
    is_second = len(sys.argv) > 2 and (Path(sys.argv[2]) / "started").exists()
    if len(sys.argv) > 2:
        (Path(sys.argv[2]) / "started").touch()
    if mode == "once" and is_second:
        sys.exit("the database is locked")
    if mode == "dying" and is_second:
        signal.signal(signal.SIGTERM, lambda *_: (Path(sys.argv[2]) / "terminated").touch())
        os.close(1)
    if mode == "mute" or (mode in ("dying", "refusing") and is_second):
        while True:
            time.sleep(1)
    for line in sys.stdin:
        request = json.loads(line)
        if mode == "refusing":
            error = {"code": -32000, "message": "set API_KEY"}
            write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
            continue
        match request.get("method"):
            case "initialize":
                info = {"name": "rude", "version": "1"}
                version = request["params"]["protocolVersion"]
                reply(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list" if mode == "unlisted":
                write(
                    json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": "no"}})
                    + "\n"
                )
            case "tools/list":
                tools = [{"name": name, "inputSchema": SCHEMAS.get(name, {"type": "object"})} for name in NAMES]
                reply(request, {"tools": tools})
            case "tools/call":
                call(request)
            case method if "id" in request and method:
                error = {"code": -32601, "message": "Method not found"}
                write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}) + "\n")
    if mode == "deaf":
        time.sleep(600)


main()
