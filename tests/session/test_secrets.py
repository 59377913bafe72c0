"""Secrets by name: values on the wire, names everywhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from tests.support.apps import AtAddress, b64
from tests.support.eventually import eventually
from tests.support.processes import processes
from transports import CapabilityError, Evidence, MemoryTransport, Session, connect
from transports._internal.masking import KNOWN_SECRETS, MAX_MASKED_BYTES, KnownSecrets
from transports.artifacts import Scope, open_store
from transports.errors import TransportError, UsageError
from transports.protocol.binary import BinaryData
from transports.protocol.messages import Message
from transports.session._events import CallFinished
from transports.testing import Call

CANARY = 'canary/7f3a "value"&'
NAME = "${SECRET:CRM}"
logger = logging.getLogger("transports.websocket")


class App(MemoryTransport):
    """An app at an address, which tells what it was told in every way that it has."""

    url: str | None = "http://app.test/page"

    def __init__(self) -> None:
        self.heard: list[Mapping[str, Any]] = []
        super().__init__({"log.in": self.log_in, "log.fail": self.fail})

    async def log_in(self, params: Mapping[str, Any], call: Call) -> object:
        self.heard.append(params)
        told = params["password"]
        await call.progress(stage=told, progress=1, total=2)
        await call.notify("told", {"a": [told]})
        answer = await call.elicit("elicitation/input", {"message": f"is it {told}?"})
        self.heard.append(answer)
        logger.warning("the app was told %s", told)
        text = f"password: {told}\n" * 3
        return {
            "text": f"<{told}>",
            told: quote(told, safe=""),
            "json": json.dumps({"password": told}),
            "encoded": b64(told.encode()),
            "file": BinaryData.from_bytes(text.encode(), mime_type="text/plain", filename="a.txt"),
            "in_answer": {
                "content": b64(text.encode()),
                "encoding": "base64",
                "mimeType": "text/plain",
                "size": len(text.encode()),
            },
            "declared": {"content": text, "encoding": "utf-8", "mimeType": "text/plain", "size": len(text.encode())},
            "url": f"data:text/plain;base64,{b64(text.encode())}",
        }

    async def fail(self, params: Mapping[str, Any], call: Call) -> object:
        told = params["password"]
        raise CapabilityError(f"{told} is wrong", details={"tried": [told]}, alternatives=[told])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "value").write_text(f"{CANARY}\n")
    yield tmp_path
    KNOWN_SECRETS.forget()


def settings(source: str = 'env = "CANARY"', more: str = "") -> str:
    Path("team.toml").write_text(f'[secrets.CRM]\n{source}\norigins = ["http://app.test"]\n{more}')
    return "team.toml"


def session_of(app: App, source: str = 'env = "CANARY"') -> Session:
    return connect("memory:", transport=app, config=settings(source), store="memory:")


def files_with(folder: Path, text: str) -> list[str]:
    forms = {text, quote(text, safe=""), json.dumps(text)[1:-1], b64(text.encode())}
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and any(form.encode() in path.read_bytes() for form in forms)
    ]


async def test_secret_value_appears_only_on_the_wire(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    app, shown = App(), list[object]()

    async def answer(request: object) -> Mapping[str, object]:
        shown.append(request)
        return {"success": True, "data": {"value": f"yes, {NAME}"}}

    async with (
        connect(
            "memory:",
            transport=app,
            config=settings(),
            store=folder / "out",
            record=folder / "talk.jsonl",
            on_progress=shown.append,
            on_notification=shown.append,
            on_elicitation=answer,
        ) as session,
        session.events() as events,
    ):
        result = await session.call("log.in", {"password": NAME, "nested": [{"a": f"x {NAME}"}]})
        with pytest.raises(CapabilityError) as failed:
            await session.call("log.fail", {"password": NAME})
        async for event in events:
            shown.append(event)
            if isinstance(event, CallFinished) and event.capability == "log.fail":
                break
    assert app.heard[0] == {"password": CANARY, "nested": [{"a": f"x {CANARY}"}]}
    assert app.heard[1]["data"] == {"value": f"yes, {CANARY}"}
    assert isinstance(result.data, dict)
    assert result.data["text"] == f"<{NAME}>" and result.data[NAME] == NAME and result.data["encoded"] == NAME
    for field in ("file", "in_answer", "declared"):
        path = result.artifacts[field].path
        assert path is not None and path.read_text() == f"password: {'*' * len(CANARY)}\n" * 3
    assert failed.value.message.startswith(f"log.fail: {NAME} is wrong")
    assert failed.value.details["tried"] == [NAME] and failed.value.alternatives == (NAME,)
    assert f"the app was told {NAME}" in caplog.text and len(shown) > 8
    everything = repr((shown, result, result.summary(), failed.value.as_dict(), str(failed.value))) + caplog.text
    for form in (CANARY, quote(CANARY, safe=""), json.dumps(CANARY)[1:-1], repr(CANARY)[1:-1]):
        assert form not in everything
    assert files_with(folder / "out", CANARY) == []
    assert [name for name in files_with(folder, CANARY) if name != "value"] == []  # the recording, and its contents


async def test_error_of_the_transport_itself_shows_no_secret() -> None:
    class Failing(App):
        async def request(self, message: Message, *, timeout: float) -> Message:
            if message.type != "capabilities/call":
                return await super().request(message, timeout=timeout)
            error = TransportError(CANARY, details={CANARY: CANARY}, alternatives=[CANARY])
            error.download_url = f"http://app.test/{CANARY}"
            raise error

    async with session_of(Failing()) as session:
        with pytest.raises(TransportError, match="SECRET:CRM") as failed:
            await session.call("log.in", {"password": NAME})
    assert CANARY not in repr((failed.value.as_dict(), failed.value.args))
    assert failed.value.download_url == f"http://app.test/{NAME}"


async def test_secret_is_limited_to_its_origins_and_users(folder: Path) -> None:
    config = settings(more='users = ["ann"]')
    for user, url, said, code in (
        ("ann", "http://other.test:80/http://app.test", "CRM may not be sent to http://other", "PERMISSION_DENIED"),
        ("ann", None, "CRM may not be sent to an app without an address", "PERMISSION_DENIED"),
        ("bob", App.url, "unknown secret 'CRM';", "INVALID_PARAMS"),
    ):
        app = App()
        app.url = url  # where the page is now
        store = open_store("memory:").scoped(Scope(user=user))
        async with connect("memory:", transport=app, config=config, store=store) as session:
            with pytest.raises(UsageError, match=said) as refused:
                await session.call("log.in", {"password": NAME})
            assert refused.value.code == code and app.heard == []


async def test_message_origins_are_limited_to_those_of_all_its_secrets() -> None:
    """A page may navigate before the message arrives: its transport compares these origins there."""
    origins: list[frozenset[str]] = []

    class Noting(App):
        async def request(self, message: Message, *, timeout: float) -> Message:
            if message.type == "capabilities/call":
                origins.append(message.origins or frozenset())
            return await super().request(message, timeout=timeout)

    both = '[secrets.BOTH]\nenv = "CANARY"\norigins = ["http://app.test", "http://other.test"]\n'
    async with connect("memory:", transport=Noting(), config=settings(more=both), store="memory:") as session:
        await session.call("log.in", {"password": "${SECRET:BOTH}"})
        await session.call("log.in", {"password": f"${{SECRET:BOTH}} {NAME}"})
    assert origins == [{"http://app.test", "http://other.test"}, {"http://app.test"}]


async def test_secret_guess_of_unauthorized_user_is_not_masked(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is masked before somebody who may not have it tells them that their guess was right, and its name."""
    config = settings(more='users = ["ann", "eve"]')
    store = open_store(folder / "out")
    open_sessions = {
        user: connect(
            "memory:",
            transport=App(),
            config=config,
            store=store.scoped(Scope(user=user)),
            evidence=Evidence(console=True),
            record=folder / f"{user}.jsonl",
        )
        for user in ("ann", "bob")
    }
    wrong = CANARY.replace("canary", "Canary")
    async with open_sessions["ann"] as ann, open_sessions["bob"] as bob:
        assert (await ann.call("log.in", {"password": NAME})).data["text"] == f"<{NAME}>"  # type: ignore[index,call-overload]
        for guess in (CANARY, wrong):
            shown: dict[str, str] = {}
            for user, session in (("ann", ann), ("bob", bob)):
                seen = list[object]()
                async with session.events() as events:
                    result = await session.call("log.in", {"password": guess})
                    with pytest.raises(CapabilityError) as failed:
                        await session.call("log.fail", {"password": guess})
                    async for event in events:
                        seen.append(getattr(event, "data", None) or getattr(event, "text", None))
                        if isinstance(event, CallFinished) and event.capability == "log.fail":
                            break
                refs = [*result.artifacts.values(), *result.evidence.values()]
                files = [ref.path.read_text() for ref in refs if ref.path is not None]
                shown[user] = repr((result.data, files, seen, failed.value.as_dict()))
            assert guess in shown["bob"] and "SECRET" not in shown["bob"] and "***" not in shown["bob"]
            assert ("SECRET" in shown["ann"]) == ("***" in shown["ann"]) == (guess == CANARY)
    assert CANARY not in caplog.text  # the log is the operator's
    assert [name for name in files_with(folder, CANARY) if name.endswith(".jsonl")] == []  # and so are recordings


async def test_user_secrets_are_hidden_before_first_use() -> None:
    config = settings(more='users = ["ann"]')
    for user, hidden in (("ann", True), ("bob", False), (None, True)):
        store = open_store("memory:").scoped(Scope(user=user))
        async with connect("memory:", transport=App(), config=config, store=store) as session:
            with pytest.raises(CapabilityError) as failed:
                await session.call("log.fail", {"password": CANARY})
        assert (CANARY not in str(failed.value)) == hidden


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("1234567", "7 characters; it needs at least 8"),
        ("pass-wor", None),
        ("12-34-567", "9 characters and no letter, as a PIN; it needs at least 10"),
        ("1234567890", None),
        ("abcabcabc", "3 different characters; it needs at least 5"),
        ("a" * (64 * 1024 - 4) + "bcde", None),
        ("x" * (64 * 1024 + 1), "more than 65,536 bytes"),
    ],
)
async def test_guessable_secret_is_rejected(value: str, fault: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", value)
    app = App()
    async with session_of(app) as session:
        if fault is None:
            await session.call("log.in", {"password": NAME})
            assert app.heard[0]["password"] == value
            return
        with pytest.raises(UsageError, match=fault) as refused:
            await session.call("log.in", {"password": NAME})
        assert value not in str(refused.value) and app.heard == []
        with pytest.raises(CapabilityError, match=value):
            await session.call("log.fail", {"password": value})


async def test_origin_is_rechecked_after_secret_is_read(folder: Path) -> None:
    """With any transport: this one knows nothing of the origins that a message may go to."""

    class Moving(App):
        @property
        def url(self) -> str | None:  # type: ignore[override]
            return "http://other.test/" if Path("moved").exists() else App.url

    reading = f'command = [{sys.executable!r}, \'-c\', \'open("moved", "w"); print("canary-value")\']'
    app = Moving()
    async with session_of(app, reading) as session:
        with pytest.raises(UsageError, match=r"CRM may not be sent to http://other\.test") as refused:
            await session.call("log.in", {"password": NAME})
    assert refused.value.code == "PERMISSION_DENIED" and app.heard == [] and Path("moved").exists()


PRINTING = f"command = [{sys.executable!r}, '-c', 'print(open(\"value\", encoding=\"utf-8-sig\").read().strip())']"


@pytest.mark.parametrize("source", ['env = "CANARY"', 'file = "value"', PRINTING], ids=["env", "file", "command"])
async def test_secret_value_is_read_for_each_call(folder: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    app = App()
    async with session_of(app, source) as session:
        await session.call("log.in", {"password": NAME})
        monkeypatch.setenv("CANARY", "changed meanwhile")
        # Editors of Windows begin a text with a byte order mark, which is no part of the secret.
        (folder / "value").write_text("changed meanwhile\r\n", encoding="utf-8-sig")
        await session.call("log.in", {"password": NAME})
    assert [told["password"] for told in app.heard if "password" in told] == [CANARY, "changed meanwhile"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('env = "NOT_SET"', "the variable NOT_SET has no characters; it needs at least 8"),
        ('file = "gone"', "cannot be read from its file"),
        (f"command = [{sys.executable!r}, '-c', 'raise SystemExit(3)']", "its command failed"),
        ('command = ["no-such-program"]', "its command failed"),
    ],
)
async def test_unreadable_secret_is_not_sent(source: str, message: str) -> None:
    app = App()
    async with session_of(app, source) as session:
        with pytest.raises(UsageError, match=message):
            await session.call("log.in", {"password": NAME})
    assert app.heard == []


@pytest.mark.slow
async def test_command_of_a_secret_may_leave_a_process_that_holds_its_stdout() -> None:
    """As password managers do, whose helpers live on."""
    app = App()
    seconds = 8
    async with session_of(app, f'command = ["sh", "-c", "sleep {seconds} & cat value"]') as session:
        started = time.monotonic()
        await session.call("log.in", {"password": NAME})
        assert time.monotonic() - started < seconds
    assert app.heard[0] == {"password": CANARY}


async def test_command_of_a_secret_is_ended_with_all_that_it_started() -> None:
    def sleepers() -> list[psutil.Process]:
        return [process for process in processes() if process.name() == "sleep"]

    async with session_of(App(), 'command = ["sh", "-c", "sleep 60; cat value"]') as session:
        call = asyncio.ensure_future(session.call("log.in", {"password": NAME}))
        await eventually(sleepers)
        call.cancel()
        await asyncio.wait((call,), timeout=10)
    assert call.cancelled() and not sleepers()


async def test_secret_reference_passes_any_schema() -> None:
    class Strict(App):
        async def request(self, message: Any, *, timeout: float) -> Any:
            reply = await super().request(message, timeout=timeout)
            if message.type == "initialize":
                schema = {"type": "object", "properties": {"password": {"type": "string", "maxLength": 4}}}
                payload: Any = reply.payload
                payload["capabilities"][0]["inputSchema"] = schema
            return reply

    app = Strict()
    async with session_of(app) as session:
        await session.call("log.in", {"password": NAME})
        with pytest.raises(UsageError, match="password"):
            await session.call("log.in", {"password": "longer"})
    plain = App()
    async with connect("memory:", transport=plain, store="memory:") as session:  # without secrets it is a text
        await session.call("log.in", {"password": NAME})
    assert plain.heard[0] == {"password": NAME}


def test_large_and_binary_files_are_not_masked() -> None:
    known = KnownSecrets()
    known.add("A", "value")
    assert known.mask_file(b"a value.") == b"a *****."
    for content in (b"a value\0", b"value" * (MAX_MASKED_BYTES // 5 + 1)):
        assert known.mask_file(content) is content
    known.add("B", "valuevalue")  # the longer one is found first
    assert known.mask_text("valuevalue value") == "${SECRET:B} ${SECRET:A}"
    known.add("C", "ue-and-a-longer-one")
    assert known.mask_text("valuevalue-and-a-longer-one") == "${SECRET:C}"


@pytest.mark.parametrize("size", [MAX_MASKED_BYTES, MAX_MASKED_BYTES + 1])
async def test_text_file_up_to_a_mebibyte_is_masked_whoever_wrote_it(folder: Path, size: int) -> None:
    async def echo(params: Mapping[str, Any], call: Call) -> object:
        text = f"{params['password']} ".ljust(size, "x").encode()
        return {
            "file": BinaryData.from_bytes(text, mime_type="text/plain"),
            "in_answer": {"content": b64(text), "encoding": "base64", "mimeType": "text/plain"},
        }

    app = AtAddress("http://app.test/page", {"echo": echo})
    async with connect("memory:", transport=app, config=settings(), store=folder / "out") as session:
        result = await session.call("echo", {"password": NAME})
    shown = "*" * len(CANARY) if size == MAX_MASKED_BYTES else CANARY
    for ref in result.artifacts.values():
        assert ref.path is not None and ref.path.read_text() == f"{shown} ".ljust(size, "x")


async def test_question_answered_with_unusable_secret_is_declined(caplog: pytest.LogCaptureFixture) -> None:
    async def answer(request: object) -> Mapping[str, object]:
        return {"success": True, "data": {"value": "${SECRET:GONE}"}}

    app = App()
    config = settings(more='[secrets.GONE]\nenv = "NOT_SET"\norigins = ["http://app.test"]')
    async with connect("memory:", transport=app, config=config, store="memory:", on_elicitation=answer) as session:
        await session.call("log.in", {"password": NAME})
    assert app.heard[1] == {"success": False, "cancelled": True}
    assert "a question of the app was declined: the secret GONE" in caplog.text


def test_non_utf8_value_is_hidden_like_any_other() -> None:
    known = KnownSecrets()
    known.add("BAD", os.fsdecode(b"caf\xe9-pass-1"))
    known.add("GOOD", "value-2 ü")
    assert known.mask_text(os.fsdecode(b"caf\xe9-pass-1 value-2%20%C3%BC")) == "${SECRET:BAD} ${SECRET:GOOD}"
    # In Latin-1, one ends with the first byte of é in UTF-8, and the other begins with the second.
    known.add("FIRST", "value-3 \xc3")
    assert known.mask_text("value-3 À") == "${SECRET:FIRST}"
    known.add("SECOND", "\xa9 value-4")
    assert known.mask_text("value-3 é value-4") == "${SECRET:FIRST}${SECRET:SECOND}"


def test_log_record_without_secret_keeps_its_args(caplog: pytest.LogCaptureFixture) -> None:
    KNOWN_SECRETS.add("A", "value-of-a")
    logger.warning("%s said %s", "bob", "nothing")
    logger.warning("%s said %s", "bob", "value-of-a")
    assert [(record.args, record.getMessage()) for record in caplog.records] == [
        (("bob", "nothing"), "bob said nothing"),
        ((), "bob said ${SECRET:A}"),
    ]
    try:
        raise ValueError("value-of-a")
    except ValueError:
        logger.exception("failed")
    assert "ValueError: ${SECRET:A}" in caplog.text and "value-of-a" not in caplog.text
