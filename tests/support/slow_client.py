"""Clients that send half a request or one byte after another, or leave in the middle of a request or an answer."""

import asyncio
import socket
import struct
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server closes the connection, within 15 seconds."""
    with suppress(ConnectionError):
        async with asyncio.timeout(15):
            return await reader.read() == b""
    return True


async def half_sent(stack: AsyncExitStack, netloc: str, path: str, count: int) -> list[asyncio.StreamReader]:
    """Open connections, each with half a request of ``path``: every second one after a whole request, which proves
    nothing."""
    opened: list[asyncio.StreamReader] = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection(*netloc.rsplit(":", 1))
        stack.callback(writer.close)
        if len(opened) % 2:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {netloc}\r\n\r\n".encode())
            await reader.readuntil(b"}")
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {netloc}\r\n".encode())
        opened.append(reader)
    return opened


async def drip(netloc: str, start: str) -> bytes:
    """Send ``start`` (lines; ``HOST`` stands for the server's name) and then a byte at a time, until the server answers
    or ends it; return its first line."""
    reader, writer = await asyncio.open_connection(*netloc.rsplit(":", 1))
    writer.write(start.replace("\n", "\r\n").replace("HOST", netloc).encode())
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
    try:
        async with asyncio.timeout(15):
            while not answer.done():
                writer.write(b"a")
                await asyncio.wait((answer,), timeout=0.05)
        return await answer
    except (ConnectionError, EOFError):
        return b""
    finally:
        answer.cancel()
        writer.close()


def leave(address: str, request: str, *, after: int = 0, reset: bool = True) -> None:
    """Send a request, and close the connection ``after`` as many bytes of the answer."""
    parts = urlsplit(address)
    assert parts.hostname is not None and parts.port is not None
    with socket.create_connection((parts.hostname, parts.port), timeout=10) as client:
        client.sendall(request.encode())
        while after > 0:
            after -= len(client.recv(after))
        if reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
