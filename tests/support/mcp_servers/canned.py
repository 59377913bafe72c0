"""A server that answers as its JSON file says: ``initialize``, ``tools``, ``results`` by the name of the tool,
``documents`` by URI. Each call asks the next of the ``questions``, and its result is the answer.

A list in the place of a result or a document has those of successive requests. A text in the place of a result is
written as it stands, so that it need not be JSON. ``prefix`` comes before each line. At a first message other than
``initialize``, a server with ``strict`` ends, and one with ``eager`` refuses ``initialize`` from then on. A server that
is ``loose`` writes the ids of its answers as floats, and ends after its answer to a call, which has no line end.
"""

import json
import sys
from pathlib import Path
from typing import Any

answers: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())


def send(identity: Any, result: Any, end: str = "\n") -> None:
    text = result if isinstance(result, str) else json.dumps(result)
    shown = float(identity) if answers.get("loose") else json.dumps(identity)
    line = f'{answers.get("prefix", "")}{{"jsonrpc": "2.0", "id": {shown}, "result": {text}}}{end}'
    sys.stdout.buffer.write(line.encode())
    sys.stdout.buffer.flush()


for line in sys.stdin:
    request = json.loads(line)
    method, params = request.get("method"), request.get("params") or {}
    if "id" not in request:
        continue
    if answers.pop("strict", False) and method != "initialize":
        sys.exit("expected an initialize request")
    if answers.pop("eager", False) and method != "initialize":
        del answers["initialize"]
    if method in ("initialize", "server/discover") and method in answers:
        send(request["id"], answers[method])
    elif method == "tools/list":
        pages = answers.get("pages", [answers.get("tools", [])])
        cursors = answers.get("cursors", [])
        index = 1 + [*map(str, cursors)].index(params["cursor"]) if "cursor" in params else 0
        more = {"nextCursor": cursors[index]} if index < len(cursors) else {}
        send(request["id"], {"tools": pages[index], **more, **answers.get("always", {})})
    elif method == "tools/call" and answers.get("questions"):
        print(json.dumps({"jsonrpc": "2.0", "id": "q", **answers["questions"].pop(0)}), flush=True)
        answer = json.loads(sys.stdin.readline())
        answered = answer.get("result", answer.get("error"))
        send(request["id"], {"content": [], "structuredContent": {"answered": answered}})
    elif method == "tools/call":
        result = answers["results"][params["name"]]
        send(request["id"], result.pop(0) if isinstance(result, list) else result, "" if "loose" in answers else "\n")
        if "loose" in answers:
            break
    elif method == "resources/list":
        send(request["id"], {"resources": answers.get("resources", []), "nextCursor": answers.get("cursor")})
    elif method == "resources/read":
        document = answers["documents"][params["uri"]]
        content = document.pop(0) if isinstance(document, list) else document
        send(request["id"], {"contents": [content], **answers.get("always", {})})
    else:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
