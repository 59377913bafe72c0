"""Lines of an MCP server over stdio, read without a server."""

from __future__ import annotations

from typing import Any

import pytest
from mcp_types import JSONRPCError, JSONRPCResponse

from transports.mcp import _wire as wire
from transports.mcp._wire import MessageReader, with_content
from transports.protocol.binary import BinaryData

DEEP = "[" * 600 + "]" * 600
RUN = '{"type": "image", "mimeType": "image/png", "data": "' + "A" * 200_000 + '"}'


@pytest.mark.fault(21)
async def test_long_base64_with_deep_nesting_is_parsed_or_fails_request() -> None:
    line = f'{{"jsonrpc": "2.0", "id": 7, "result": {{"content": [{RUN}], "more": {DEEP}}}}}'.encode()
    read = await MessageReader(1_000_000).parse(line)
    assert read is not None and isinstance(read.message, JSONRPCError | JSONRPCResponse)
    assert read.message.id == 7


def run_of(data: bytes) -> wire.Base64Run:
    return wire.Base64Run.of(memoryview(data))


def test_deeply_nested_base64_run_becomes_content() -> None:
    block: dict[str, Any] = {"type": "image", "data": run_of(b"A" * 8)}
    tree: object = block
    for _ in range(5000):
        tree = [tree]
    with_content(tree)
    assert isinstance(block["data"], BinaryData)


async def test_line_parse_failure_becomes_error_of_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> None:
        raise RecursionError("too deep")

    monkeypatch.setattr(wire, "parse_message", fail)
    read = await MessageReader(1000).parse(b'{"jsonrpc": "2.0", "id": 7, "result": {}}')
    assert read is not None and isinstance(read.message, JSONRPCError)
    assert read.message.id == 7
