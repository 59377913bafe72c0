"""A port of this machine that counts who knocks, over TCP and over UDP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

#: A function of a page: asks the port for its address by WebRTC, over UDP and TCP, with the constructor of a window.
#: Returns what has become of it.
PEER = """async (owner, port) => {
  const iceServers = [
    { urls: `stun:127.0.0.1:${port}` },
    { urls: `turn:127.0.0.1:${port}?transport=tcp`, username: "result", credential: "x" },
  ];
  try {
    const peer = new owner.RTCPeerConnection({ iceServers });
    peer.createDataChannel("x");
    await peer.setLocalDescription(await peer.createOffer());
    return "connects";
  } catch (error) { return error.name; }
}"""

_ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nAccess-Control-Allow-Origin: *\r\n"
    b"Content-Length: 6\r\nConnection: close\r\n\r\nsecret"
)


@dataclass
class Listener:
    """``port`` is open on 127.0.0.1; ``heard`` holds the first line of each connection, and ``UDP`` for a datagram."""

    port: int = 0
    heard: list[str] = field(default_factory=list)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, heard: list[str]) -> None:
        self._heard = heard

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._heard.append("UDP")


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    """Answer every request with ``secret``, readable from any origin."""
    listener = Listener()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        place = len(listener.heard)
        listener.heard.append("TCP")
        line = await reader.readline()
        listener.heard[place] = line.decode(errors="replace").strip() or "TCP"
        writer.write(_ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    listener.port = server.sockets[0].getsockname()[1]
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: _Datagrams(listener.heard), local_addr=("127.0.0.1", listener.port)
    )
    try:
        yield listener
    finally:
        transport.close()
        server.close()
