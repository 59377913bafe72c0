"""Small calls: how much work the kit itself does for one, and references that are made only when somebody looks."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
from dataclasses import replace

import pytest

from tests.support.apps import answering
from transports import MemoryTransport, Message, NoneStore, UsageError
from transports.artifacts._base import AuditLog
from transports.routing import Router

DATA = {"ok": True, "names": ["é", "b"]}


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
        async with MemoryTransport({"small": answering(DATA)}) as transport:
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
