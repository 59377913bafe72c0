"""A client that leaves a server in the middle of a request or an answer."""

from __future__ import annotations

import socket
import struct
from urllib.parse import urlsplit


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
