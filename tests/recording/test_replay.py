"""Conversations that are recorded and replayed without a browser: what is kept, what is found again, what is refused.

The whole contract suite, recorded over Playwright and replayed, is in ``e2e/test_behaviour.py``.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import itertools
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import transports.sync
from tests.support.apps import answering
from tests.support.eventually import eventually
from tests.support.raw_server import listening, reply, then
from tests.support.rows import each_row
from transports import (
    CallTimeout,
    CapabilityError,
    Disconnected,
    MemoryTransport,
    Progress,
    Result,
    Session,
    UsageError,
    WebSocketTransport,
    connect,
)
from transports.errors import BadRecording, NotRecorded, StoreError
from transports.protocol.messages import Message
from transports.recording._file import Recording
from transports.recording._replay import ReplayTransport
from transports.surfaces.cli import main
from transports.testing import Call
from webapp_fixture import digest, serve


async def shout(params: Mapping[str, object], call: Call) -> object:
    await call.progress(progress=1, total=2, stage="half")
    return {"text": str(params.get("text")).upper()}


async def copy(params: Mapping[str, Any], call: Call) -> object:
    content = params["file"].read()
    return {"copy": {"content": content, "mimeType": "application/x-copy", "filename": "copy.bin"}}


async def ask(params: Mapping[str, object], call: Call) -> object:
    return {"answer": (await call.elicit("elicitation/input", {"message": "Name?"}))["data"]["value"]}


async def refuse(params: Mapping[str, object], call: Call) -> object:
    raise CapabilityError("not on Sundays", code="CLOSED", retry_after=5, details={"day": "Sunday"}, alternatives=["x"])


async def wait(params: Mapping[str, object], call: Call) -> object:
    await asyncio.sleep(3600)
    return None


async def give_up(params: Mapping[str, object], call: Call) -> object:
    await asyncio.sleep(0.27)
    raise CapabilityError("it took too long", code="TIMEOUT")


async def lose(params: Mapping[str, object], call: Call) -> object:
    raise Disconnected("the far side is gone", retry_after=3, details={"sent": True})


async def login(params: Mapping[str, object], call: Call) -> object:
    await call.notify("signed-in", {"session_token": "s3cr3t-in-an-event"})
    return {
        "user": params.get("user"),
        "api_key": "s3cr3t-in-an-answer",
        "next": "https://a.test/?token=s3cr3t-url&a=1",
    }


HANDLERS = {handler.__name__: handler for handler in (shout, copy, ask, refuse, wait, give_up, lose, login)}
Make = Callable[..., Session]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "calls.jsonl"


@pytest.fixture
def recorded(tmp_path: Path, file: Path) -> Make:
    def make(**options: Any) -> Session:
        options = {"record": file, "store": tmp_path / "recorded", **options}
        return connect("memory:", **{"transport": MemoryTransport(HANDLERS), **options})

    return make


@pytest.fixture
def replayed(tmp_path: Path, file: Path) -> Make:
    return lambda **options: connect(f"replay:{file}", **{"store": tmp_path / "replayed", **options})


def plain(result: Result) -> object:
    refs = {name: (ref.sha256, ref.mime_type, ref.size_bytes) for name, ref in result.artifacts.items()}
    return refs, result.capability, result.warnings, result.effects


# --- what is played again ---------------------------------------------------------------------------------------------


async def test_calls_progress_content_and_questions_are_replayed(recorded: Make, replayed: Make) -> None:
    async def program(make: Make) -> tuple[list[Result], list[object]]:
        stages: list[object] = []

        async def answer(request: object) -> Mapping[str, object]:
            return {"success": True, "data": {"value": "Ada"}}

        async with make(on_elicitation=answer, on_progress=lambda item: stages.append(item.stage)) as app:
            calls: list[tuple[str, dict[str, object]]] = [
                ("shout", {"text": "hi"}),
                ("copy", {"file": b"\x00" * 500_000}),
                ("copy", {"file": b"x"}),
                ("ask", {}),
            ]
            results = [await app.call(name, params) for name, params in calls]
            assert [*app.capabilities] == [*HANDLERS] and app.info.name == "In-process app"
        return results, stages

    first, second = await program(recorded), await program(replayed)
    assert [*map(plain, first[0])] == [*map(plain, second[0])] and first[1] == second[1] == ["half"]
    assert second[0][3].data == {"answer": "Ada"} and second[0][0].transport == "replay"


class Doubtful(MemoryTransport):
    """Each answer to a call has a warning of the transport."""

    async def request(self, message: Message, *, timeout: float) -> Message:
        reply = await super().request(message, timeout=timeout)
        if message.type == "capabilities/call":
            reply.warnings = ["a member was left out"]
        return reply


async def test_replay_repeats_warnings_of_transport(recorded: Make, replayed: Make) -> None:
    for make in (partial(recorded, transport=Doubtful(HANDLERS)), replayed):
        async with make() as app:
            assert (await app.call("shout", {"text": "hi"})).warnings == ("a member was left out",)


async def test_replay_raises_recorded_errors(recorded: Make, replayed: Make) -> None:
    async def program(make: Make) -> list[dict[str, object]]:
        seen: list[dict[str, object]] = []
        async with make() as app:
            for name, kind in (("refuse", CapabilityError), ("wait", CallTimeout), ("lose", Disconnected)):
                with pytest.raises(kind) as caught:
                    await app.call(name, timeout=0.2 if name == "wait" else None)
                seen.append({"type": type(caught.value), **caught.value.as_dict()})
            with pytest.raises(CapabilityError, match="no such capability"):
                await app.call("nothing")
        return seen

    first = await program(recorded)
    assert await program(replayed) == first
    assert first[0]["retry_after"] == 5 and first[0]["details"] == {"day": "Sunday"}


async def test_replay_repeats_call_timeout_of_app_giving_up(recorded: Make, replayed: Make) -> None:
    for make in (recorded, replayed):
        async with make() as app:
            with pytest.raises(CallTimeout, match=r"^give_up: no answer within 0\.3 s"):
                await app.call("give_up", timeout=0.3)
            with pytest.raises(CapabilityError, match="it took too long"):
                await app.call("give_up")


async def test_replay_answers_equal_calls_in_recorded_order(tmp_path: Path, file: Path, replayed: Make) -> None:
    count = itertools.count()

    async def tick(params: Mapping[str, object], call: Call) -> object:
        return {"n": next(count)}

    async with connect("memory:", transport=MemoryTransport({"tick": tick}), record=file, store=tmp_path) as app:
        for _ in range(3):
            await app.call("tick", {"a": 1, "b": 2.0})
    async with replayed() as app:
        assert [(await app.call("tick", {"b": 2, "a": 1})).data for _ in range(3)] == [{"n": n} for n in range(3)]


async def test_call_cancelled_as_another_ends_returns_at_once(recorded: Make, replayed: Make) -> None:
    async with recorded() as app:
        waiting = asyncio.ensure_future(app.call("wait"))
        await app.call("shout", {"text": "hi"})
        waiting.cancel()
        await asyncio.wait((waiting,))
    for turns in range(0, 40, 5):  # of the event loop, from the beginning of the other call
        async with replayed() as app:
            waiting = asyncio.ensure_future(app.call("wait"))
            await asyncio.sleep(0.01)
            shouting = asyncio.ensure_future(app.call("shout", {"text": "hi"}))
            for _ in range(turns):
                await asyncio.sleep(0)
            waiting.cancel()
            async with asyncio.timeout(20):
                await asyncio.wait((waiting,))
                await shouting
            assert waiting.cancelled()


async def test_parallel_calls_get_their_progress_before_answer_and_replay_in_any_order(
    recorded: Make, replayed: Make
) -> None:
    async def note(seen: list[object], item: Progress) -> None:
        seen.append(item.stage)

    for make in (recorded, replayed):
        heard: dict[str, list[object]] = {"one": [], "two": []}
        async with make() as app:
            calls = [app.call("shout", {"text": name}, on_progress=partial(note, heard[name])) for name in heard]
            await asyncio.gather(*calls)
        assert heard == {"one": ["half"], "two": ["half"]}
    async with replayed() as app:  # what was done at once may be done in turn, and in another order
        for name in ("two", "one"):
            assert (await app.call("shout", {"text": name})).data == {"text": name.upper()}


async def test_replay_is_not_recorded_over_itself(recorded: Make, replayed: Make, file: Path) -> None:
    async with recorded() as app:
        await app.call("shout", {"text": "a"})
    before = file.read_bytes()
    with pytest.raises(UsageError, match="record= names the recording that is replayed"):
        replayed(record=file.parent / "." / ".." / file.parent.name / file.name)
    assert file.read_bytes() == before


@pytest.mark.parametrize("way", [{"as": "url", "auth": "bearer"}, {"as": "base64"}], ids=str)
async def test_replay_serves_files_from_recording(
    tmp_path: Path, file: Path, replayed: Make, way: Mapping[str, str]
) -> None:
    params = {"bytes": 200_000, **way}
    async with serve() as fixture:
        async with connect(
            fixture.ws_url, transport=WebSocketTransport(fixture.ws_url), record=file, store=tmp_path / "recorded"
        ) as app:
            await app.call("file.generate", params)
        assert fixture.token not in file.read_text()
    (tmp_path / "team.toml").write_text(f'[apps.old]\nurl = "replay:{file}"\n')
    named = connect("old", config=tmp_path / "team.toml", store=tmp_path / "named")
    for session in (replayed(), replayed(record=tmp_path / "again.jsonl"), named):
        async with session as app:
            ref = (await app.call("file.generate", params)).artifacts["file"]
        assert (ref.sha256, ref.filename) == (digest(200_000, 0), "generated.bin")


@pytest.mark.parametrize("manifest", ["", "broken"])
async def test_manifest_or_reason_for_having_none_is_replayed(
    tmp_path: Path, file: Path, replayed: Make, manifest: str
) -> None:
    async with serve() as fixture:
        page = f"{fixture.url}?manifest={manifest}"
        transport = WebSocketTransport(fixture.ws_url)
        async with connect(page, transport=transport, record=file, store=tmp_path / "recorded") as app:
            warnings = app.warnings
    assert ("cannot be read" in warnings[0]) is bool(manifest), warnings
    async with replayed() as app:
        assert app.warnings == warnings


async def test_download_begun_again_is_recorded_once(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
    cut_off = then(reply(b"b" * 40_000, "200 OK", 70_000))
    async with listening(cut_off, reply(b"a" * 70_000)) as server:
        answer = {"downloadUrl": f"{server.url}/a.bin", "mimeType": "application/x-a"}
        transport = MemoryTransport({"export": answering(answer)})
        async with connect("memory:", transport=transport, record=file, store=tmp_path / "a") as session:
            await session.call("export")
    assert server.connects == 2
    async with connect(f"replay:{file}", store=tmp_path / "b") as session:
        ref = (await session.call("export")).artifact()
        assert await session.store.get(ref) == b"a" * 70_000


async def test_download_that_cannot_be_copied_for_its_recording_says_so(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve() as fixture:
        transport = WebSocketTransport(fixture.ws_url)
        async with connect(fixture.ws_url, transport=transport, record=file, store=tmp_path / "out") as app:
            monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
            with pytest.raises(StoreError, match=r"cannot copy a download for the recording in .*gone"):
                await app.call("file.generate", {"bytes": 70_000, "as": "url"})


def test_sync_api_and_cli_record_and_replay(tmp_path: Path, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = MemoryTransport(HANDLERS)
    with transports.sync.connect("memory:", transport=memory, record=file, store=tmp_path / "out") as app:
        app.call("shout", {"text": "hi"})
    with transports.sync.connect(f"replay:{file}", store=tmp_path / "out") as app:
        assert app.call("shout", {"text": "hi"}).data == {"text": "HI"}
    from_recording = ["call", f"replay:{file}", "--out", str(tmp_path / "out"), "--json"]
    assert main([*from_recording, "shout", "-p", "text=hi", "--record", str(tmp_path / "again.jsonl")]) == 0
    assert json.loads(capsys.readouterr().out)["data"] == {"text": "HI"}
    assert main(["call", f"replay:{tmp_path / 'again.jsonl'}", "shout", "-p", "text=hi", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main([*from_recording, "shout", "-p", "text=ho"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "NOT_RECORDED" and '+    "text": "ho"' in error["details"]["diff"]
    assert main([*from_recording, "shout", "--browser", "firefox"]) == 2
    assert main(["call", f"replay:{tmp_path / 'nothing'}", "shout"]) == 1
    assert "make one with `abp call --record`" in capsys.readouterr().err


# --- what was not recorded --------------------------------------------------------------------------------------------


async def test_unrecorded_call_error_shows_difference(recorded: Make, replayed: Make) -> None:
    async with recorded() as app:
        await app.call("shout", {"text": "hi", "times": [1, 2, 3]})
        await app.call("shout", {"text": "quite another"})
        with pytest.raises(CapabilityError):
            await app.call("refuse", {"text": "hi", "times": [1, 2, 4]})
    async with replayed() as app:
        with pytest.raises(NotRecorded) as caught:
            await app.call("shout", {"text": "hi", "times": [1, 2, 4]})
        assert caught.value.code == "NOT_RECORDED" and caught.value.session_survives
        line = caught.value.details["line"]
        removed = [text[1:].strip() for text in caught.value.message.splitlines() if text.startswith(("-  ", "+  "))]
        assert removed == ["3", "4"] and f"line {line}" in caught.value.message
        await app.call("shout", {"text": "hi", "times": [1, 2, 3]})
        with pytest.raises(NotRecorded, match=rf"recorded 1× in .*line {line}.* once more"):
            await app.call("shout", {"text": "hi", "times": [1, 2, 3]})


async def test_replay_rejects_unrecorded_content(recorded: Make, replayed: Make, tmp_path: Path) -> None:
    async with recorded() as app:
        await app.call("copy", {"file": b"content"})
    (tmp_path / "same").write_bytes(b"content")
    async with replayed() as app:
        with pytest.raises(NotRecorded, match="sha256"):
            await app.call("copy", {"file": b"other"})
        assert (await app.call("copy", {"file": tmp_path / "same"})).artifacts["copy"].size_bytes == 7


async def test_replay_rejects_different_elicitation_answer(recorded: Make, replayed: Make) -> None:
    async def says(name: str) -> Mapping[str, object]:
        return {"success": True, "data": {"value": name}}

    async with recorded(on_elicitation=lambda request: says("Ada")) as app:
        await app.call("ask")
    async with replayed(on_elicitation=lambda request: says("Bob")) as app:
        with pytest.raises(NotRecorded, match=r"different answer[\s\S]*Bob"):
            await app.call("ask")


# --- secrets ----------------------------------------------------------------------------------------------------------


async def test_secrets_are_not_recorded_and_other_secrets_still_match(
    recorded: Make, replayed: Make, file: Path
) -> None:
    def params(secret: str) -> dict[str, object]:
        return {
            "user": "ada",
            "password": secret,
            "headers": {"Authorization": f"Bearer {secret}"},
            "note": f"see https://ada:{secret}@a.test/x?access_token={secret}&page=2\nX-Api-Key: {secret}",
            "credentials": {"deep": [secret, 7]},
        }

    async with recorded() as app:
        await app.call("login", params("s3cr3t-given-1"))
    text = file.read_text()
    assert json.loads(text.splitlines()[0])["transport"] == "memory"
    assert "s3cr3t" not in text and "ada" in text and "page=2" in text and "&a=1" in text
    async with replayed() as app:
        result = await app.call("login", params("another-one-2"))
    assert result.data == {"user": "ada", "api_key": "<redacted>", "next": "https://a.test/?token=<redacted>&a=1"}


async def test_redaction_rules_can_be_extended(recorded: Make, replayed: Make, file: Path) -> None:
    recording = Recording(file, fields=["pin"], patterns=[r"sk-\w+", r"iban (?P<secret>\w+)"])
    async with recorded(record=recording) as app:
        await app.call("shout", {"text": "x", "userPin": "1234", "a": "sk-9999", "b": "iban DE5500"})
    text = file.read_text()
    assert not [secret for secret in ("1234", "sk-9999", "DE5500") if secret in text] and "iban <redacted>" in text
    assert "patterns" not in json.loads(text.splitlines()[0])  # a stranger's file names no work
    again = ReplayTransport(file, patterns=recording.patterns)
    async with replayed(transport=again) as app:
        await app.call("shout", {"text": "x", "userPin": "4321", "a": "sk-1", "b": "iban FR76"})
    with pytest.raises(UsageError, match="not a regular expression"):
        recorded(record=Recording(file, patterns=["("]))


# --- recordings that cannot be read -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def conversation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("recorded") / "calls.jsonl"
    memory = MemoryTransport(HANDLERS)
    with transports.sync.connect("memory:", transport=memory, record=file, store="none:") as app:
        app.call("copy", {"file": b"content"})
        app.call("shout", {"text": "hi"})
    return file


@pytest.fixture
def lines(conversation: Path, file: Path) -> list[dict[str, Any]]:
    """A recording, as its lines."""
    shutil.copy(conversation, file)
    shutil.copytree(f"{conversation}.d", f"{file}.d")
    return [json.loads(line) for line in file.read_text().splitlines()]


async def refused(replayed: Make, match: str) -> BadRecording:
    async with asyncio.timeout(20):
        with pytest.raises(BadRecording, match=match) as caught:
            async with replayed() as app:
                await app.call("copy", {"file": b"content"})
    assert caught.value.code == "BAD_RECORDING"
    return caught.value


UPWARDS = {"path": [], "kind": "bytes", "sha256": "../../etc/passwd"}


@each_row("text", ["", "hello\n", '{"a": 1}\n', '{"abp_recording": "x"}\n'])
async def test_non_recording_file_is_rejected(replayed: Make, file: Path, text: str) -> None:
    file.write_text(text)
    assert (await refused(replayed, "line 1")).details["line"] == 1


@pytest.mark.parametrize(
    ("edited", "change", "match"),
    [
        ("abp_recording", {"abp_recording": 2, "novelty": True}, r"format 2, this one reads 1.; upgrade"),
        ("capabilities/call", {"n": "three"}, r"n: Input should be a valid integer"),
        ("capabilities/call", {"does": "sing"}, r"does not match any of the expected tags"),
        ("capabilities/call", {"kind": "sing"}, r"kind: Input should be 'open'"),
        ("capabilities/call", {"n": 0}, r"the number 0 was used before"),
        ("capabilities/call", {"leaves": [{"path": ["nowhere"], "kind": "text"}]}, r"the tree has no place 'nowhere'"),
        ("capabilities/call", {"leaves": [UPWARDS]}, r"sha256: String should match"),
        ("capabilities/call", "{", "Invalid JSON"),
        ("recorder/state", {"payload": [1]}, "its payload is not an object"),
        ("capabilities/call-result", {"n": 99}, "no operation 99 is waiting for an answer"),
    ],
)
async def test_edited_recording_line_is_named(
    replayed: Make, file: Path, lines: list[dict[str, Any]], edited: str, change: dict[str, object] | str, match: str
) -> None:
    (index, *_) = [n for n, line in enumerate(lines) if edited in (line.get("type"), *line)]
    texts = [json.dumps(line) for line in lines]
    texts[index] = change if isinstance(change, str) else json.dumps({**lines[index], **change})
    file.write_text("\n".join([*texts, ""]))
    error = await refused(replayed, f"line {index + 1}: .*{match}")
    assert error.details["line"] == index + 1 and "record again" in error.message


@pytest.mark.load
async def test_recording_line_with_too_many_values_is_not_parsed(
    replayed: Make, file: Path, lines: list[dict[str, Any]]
) -> None:
    texts = [json.dumps(line) for line in lines]
    many = '{"does":"answer","n":1,"payload":[' + "1," * 4_000_000 + "1]}"
    file.write_text("\n".join([*texts[:4], many, *texts[5:], ""]))
    await refused(replayed, "line 5: it has more than 4,000,000 values and names; record again")
    head = texts[0][:-1] + ',"x":[' + "1," * 100_000 + "1]}"
    file.write_text("\n".join([head, *texts[1:], ""]))
    await refused(replayed, "line 1: it has more than 100,000 values and names; record again")


@pytest.mark.usefixtures("lines")
async def test_replay_accepts_truncated_last_line_and_byte_order_mark_of_an_editor(
    replayed: Make, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    *whole, last = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(codecs.BOM_UTF8 + b"".join(whole) + last[:10])
    async with replayed() as app:
        await app.call("copy", {"file": b"content"})
    assert f"ends in the middle of line {len(whole) + 1}" in caplog.text


async def test_recording_of_killed_process_is_readable(recorded: Make, replayed: Make, file: Path) -> None:
    async with recorded() as app:
        await app.call("shout", {"text": "hi"})
        waiting = asyncio.ensure_future(app.call("wait"))
        await eventually(lambda: b'"wait"' in file.read_bytes().splitlines()[-1])
        at_its_death = file.read_bytes()
        waiting.cancel()
    file.write_bytes(at_its_death)
    async with replayed() as app:
        assert (await app.call("shout", {"text": "hi"})).data == {"text": "HI"}
        with pytest.raises(BadRecording, match="ends before the answer; record again, and let the program end"):
            await app.call("wait")


# --- writing ----------------------------------------------------------------------------------------------------------


async def test_recording_again_replaces_file_and_content(recorded: Make, replayed: Make, file: Path) -> None:
    for content in (b"first", b"second"):
        async with recorded() as app:
            await app.call("copy", {"file": content})
    assert [path.read_bytes() for path in Path(f"{file}.d").iterdir()] == [b"second"]
    assert file.stat().st_mode & 0o077 == 0 and Path(f"{file}.d").stat().st_mode & 0o077 == 0
    async with replayed() as app:
        await app.call("copy", {"file": b"second"})


async def test_two_sessions_do_not_record_to_one_file(recorded: Make, replayed: Make) -> None:
    async with recorded() as app:
        await app.call("shout", {"text": "a"})
        with pytest.raises(UsageError, match=r"another session records to .*calls\.jsonl now; name another file"):
            await recorded().__aenter__()
        await app.call("shout", {"text": "b"})
    async with replayed() as app:
        for text in ("a", "b"):
            await app.call("shout", {"text": text})


@contextmanager
def limited_growth(file: Path, room: int) -> Iterator[None]:
    """No file of this process may become more than ``room`` bytes larger than ``file`` is."""
    resource = pytest.importorskip("resource", reason="Windows has no limits")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + room, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def test_recording_on_full_disk_is_an_error_and_keeps_whole_lines(recorded: Make, file: Path) -> None:
    async with recorded() as app:
        with limited_growth(file, 100), pytest.raises(StoreError, match="cannot write the recording"):
            await app.call("shout", {"text": "a" * 1000})
        await app.call("shout", {"text": "b"})
    assert all(json.loads(line) for line in file.read_text().splitlines())


# --- files that are something else ------------------------------------------------------------------------------------


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(b"content")
    path.symlink_to(elsewhere)


def make_link_of_folder(path: Path) -> None:
    path.write_bytes(b"content")
    elsewhere = path.parent.rename(path.parent.parent / "elsewhere")
    path.parent.symlink_to(elsewhere)


def make_changed(path: Path) -> None:
    path.write_bytes(b"CONTENT")


def make_huge(path: Path) -> None:
    path.touch()
    os.truncate(path, (4 << 30) + 1)  # takes no room on the disk


def make_nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (make_pipe, r"cannot be read \("),
        (make_endless, r"cannot be read \("),
        (make_link, r"cannot be read \("),
        (make_link_of_folder, r"cannot be read \("),
        (make_nothing, r"cannot be read .No such file"),
        (make_changed, r"was changed; put the file back as it was, or record again"),
        (make_huge, r"is larger than 4,294,967,296 bytes"),
    ],
)
async def test_replay_rejects_altered_content_file(
    replayed: Make, file: Path, lines: list[dict[str, Any]], make: Callable[[Path], object], match: str
) -> None:
    (number,) = [n for n, line in enumerate(lines, 1) if line.get("does") == "answer" and line.get("leaves")]
    (content,) = Path(f"{file}.d").iterdir()
    content.unlink()
    make(content)
    await refused(replayed, rf"line {number}: its content .* {match}")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (make_nothing, r"\(No such file.*abp call --record"),
        (make_endless, "not a regular file"),
        (make_huge, "larger than 1,073,741,824 bytes"),
    ],
)
async def test_unreadable_recording_is_rejected(
    replayed: Make, file: Path, make: Callable[[Path], object], match: str
) -> None:
    make(file)
    await refused(replayed, rf"the recording .* cannot be read .*{match}")


@pytest.mark.parametrize("has_recording", [True, False])
async def test_rerecording_deletes_nothing_behind_symlink(
    recorded: Make, request: pytest.FixtureRequest, file: Path, has_recording: bool
) -> None:
    store = file.parent / "store" / ".abp" / "blobs"
    store.mkdir(parents=True)
    (store / hashlib.sha256(b"theirs").hexdigest()).write_bytes(b"theirs")
    folder = Path(f"{file}.d")
    if has_recording:
        request.getfixturevalue("lines")
        shutil.rmtree(folder)
    folder.symlink_to(store)
    with pytest.raises(UsageError, match=r"\.d is a symlink, not a folder, or another user's"):
        await recorded().__aenter__()
    assert [path.read_bytes() for path in store.iterdir()] == [b"theirs"]


def make_diary(path: Path) -> None:
    path.write_text("my diary")


def make_link_to_recording(path: Path) -> None:
    (path.parent / "elsewhere.jsonl").write_text('{"abp_recording": 1}\n')
    path.symlink_to(path.parent / "elsewhere.jsonl")


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (make_diary, "is not a recording; name another file"),
        (make_link_to_recording, "is a symlink"),
        (make_pipe, "not a recording|cannot write the recording"),
        (lambda path: path.parent.rmdir() or path.parent.touch(), "cannot write the recording"),
    ],
)
async def test_recording_overwrites_only_recordings(
    recorded: Make, tmp_path: Path, make: Callable[[Path], object], match: str
) -> None:
    folder = tmp_path / "recordings"
    folder.mkdir()
    make(folder / "calls.jsonl")
    before = {path: path.read_bytes() for path in folder.glob("*") if path.is_file()}
    async with asyncio.timeout(20):
        with pytest.raises((UsageError, transports.StoreError), match=match):
            await recorded(record=folder / "calls.jsonl").__aenter__()
    assert {path: path.read_bytes() for path in folder.glob("*") if path.is_file()} == before


async def test_patterns_in_recording_are_not_run(recorded: Make, replayed: Make, file: Path) -> None:
    async with recorded() as app:
        await app.call("shout", {"text": "a" * 5000 + "!"})
    header, rest = file.read_text().split("\n", 1)
    file.write_text(json.dumps({**json.loads(header), "patterns": ["a(?P<secret>a)", "("]}) + "\n" + rest)
    async with replayed() as app:
        assert (await app.call("shout", {"text": "a" * 5000 + "!"})).data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
async def test_forked_process_does_not_keep_a_recording_locked(recorded: Make) -> None:
    async with recorded():
        child = os.fork()
        if child == 0:
            signal.pause()
            os._exit(0)
    try:
        async with recorded():
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


async def test_last_line_that_finds_no_room_is_an_error(recorded: Make, file: Path) -> None:
    async with recorded():
        opened = file.read_bytes()
    *closing, closed = file.read_bytes()[len(opened) :].splitlines(keepends=True)
    session = await recorded()
    room = sum(map(len, closing)) + len(closed) // 2  # for the half of the last line
    with limited_growth(file, room), pytest.raises(StoreError, match="cannot write the recording"):
        await session.aclose()
