"""The app of the WebSocket rows, in a process of its own: python -m tests.benchmarks.socket_app MEGABYTES"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import sys

from websockets.asyncio.server import ServerConnection, serve

from webapp_fixture import generate


async def main(megabytes: int) -> None:
    content = b"".join(generate(megabytes << 20, 1))
    described = {"content": base64.b64encode(content).decode(), "mimeType": "application/octet-stream"}
    file = {**described, "encoding": "base64", "size": len(content)}
    data = json.dumps({"success": True, "data": {"file": file, "sha256": hashlib.sha256(content).hexdigest()}})
    small = json.dumps({"success": True, "data": {"ok": True}})
    hello = json.dumps(
        {"sessionId": "1", "app": {"name": "Bench"}, "capabilities": [{"name": "large"}, {"name": "small"}]}
    )

    async def talk(socket: ServerConnection) -> None:
        async for text in socket:
            message = json.loads(text)
            kind = message["type"]
            if kind == "shutdown":
                continue
            payload = hello if kind == "initialize" else data if message["payload"]["capability"] == "large" else small
            await socket.send(f'{{"type":"{kind}-result","id":"{message["id"]}","timestamp":0,"payload":{payload}}}')

    async with serve(talk, "127.0.0.1", 0, max_size=None, compression=None) as server:
        print(f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}/", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
