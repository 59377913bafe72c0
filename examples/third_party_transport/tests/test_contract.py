"""The contract suite of abp-transports, run over a Unix domain socket that the reference app listens on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from abp_unix_socket import UnixSocketTransport

from transports import UsageError, connect
from transports.errors import ConnectFailed
from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
from webapp_fixture import Conversation

NO_SERVER = "an app behind a socket file has no web server that files could be downloaded from"
DEVIATIONS = {
    "content in parameters is a buffer": "binary input travels as base64, as over a WebSocket",
    "download URLs are followed": NO_SERVER,
    "download URLs get their credentials": NO_SERVER,
    "a download that was cut is resumed": NO_SERVER,
    "a download that is not there is refused": NO_SERVER,
    "a download that has expired is refused": NO_SERVER,
    "a download of another size is refused": NO_SERVER,
}


async def serve_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Be the reference app for one client, until it disconnects."""

    async def deliver(message: dict[str, Any]) -> None:
        writer.write(json.dumps(message).encode() + b"\n")
        await writer.drain()

    app = Conversation(deliver)
    try:
        while line := await reader.readline():
            await app.receive(json.loads(line))
    except ConnectionError:
        pass
    finally:
        await app.aclose()
        writer.close()


@pytest.fixture
async def target() -> AsyncIterator[str]:
    with TemporaryDirectory(dir="/tmp") as folder:  # the path of a socket must be short
        path = Path(folder) / "app.sock"
        server = await asyncio.start_unix_server(serve_client, path, limit=64 << 20)
        yield f"abp+unix://{path}"
        server.close()


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=str)
async def test_contract(behaviour: Behaviour, target: str, tmp_path: Path) -> None:
    await verify(behaviour, Subject(lambda: UnixSocketTransport(target), tmp_path), DEVIATIONS)


async def test_its_entry_point_is_found(target: str) -> None:
    async with connect(target, store="memory:") as app:
        result = await app.call("data.csv", {"rows": [{"a": 1}]})
    assert (result.transport, result.artifacts["file"].mime_type) == ("unix", "text/csv")


async def test_a_socket_that_is_not_there() -> None:
    with pytest.raises(ConnectFailed, match="No such file"):
        await UnixSocketTransport("abp+unix:///nowhere/app.sock").open()
    with pytest.raises(UsageError, match="no address of a socket"):
        UnixSocketTransport("http://127.0.0.1/")
