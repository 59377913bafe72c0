"""Recording a call where the browser refuses, hangs or is gone: the call costs no more than its evidence."""

from __future__ import annotations

import base64
import json
import shutil
import zipfile
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.async_api import Error

from tests.support.fake_page import SECRET, FakePage
from transports.browser.evidence import recording as module
from transports.browser.evidence.bodies import clean_body, learn_body
from transports.browser.evidence.har import clean_entry, learn_entry
from transports.browser.evidence.kinds import KINDS
from transports.browser.evidence.page_evidence import PageEvidence
from transports.protocol.secret_values import SecretValues


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STEP", 0.05)
    monkeypatch.setattr(module, "_PICTURE", 0.05)


async def recorded(page: Any, kinds: Any = KINDS) -> tuple[Any, list[str]]:
    evidence = PageEvidence(SimpleNamespace(page=page))
    call = await evidence.begin(kinds, "sign.in", {})
    files = {file.kind: file.path for file in await call.end(kinds)}
    assert not evidence.busy and page.listeners == 0
    return files, call.notes


async def test_what_the_browser_wrote_is_redacted_and_what_cannot_be_read_is_left_out() -> None:
    files, notes = await recorded(FakePage())
    assert [*files] == [*KINDS] and not notes
    assert SECRET not in files["har"].read_text() and "said=<redacted>" in files["har"].read_text()
    with zipfile.ZipFile(files["trace"]) as archive:
        (line,) = archive.read("trace.trace").decode().splitlines()
        assert json.loads(line) == {"type": "log", "message": "<redacted>"}
        assert archive.read("resources/one.bin") == b""


async def test_a_file_that_cannot_be_redacted_is_not_kept() -> None:
    files, notes = await recorded(FakePage(file="broken"))
    assert "har" not in files and "trace" in files and notes[0].startswith("har: it was not kept: ")


@pytest.mark.parametrize(
    ("mime_type", "body"),
    [
        ("application/x-ndjson", f'{{"user":"bob"}}\n{{"password":"{SECRET}","pin":"1234"}}\n'),
        ("text/event-stream", f'event: a\ndata: {{"access_token":"{SECRET}","pin":"1234"}}\n\n'),
        ("application/json", f')]}}\'\n{{"password":"{SECRET}","pin":"1234"}}'),
        ("application/json", json.dumps({"pin": "1234", "body": json.dumps({"body": f'{{"password":"{SECRET}"}}'})})),
        ("text/plain", f'[1]\n[{{"password":"{SECRET}"}}]'),
    ],
)
def test_a_secret_in_json_is_removed_however_the_json_is_sent(mime_type: str, body: str) -> None:
    secrets = SecretValues()
    learn_body(body, mime_type, secrets)
    assert secrets.by_value(f"later {SECRET}") == "later <redacted>"
    cleaned = clean_body(body, mime_type, secrets)
    assert SECRET not in cleaned and "1234" not in cleaned and cleaned.count("\n") in (0, body.count("\n"))


def test_json_that_is_too_deep_for_the_rules_is_left_out() -> None:
    # the parser takes deeper JSON than the rules, which call themselves several times for a level
    body = "said:\n" + "[" * 600 + f'"{SECRET}"' + "]" * 600 + f'\n{{"password":"{SECRET}"}}'
    learn_body(body, "text/plain", secrets := SecretValues())
    assert secrets.by_value(SECRET) == "<redacted>" and SECRET not in clean_body(body, "text/plain", secrets)


def test_a_secret_in_a_frame_of_a_websocket_or_in_a_body_as_base64_is_removed() -> None:
    text = json.dumps({"password": SECRET, "pin": "1234"})
    encoded = base64.b64encode(text.encode()).decode()
    content = {"mimeType": "application/octet-stream", "text": encoded, "encoding": "base64"}
    for entry in (
        {"_webSocketMessages": [{"opcode": 1, "data": text}, {"opcode": 1, "data": "hello"}]},
        {"_webSocketMessages": [{"opcode": 2, "data": encoded}]},
        {"response": {"content": content}},
    ):
        secrets = SecretValues()
        learn_entry(entry, secrets)
        assert secrets.by_value(f"later {SECRET}") == "later <redacted>"
        cleaned = json.dumps(clean_entry(entry, secrets))
        assert SECRET not in cleaned and "1234" not in cleaned and encoded[:24] not in cleaned
    for line in ({"opcode": 1, "data": text}, {"opcode": 2, "data": encoded}):  # of resources/….jsonl in a trace
        learn_body(f"{json.dumps(line)}\n{json.dumps(line)}\n", "", secrets := SecretValues())
        assert secrets.by_value(f"later {SECRET}") == "later <redacted>"


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("does", "lost", "note"),
    [
        ({"video": Error("Executable doesn't exist at /x/ffmpeg-linux")}, "video", "`playwright install ffmpeg`"),
        ({"trace": Error("Tracing has been already started")}, "trace", "trace: Tracing has been already started"),
        ({"screenshot": "hang"}, "screenshot", "screenshot: the browser did not answer in time"),
        ({"stop_har": Error("Target closed\nlog")}, "har", "har: Target closed"),
        ({"stop": "hang"}, "trace", "trace: the browser did not answer in time"),
    ],
)
async def test_a_kind_that_fails_costs_itself_and_no_other(does: Any, lost: str, note: str) -> None:
    page = FakePage(**does)
    files, notes = await recorded(page)
    assert {*KINDS} - {*files} == {lost} and len(notes) == 1 and note in notes[0]


async def test_calls_at_once_share_no_trace_and_a_page_that_is_gone_has_none() -> None:
    page: Any = FakePage()
    evidence = PageEvidence(SimpleNamespace(page=page))
    first = await evidence.begin(KINDS, "one", {})
    second = await evidence.begin(KINDS, "two", {})
    assert {file.kind for file in await second.end(KINDS)} == {"console", "screenshot"}
    assert [note.partition(":")[0] for note in second.notes] == ["har", "trace", "video"]
    assert len(await first.end(KINDS)) == 5 and not first.notes
    third = await evidence.begin(KINDS, "three", {})
    assert len(await third.end(KINDS)) == 5
    for call in (first, second, third):
        call.discard()
    assert not [*evidence._folder.iterdir()]
    evidence.close()
    assert not evidence._folder.exists()
    gone = await PageEvidence(SimpleNamespace(page=None)).begin(KINDS, "four", {})
    assert await gone.end(KINDS) == [] and gone.notes == ["the page was not open when the call began"]


async def test_a_folder_that_is_gone_costs_the_evidence_and_not_the_call() -> None:
    page: Any = FakePage()
    evidence = PageEvidence(SimpleNamespace(page=page))
    shutil.rmtree(evidence._folder)
    call = await evidence.begin(KINDS, "one", {})
    assert not evidence.busy and await call.end(KINDS) == []
    assert call.notes == ["nothing can be recorded: No such file or directory"]
    call.discard()
    evidence.close()
