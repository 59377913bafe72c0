"""A session over the in-process transport: what a caller of ``connect`` and ``call`` may rely on."""

import asyncio
import base64
import hashlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connect
from transports import (
    ABPError,
    BinaryData,
    BinaryError,
    CallTimeout,
    CapabilityError,
    Disconnected,
    ElicitationRequest,
    MemoryTransport,
    Message,
    Notification,
    Progress,
    ProtocolError,
    Result,
    TransportError,
    UsageError,
)
from transports.adapters.memory import Handler
from transports.binary import Handle, LocalFile
from transports.errors import AddressBlocked, ConnectFailed, SizeMismatch
from transports.session import inbox as inbox_module
from transports.testing import Call

PDF = b"%PDF-1.7\n" + bytes(range(256))
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40
LARGE = random.Random(1).randbytes(300 * 1024)
FOREVER = 60.0


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pdf(data: bytes = PDF, **more: object) -> dict[str, object]:
    return {
        "content": b64(data), "mimeType": "application/pdf", "encoding": "base64", "size": len(data), **more,
    }  # fmt: skip


def answering(data: object) -> Handler:
    """A capability that always answers ``data``."""

    async def handle(params: Mapping[str, object], call: Call) -> object:
        return data

    return handle


async def hang(params: Mapping[str, object], call: Call) -> object:
    """Never answers."""
    await asyncio.Event().wait()
    return None


def files(folder: Path) -> set[Path]:
    """Everything below a store's folder that holds content or describes it."""
    return {path for path in folder.rglob("*") if path.is_file() and "locks" not in path.parts}


class Recording(MemoryTransport):
    """Remembers what the session sends and asks for; ``replies`` stand in for what the app would say."""

    def __init__(self, handlers: Mapping[str, Handler] | None = None, **replies: object) -> None:
        super().__init__(handlers or {})
        self.replies = replies
        self.sent: list[Message] = []
        self.closed = 0
        self.saved: list[str] = []
        self.released: list[str] = []
        self.outputs: list[BinaryData] = []

    async def request(self, message: Message, *, timeout: float) -> Message:
        self.sent.append(message)
        name = message.type.rpartition("/")[2]
        if name in self.replies:
            reply = self.replies[name]
            if isinstance(reply, Exception):
                raise reply
            return Message(f"{message.type}-result", reply, id=message.id)
        answered = await super().request(message, timeout=timeout)
        if message.type == "capabilities/call":
            answered.outputs = self.outputs
        return answered

    async def notify(self, message: Message) -> None:
        self.sent.append(message)
        await super().notify(message)

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        self.saved.append(handle.id)
        await super().save(handle, path, timeout=timeout)

    async def release(self, handle: Handle) -> None:
        self.released.append(handle.id)
        await super().release(handle)

    async def aclose(self) -> None:
        self.closed += 1
        await super().aclose()

    def types(self) -> list[str]:
        return [message.type for message in self.sent]


# --- opening ----------------------------------------------------------------------------------------------------------


async def test_what_the_app_says_of_itself(app_of: Connect) -> None:
    async with app_of({"hang": hang, "other": answering(1)}) as app:
        assert app.info.name == "In-process app"
        assert list(app.capabilities) == ["hang", "other"]
        assert app.capabilities["hang"].description == "Never answers."
        assert app.session_id


async def test_initialize_says_who_asks_and_what_it_can_take(app_of: Connect) -> None:
    transport = Recording()
    async with app_of(transport):
        pass
    params: Any = transport.sent[0].payload
    assert params["agent"]["name"] == "abp-transports"
    assert params["protocolVersion"] == "0.1"
    assert params["features"] == {"notifications": True, "progress": True, "elicitation": True}


INITIALIZED = {
    "sessionId": "s",
    "protocolVersion": "0.1",
    "app": {"id": "a", "name": "A", "version": 2},
    "capabilities": [{"name": "one", "available": False, "experimental": True}],
}


@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "one"}, {"name": "two"}],
        {"success": True, "data": [{"name": "one"}, {"name": "two"}]},
        {"success": True, "data": {"capabilities": [{"name": "one"}, {"name": "two"}]}},
        {"capabilities": [{"name": "one"}, {"name": "two"}]},
        [{"name": "one"}, {"description": "no name"}, 42, None, {"name": "two"}],
    ],
    ids=["plain", "wrapped", "wrapped twice", "named", "with rubbish"],
)
async def test_lists_of_capabilities_in_every_form(app_of: Connect, listed: object) -> None:
    async with app_of(Recording(initialize=INITIALIZED, list=listed)) as app:
        assert sorted(app.capabilities) == ["one", "two"]
        assert app.info.version == "2"
        # what initialize said stands where the list says nothing
        assert not app.capabilities["one"].available
        assert app.capabilities["one"].experimental


@pytest.mark.parametrize(
    "listed",
    [[], {}, None, "text", {"success": True, "data": None}, {"success": False}, ProtocolError("no such method")],
)
async def test_a_list_that_says_nothing_leaves_what_initialize_said(app_of: Connect, listed: object) -> None:
    async with app_of(Recording(initialize=INITIALIZED, list=listed)) as app:
        assert list(app.capabilities) == ["one"]


async def test_an_answer_to_initialize_that_is_wrapped_like_a_calls(app_of: Connect) -> None:
    async with app_of(Recording(initialize={"success": True, "data": INITIALIZED}, list=[])) as app:
        assert app.info.name == "A"


class Unopenable(Recording):
    async def open(self) -> None:
        await super().open()
        raise ConnectFailed("nothing answers")


@pytest.mark.parametrize(
    ("transport", "error"),
    [
        (Unopenable(), ConnectFailed),
        (Recording(initialize=None), ProtocolError),
        (Recording(initialize="hello"), ProtocolError),
        (Recording(initialize={"capabilities": "all"}), ProtocolError),
        (Recording(initialize={"success": False, "error": {"code": "PERMISSION_DENIED", "message": "no"}}), ABPError),
        (Recording(initialize=CallTimeout("no answer")), CallTimeout),
        (Recording(list=CallTimeout("no answer")), CallTimeout),
    ],
    ids=["open", "null", "text", "wrong type", "refusal", "silence", "silent list"],
)
async def test_a_failing_start_closes_everything(app_of: Connect, transport: Recording, error: type[ABPError]) -> None:
    before = asyncio.all_tasks()
    session = app_of(transport)
    with pytest.raises(error):
        async with session:
            pytest.fail("it opened")
    assert transport.closed
    assert asyncio.all_tasks() == before
    assert "shutdown" not in transport.types()  # there was no session to say goodbye to
    with pytest.raises(Disconnected):
        await session.call("x")


async def test_being_cancelled_while_opening_closes_everything(app_of: Connect) -> None:
    class Slow(Recording):
        async def request(self, message: Message, *, timeout: float) -> Message:
            await asyncio.Event().wait()
            raise AssertionError

    before, transport = asyncio.all_tasks(), Slow()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02), app_of(transport):
            pytest.fail("it opened")
    assert transport.closed
    assert asyncio.all_tasks() == before


# --- results ----------------------------------------------------------------------------------------------------------


async def test_json_becomes_a_file_too(app_of: Connect, tmp_path: Path) -> None:
    data = {"html": "<h1>Hé</h1>", "n": [1, 2.5, None, True]}
    async with app_of({"md.html": answering(data)}) as app:
        result = await app.call("md.html")
    (ref,) = result.artifacts.values()
    assert list(result.artifacts) == [""]
    assert result.data == data
    path = Path(ref.path or "")
    assert (path.parent, path.suffix, ref.mime_type) == (tmp_path / "out", ".json", "application/json")
    assert json.loads(path.read_bytes()) == data
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    assert result.summary() == f"Output saved to file: {ref.path}\nSize: {len(text)} characters"


async def test_a_nested_binary_and_its_siblings(app_of: Connect) -> None:
    async with app_of({"export.pdf": answering({"document": pdf(filename="a.pdf"), "pageCount": 12})}) as app:
        result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})
    ref = result.artifacts["document"]
    assert Path(ref.path or "").read_bytes() == PDF
    assert ref.sha256 == hashlib.sha256(PDF).hexdigest()
    assert (ref.filename, ref.mime_type, ref.size_bytes) == ("a.pdf", "application/pdf", len(PDF))
    assert (ref.source["capability"], ref.source["app"], ref.source["verified"]) == ("export.pdf", "memory", True)
    assert result.metadata == {"pageCount": 12}
    assert json.loads(json.dumps(result.data)) == {"document": ref.as_dict(), "pageCount": 12}
    assert result.summary() == (
        f'File saved: {ref.path}\nType: application/pdf\nSize: {len(PDF)} bytes\nMetadata: {{"pageCount":12}}'
    )


async def test_the_result_as_one_document(app_of: Connect) -> None:
    async with app_of({"export.pdf": answering({"document": pdf()})}) as app:
        result = await app.call("export.pdf")
    document = json.loads(json.dumps(result.as_dict()))
    ref = result.artifacts["document"].as_dict()
    assert document.pop("duration_ms") >= 0
    assert document == {
        "success": True,
        "capability": "export.pdf",
        "transport": "memory",
        "data": {"document": ref},
        "warnings": [],
        "artifacts": [{"field": "document", **ref}],
    }
    assert list(ref) == ["id", "uri", "path", "filename", "mime_type", "size_bytes", "sha256"]
    assert ref["uri"] == f"artifact://{ref['id']}"


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (pdf(), [""]),
        (PNG, [""]),
        ({"pages": [{"image": PNG}, {"image": {"content": PNG, "size": 48}}]}, ["pages.0.image", "pages.1.image"]),
        ([pdf(), 1, [PNG]], ["0", "2.0"]),
        ({"a.b": PNG, "a": {"b": PNG + b"2"}}, [r"a\.b", "a.b"]),
        ({"pdf": b64(PDF), "mimeType": "application/pdf", "size": len(PDF)}, ["pdf"]),
    ],
    ids=["descriptor at the top", "bytes at the top", "in lists", "in a list at the top", "dots in keys", "flat"],
)  # fmt: skip
async def test_binaries_wherever_they_stand(app_of: Connect, data: object, places: list[str]) -> None:
    async with app_of({"take": answering(data)}) as app:
        result = await app.call("take")
    assert list(result.artifacts) == places
    for place, ref in result.artifacts.items():
        assert Path(ref.path or "").read_bytes()[:4] in (PDF[:4], PNG[:4])
        node: Any = result.data
        for step in place.replace(r"\.", "\0").split(".") if place else []:
            node = node[int(step)] if isinstance(node, list) else node[step.replace("\0", ".")]
        assert node == ref.as_dict()
    json.dumps(result.data)


async def test_the_extra_fields_of_a_descriptor_are_kept(app_of: Connect) -> None:
    async with app_of({"take": answering(pdf(pages=3)), "nested": answering({"d": pdf(pages=4), "n": 1})}) as app:
        top, nested = await app.call("take"), await app.call("nested")
    assert top.metadata == {"pages": 3}
    assert top.data == {**top.artifacts[""].as_dict(), "metadata": {"pages": 3}}
    assert nested.data == {"d": {**nested.artifacts["d"].as_dict(), "metadata": {"pages": 4}}, "n": 1}
    assert nested.metadata == {"n": 1}


async def test_large_content_is_fetched_from_the_far_side_and_let_go(app_of: Connect) -> None:
    transport = Recording({"big": answering({"file": {"content": LARGE, "mimeType": "application/x-thing"}})})
    async with app_of(transport) as app:
        result = await app.call("big")
        assert len(transport.released) == 1
    assert Path(result.artifacts["file"].path or "").read_bytes() == LARGE


async def test_what_is_printed_beside_an_answer(app_of: Connect) -> None:
    transport = Recording({"print": answering({"pages": 2}), "both": answering({"document": PNG})})
    transport.outputs = [BinaryData(PDF, "application/pdf"), BinaryData(PDF + b"2", "application/pdf")]
    async with app_of(transport) as app:
        printed, both = await app.call("print"), await app.call("both")
    assert list(printed.artifacts) == ["document", "captured.1"]
    assert (printed.data, printed.metadata) == ({"pages": 2}, {"pages": 2})
    assert list(both.artifacts) == ["document", "captured.0", "captured.1"]


async def test_a_wrong_type_is_a_warning(app_of: Connect) -> None:
    async with app_of({"lie": answering({"document": pdf(PNG)})}) as app:
        result = await app.call("lie")
    assert result.artifacts["document"].mime_type == "image/png"
    assert result.warnings == (
        "document: declared as application/pdf, but the content is image/png; stored as image/png",
    )
    assert result.summary().endswith(f"Warning: {result.warnings[0]}")


async def test_no_store_gives_references_without_files(app_of: Connect) -> None:
    async with app_of({"take": answering({"document": pdf()})}, store="none:") as app:
        result = await app.call("take")
    ref = result.artifacts["document"]
    assert (ref.path, ref.sha256) == (None, hashlib.sha256(PDF).hexdigest())
    assert result.summary().startswith(f"File saved: {ref.uri}\n")


# --- parameters -------------------------------------------------------------------------------------------------------


async def test_files_and_bytes_in_parameters(app_of: Connect, tmp_path: Path) -> None:
    path = tmp_path / "in.png"
    path.write_bytes(PNG)
    taken: list[Any] = []

    async def take(params: Mapping[str, object], call: Call) -> object:
        taken.append(params)
        return None

    params = {
        "raw": b"raw",
        "list": [path, {"deep": bytearray(b"deep")}],
        "named": BinaryData.from_path(path, mime_type="image/x-mine"),
        "described": {"content": b"described", "mimeType": "text/csv", "filename": "d.csv", "note": 1},
        "plain": {"content": "text", "n": (1, None)},
    }
    async with app_of(transport := Recording({"take": take})) as app:
        await app.call("take", params)
    (got,) = taken
    assert got["raw"].read() == b"raw"
    assert (got["list"][0].read(), got["list"][0].content) == (PNG, LocalFile(path))
    assert (got["list"][0].mime_type, got["list"][0].filename) == ("image/png", "in.png")
    assert got["list"][1]["deep"].read() == b"deep"
    assert (got["named"].read(), got["named"].mime_type) == (PNG, "image/x-mine")
    described = got["described"]
    assert (described.read(), described.mime_type, described.filename) == (b"described", "text/csv", "d.csv")
    assert described.extra == {"note": 1}
    assert got["plain"] == {"content": "text", "n": [1, None]}
    sent = next(message for message in transport.sent if message.type == "capabilities/call")
    assert [found.field for found in sent.content] == ["raw", "list.0", "list.1.deep", "named", "described"]
    assert params["raw"] == b"raw"  # the caller's own are not touched


@pytest.mark.parametrize("bad", [{1, 2}, float("nan"), object(), Path("/does/not/exist"), {1: "number as key"}])
async def test_parameters_that_cannot_be_sent_never_reach_the_app(app_of: Connect, bad: object) -> None:
    async with app_of(transport := Recording({"take": answering(None)})) as app:
        with pytest.raises(UsageError):
            await app.call("take", {"deep": [bad]})
        assert "capabilities/call" not in transport.types()


async def test_the_options_of_a_call(app_of: Connect) -> None:
    async with app_of(transport := Recording({"take": answering(None)})) as app:
        await app.call("take", timeout=1.5)
        await app.call("take", timeout=0.0001)
    first, second = [message for message in transport.sent if message.type == "capabilities/call"]
    payload: Any = first.payload
    assert payload["options"] == {"timeout": 1500, "progressToken": first.id, "callId": first.id}
    assert payload["params"] == {}
    assert second.payload["options"]["timeout"] == 1  # type: ignore[index]
    assert first.id != second.id


# --- the app says no --------------------------------------------------------------------------------------------------


async def test_a_refusal_carries_all_the_app_said(app_of: Connect) -> None:
    async def refuse(params: Mapping[str, object], call: Call) -> object:
        raise CapabilityError(
            "slow down",
            code="RATE_LIMITED",
            retryable=True,
            retry_after=1.5,
            alternatives=["export.png"],
            details={"limit": 3},
        )

    async with app_of({"export.pdf": refuse}) as app:
        with pytest.raises(CapabilityError) as caught:
            await app.call("export.pdf")
    error = caught.value
    assert error.message == "export.pdf: slow down; instead there is export.png"
    assert (error.code, error.retryable, error.retry_after) == ("RATE_LIMITED", True, 1.5)
    assert (error.alternatives, error.details) == (("export.png",), {"limit": 3})
    assert not error.cancelled
    assert json.loads(json.dumps(error.as_dict()))["retry_after"] == 1.5


async def test_retry_after_is_milliseconds_on_the_wire(app_of: Connect) -> None:
    refusal = {"success": False, "error": {"code": "RATE_LIMITED", "message": "later", "retryAfter": 2500}}
    async with app_of(Recording(call=refusal)) as app:
        with pytest.raises(CapabilityError) as caught:
            await app.call("x")
    assert caught.value.retry_after == 2.5


async def test_an_unknown_capability_suggests_close_names(app_of: Connect) -> None:
    async with app_of({"export.pdf": hang, "export.png": hang, "other": hang}) as app:
        with pytest.raises(CapabilityError, match=r"did you mean export\.pdf") as close:
            await app.call("exprot.pdf")
        with pytest.raises(CapabilityError, match=r"the app has export\.pdf, export\.png, other") as far:
            await app.call("zzz")
    assert close.value.code == "UNKNOWN_CAPABILITY"
    assert close.value.alternatives[0] == "export.pdf"
    assert "other" not in close.value.alternatives
    assert str(close.value) == close.value.message
    assert far.value.alternatives == ("export.pdf", "export.png", "other")


async def test_what_a_handler_throws_is_the_apps_failure(app_of: Connect) -> None:
    async def throw(params: Mapping[str, object], call: Call) -> object:
        raise ZeroDivisionError("division by zero")

    async with app_of({"throw": throw}) as app:
        with pytest.raises(CapabilityError, match="threw ZeroDivisionError: division by zero") as caught:
            await app.call("throw")
    assert caught.value.code == "OPERATION_FAILED"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (None, "PROTOCOL_ERROR"),
        ("done", "PROTOCOL_ERROR"),
        ([], "PROTOCOL_ERROR"),
        ({}, "PROTOCOL_ERROR"),
        ({"ok": True}, "PROTOCOL_ERROR"),
        ({"success": "perhaps", "data": 1}, "PROTOCOL_ERROR"),
        ({"success": False}, "OPERATION_FAILED"),
        ({"success": False, "cancelled": True}, "CANCELLED"),
        ({"success": False, "error": "it broke"}, "OPERATION_FAILED"),
        ({"success": False, "error": {}}, "OPERATION_FAILED"),
        ({"error": {"code": "MINE", "message": None}}, "MINE"),
    ],
)
async def test_answers_that_break_the_rules_are_typed_errors(app_of: Connect, reply: object, code: str) -> None:
    transport = Recording({"good": answering(1)}, call=reply)
    async with app_of(transport) as app:
        with pytest.raises(ABPError) as caught:
            await app.call("x")
        assert caught.value.code == code
        assert "x" in caught.value.message
        assert isinstance(caught.value, ProtocolError if code == "PROTOCOL_ERROR" else CapabilityError)
        assert getattr(caught.value, "cancelled", False) is (code == "CANCELLED")
        assert caught.value.session_survives
        del transport.replies["call"]
        assert (await app.call("good")).data == 1


async def test_an_error_that_is_text_is_its_message(app_of: Connect) -> None:
    async with app_of(Recording(call={"success": False, "error": "it broke"})) as app:
        with pytest.raises(CapabilityError, match="x: it broke"):
            await app.call("x")


@pytest.mark.parametrize(
    ("reply", "data"), [({"success": True}, None), ({"data": {"a": 1}}, {"a": 1}), ({"data": 0, "error": None}, 0)]
)
async def test_answers_whose_meaning_is_clear_are_taken(app_of: Connect, reply: object, data: object) -> None:
    async with app_of(Recording(call=reply)) as app:
        result = await app.call("x")
    assert result.data == data
    assert json.loads(Path(result.artifacts[""].path or "").read_bytes()) == data


# --- content that is not what it was said to be -----------------------------------------------------------------------


@pytest.mark.parametrize("content", [PDF, LARGE], ids=["small", "behind a handle"])
async def test_a_lie_about_the_size_stores_nothing(app_of: Connect, tmp_path: Path, content: bytes) -> None:
    lie = {"content": content, "mimeType": "application/pdf", "size": len(content) + 1}
    transport = Recording({"lie": answering({"document": lie}), "good": answering({"document": pdf()})})
    async with app_of(transport) as app:
        await app.call("good")
        before = files(tmp_path / "out")
        with pytest.raises(SizeMismatch) as caught:
            await app.call("lie")
        assert files(tmp_path / "out") == before
        assert len(transport.released) == (content is LARGE)
        assert transport.saved == []  # a lie is found before a byte has moved
        assert (await app.call("good")).artifacts
    details = caught.value.details
    assert (details["declared"], details["actual"], details["field"]) == (len(content) + 1, len(content), "document")
    assert caught.value.result is not None
    assert caught.value.result.artifacts == {}


async def test_one_bad_binary_of_several_loses_nothing_good(app_of: Connect) -> None:
    url = "http://bob:hunter2@10.0.0.1/f.pdf?token=s3cret"
    answer = {
        "first": {"content": PNG, "mimeType": "image/png"},
        "bad": {"downloadUrl": url, "mimeType": "application/pdf", "auth": {"type": "bearer", "token": "t0psecret"}},
        "odd": {"content": "####", "mimeType": "application/pdf", "encoding": "base64"},
        "last": {"content": LARGE, "mimeType": "application/x-thing"},
        "note": "kept",
    }
    async with app_of(transport := Recording({"take": answering(answer)})) as app:
        with pytest.raises(AddressBlocked) as caught:
            await app.call("take")
        assert len(transport.released) == 1
    error, result = caught.value, caught.value.result
    assert isinstance(result, Result)
    assert list(result.artifacts) == ["first", "last"]
    assert Path(result.artifacts["last"].path or "").read_bytes() == LARGE
    assert error.details["field"] == "bad"
    assert error.details["also_failed"] == ["odd"]
    assert str(error.details["url"]).startswith("http://10.0.0.1/f.pdf")
    data: Any = result.data
    assert (data["note"], data["bad"]["error"]["code"], data["odd"]["error"]["code"]) == (
        "kept", "BLOCKED_ADDRESS", "INVALID_ENCODING",
    )  # fmt: skip
    everything = json.dumps([error.as_dict(), result.as_dict(), str(error), repr(error), result.summary()])
    assert not [secret for secret in ("hunter2", "s3cret", "t0psecret") if secret in everything]


async def test_a_download_url_that_is_none_is_a_typed_error(app_of: Connect) -> None:
    class AtAddress(MemoryTransport):
        @property
        def url(self) -> str:
            return "http://127.0.0.1:1/"

    answer = {"good": PNG, "bad": {"downloadUrl": "http://[", "mimeType": "application/pdf"}}
    async with app_of(AtAddress({"take": answering(answer)})) as app:
        with pytest.raises(BinaryError) as caught:
            await app.call("take")
    assert caught.value.code == "DOWNLOAD_FAILED"
    assert caught.value.details["field"] == "bad"
    assert caught.value.result is not None
    assert list(caught.value.result.artifacts) == ["good"]


async def test_a_blob_url_is_fetched_by_the_transport(app_of: Connect) -> None:
    answer = {"bad": {"downloadUrl": "blob:http://x/1?s3cret", "mimeType": "application/pdf"}}
    async with app_of({"take": answering(answer)}) as app:
        with pytest.raises(ABPError, match="no longer there") as caught:
            await app.call("take")
    assert caught.value.details == {"field": "bad", "url": "blob:http://x/1?…"}


# --- time and cancellation --------------------------------------------------------------------------------------------


async def test_a_timeout_cancels_the_call_in_the_app(app_of: Connect) -> None:
    transport = Recording({"hang": hang, "good": answering(1)})
    async with app_of(transport) as app:
        with pytest.raises(CallTimeout, match=r"hang: no answer within 0\.02 s") as caught:
            await app.call("hang", timeout=0.02)
        (call,) = [message for message in transport.sent if message.type == "capabilities/call"]
        assert transport.cancelled == {call.id: "timeout"}
        assert caught.value.retryable
        assert (await app.call("good")).data == 1


async def test_cancelling_the_task_cancels_the_call_in_the_app(app_of: Connect) -> None:
    started, ended = asyncio.Event(), asyncio.Event()

    async def work(params: Mapping[str, object], call: Call) -> object:
        started.set()
        try:
            return await hang(params, call)
        finally:
            ended.set()

    transport = MemoryTransport({"work": work, "good": answering(1)})
    async with app_of(transport) as app:
        task = asyncio.ensure_future(app.call("work"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(ended.wait(), 5)
        assert list(transport.cancelled.values()) == ["cancelled by the client"]
        assert (await app.call("good")).data == 1


async def test_cancelling_while_files_are_stored_lets_go_of_the_rest(app_of: Connect, tmp_path: Path) -> None:
    saving = asyncio.Event()

    class Slow(Recording):
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


async def test_two_hundred_calls_at_once_each_get_their_own(app_of: Connect) -> None:
    rng = random.Random(7)

    async def echo(params: Mapping[str, object], call: Call) -> object:
        number = params["n"]
        await asyncio.sleep(rng.random() * 0.05)
        await call.progress(stage=str(number))
        content = LARGE + str(number).encode() if number in (3, 4, 5, 6) else f"content {number}".encode()
        return {"n": number, "file": {"content": content, "mimeType": "application/x-thing"}}

    heard: dict[int, list[str | None]] = {n: [] for n in range(200)}

    def hear(n: int) -> Callable[[Progress], None]:
        async def listen(progress: Progress) -> None:
            heard[n].append(progress.stage)

        return listen  # type: ignore[return-value]

    async with app_of({"echo": echo}) as app:
        results = await asyncio.gather(*(app.call("echo", {"n": n}, on_progress=hear(n)) for n in range(200)))
        assert len({result.artifacts["file"].id for result in results}) == 200
        for n, result in enumerate(results):
            assert result.data["n"] == n  # type: ignore[call-overload,index]
            content = await app.store.get(result.artifacts["file"].id)
            assert content.endswith(str(n).encode())
            assert len(content) > len(LARGE) if n in (3, 4, 5, 6) else content == f"content {n}".encode()
    assert heard == {n: [str(n)] for n in range(200)}


# --- progress and notifications ---------------------------------------------------------------------------------------


async def steps(params: Mapping[str, object], call: Call) -> object:
    for n in range(5):
        await call.progress(percentage=n * 25)
    return "done"


async def test_progress_arrives_in_order_before_the_result(app_of: Connect) -> None:
    plain: list[float | None] = []
    awaited: list[float | None] = []

    def hear(progress: Progress) -> None:
        plain.append(progress.fraction)

    async def hear_async(progress: Progress) -> None:
        await asyncio.sleep(0)
        awaited.append(progress.fraction)

    async with app_of({"steps": steps}) as app:
        await app.call("steps", on_progress=hear)
        await app.call("steps", on_progress=hear_async)
        assert plain == awaited == [0, 0.25, 0.5, 0.75, 1]
        await app.call("steps")  # nobody listens: nothing happens
        assert len(plain) == 5


async def test_a_result_waits_a_little_for_its_callbacks(app_of: Connect) -> None:
    heard: list[float | None] = []

    async def hear(progress: Progress) -> None:
        await asyncio.sleep(0.02)
        heard.append(progress.percentage)

    async with app_of({"steps": steps}, store="none:", on_progress=hear) as app:
        await app.call("steps")
        assert heard == [0, 25, 50, 75, 100]


async def test_progress_before_a_failure_arrives_too(app_of: Connect) -> None:
    async def fail(params: Mapping[str, object], call: Call) -> object:
        await call.progress(stage="half way")
        raise CapabilityError("no")

    heard: list[str | None] = []
    async with app_of({"fail": fail}) as app:
        with pytest.raises(CapabilityError):
            await app.call("fail", on_progress=lambda progress: heard.append(progress.stage))
        assert heard == ["half way"]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_progress_callback_that_raises_breaks_nothing(app_of: Connect, is_async: bool) -> None:
    heard: list[float | None] = []

    def hear(progress: Progress) -> None:
        heard.append(progress.percentage)
        raise RuntimeError("a broken callback")

    async def hear_async(progress: Progress) -> None:
        hear(progress)

    async with app_of({"steps": steps}) as app:
        result = await app.call("steps", on_progress=hear_async if is_async else hear)
        assert result.data == "done"
    assert heard == [0, 25, 50, 75, 100]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_slow_progress_callback_blocks_no_call(
    app_of: Connect, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, "_SETTLE", 0.05)
    release, before = threading.Event(), asyncio.all_tasks()

    def slow(progress: Progress) -> None:
        release.wait(5)

    async def slow_async(progress: Progress) -> None:
        await asyncio.sleep(5)

    started = time.monotonic()
    try:
        async with app_of({"steps": steps}) as app:
            assert (await app.call("steps", on_progress=slow_async if is_async else slow)).data == "done"
            heard: list[Progress] = []
            await app.call("steps", on_progress=heard.append)
            assert len(heard) == 5  # another call's events do not queue behind the slow one
    finally:
        release.set()
    assert time.monotonic() - started < 2.5
    assert asyncio.all_tasks() == before


async def test_progress_finds_its_call(app_of: Connect) -> None:
    """By its id; without one, or with an id the app made up, if only one call is under way."""
    ids: list[str] = []
    go = asyncio.Event()

    async def wait(params: Mapping[str, object], call: Call) -> object:
        ids.append(call.id)
        await go.wait()
        return None

    async def note(params: Mapping[str, object], call: Call) -> object:
        transport.emit(Message("progress", {"stage": "no id"}))
        transport.emit(Message("progress", {"operationId": "export-7", "stage": "made up"}))
        transport.emit(Message("progress", {"operationId": ids[0], "stage": "another's"}))
        transport.emit(Message("progress", "no object"))
        transport.emit(Message("progress", {"operationId": call.id, "stage": "mine"}))
        return None

    transport = MemoryTransport({"wait": wait, "note": note})
    heard: dict[str, list[str | None]] = {"wait": [], "note": [], "after": [], "session": []}

    def into(name: str) -> Callable[[Progress], None]:
        return lambda progress: heard[name].append(progress.stage)

    async with app_of(transport, on_progress=into("session")) as app:
        waiting = asyncio.ensure_future(app.call("wait", on_progress=into("wait")))
        while not ids:
            await asyncio.sleep(0)
        await app.call("note", on_progress=into("note"))
        go.set()
        await waiting
        await app.call("note", on_progress=into("after"))
    assert heard["wait"] == ["another's"]
    assert heard["note"] == ["mine"]
    # the first call has ended: what comes late for it is not taken for the only call that is under way
    assert heard["after"] == ["no id", "made up", "mine"]
    assert heard["session"] == ["no id", "made up", "another's", "mine"] * 2


async def test_notifications_reach_the_session(app_of: Connect) -> None:
    async def change(params: Mapping[str, object], call: Call) -> object:
        await call.notify("notifications/state/changed", {"page": 2})
        transport.emit(Message("notification", 42))
        transport.emit(Message("capabilities/changed", {"added": ["new"]}))
        transport.emit(Message("something/else", {"event": "mine"}))
        return None

    heard: list[Notification] = []
    transport = MemoryTransport({"change": change})
    done = asyncio.Event()

    async def hear(notification: Notification) -> None:
        heard.append(notification)
        if len(heard) == 3:
            done.set()

    async with app_of(transport, on_notification=hear) as app:
        await app.call("change")
        await asyncio.wait_for(done.wait(), 5)
    assert [(one.event, one.data) for one in heard] == [
        ("notifications/state/changed", {"page": 2}),
        ("notifications/capabilities/list_changed", {"added": ["new"]}),
        ("mine", None),
    ]


# --- elicitation ------------------------------------------------------------------------------------------------------

DECLINED = {"success": False, "cancelled": True}


async def ask(params: Mapping[str, object], call: Call) -> object:
    return dict(await call.elicit("elicitation/confirm", {"message": "Sure?"}))


def confirm(request: ElicitationRequest) -> Mapping[str, object]:
    assert request.params["message"] == "Sure?"
    return {"success": True, "data": {"confirmed": request.method == "elicitation/confirm"}}


async def confirm_async(request: ElicitationRequest) -> Mapping[str, object]:
    await asyncio.sleep(0)
    return confirm(request)


@pytest.mark.parametrize("handler", [confirm, confirm_async])
async def test_an_elicitation_is_answered(app_of: Connect, handler: Callable[[ElicitationRequest], Any]) -> None:
    async with app_of({"ask": ask}, on_elicitation=handler) as app:
        assert (await app.call("ask")).data == {"success": True, "data": {"confirmed": True}}


def decline(request: ElicitationRequest) -> Mapping[str, object]:
    raise PermissionError("no")


async def decline_async(request: ElicitationRequest) -> Mapping[str, object]:
    raise PermissionError("no")


def return_nothing(request: ElicitationRequest) -> Any:
    return None


def return_no_json(request: ElicitationRequest) -> Mapping[str, object]:
    return {"success": True, "data": {"value": object()}}


@pytest.mark.parametrize("handler", [None, decline, decline_async, return_nothing, return_no_json])
async def test_an_elicitation_is_declined(
    app_of: Connect, handler: Callable[[ElicitationRequest], Any] | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with app_of({"ask": ask}, on_elicitation=handler) as app:
        with caplog.at_level(logging.WARNING, "transports"):
            assert (await app.call("ask", timeout=5)).data == DECLINED
    assert len(caplog.records) == (handler is not None)


async def test_a_slow_elicitation_handler_has_the_requests_time(app_of: Connect) -> None:
    release = threading.Event()

    async def ask_briefly(params: Mapping[str, object], call: Call) -> object:
        request = {"method": "elicitation/input", "params": {}, "timeout": 30}
        return dict(await transport.ask(Message("elicitation/request", request)))

    def slow(request: ElicitationRequest) -> Mapping[str, object]:
        release.wait(FOREVER)
        return {"success": True}

    transport = MemoryTransport({"ask": ask_briefly})
    try:
        async with app_of(transport, on_elicitation=slow) as app:
            assert (await app.call("ask", timeout=5)).data == DECLINED
    finally:
        release.set()


async def test_an_answer_that_comes_after_the_call_was_cancelled_is_let_go(
    app_of: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    asked, go, answered = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def late(request: ElicitationRequest) -> Mapping[str, object]:
        asked.set()
        await go.wait()
        answered.set()
        return {"success": True}

    with caplog.at_level(logging.WARNING):
        async with app_of({"ask": ask, "good": answering(1)}, on_elicitation=late) as app:
            with pytest.raises(CallTimeout):
                await app.call("ask", timeout=0.02)
            assert asked.is_set()
            go.set()
            await answered.wait()
            assert (await app.call("good")).data == 1
    assert caplog.records == []


# --- closing ----------------------------------------------------------------------------------------------------------


async def test_closing_says_goodbye_once_and_leaves_nothing_behind(app_of: Connect) -> None:
    before, transport = asyncio.all_tasks(), Recording({"good": answering(1), "hang": hang})
    async with app_of(transport, on_progress=print) as app:
        await app.call("good")
        with pytest.raises(CallTimeout):
            await app.call("hang", timeout=0.01)
        await app.aclose()
        await app.aclose()
    await app.aclose()
    assert transport.types().count("shutdown") == 1
    assert transport.closed == 1
    assert asyncio.all_tasks() == before


async def test_a_call_after_the_end_is_a_typed_error(app_of: Connect) -> None:
    async with app_of(transport := Recording({"good": answering(1)})) as app:
        pass
    with pytest.raises(Disconnected, match="connect again"):
        await app.call("good")
    assert "capabilities/call" not in transport.types()


async def test_a_session_is_used_inside_its_block_and_opened_once(app_of: Connect) -> None:
    app = app_of({"good": answering(1)})
    with pytest.raises(UsageError, match="async with"):
        await app.call("good")
    async with app:
        with pytest.raises(UsageError, match="once"):
            await app.__aenter__()
        assert (await app.call("good")).data == 1
    with pytest.raises(UsageError, match="once"):
        async with app:
            pass


async def test_an_exception_inside_the_block_closes_the_transport(app_of: Connect) -> None:
    before, transport = asyncio.all_tasks(), Recording({"good": answering(1)})
    with pytest.raises(KeyError):
        async with app_of(transport):
            raise KeyError("mine")
    assert transport.closed == 1
    assert asyncio.all_tasks() == before


async def test_closing_ends_what_is_under_way(app_of: Connect) -> None:
    """A call gets a typed error; an elicitation handler is cancelled; both are gone when ``aclose`` returns."""
    before = asyncio.all_tasks()
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def never(request: ElicitationRequest) -> Mapping[str, object]:
        asked.set()
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(0)
            cancelled.set()
        return {}

    app = app_of({"ask": ask}, on_elicitation=never)
    async with app:
        calling = asyncio.ensure_future(app.call("ask"))
        await asked.wait()
    assert cancelled.is_set()
    with pytest.raises(Disconnected):
        await calling
    assert asyncio.all_tasks() == before


async def test_a_transport_that_cannot_say_goodbye_is_closed_all_the_same(app_of: Connect) -> None:
    class Rude(Recording):
        async def notify(self, message: Message) -> None:
            raise TransportError("gone")

    async with app_of(transport := Rude({"good": answering(1)})) as app:
        await app.call("good")
    assert transport.closed == 1
