"""Small calls: how much work the kit itself does for one, and references that are made only when somebody looks."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

import pytest
from websockets.sync.server import ServerConnection, serve as serve_in_thread

from tests.support.counted import counted_calls
from transports import MemoryTransport, Message, NoneStore, Session, UsageError, connect
from transports.artifacts._base import AuditLog
from transports.memory import Call
from transports.routing import Router

DATA = {"ok": True, "names": ["é", "b"]}
ROWS = [{"name": f"n{n}", "size": n, "tags": ["a"]} for n in range(20)]


async def small(params: Mapping[str, object], call: Call) -> object:
    return DATA


def _talk(socket: ServerConnection) -> None:
    for text in socket:
        message = json.loads(text)
        rows = message["payload"].get("capability") == "rows"
        answer = {"success": True, "data": ROWS if rows else DATA}
        hello = {"sessionId": "s", "app": {"name": "Test"}, "capabilities": [{"name": "small"}, {"name": "rows"}]}
        if message["type"] in ("initialize", "capabilities/call"):
            payload = hello if message["type"] == "initialize" else answer
            socket.send(
                json.dumps(
                    {"type": f"{message['type']}-result", "id": message["id"], "timestamp": 0, "payload": payload}
                )
            )


@contextmanager
def server() -> Iterator[str]:
    """An app in a thread, whose work does not count as ours."""
    with serve_in_thread(_talk, "127.0.0.1", 0, compression=None) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{served.socket.getsockname()[1]}/"
        finally:
            served.shutdown()
            thread.join()


@asynccontextmanager
async def app_behind(wire: str) -> AsyncIterator[Session]:
    if wire == "memory":
        async with connect("memory:", transport=MemoryTransport({"small": small}), store="none:") as app:
            yield app
    else:
        with server() as url:
            async with connect(url, store="none:") as app:
                yield app


@pytest.mark.parametrize(
    ("wire", "capability", "at_most"),
    [("memory", "small", 190), ("websocket", "small", 185), ("websocket", "rows", 245)],
)
async def test_small_call_makes_few_python_function_calls(wire: str, capability: str, at_most: int) -> None:
    """Counted, because time depends on the machine: those of the event loop are among them."""
    async with app_behind(wire) as app:
        for _ in range(10):
            await app.call(capability)
        with counted_calls() as calls:
            for _ in range(20):
                result = await app.call(capability)
        assert result.data == (ROWS if capability == "rows" else DATA)
    assert calls.count / 20 <= at_most


async def test_lazily_made_reference_equals_stored_one(caplog: pytest.LogCaptureFixture) -> None:
    store, source = NoneStore(), {"app": "memory", "call": "c1", "token": "secret"}
    result = await Router(store).route(DATA, capability="small", source=source)
    assert [record.name for record in caplog.records] == ["transports.artifacts"]
    eager = await store.put_bytes(
        json.dumps(DATA, ensure_ascii=False, separators=(",", ":")).encode(),
        mime_type="application/json",
        namespace="small",
        meta={"capability": "small", **source},
    )
    made = result.artifacts[""]
    same_time = {"created": eager.source["created"]}
    assert replace(made, filename="", source={**made.source, **same_time}) == replace(eager, filename="")
    assert made.source["created"] <= eager.source["created"]  # type: ignore[operator]
    assert made is result.artifacts[""] and result.artifact() is made
    assert dict(result.artifacts) == {"": made} == result.artifacts and len(result.artifacts) == 1
    with pytest.raises(KeyError):
        result.artifacts["document"]
    again = pickle.loads(pickle.dumps(result))
    assert again == result and type(again.artifacts) is dict
    assert repr(result.artifacts) == repr({"": made})


async def test_required_checks_and_audit_are_not_deferred(tmp_path: object) -> None:
    lines: list[str] = []
    audit = AuditLog.__new__(AuditLog)
    audit.check = lambda: None  # type: ignore[method-assign]
    audit.write = lambda action, scope, **facts: lines.append(action)  # type: ignore[method-assign]
    await Router(NoneStore(audit=audit)).route(DATA, capability="small")
    assert lines == ["put"]
    with pytest.raises(UsageError, match="JSON"):
        await Router(NoneStore()).route(DATA, capability="small", source={"app": object()})
    with pytest.raises(Exception, match="limit"):
        await Router(NoneStore(max_bytes=3)).route(DATA, capability="small")


async def test_call_cancelled_before_handler_starts_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with MemoryTransport({"small": small}) as transport:
            options = {"callId": "1"}
            asked = Message("capabilities/call", {"capability": "small", "params": {}, "options": options}, id="1")
            calling = asyncio.ensure_future(transport.request(asked, timeout=60))
            cancelling = asyncio.ensure_future(
                transport.request(Message("capabilities/cancel", {"callId": "1"}), timeout=60)
            )
            async with asyncio.timeout(15):
                assert (await calling).payload == {"success": False, "cancelled": True}
                assert (await cancelling).payload == {"callId": "1", "cancelled": True}
    assert caplog.records == []
