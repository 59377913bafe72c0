"""An ABP app in Python, served over a WebSocket. It needs only the `websockets` library, not this kit.

python examples/websocket_app.py            prints its address; call it from another terminal:
abp call ws://127.0.0.1:PORT/ text.shout -p text=hi
"""

import asyncio
import base64
import json
import sys
import time
from contextlib import suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

APP = {"id": "example.shouter", "name": "Shouter", "version": "1.0"}
CAPABILITIES = [{"name": "text.shout", "description": "The text in capitals, as a file.", "available": True}]


def shout(params: dict[str, Any]) -> dict[str, object]:
    """Answer the text in capitals as a file, and its length beside it."""
    text = str(params.get("text", "")).upper()
    content = text.encode()
    encoded = base64.b64encode(content).decode()
    file = {"content": encoded, "mimeType": "text/plain", "encoding": "base64", "size": len(content)}
    return {"success": True, "data": {"file": {**file, "filename": "shout.txt"}, "characters": len(text)}}


def answer(kind: str, payload: dict[str, Any]) -> dict[str, object] | None:
    """Answer a message. A shutdown has no reply."""
    match kind:
        case "initialize":
            return {
                "sessionId": "1",
                "protocolVersion": "0.1",
                "app": APP,
                "capabilities": CAPABILITIES,
                "features": {"notifications": False, "progress": False, "elicitation": False},
            }
        case "capabilities/call" if payload["capability"] == "text.shout":
            return shout(payload["params"])
        case "capabilities/call":
            error = {"code": "UNKNOWN_CAPABILITY", "message": f"no {payload['capability']} here", "retryable": False}
            return {"success": False, "error": error}
        case "capabilities/cancel":
            return {"callId": payload.get("callId"), "cancelled": False}  # every call has ended already
    return None


async def handle_connection(socket: ServerConnection) -> None:
    """Answer every message of one client. A reply has the id of its request (docs/protocol.md 6)."""
    with suppress(ConnectionClosed):  # the client closed the connection early
        async for text in socket:
            message = json.loads(text)
            kind = message["type"]
            reply = answer(kind, message.get("payload") or {})
            if reply is not None:
                envelope = {
                    "type": f"{kind}-result",
                    "id": message["id"],
                    "timestamp": int(time.time() * 1000),
                    "payload": reply,
                }
                await socket.send(json.dumps(envelope))


async def main(port: int) -> None:
    async with serve(handle_connection, "127.0.0.1", port) as server:
        print(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0))
