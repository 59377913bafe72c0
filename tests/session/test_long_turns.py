"""Answers, lists and recordings that take long to look at are looked at in a thread: the event loop goes on."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.conftest import Connect
from tests.support.processor import BOUND, longest_turn, measuring, slowness
from transports import MemoryTransport, connect
from transports.artifacts import MemoryStore
from transports.protocol._capabilities import MANY
from transports.protocol._strict_json import encode_json
from transports.protocol.messages import Message
from transports.recording._file import Recording
from transports.recording._recorder import Recorder
from transports.websocket.envelope import decode_envelope


class Prepared(MemoryTransport):
    """An app whose answers lie ready, so that nothing but the session takes time."""

    def __init__(self, data: object = None, *lists: list[dict[str, object]]) -> None:
        super().__init__({})
        self.data = data
        self.lists = [*lists]
        self.asked = 0

    async def request(self, message: Message, *, timeout: float) -> Message:
        if message.type == "capabilities/list" and self.lists:
            self.asked += 1
            rows = self.lists[min(self.asked, len(self.lists)) - 1]
            return Message(message.type, {"success": True, "data": {"capabilities": rows}}, id=message.id)
        if message.type == "capabilities/call":
            return Message(message.type, {"success": True, "data": self.data}, id=message.id)
        return await super().request(message, timeout=timeout)


def entries(first: int) -> list[dict[str, object]]:
    return [
        {"name": f"bulk.{n:06}", "description": "one of many", "inputSchema": {"type": "object"}}
        for n in range(first, first + 2 * MANY)
    ]


@pytest.mark.load
@pytest.mark.fault(22)
async def test_many_capabilities_and_changes_do_not_block_event_loop(app_of: Connect) -> None:
    async with app_of(Prepared()):
        pass  # what is loaded at the first use
    transport = Prepared(None, *map(entries, range(4)))
    with longest_turn() as turn:
        async with app_of(transport) as app:
            assert len(app.capabilities) == 2 * MANY
            for _ in range(2000):
                transport.emit(Message("capabilities/changed", {}))
            transport.emit(Message("capabilities/changed", {"added": ["another"]}))
            async with asyncio.timeout(60):
                while transport.asked < 3 or "bulk.000000" in app.capabilities:
                    await asyncio.sleep(0.01)
    assert transport.asked < 12
    assert turn.seconds < BOUND


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(22)
async def test_100_000_capabilities_load_within_two_cpu_seconds(app_of: Connect) -> None:
    (entry, *_) = entries(0)
    rows = [{**entry, "name": f"bulk.{n:06}"} for n in range(100_000)]
    data = encode_json({"type": "capabilities/list", "id": "1", "payload": {"capabilities": rows}})
    began = time.process_time()
    payload = decode_envelope(data).payload
    assert isinstance(payload, dict)
    async with app_of(Prepared(None, payload["capabilities"])) as app:
        took = time.process_time() - began
        assert len(app.capabilities) == 100_000
    assert took / slowness() < 2 * measuring()


LARGE = {
    "rows": {"rows": [{"number": n, "name": f"row {n}", "values": [n, n, n]} for n in range(15_000)]},
    "blocks": {"content": [{"type": "text", "text": "word " * 50}] * 4_000},
    "text": {"text": "a=b " * 500_000},
    "base64 that is nothing": {"text": "iVBORw0KGgo" + "A" * (4 << 20)},
}


@pytest.mark.parametrize("kind", LARGE)
async def test_large_answers_do_not_block_event_loop(kind: str, app_of: Connect) -> None:
    async with app_of(Prepared(LARGE[kind]), store=MemoryStore()) as app:
        await app.call("any")
        with longest_turn() as turn:
            await app.call("any")
    assert turn.seconds < BOUND


async def test_recording_long_answers_does_not_block_event_loop(tmp_path: Path) -> None:
    lines = {"lines": ["key=b ?token=c authorization: d\n" * 20] * 400}
    recorded = Recorder(Prepared(lines), Recording(tmp_path / "a.jsonl"))
    async with connect("memory:", transport=recorded, store=MemoryStore()) as app:
        with longest_turn() as turn:
            await app.call("any")
    assert turn.seconds < BOUND
    assert "token=c" not in (tmp_path / "a.jsonl").read_text()
