"""An MCP server without an SDK whose messages may be far larger than its memory, over stdio as a program.

Its tool ``give`` answers with so many bytes of one ``kind``; a call with more than 64 KiB of arguments is answered with
the size and SHA-256 of its line."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator

__all__ = ["PROGRAM", "answer", "counted", "hello", "parts", "sum_of"]

PROGRAM = __file__
PIECE = 3 << 18
_ID = re.compile(rb'"id": ?(\d+)')
#: Head, repeated part and end of a result by kind.
_KINDS = {
    "base64": ('{"content":[{"type":"image","mimeType":"application/x-huge","data":"', "AAEC" * (PIECE // 3), '"}]}'),
    "text": ('{"content":[{"type":"text","text":"', "eine Zeile\\n" * (PIECE // 12), '"}]}'),
    "numbers": ('{"content":[],"structuredContent":{"rows":[0', ",12345" * (PIECE // 6), "]}}"),
    "rows": (
        '{"content":[],"structuredContent":{"rows":[{}',
        ',{"id":1,"name":"[a] row","in":[1,2]}' * (PIECE // 37),
        "]}}",
    ),
}


def parts(kind: str, size: int) -> Iterator[bytes]:
    """A result of at least ``size`` bytes."""
    head, piece, end = (part.encode() for part in _KINDS[kind])
    yield head
    for _ in range(-(-size // len(piece))):
        yield piece
    yield end


def sum_of(pieces: Iterable[bytes]) -> tuple[int, str]:
    """Size and SHA-256 of all together."""
    sum_, size = hashlib.sha256(), 0
    for piece in pieces:
        sum_.update(piece)
        size += len(piece)
    return size, sum_.hexdigest()


def answer(identity: int, kind: str, size: int) -> Iterator[bytes]:
    """The message with such a result."""
    yield b'{"jsonrpc":"2.0","id":%d,"result":' % identity
    yield from parts(kind, size)
    yield b"}"


def hello(request: dict) -> dict | None:  # type: ignore[type-arg]
    """The answer to a message of the handshake, or to a list of tools."""
    identity = request.get("id")
    if identity is None:
        return None
    result: object = {}
    if request["method"] == "initialize":
        info = {"name": "gigabytes", "version": "1.0"}
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info}
    elif request["method"] == "tools/list":
        result = {"tools": [{"name": "give", "inputSchema": {"type": "object"}}]}
    return {"jsonrpc": "2.0", "id": identity, "result": result}


def counted(identity: int, size: int, sum_: str) -> dict:  # type: ignore[type-arg]
    """The answer to a long call."""
    said = {"content": [{"type": "text", "text": f"{size} {sum_}"}]}
    return {"jsonrpc": "2.0", "id": identity, "result": said}


def main() -> None:
    lines, out = sys.stdin.buffer, sys.stdout.buffer
    while line := lines.readline(1 << 16):
        if not line.endswith(b"\n"):
            found = _ID.search(line)
            assert found is not None
            sum_, size = hashlib.sha256(line), len(line)
            while not line.endswith(b"\n"):
                line = lines.readline(1 << 20)
                sum_.update(line.rstrip(b"\n"))
                size += len(line)
            out.write(json.dumps(counted(int(found[1]), size - 1, sum_.hexdigest())).encode() + b"\n")
        else:
            request = json.loads(line)
            if request.get("method") == "tools/call":
                arguments = request["params"]["arguments"]
                for piece in answer(request["id"], arguments["kind"], arguments["size"]):
                    out.write(piece)
                out.write(b"\n")
            elif (said := hello(request)) is not None:
                out.write(json.dumps(said).encode() + b"\n")
        out.flush()


if __name__ == "__main__":
    main()
