"""A server of protocol 2026-07-28 without an SDK: ``hold`` is answered when ``release`` is called; ``spill`` sends a
log message, progress and a notification that name no request before its answer; ``odd`` answers a field that only
looks like an id, with a number out of range."""

import json
import sys


def write(message: dict) -> None:  # type: ignore[type-arg]
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


held = []
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request or request.get("method") != "tools/call":
        continue
    name = request["params"]["name"]
    answer = {"id": request["id"], "result": {"content": [{"type": "text", "text": name}]}}
    if name == "hold":
        held.append(answer)
        token = request["params"]["_meta"]["progressToken"]
        write({"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}})
        continue
    if name == "odd":
        sys.stdout.write(
            json.dumps({"jsonrpc": "2.0", **answer}).replace('"content"', '"requestId": 1e400, "content"') + "\n"
        )
        sys.stdout.flush()
        continue
    if name == "release":
        while held:
            write(held.pop())
    if name == "spill":
        secret = request["params"]["arguments"]["secret"]
        write({"method": "notifications/message", "params": {"level": "info", "data": f"log {secret}"}})
        write({"method": "notifications/progress", "params": {"progressToken": secret, "progress": 1}})
        write({"method": "notifications/odd", "params": {"about": secret}})
        write({"id": "unknown", "result": {"content": [{"type": "text", "text": secret}]}})
    write(answer)
