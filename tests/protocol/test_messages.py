"""ABP payloads: what an app may leave out or write otherwise, what is refused, and strict JSON."""

from __future__ import annotations

import asyncio
import importlib.metadata
import math
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rows import each_row
from transports.errors import CallTimeout, CapabilityError, Disconnected, ProtocolError
from transports.protocol._capabilities import answered_data
from transports.protocol._declarations import AppInfo, Capability, parse
from transports.protocol._payloads import Answer, ElicitationRequest, Initialized, Notification, Progress
from transports.protocol.binary import Broken, Handle
from transports.protocol.messages import Message, initialize_params, package_version
from transports.websocket.pending import PendingReplies


def answer(payload: object) -> Answer:
    return parse(Answer, payload, "the answer")


def refusal(payload: object) -> CapabilityError:
    with pytest.raises(CapabilityError) as caught:
        answer(payload).raise_for_error("export.pdf")
    return caught.value


# --- answers (docs/protocol.md 3.3) -----------------------------------------------------------------------------------


@each_row(
    "payload",
    [
        *({"success": True, "data": [1]}, {"success": True}, {"success": 1, "data": 1}, {"success": "yes", "data": 1}),
        {"success": True, "data": None, "metadata": None, "unknown": 1},
        {"success": True, "data": 1, "metadata": 5},
        {"success": True, "data": 1, "error": {"code": "X"}},
        {"success": True, "data": 1, "cancelled": "perhaps"},
        {"success": True, "data": 1, "cancelled": True, "metadata": {"n": 1}},
        *({"success": False, "error": "no"}, {"success": None, "data": 5}, {"data": 5}, {"cancelled": True}),
        *({}, [], None, "text"),
    ],
)
def test_answered_data_shortcut_matches_model(payload: object) -> None:
    def outcome(read: Callable[[], object]) -> object:
        try:
            return read()
        except (CapabilityError, ProtocolError) as error:
            return type(error), error.code

    def by_model() -> object:
        model = answer(payload)
        model.raise_for_error("x")
        return model.data

    assert outcome(lambda: answered_data(payload, "x")) == outcome(by_model)


@pytest.mark.requirement("R6-4c")
@each_row(
    ("payload", "success"),
    [
        ({"data": 1}, True),
        ({"data": None}, True),
        ({"data": 1, "error": None}, True),
        ({"data": 1, "error": ""}, True),
        ({"success": None, "data": 1}, True),
        ({"data": None, "error": "no"}, False),
        ({"error": {"code": "X"}}, False),
        ({"cancelled": True}, False),
        ({"success": True, "error": None, "metadata": None, "cancelled": None}, True),
        ({"success": False, "data": 1}, False),
    ],
)
def test_missing_success_is_inferred_from_other_fields(payload: object, success: bool) -> None:
    assert answer(payload).success is success


@each_row(
    ("payload", "said"),
    [
        (None, "the whole: an object belongs here, not null"),
        ("done", "the whole: an object belongs here, not text"),
        *((payload, "the whole: an object belongs here, not an array") for payload in ([], [{"success": True}])),
        *((payload, "success: it is missing") for payload in ({"pdf": 1}, {}, {"success": None}, {"error": ""})),
    ],
)
def test_answer_without_success_or_hint_is_rejected(payload: object, said: str) -> None:
    shape = "it must be {success: true, data} or {success: false, error: {code, message}}"
    with pytest.raises(ProtocolError) as caught:
        answered_data(payload, "make")
    assert caught.value.message == f"the app's answer to make is not valid ABP 0.1: {said}; {shape}"
    for success in ("perhaps", [1], {"a": 1}, 2):
        with pytest.raises(ProtocolError, match=r"^the answer is not valid ABP 0\.1: success"):
            answer({"success": success})


@pytest.mark.requirement("R6-4d", "R6-4g")
def test_all_error_fields_are_kept() -> None:
    told = {"code": "RATE_LIMITED", "message": "slow down", "retryable": True, "retryAfter": 1500}
    error = refusal({"success": False, "error": {**told, "alternatives": ["export.png"], "details": {"limit": 3}}})
    assert error.message == "export.pdf: slow down"
    assert (error.code, error.retryable, error.retry_after) == ("RATE_LIMITED", True, 1.5)  # seconds here, ms there
    assert error.alternatives == ("export.png",) and error.details == {"limit": 3} and error.cancelled is False
    assert refusal({"success": False, "error": {"retryAfter": 0}}).retry_after == 0


@each_row(
    ("given_error", "code", "message", "details"),
    [
        ("it broke", "OPERATION_FAILED", "it broke", {}),
        ({}, "OPERATION_FAILED", "the app gave no reason", {}),
        *((nothing, "OPERATION_FAILED", "the app gave no reason", {}) for nothing in (None, False)),
        ({"code": "X"}, "X", "X", {}),
        ({"code": "", "message": ""}, "OPERATION_FAILED", "the app gave no reason", {}),
        ({"code": 404, "message": 5}, "404", "5", {}),
        ({"code": None, "message": "m"}, "OPERATION_FAILED", "m", {}),
        ({"code": "X", "message": {"en": "m"}}, "X", "X", {}),
        ({"code": ["X"], "message": "m"}, "OPERATION_FAILED", "m", {}),
        ({"message": "m", "details": [1, 2]}, "OPERATION_FAILED", "m", {"app": [1, 2]}),
        ({"message": "m", "details": 0}, "OPERATION_FAILED", "m", {"app": 0}),
        (["a", "b"], "OPERATION_FAILED", "the app gave no reason", {"app": ["a", "b"]}),
        (42, "OPERATION_FAILED", "the app gave no reason", {"app": 42}),
    ],
)
def test_error_of_any_shape_becomes_capability_error(
    given_error: object, code: str, message: str, details: dict[str, object]
) -> None:
    error = refusal({"success": False, "error": given_error})
    assert (error.code, error.message, error.details) == (code, f"export.pdf: {message}", details)


@each_row(
    ("field", "value"),
    [
        *(("retryable", "sometimes"), ("unknown", "field"), ("alternatives", "export.png"), ("alternatives", [{}])),
        *(("retryAfter", value) for value in ("soon", -1, "Infinity", math.nan, 10**400)),
    ],
)
def test_invalid_error_field_does_not_hide_error(field: str, value: object) -> None:
    error = refusal({"success": False, "error": {"code": "X", "message": "m", field: value}})
    assert (error.code, error.retryable, error.retry_after, error.alternatives) == ("X", False, None, ())


def test_binary_in_error_details_is_described_not_embedded() -> None:
    """docs/protocol.md 12.3: errors are answered inline."""

    def details(value: object) -> object:
        return refusal({"success": False, "error": {"code": "X", "details": value}}).details

    assert details(
        {
            "page": 3,
            "screenshot": {"content": "iVBORw0KGgo=", "mimeType": "image/png", "size": 8},
            "held": Handle("1", 5),
            "lost": Broken("detached"),
        }
    ) == {
        "page": 3,
        "screenshot": {"mimeType": "image/png", "size": 8},
        "held": {"mimeType": None, "size": 5},
        "lost": {"error": "the app returned content that cannot be read: detached"},
    }
    assert details(b"abc") == {"mimeType": None, "size": None}
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    assert "deeper than 64" in str(details(deep))


@pytest.mark.requirement("R6-7c")
@pytest.mark.parametrize(
    ("payload", "code", "message"),
    [
        ({"success": False, "cancelled": True}, "CANCELLED", "the call was cancelled"),
        ({"success": False, "cancelled": True, "error": {"message": "stopped"}}, "CANCELLED", "stopped"),
        ({"success": False, "cancelled": True, "error": {"code": "TIMEOUT"}}, "TIMEOUT", "TIMEOUT"),
        ({"success": False, "error": {"code": "CANCELLED"}}, "CANCELLED", "CANCELLED"),
    ],
)
def test_cancelled_call_is_marked_cancelled_and_not_failed(payload: object, code: str, message: str) -> None:
    error = refusal(payload)
    assert error.cancelled is True and (error.code, error.message) == (code, f"export.pdf: {message}")


# --- other payloads ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-3g")
def test_full_capability_is_parsed_and_only_its_name_is_required() -> None:
    declared = {
        "name": "export.pdf",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object"},
        "available": False,
        "requirements": [{"type": "login", "description": "d", "met": False, "resolution": "log in"}],
        "deprecationMessage": "use export.png",
        "alternatives": ["export.png"],
    }
    listed = parse(Capability, declared, "a capability")
    assert listed.input_schema == listed.output_schema == {"type": "object"}
    assert listed.available is False and listed.requirements[0].resolution == "log in"
    assert parse(Capability, {"name": "a", "requirements": ["log in"]}, "it").requirements[0].description == "log in"
    assert listed.deprecation_message == "use export.png" and listed.alternatives == ["export.png"]
    empty = dict.fromkeys(("description", "inputSchema", "available", "requirements", "deprecated", "alternatives"))
    bare: list[object] = ["export.pdf", {"name": "export.pdf"}, {"name": "export.pdf", **empty, "outputSchema": []}]
    for payload in bare:
        assert parse(Capability, payload, "a capability") == Capability(name="export.pdf")
    assert Capability(name="export.pdf").available is True


def test_initialized_parses_lenient_app_answers() -> None:
    got = parse(
        Initialized,
        {"sessionId": 17, "protocolVersion": 0.1, "app": {"id": 1, "name": "A", "version": 2}, "capabilities": ["a"]},
        "initialize",
    )
    assert (got.session_id, got.protocol_version, got.app) == ("17", "0.1", AppInfo(id="1", name="A", version="2"))
    assert got.capabilities == ["a"]
    assert parse(Initialized, {"app": "Editor", "features": []}, "initialize").app.name == "Editor"
    assert parse(Initialized, {"app": None, "capabilities": None, "features": None}, "initialize") == Initialized()


@each_row(
    ("model", "payload", "where"),
    [
        (Initialized, None, "initialize is not valid ABP 0.1: the whole"),
        (Initialized, "ok", "initialize is not valid ABP 0.1: the whole"),
        (Initialized, {"capabilities": {}}, "initialize is not valid ABP 0.1: capabilities"),
        (Initialized, {"app": 7}, "initialize is not valid ABP 0.1: app"),
        *((Progress, {"percentage": value}, "initialize .*percentage") for value in (math.nan, "half", [1], 10**400)),
    ],
)
def test_ambiguous_field_is_rejected_by_name(model: type[Any], payload: object, where: str) -> None:
    with pytest.raises(ProtocolError, match=f"^{where}: "):
        parse(model, payload, "initialize")


@pytest.mark.requirement("R6-5c")
@each_row(
    ("payload", "fraction"),
    [
        ({"percentage": 50}, 0.5),
        ({"percentage": 50, "progress": 1, "total": 1}, 0.5),
        ({"percentage": "25"}, 0.25),
        ({"percentage": 101}, 1.0),
        ({"percentage": -1}, 0.0),
        ({"progress": 3, "total": 4}, 0.75),
        ({"progress": 5, "total": 4}, 1.0),
        ({"progress": 3, "total": 0}, None),
        ({"progress": 3, "total": -1}, None),
        ({"progress": 3}, None),
        ({"total": 3}, None),
        ({}, None),
    ],
)
def test_progress_fields_are_optional(payload: dict[str, object], fraction: float | None) -> None:
    """docs/protocol.md 4.4: progress often has only `percentage`."""
    progress = parse(Progress, {"operationId": None, "status": 3, "extra": 1, **payload}, "progress")
    assert progress.fraction == fraction
    assert (progress.operation_id, progress.status, progress.stage) == ("", "3", None)


def test_events_and_elicitation_requests_are_parsed() -> None:
    event = parse(Notification, {"event": "notifications/state/changed", "data": [1]}, "event")
    assert (event.event, event.data) == ("notifications/state/changed", [1])
    asked = parse(ElicitationRequest, {"method": "elicitation/confirm", "params": None, "timeout": 5000}, "request")
    assert (asked.method, asked.params, asked.timeout) == ("elicitation/confirm", {}, 5000)
    assert abs(Message("shutdown").timestamp - time.time() * 1000) < 5000


@pytest.mark.requirement("R6-3a")
def test_initialize_params_name_client_and_requested_capabilities() -> None:
    assert package_version() == importlib.metadata.version("abp-transports")
    assert initialize_params() == {
        "agent": {"name": "abp-transports", "version": package_version()},
        "protocolVersion": "0.1",
        "features": {"notifications": True, "progress": True, "elicitation": True},
    }
    assert initialize_params("me", capabilities=("a", "b"))["requestedCapabilities"] == ["a", "b"]


def test_progress_is_converted_to_steps_and_text() -> None:
    assert Progress(percentage=40).steps == (40.0, 100.0)
    assert Progress(progress=2, total=5, percentage=40).steps == (2, 5)
    assert Progress().steps == (None, None)
    assert Progress(stage="render", status="page 2").text == "render · page 2"
    assert Progress(stage="render", status="render").text == "render" and Progress().text == ""


def reply(identity: str | None, kind: str = "capabilities/call-result", payload: object = None) -> Message:
    return Message(kind, payload, id=identity)


@pytest.mark.fault(18, 19)
async def test_first_reply_wins_and_others_are_counted() -> None:
    pending = PendingReplies()
    future, left = (pending.register(Message("capabilities/call", id=name)) for name in ("a", "left"))
    other = pending.register(Message("initialize", id="i"))
    assert pending.deliver(reply("i")) == "unknown"  # of another type
    assert pending.deliver(reply("i", "initialize-result", payload=3)) == "delivered"
    assert pending.deliver(reply("a", payload=1)) == "delivered"
    assert pending.deliver(reply("a", payload=2)) == "duplicate"
    assert ((await future).payload, (await other).payload) == (1, 3)
    pending.forget("left")
    assert pending.deliver(reply("left")) == "late" and not left.done()
    assert pending.deliver(reply("b")) == pending.deliver(reply(None)) == "unknown"
    assert pending.deliver(Message("notification", id="a")) == "event"
    assert pending.counts == {"delivered": 2, "duplicate": 1, "unknown": 3, "event": 1, "late": 1}
    assert len(pending) == 0


async def test_timeout_error_names_unanswered_step_and_how_to_extend_it() -> None:
    async def send(message: Message) -> None:
        pass

    start = "; if the app needs longer to start, raise connect(timeout=) or ABP_BROWSER_TIMEOUT (milliseconds)"
    longer = "; if it takes longer, raise timeout= (for all calls: ABP_CALL_TIMEOUT, milliseconds)"
    for request, step, advice in (
        ("initialize", " to initialize", start),
        ("capabilities/call", "", longer),
        ("capabilities/cancel", " to capabilities/cancel", ""),
    ):
        with pytest.raises(CallTimeout) as caught:
            await PendingReplies().request(Message(request), send, timeout=0.01999999)
        assert caught.value.message == f"no answer{step} within 0.02 s{advice}"


async def test_reused_ids_are_rejected() -> None:
    pending = PendingReplies()
    pending.register(Message("capabilities/call", id="a"))
    for name in ("a", None):
        with pytest.raises(ValueError, match="needs a new id"):
            pending.register(Message("capabilities/call", id=name))
    pending.deliver(reply("a"))
    with pytest.raises(ValueError, match="needs a new id"):
        pending.register(Message("capabilities/call", id="a"))


async def test_lost_connection_raises_separate_error_for_each_caller() -> None:
    pending = PendingReplies()
    futures = [pending.register(Message("capabilities/call", id=str(n))) for n in range(3)]
    pending.fail("1", ProtocolError("unreadable"))
    pending.fail("none", ProtocolError("nobody"))
    pending.fail_all(Disconnected("gone"))
    errors = await asyncio.gather(*futures, return_exceptions=True)
    assert [type(error).__name__ for error in errors] == ["Disconnected", "ProtocolError", "Disconnected"]
    assert errors[0] is not errors[2]


async def test_4096_ended_requests_are_remembered() -> None:
    pending = PendingReplies()
    for n in range(4097):
        pending.register(Message("capabilities/call", id=str(n)))
        pending.forget(str(n))
    assert pending.deliver(Message("capabilities/call-result", id="0")) == "unknown"
    assert pending.deliver(Message("capabilities/call-result", id="1")) == "late"
