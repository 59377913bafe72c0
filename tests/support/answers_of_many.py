"""An app behind a WebSocket whose capability ``many`` answers with very many values; a script, since what such an app
itself takes must not be measured. ``python answers_of_many.py VERY_MANY KIND`` prints its port."""

import asyncio
import json
import sys
from collections.abc import Callable

from websockets.asyncio.server import ServerConnection, serve

MB = 1 << 20
CHAIN = b"[" * 50 + b"]" * 50 + b","
#: 40 MB of small values.
VERY_MANY: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"[" + b"[]," * (40 * MB // 3) + b"1]",
    "objects": lambda: b"[" + b"{}," * (40 * MB // 3) + b"1]",
    "numbers": lambda: b"[" + b"1," * (20 * MB) + b"1]",
    "names": lambda: b"{" + b",".join(b'"%x":1' % n for n in range(4 * MB)) + b"}",
    "chains": lambda: b"[" + CHAIN * (40 * MB // 101) + b"1]",
    "one beyond": lambda: b"[" + b"1," * 999_990 + b"1]",  # with those of the message around it
}
#: A million values and names, or a little less.
AS_MANY: dict[str, Callable[[], bytes]] = {
    "lists": lambda: b"[" + b"[]," * 499_900 + b"1]",
    "numbers": lambda: b"[" + b"1.234," * 999_900 + b"1]",
    "names": lambda: b"{" + b",".join(b'"%x":1' % n for n in range(499_900)) + b"}",
    "chains": lambda: b"[" + CHAIN * 19_500 + b"1]",
    "blocks": lambda: b'{"content":[' + b'{"type":"text","text":"a"},' * 166_000 + b'{"type":"text","text":"b"}]}',
    "beside a file": lambda: (
        b'{"file":{"content":"QUJD","mimeType":"text/plain","encoding":"base64"},"rows":[' + b"[]," * 499_900 + b"1]}"
    ),
    "beside a long text": lambda: b'{"text":"' + b"word " * 20_000 + b'","rows":[' + b"[]," * 499_900 + b"1]}",
    "texts": lambda: b"[" + b'"a word",' * 999_000 + b"1]",
    "exactly": lambda: b"[" + b"1," * 999_989 + b"1]",
    "a text of many marks": lambda: json.dumps(json.dumps([[{"a": "b"}]] * MB)).encode(),
}


async def main(data: bytes) -> None:
    async def app(socket: ServerConnection) -> None:
        async for text in socket:
            request = json.loads(text)
            kind = request["type"]
            payload = b'{"success":true,"data":{}}'
            if kind == "initialize":
                info = {"id": "a", "name": "a", "version": "1"}
                greeting = {"sessionId": "s", "protocolVersion": "0.1", "app": info}
                payload = json.dumps({**greeting, "capabilities": ["many", "few"]}).encode()
            elif kind == "capabilities/call" and request["payload"]["capability"] == "many":
                payload = b'{"success":true,"data":' + data + b"}"
            head = json.dumps({"type": f"{kind}-result", "id": request.get("id")}).encode()
            await socket.send(head[:-1] + b',"payload":' + payload + b"}", text=True)

    async with serve(app, "127.0.0.1", 0, max_size=None, compression=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)  # until the test is over


if __name__ == "__main__":
    asyncio.run(main({"VERY_MANY": VERY_MANY, "AS_MANY": AS_MANY}[sys.argv[1]][sys.argv[2]]()))
