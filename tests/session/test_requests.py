"""What a call sends, how an app refuses it, and how it is given up."""

import asyncio
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import LARGE, PNG, NotingTransport, answering, files, hang
from transports import (
    ABPError,
    CallTimeout,
    CapabilityError,
    MemoryTransport,
    Message,
    ProtocolError,
    UsageError,
)
from transports.protocol.binary import Handle, LocalFile
from transports.testing import Call

# --- parameters -------------------------------------------------------------------------------------------------------


async def test_call_params_accept_files_and_bytes_anywhere(app_of: Connect, tmp_path: Path) -> None:
    path = tmp_path / "in.png"
    path.write_bytes(PNG)
    taken: list[Any] = []

    async def take(params: Mapping[str, object], call: Call) -> object:
        taken.append(params)
        return None

    params = {"raw": b"raw", "list": [path, {"deep": bytearray(b"deep")}], "plain": {"content": "text", "n": (1, None)}}
    async with app_of(transport := NotingTransport({"take": take})) as app:
        await app.call("take", params)
    (got,) = taken
    assert (got["raw"].read(), got["list"][1]["deep"].read()) == (b"raw", b"deep")
    assert (got["list"][0].read(), got["list"][0].content) == (PNG, LocalFile(path))
    assert got["plain"] == {"content": "text", "n": [1, None]}
    sent = next(message for message in transport.sent if message.type == "capabilities/call")
    assert [found.field for found in sent.content] == ["raw", "list.0", "list.1.deep"]
    assert params["raw"] == b"raw"  # the caller's own are not touched


@pytest.mark.parametrize("bad", [{1, 2}, float("nan"), object(), Path("/does/not/exist"), {1: "number as key"}])
async def test_unencodable_params_are_not_sent(app_of: Connect, bad: object) -> None:
    async with app_of(transport := NotingTransport({"take": answering(None)})) as app:
        with pytest.raises(UsageError):
            await app.call("take", {"deep": [bad]})
        assert "capabilities/call" not in transport.types()


@pytest.mark.requirement("R6-4a")
async def test_a_call_sends_its_timeout_and_ids_as_options(app_of: Connect) -> None:
    """An infinite timeout is not sent: there is none in JSON."""
    timeouts: list[float] = []

    class Patient(NotingTransport):
        """Waits for answers, whatever the timeout, which may be too short for any."""

        async def request(self, message: Message, *, timeout: float) -> Message:
            timeouts.append(timeout)
            return await super().request(message, timeout=60)

    async with app_of(transport := Patient({"take": answering(None)}), timeout=math.inf) as app:
        opening = len(timeouts)
        for timeout in (1.5, 0.0001, None, math.inf):
            await asyncio.wait_for(app.call("take", timeout=timeout), 10)
    calls = [message for message in transport.sent if message.type == "capabilities/call"]
    payload: Any = calls[0].payload
    assert payload["options"] == {"timeout": 1500, "progressToken": calls[0].id, "callId": calls[0].id}
    assert payload["params"] == {}
    assert [call.payload["options"].get("timeout") for call in calls] == [1500, 1, None, None]  # type: ignore[index]
    assert calls[0].id != calls[1].id
    assert timeouts[:opening] == [math.inf] * opening
    assert timeouts[opening : opening + 4] == [pytest.approx(1.5, abs=1), 0.001, math.inf, math.inf]


# --- errors of the app ------------------------------------------------------------------------------------------------


async def test_unknown_capability_error_suggests_close_names(app_of: Connect) -> None:
    async with app_of({"export.pdf": hang, "export.png": hang, "other": hang}) as app:
        with pytest.raises(CapabilityError, match=r"did you mean export\.pdf") as close:
            await app.call("exprot.pdf")
    assert close.value.code == "UNKNOWN_CAPABILITY" and close.value.alternatives[0] == "export.pdf"
    assert str(close.value) == f"{close.value.message} [UNKNOWN_CAPABILITY]"


@pytest.mark.requirement("R6-4e")
@pytest.mark.parametrize(
    ("reply", "code", "message"),
    [
        (None, "PROTOCOL_ERROR", "x"),
        ({"success": False, "cancelled": True}, "CANCELLED", "x"),
        (
            {"success": False, "error": {"code": "RATE_LIMITED", "message": "2.5 s", "retryAfter": 2500}},
            "RATE_LIMITED",
            "x: 2.5 s",
        ),
    ],
)
async def test_malformed_answers_raise_typed_errors(app_of: Connect, reply: object, code: str, message: str) -> None:
    transport = NotingTransport({"good": answering(1)}, call=reply)
    async with app_of(transport) as app:
        with pytest.raises(ABPError) as caught:
            await app.call("x")
        assert caught.value.code == code
        assert message in caught.value.message
        assert isinstance(caught.value, ProtocolError if code == "PROTOCOL_ERROR" else CapabilityError)
        assert getattr(caught.value, "cancelled", False) is (code == "CANCELLED")
        assert caught.value.session_survives
        assert caught.value.retry_after == (2.5 if code == "RATE_LIMITED" else None)  # milliseconds on the wire
        del transport.replies["call"]
        assert (await app.call("good")).data == 1


# --- timeouts and cancellation ----------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-7a", "R6-7b", "R4-15e")
@pytest.mark.parametrize("reason", ["timeout", "cancelled by the client"])
async def test_timeout_or_cancelled_task_cancels_the_call_in_the_app(app_of: Connect, reason: str) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(params: Mapping[str, object], call: Call) -> object:
        started.set()
        try:
            return await hang(params, call)
        finally:
            ended.set()

    transport = NotingTransport({"work": work, "good": answering(1)})
    async with app_of(transport) as app:
        if reason == "timeout":
            with pytest.raises(CallTimeout, match=r"work: no answer within 0\.02 s") as caught:
                await app.call("work", timeout=0.02)
            assert caught.value.retryable
        else:
            task = asyncio.ensure_future(app.call("work"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await asyncio.wait_for(ended.wait(), 5)
        (call,) = [message for message in transport.sent if message.type == "capabilities/call"]
        assert transport.cancelled == {call.id: reason}
        assert (await app.call("good")).data == 1


async def test_cancelling_while_storing_files_releases_remaining_handles(app_of: Connect, tmp_path: Path) -> None:
    saving = asyncio.Event()

    class Slow(NotingTransport):
        async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
            saving.set()
            await asyncio.Event().wait()

    big = {"content": LARGE, "mimeType": "application/x-thing"}
    async with app_of(transport := Slow({"take": answering({"a": big, "b": big, "c": big})})) as app:
        task = asyncio.ensure_future(app.call("take"))
        await saving.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert sorted(transport.released) == ["0", "1", "2"]
    assert files(tmp_path / "out") == set()


async def test_call_cancelled_before_handler_starts_ends_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with MemoryTransport({"small": answering(1)}) as transport:
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
