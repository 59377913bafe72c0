"""In-process apps, and content for their answers."""

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve

from transports import BinaryData, MemoryTransport, Message
from transports.memory import Handler
from transports.protocol.binary import Handle
from transports.testing import Call
from webapp_fixture.frames import envelope

PDF = b"%PDF-1.7\n" + bytes(range(256))
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
LARGE = random.Random(1).randbytes(300 * 1024)
FOREVER = 60.0


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pdf(data: bytes = PDF, **more: object) -> dict[str, object]:
    return {
        "content": b64(data), "mimeType": "application/pdf", "encoding": "base64", "size": len(data), **more,
    }  # fmt: skip


def answering(data: object) -> Handler:
    """A capability that always answers ``data``."""

    async def handle(params: Mapping[str, object], call: Call) -> object:
        return data

    return handle


async def echo(params: Mapping[str, object], call: Call) -> object:
    """Answers its parameters."""
    return dict(params)


async def hang(params: Mapping[str, object], call: Call) -> object:
    """Never answers."""
    await asyncio.Event().wait()
    return None


def asking(method: str, **question: object) -> Handler:
    """A capability that asks the user, and answers with the reply."""

    async def ask(params: Mapping[str, object], call: Call) -> object:
        return dict(await call.elicit(method, question))

    return ask


ask = asking("elicitation/confirm", message="Sure?")
ask_name = asking("elicitation/input", message="Name?", default="Ada")


def files(folder: Path) -> set[Path]:
    """Everything below a store's folder that holds content or describes it."""
    return {path for path in folder.rglob("*") if path.is_file() and "locks" not in path.parts}


class AtAddress(MemoryTransport):
    """An app at an address, from which its downloads are resolved."""

    def __init__(self, address: str, handlers: Mapping[str, Handler]) -> None:
        super().__init__(handlers)
        self.address = address

    @property
    def url(self) -> str:
        return self.address


class NotingTransport(MemoryTransport):
    """Notes what the session sends and asks for; ``replies``, by the last part of a type, replace the app's: payloads,
    whole messages, exceptions to raise, events to wait for."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None, **replies: object) -> None:
        super().__init__(handlers or {})
        self.replies = replies
        self.sent: list[Message] = []
        self.closed = 0
        self.saved: list[str] = []
        self.released: list[str] = []
        self.outputs: list[BinaryData] = []

    async def request(self, message: Message, *, timeout: float) -> Message:
        self.sent.append(message)
        name = message.type.rpartition("/")[2]
        if name in self.replies:
            reply = self.replies[name]
            if isinstance(reply, Exception):
                raise reply
            if isinstance(reply, Message):
                return replace(reply, id=message.id)
            if isinstance(reply, asyncio.Event):
                await reply.wait()
            return Message(f"{message.type}-result", reply, id=message.id)
        answered = await super().request(message, timeout=timeout)
        if message.type == "capabilities/call":
            answered.outputs = self.outputs
        return answered

    async def notify(self, message: Message) -> None:
        self.sent.append(message)
        await super().notify(message)

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        self.saved.append(handle.id)
        await super().save(handle, path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        self.released.append(handle.id)
        await super().release(handle)

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()

    def types(self) -> list[str]:
        return [message.type for message in self.sent]


HELLO: Mapping[str, object] = {
    "sessionId": "1",
    "protocolVersion": "0.1",
    "app": {"id": "dev.socket", "name": "Socket", "version": "1"},
    "capabilities": [],
}


@asynccontextmanager
async def socket_app(
    answer: Callable[[str], Mapping[str, object] | None],
    hello: Mapping[str, object] = HELLO,
    on_headers: Callable[[Mapping[str, str]], object] = lambda _: None,
) -> AsyncIterator[str]:
    """An app behind a WebSocket at this host and port. It answers a capability, or closes the connection."""

    async def talk(socket: ServerConnection) -> None:
        assert socket.request is not None
        on_headers(socket.request.headers)
        async for text in socket:
            message = json.loads(text)
            payload: Mapping[str, object] | None = hello
            if message["type"] == "capabilities/call":
                payload = answer(message["payload"]["capability"])
            elif message["type"] != "initialize":
                continue
            if payload is None:
                await socket.close(1011, "WORDS-OF-PROGRAM-1")
                return
            await socket.send(json.dumps(envelope(f"{message['type']}-result", message["id"], payload=payload)))

    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
