"""The in-process transport by itself, through the transport contract."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.apps import hang
from transports import CapabilityError, Disconnected, MemoryTransport, Message
from transports.errors import BrowserCrashed, CallTimeout, UnsupportedBinary
from transports.protocol.binary import BinaryData, Handle
from transports.testing import Call

LARGE = 1 << 19
BIG = 5.0


async def big(params: Mapping[str, object], call: Call) -> object:
    """Answers large content."""
    return {"file": str(params["byte"]).encode() * LARGE}


async def fail(params: Mapping[str, object], call: Call) -> object:
    raise params["error"]  # type: ignore[misc]


async def elicit(params: Mapping[str, object], call: Call) -> object:
    return dict(await call.elicit("elicitation/input", {}))


def request(name: str, key: str = "1", **params: object) -> Message:
    return Message("capabilities/call", {"capability": name, "params": params, "options": {"callId": key}}, id=key)


async def ask(transport: MemoryTransport, message: Message, timeout: float = BIG) -> Any:
    return (await transport.request(message, timeout=timeout)).payload


@pytest.fixture
async def transport() -> AsyncIterator[MemoryTransport]:
    handlers = {"big": big, "hang": hang, "fail": fail, "elicit": elicit}
    async with MemoryTransport(handlers, answers={"raw": [1]}) as opened:
        yield opened


async def test_handlers_are_listed_with_their_docstrings(transport: MemoryTransport) -> None:
    initialized = await ask(transport, Message("initialize"))
    assert [one["name"] for one in initialized["capabilities"]] == ["big", "hang", "fail", "elicit"]
    listed = await ask(transport, Message("capabilities/list"))
    assert listed[0] == {"name": "big", "description": "Answers large content."}


async def test_handle_ids_are_not_reused(transport: MemoryTransport, tmp_path: Path) -> None:
    """Content that is still to be fetched must not be replaced by what comes after another was let go."""

    async def handle(byte: str) -> Handle:
        content = (await ask(transport, request("big", byte=byte)))["data"]["file"].content
        assert isinstance(content, Handle)
        assert content.size == LARGE
        return content

    first, second = await handle("a"), await handle("b")
    await transport.release(first)
    third = await handle("c")
    for held, byte in ((second, b"b"), (third, b"c")):
        path = tmp_path / byte.decode()
        await transport.save(held, path, timeout=BIG)
        assert path.read_bytes() == byte * LARGE
    with pytest.raises(UnsupportedBinary):
        await transport.save(first, tmp_path / "gone", timeout=BIG)
    await transport.release(first)
    await transport.release(Handle("unknown"))


async def test_small_content_is_sent_with_answer(transport: MemoryTransport) -> None:
    async with MemoryTransport({}, answers={"raw": {"success": True, "data": BinaryData(b"x", "text/x")}}) as small:
        assert (await ask(small, request("raw")))["data"] == BinaryData(b"x", "text/x")


async def test_handler_errors_become_replies(transport: MemoryTransport) -> None:
    refused = CapabilityError("no", code="MINE", retryable=True, retry_after=0.5, details={"a": 1}, alternatives=["b"])
    answer = await ask(transport, request("fail", error=refused))
    assert answer == {
        "success": False,
        "cancelled": False,
        "error": {
            "code": "MINE",
            "message": "no",
            "retryable": True,
            "retryAfter": 500,
            "details": {"a": 1},
            "alternatives": ["b"],
        },
    }
    thrown = await ask(transport, request("fail", error=ValueError("odd")))
    assert thrown["error"]["message"] == "the app threw ValueError: odd"
    # it may play a transport that fails
    with pytest.raises(BrowserCrashed):
        await ask(transport, request("fail", error=BrowserCrashed("gone")))
    with pytest.raises(CallTimeout):
        await ask(transport, request("fail", error=CallTimeout("late")))


async def test_handler_without_async_is_named() -> None:
    def shout(params: Mapping[str, object], call: Call) -> object:
        return str(params["text"]).upper()

    async with MemoryTransport({"text.shout": shout}) as transport:  # type: ignore[dict-item]
        answer = await ask(transport, request("text.shout", text="hi"))
    assert answer["error"]["message"] == (
        "the handler of text.shout must be a coroutine function: define it with async def"
    )


async def test_cancel_request_cancels_call_once(transport: MemoryTransport) -> None:
    cancel = Message("capabilities/cancel", {"callId": "9", "reason": "because"})
    calling = asyncio.ensure_future(ask(transport, request("hang", "9")))
    await asyncio.sleep(0)
    assert await ask(transport, cancel) == {"callId": "9", "cancelled": True}
    assert await calling == {"success": False, "cancelled": True}
    assert transport.cancelled == {"9": "because"}
    assert await ask(transport, cancel) == {"callId": "9", "cancelled": False}


async def test_call_outliving_its_timeout_is_forgotten_when_it_ends(
    transport: MemoryTransport, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()

    async def late(params: Mapping[str, object], call: Call) -> object:
        await go.wait()
        raise RuntimeError("nobody hears this")

    async with MemoryTransport({"late": late}) as slow:
        with pytest.raises(CallTimeout):
            await ask(slow, request("late", "1"), timeout=0.01)
        go.set()
        await asyncio.sleep(0.01)
        assert await ask(slow, Message("capabilities/cancel", {"callId": "1"})) == {"callId": "1", "cancelled": False}
        assert slow.cancelled == {}
    assert caplog.records == []


async def test_only_the_first_elicitation_response_in_time_counts(transport: MemoryTransport) -> None:
    calling = asyncio.ensure_future(ask(transport, request("elicit")))
    asked = await anext(transport.events())
    for n in (1, 2):
        await transport.notify(Message("elicitation/response", {"n": n}, id=asked.id))
    assert (await calling)["data"] == {"n": 1}
    calling = asyncio.ensure_future(ask(transport, request("elicit", "5")))
    asked = await anext(transport.events())
    await ask(transport, Message("capabilities/cancel", {"callId": "5"}))
    # before and after the cancelled handler has ended, and to a question nobody asked
    await transport.notify(Message("elicitation/response", {"success": True}, id=asked.id))
    assert await calling == {"success": False, "cancelled": True}
    await transport.notify(Message("elicitation/response", {"success": True}, id=asked.id))
    await transport.notify(Message("elicitation/response", {"success": True}))


async def test_closing_waits_for_handlers() -> None:
    cleaned: list[str] = []

    async def careful(params: Mapping[str, object], call: Call) -> object:
        try:
            return await hang(params, call)
        finally:
            await asyncio.sleep(0.01)
            cleaned.append(call.capability)

    async with MemoryTransport({"careful": careful}) as transport:
        calling = asyncio.ensure_future(ask(transport, request("careful")))
        await asyncio.sleep(0.01)
        await transport.aclose()
        assert cleaned == ["careful"]
    with pytest.raises(Disconnected):
        await calling


async def test_a_request_before_opening_raises() -> None:
    with pytest.raises(Disconnected):
        await ask(MemoryTransport({}), Message("initialize"))
    assert MemoryTransport({}).url is None
    assert await MemoryTransport({}).cookies("http://x/") == {}


async def test_handler_without_session_has_no_store() -> None:
    async def store(params: Mapping[str, object], call: Call) -> object:
        return await call.artifacts.put_bytes(b"x")

    async with MemoryTransport({"store": store}) as transport:
        answer = await ask(transport, request("store"))
    assert (answer["success"], answer["error"]["code"]) == (False, "INVALID_PARAMS")
    assert "no session" in answer["error"]["message"]
