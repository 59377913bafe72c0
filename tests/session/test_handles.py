"""Calls that are started and looked at later."""

import asyncio
import gc
from collections.abc import Mapping

import pytest

from tests.conftest import Connect
from tests.support.apps import answering, ask, hang
from tests.support.events import collect_events
from tests.support.eventually import eventually
from transports import CallHandle, CallStatus, CapabilityError, Disconnected, MemoryTransport, UsageError
from transports.errors import CallTimeout, Corrupt, ProtocolError
from transports.memory import Call
from transports.session._events import CallFinished, CallStarted


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("no paper", code="PRINTER_EMPTY")


async def stop(params: Mapping[str, object], call: Call) -> object:
    error = CapabilityError("the user has had enough", code="CANCELLED")
    error.cancelled = True
    raise error


APP = {"job.run": answering({"done": True}), "job.hang": hang, "job.refuse": refuse, "job.stop": stop, "job.ask": ask}


async def until(handle: CallHandle, status: CallStatus) -> None:
    async def reached() -> bool:
        return await handle.status() is status

    await eventually(reached)


async def test_call_handle_reports_status_and_result(app_of: Connect) -> None:
    async with collect_events(app_of(APP)) as (app, events):
        handle = await app.start("job.run", call_id="mine")
        assert (handle.id, handle.capability) == ("mine", "job.run")
        first, second = await asyncio.gather(handle.result(), handle.result())  # any number may wait
        assert first is second and first.data == {"done": True}
        assert await handle.status() is CallStatus.COMPLETED
        await handle.cancel()
        assert await handle.status() is CallStatus.COMPLETED
        assert (await app.start("job.run")).id != (await app.start("job.run")).id
    assert [type(event) for event in events if getattr(event, "call", "") == "mine"] == [CallStarted, CallFinished]


async def test_abandoned_wait_does_not_cancel_call(app_of: Connect) -> None:
    async with app_of(APP) as app:
        handle = await app.start("job.hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(handle.result(), 0.05)
        assert await handle.status() is CallStatus.WORKING
        await handle.cancel()
        await handle.cancel()
        assert await handle.status() is CallStatus.CANCELLED
        with pytest.raises(CapabilityError) as caught:
            await handle.result()
        assert caught.value.code == "CANCELLED" and caught.value.cancelled
        transport = app.transport
        assert isinstance(transport, MemoryTransport)
        assert transport.cancelled == {handle.id: "cancelled by the client"}


async def test_call_handle_reports_end_state_and_raises_call_error(app_of: Connect) -> None:
    held = asyncio.Event()

    async def hold(params: Mapping[str, object], call: Call) -> object:
        held.set()
        return await hang(params, call)

    async with app_of({**APP, "job.hold": hold}) as app:
        for name, code, status in (
            ("job.refuse", "PRINTER_EMPTY", CallStatus.FAILED),
            ("job.stop", "CANCELLED", CallStatus.CANCELLED),
            ("job.none", "UNKNOWN_CAPABILITY", CallStatus.FAILED),
        ):
            handle = await app.start(name)
            with pytest.raises(CapabilityError) as caught:
                await handle.result()
            assert (caught.value.code, await handle.status()) == (code, status)
        late = await app.start("job.hang", timeout=0.05)
        with pytest.raises(CallTimeout):
            await late.result()
        assert await late.status() is CallStatus.UNKNOWN  # it may have run
        left = await app.start("job.hold")
        await held.wait()
        unsent = await app.start("job.hang")
    with pytest.raises(Disconnected):
        await left.result()
    assert await left.status() is CallStatus.UNKNOWN
    assert await unsent.status() is CallStatus.FAILED
    with pytest.raises(Disconnected):
        await app.start("job.run")
    with pytest.raises(UsageError):
        await app_of(APP).start("job.run")
    for error, status in (
        *((Disconnected("gone", sent=False), CallStatus.FAILED), (Disconnected("gone"), CallStatus.UNKNOWN)),
        *((ProtocolError("no JSON"), CallStatus.FAILED), (Corrupt("bits"), CallStatus.FAILED)),
    ):
        assert CallStatus.of_error(error) is status  # whether the call may have run
    assert [status.value for status in CallStatus if not status.final] == ["working", "input_required"]


async def test_question_shows_in_state_of_latest_call(app_of: Connect) -> None:
    answer: asyncio.Future[Mapping[str, object]] = asyncio.get_running_loop().create_future()

    async def decide(request: object) -> Mapping[str, object]:
        return await answer

    async with app_of(APP, on_elicitation=decide) as app:
        before = await app.start("job.hang")
        await asyncio.sleep(0)
        handle = await app.start("job.ask")
        await until(handle, CallStatus.INPUT_REQUIRED)
        assert await before.status() is CallStatus.WORKING
        answer.set_result({"success": True, "data": {"confirmed": True}})
        assert (await handle.result()).data == {"success": True, "data": {"confirmed": True}}
        assert await handle.status() is CallStatus.COMPLETED


async def test_unretrieved_call_error_is_not_reported_by_loop(app_of: Connect) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with app_of(APP) as app:
        handle = await app.start("job.refuse")
        await until(handle, CallStatus.FAILED)
        del handle
        gc.collect()
    assert complaints == []
