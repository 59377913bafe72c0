"""Which calls are sent again; checks of parameters and answers; hints beside an error."""

import asyncio
import itertools
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import FOREVER, NotingTransport, hang
from tests.support.events import collect_events
from tests.support.rows import each_row
from transports import (
    Browser,
    CallTimeout,
    CapabilityError,
    Disconnected,
    MemoryTransport,
    PlaywrightTransport,
    Progress,
    UsageError,
    WebSocketTransport,
    connect,
)
from transports.base import Features
from transports.batch import Job, Pool, RunOptions, State
from transports.batch._jobs import parse_job
from transports.errors import TooLarge
from transports.memory import Call, Handler
from transports.protocol.messages import Message
from transports.session._call import timeout_seconds
from transports.session._events import CallFinished, ConnectionChanged, Retrying
from transports.session._settings import Settings


def failing(times: int, error: CapabilityError) -> tuple[Handler, list[float]]:
    """A capability that fails so often before it works, and when it was called."""
    called: list[float] = []

    async def handle(params: Mapping[str, object], call: Call) -> object:
        called.append(time.monotonic())
        await call.progress(progress=len(called))
        if len(called) <= times:
            raise CapabilityError(
                error.message, code=error.code, retryable=error.retryable, retry_after=error.retry_after
            )
        return {"attempts": len(called)}

    return handle, called


def refusal(code: str, *, retryable: bool = True, retry_after: float | None = None) -> CapabilityError:
    return CapabilityError("not now", code=code, retryable=retryable, retry_after=retry_after)


@pytest.mark.requirement("R6-4f")
@pytest.mark.load
async def test_rate_limited_call_is_retried_after_requested_delay(app_of: Connect) -> None:
    handle, called = failing(2, refusal("RATE_LIMITED", retry_after=0.15))
    async with collect_events(app_of({"busy": handle})) as (app, events):
        result = await app.call("busy", timeout=5, call_id="mine")
        assert result.data == {"attempts": 3}
    assert all(later - earlier >= 0.15 for earlier, later in itertools.pairwise(called))
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.capability, event.attempt, event.delay, event.error.code) for event in retries] == [
        ("busy", 1, 0.15, "RATE_LIMITED"),
        ("busy", 2, 0.15, "RATE_LIMITED"),
    ]
    progress = [event for event in events if isinstance(event, Progress)]
    assert [(event.progress, event.call) for event in progress] == [(1, "mine"), (2, "mine"), (3, "mine")]
    assert len({event.operation_id for event in progress}) == 3  # one of each attempt


@pytest.mark.requirement("R6-4f")
@pytest.mark.parametrize(
    ("error", "options", "attempts"),
    [
        (refusal("OPERATION_FAILED"), {}, 1),
        (refusal("OPERATION_FAILED"), {"idempotent": True}, 2),
        (refusal("OPERATION_FAILED", retryable=False), {"idempotent": True}, 1),
        (refusal("TIMEOUT"), {}, 1),
        (refusal("RATE_LIMITED", retryable=False), {}, 1),
        (refusal("RATE_LIMITED"), {}, 2),
        (refusal("RATE_LIMITED"), {"once": True}, 1),
        (refusal("RATE_LIMITED", retry_after=3600), {"timeout": 1}, 1),
        (refusal("RATE_LIMITED", retry_after=0.01), {"timeout": 20}, 4),
        (refusal("SESSION_EXPIRED"), {"once": True}, 1),
        (refusal("OPERATION_FAILED"), {"idempotent": True, "once": True}, 1),
    ],
    ids=lambda value: f"{value.code}-{value.retryable}" if isinstance(value, CapabilityError) else str(value),
)
async def test_failed_call_attempts_depend_on_error_and_options(
    app_of: Connect, error: CapabilityError, options: dict[str, Any], attempts: int
) -> None:
    handle, called = failing(100 if attempts == 4 else 1, error)
    async with app_of({"work": handle}) as app:
        if attempts == 2:
            await app.call("work", **options)
        else:
            with pytest.raises(CapabilityError) as caught:
                await app.call("work", **options)
            assert (caught.value.code, caught.value.retry_after) == (error.code, error.retry_after)
    assert len(called) == attempts


@pytest.mark.requirement("R6-3f")
async def test_app_that_lost_session_is_reinitialized_once_for_all_calls(app_of: Connect) -> None:
    handle, called = failing(10, refusal("SESSION_EXPIRED"))
    async with app_of(transport := NotingTransport({"work": handle})) as app:
        await asyncio.gather(*(app.call("work") for _ in range(10)))
    assert transport.types().count("initialize") == 2 and len(called) == 20


class BreakingTransport(MemoryTransport):
    """A connection that breaks under a call, and is there again a little later."""

    features = Features(listing=True, reconnects=True)

    def __init__(self, handlers: Mapping[str, Handler], breaks: int) -> None:
        super().__init__(handlers)
        self.breaks = breaks
        self.handshakes = 0

    async def request(self, message: Message, *, timeout: float) -> Message:
        self.handshakes += message.type == "initialize"
        if message.type == "capabilities/call" and self.breaks:
            self.breaks -= 1
            self.emit(Message("connection/lost", {"reason": "cut"}))
            asyncio.get_running_loop().call_later(0.05, self.emit, Message("connection/restored", {}))
            raise Disconnected("cut")
        return await super().request(message, timeout=timeout)


async def test_call_in_flight_at_disconnect_is_repeated_only_if_idempotent(app_of: Connect) -> None:
    handle, called = failing(0, refusal("x"))
    transport = BreakingTransport({"work": handle}, breaks=1)
    async with app_of(transport) as app:
        with pytest.raises(Disconnected):
            await app.call("work")
        assert (await app.call("work")).data == {"attempts": 1}  # it waits for the connection
        transport.breaks = 1
        assert (await app.call("work", idempotent=True)).data == {"attempts": 2}
        assert transport.handshakes == 3
    assert len(called) == 2


_ABSENT = "the connection was lost, and the app was not back within 0.05 s; call again"


@pytest.mark.parametrize(
    ("reconnects", "details", "message"),
    [
        (True, {}, "cut; it may have run: look at the app before you call again"),
        (False, {}, "cut; it may have run: look at the app before you call again"),
        (True, {"sent": False}, _ABSENT),
        (False, {"sent": False}, "cut"),
    ],
)
async def test_lost_connection_error_says_once_whether_call_may_have_run(
    app_of: Connect, reconnects: bool, details: dict[str, object], message: str
) -> None:
    transport = NotingTransport(call=Disconnected("cut", details=details))
    transport.features = Features(listing=True, reconnects=reconnects)
    async with app_of(transport) as app:
        with pytest.raises(Disconnected) as caught:
            await app.call("work", timeout=0.05 if details else FOREVER)
    assert caught.value.message == f"work: {message}"


async def test_reconnect_timeout_error_states_why_connection_was_lost(app_of: Connect) -> None:
    transport = BreakingTransport({}, breaks=0)
    async with app_of(transport) as app:
        transport.emit(Message("connection/lost", {"reason": "the server is down; it is opened again: call again"}))
        async with app.events() as events:
            async for event in events:
                if isinstance(event, ConnectionChanged):
                    break
        with pytest.raises(
            Disconnected, match=r"^work: the server is down, and the app was not back within 0\.02 s;"
        ) as caught:
            await app.call("work", timeout=0.02)
        assert "opened again" not in caught.value.message  # the advice of the loss is not that of this call
        transport.emit(Message("connection/waiting", {"reason": "it answered HTTP 401; give token="}))
        with pytest.raises(
            Disconnected, match=r"not back within 0\.05 s: it answered HTTP 401; give token=; call again "
        ):
            await app.call("work", timeout=0.05)


async def test_oversized_message_error_names_capability(app_of: Connect) -> None:
    error = TooLarge("the app sent a message over the limit of 10 bytes", details={"limit": 10})
    async with app_of(NotingTransport(call=error)) as app:
        with pytest.raises(TooLarge, match=r"^export: the app sent a message over the limit of 10 bytes") as caught:
            await app.call("export")
    assert caught.value.details == {"limit": 10}


# --- parameters, answers, hints ---------------------------------------------------------------------------------------


async def test_answer_without_data_warns_of_members_left_out(app_of: Connect) -> None:
    for answer, listed in (
        ({"success": True, "result": {"rows": 3}, "message": "done"}, "'result', 'message'"),
        ({"success": True, "value": 1, "metadata": {"duration": 2}}, "'value'"),
        ({"success": True}, ""),
        ({"success": True, "data": None, "later": 1}, ""),
    ):
        reply = Message("capabilities/call-result", answer, warnings=["it took long"])
        async with app_of(NotingTransport(call=reply)) as app:
            result = await app.call("work")
        assert result.data is None
        first, *others = result.warnings
        assert first == "it took long"
        assert [f"its members {listed} were left out" in warning for warning in others] == [True] * bool(listed)


class ListedApp(MemoryTransport):
    """Handlers with what the app declares of them in its list."""

    def __init__(self, handlers: Mapping[str, Handler], **declared: Mapping[str, object]) -> None:
        super().__init__(handlers)
        self.declared = declared

    async def request(self, message: Message, *, timeout: float) -> Message:
        if message.type == "capabilities/list":
            listed = [{"name": name, **self.declared.get(name, {})} for name in self._handlers]
            return Message("capabilities/list-result", listed, id=message.id)
        return await super().request(message, timeout=timeout)


SCHEMA = {
    "type": "object",
    "properties": {"width": {"type": "integer", "minimum": 1}, "file": {"type": "string"}},
    "required": ["width"],
    "additionalProperties": False,
}


@pytest.mark.requirement("R6-4h")
async def test_params_violating_schema_are_not_sent(app_of: Connect) -> None:
    handle, called = failing(0, refusal("x"))
    async with app_of(ListedApp({"resize": handle}, resize={"inputSchema": SCHEMA})) as app:
        with pytest.raises(UsageError, match=r"resize: params\.width") as caught:
            await app.call("resize", {"width": 0})
        assert caught.value.code == "INVALID_PARAMS"
        with pytest.raises(UsageError, match="width"):
            await app.call("resize")
        assert called == []
        await app.call("resize", {"width": 1, "file": b"content is no fault, whatever the schema says of it"})
    assert len(called) == 1


@pytest.mark.requirement("R6-3h")
async def test_deprecated_and_experimental_capabilities_warn_once(app_of: Connect) -> None:
    handle, _ = failing(0, refusal("x"))
    declared = {"deprecated": True, "deprecationMessage": "too slow", "alternatives": ["new"], "experimental": True}
    output = {"outputSchema": {"type": "object", "properties": {"attempts": {"type": "string"}}}}
    async with app_of(ListedApp({"old": handle, "new": handle, "odd": handle}, old=declared, odd=output)) as app:
        first, second, other, odd = [await app.call(name) for name in ("old", "old", "new", "odd")]
    assert first.warnings == ("old is deprecated: too slow; use new", "old is experimental and may change")
    assert second.warnings == other.warnings == ()
    assert odd.warnings == ('outputSchema: data.attempts: 4 is not of type "string"',) and odd.data == {"attempts": 4}


async def test_misspelt_parameter_is_in_warning_and_app_error(app_of: Connect) -> None:
    async def report(params: Mapping[str, object], call: Call) -> object:
        if "format" in params:
            raise CapabilityError("no title", code="INVALID_PARAMS")
        return 1

    schema = {"type": "object", "properties": {"format": {}, "title": {}}}
    hint = "you gave 'titel', which its inputSchema does not name; did you mean 'title'?"
    async with app_of(ListedApp({"report": report}, report={"inputSchema": schema})) as app:
        results = [await app.call("report", {"titel": "x"}) for _ in range(2)]
        assert [result.warnings for result in results] == [(f"report: {hint}",)] * 2
        with pytest.raises(CapabilityError) as refused:
            await app.call("report", {"titel": "x", "format": "A4"})
    assert refused.value.message == f"report: no title; {hint}"


@pytest.mark.requirement("R6-3b")
async def test_requested_capabilities_are_sent_in_initialize(app_of: Connect) -> None:
    asking, silent = NotingTransport(), NotingTransport()
    async with app_of(asking, requested_capabilities=["export.pdf"]), app_of(silent):
        pass
    assert asking.sent[0].payload["requestedCapabilities"] == ["export.pdf"]  # type: ignore[index]
    assert "requestedCapabilities" not in silent.sent[0].payload  # type: ignore[operator]


@pytest.mark.parametrize("way", ["timeout", "cancelled"])
async def test_call_end_does_not_wait_for_app_ignoring_cancellation(app_of: Connect, way: str) -> None:
    transport = NotingTransport({"hang": hang}, cancel=asyncio.Event())
    async with asyncio.timeout(FOREVER / 2), app_of(transport) as app:
        before = asyncio.all_tasks()
        if way == "timeout":
            with pytest.raises(CallTimeout):
                await app.call("hang", timeout=0.02)
        else:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await app.call("hang")
        assert transport.types().count("capabilities/cancel") == 1
    assert asyncio.all_tasks() <= before


@pytest.mark.requirement("R6-4b")
async def test_call_id_in_use_is_rejected(app_of: Connect) -> None:
    async with app_of({"hang": hang}) as app:
        first, second = [await app.start("hang", call_id="x") for _ in range(2)]
        with pytest.raises(UsageError, match="the id 'x' is running; call_id= must be unique"):
            await second.result()
        assert await first.status() == "working"
        async with app.events() as events:
            with pytest.raises(UsageError, match="is running"):
                await app.call("hang", call_id="x")
            await first.cancel()
            assert isinstance(await anext(events), CallFinished)  # of the first alone


#: Values that are no timeout; the fourth has more digits than Python writes.
WRONG = [1_000_000.001, 1e308, 10**400, 10**5000, math.nan, -math.inf, -1, 0, True, "3"]
NAMES = ["above", "1e308", "400 digits", "5000 digits", "nan", "-inf", "negative", "zero", "bool", "text"]


PLACES: Mapping[str, Callable[[Any], object]] = {
    "the range": lambda value: timeout_seconds(value, 5),
    "a session": lambda value: connect("memory:", transport=MemoryTransport({}), timeout=value),
    "a pool": lambda value: Pool(timeout=value),
    "a page": lambda value: PlaywrightTransport("http://127.0.0.1:9/", timeout=value),
    "a WebSocket": lambda value: WebSocketTransport("ws://127.0.0.1:9/", timeout=value),
    "a browser": lambda value: Browser(timeout=value),
    "deadline": lambda value: RunOptions(deadline=value),
    "lease_seconds": lambda value: RunOptions(lease_seconds=value),
}


@each_row("value", WRONG, ids=NAMES)
@each_row("place", PLACES)
def test_invalid_timeout_is_rejected_everywhere(place: str, value: Any) -> None:
    of_run = place in ("deadline", "lease_seconds")
    PLACES[place](1_000_000 if of_run else math.inf)
    if of_run and value == "3":
        return  # refused as of a wrong type
    message = f"{place} must be a number" if of_run else r"timeout must be a positive number of seconds.* 1,000,000"
    with pytest.raises(UsageError, match=message) as refused:
        PLACES[place](value)
    assert len(refused.value.message) < 300
    for seconds in (1_000_000, 0.001, 3, math.inf):  # the last is no limit at all
        assert timeout_seconds(seconds, 5) == seconds
    assert timeout_seconds(None, 5000) == 5


@each_row("value", WRONG[:-1], ids=NAMES[:-1])
async def test_job_with_invalid_timeout_is_failed_and_not_unknown(tmp_path: Path, value: Any) -> None:
    with pytest.raises(UsageError, match="timeout must be a positive number of seconds, at most 1,000,000"):
        parse_job({"capability": "do", "timeout": value})

    def opened(target: str, **options: Any) -> Any:
        return connect(target, transport=MemoryTransport({"do": hang}), store=options["store"])

    async with opened("memory:", store="none:") as app:
        with pytest.raises(UsageError, match="timeout must be"):
            await app.call("do", timeout=value)
    async with Pool(1, connect=opened, store=tmp_path) as pool:
        outcome = await pool.run(Job("do", target="memory:", timeout=value))
    assert (outcome.state, outcome.error_code) == (State.FAILED, "INVALID_PARAMS")


@each_row("text", ["1000000000.1", "1e308", "inf", "nan", "-1", "0", "9" * 400])
def test_timeout_variable_in_milliseconds_has_same_range(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for name in ("ABP_CALL_TIMEOUT", "ABP_BROWSER_TIMEOUT", "ABP_DOWNLOAD_TIMEOUT"):
        monkeypatch.setenv(name, "1e9")
        Settings.load()
        monkeypatch.setenv(name, text)
        with pytest.raises(UsageError, match=f"{name}: .*milliseconds above 0, at most 1,000,000,000"):
            Settings.load()
        monkeypatch.delenv(name)
