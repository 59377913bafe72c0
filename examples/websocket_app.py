"""An ABP app in Python behind a WebSocket.

python examples/websocket_app.py, then: abp call ws://127.0.0.1:PORT/ text.shout -p text=hi

It needs nothing but the `websockets` library: an app does not depend on this kit.
"""

import asyncio
import base64
import json
import sys
import time
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

APP = {"id": "example.shouter", "name": "Shouter", "version": "1.0"}
CAPABILITIES = [{"name": "text.shout", "description": "The text in capitals, as a file.", "available": True}]


def shout(params: dict[str, Any]) -> dict[str, object]:
    content = str(params.get("text", "")).upper().encode()
    encoded = base64.b64encode(content).decode()
    file = {"content": encoded, "mimeType": "text/plain", "encoding": "base64", "size": len(content)}
    return {"success": True, "data": {"file": {**file, "filename": "shout.txt"}, "characters": len(content)}}


async def talk(socket: ServerConnection) -> None:
    async for text in socket:
        message = json.loads(text)
        kind, payload = message["type"], message.get("payload") or {}
        if kind == "initialize":
            reply: dict[str, object] = {
                "sessionId": "1",
                "protocolVersion": "0.1",
                "app": APP,
                "capabilities": CAPABILITIES,
            }
        elif kind == "capabilities/call" and payload["capability"] == "text.shout":
            kind, reply = "capabilities/call", shout(payload["params"])
        elif kind == "capabilities/call":
            error = {"code": "UNKNOWN_CAPABILITY", "message": f"no {payload['capability']} here", "retryable": False}
            reply = {"success": False, "error": error}
        else:
            continue
        envelope = {
            "type": f"{kind}-result",
            "id": message["id"],
            "timestamp": int(time.time() * 1000),
            "payload": reply,
        }
        await socket.send(json.dumps(envelope))


async def main(port: int) -> None:
    async with serve(talk, "127.0.0.1", port) as server:
        print(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
