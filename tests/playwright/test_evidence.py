"""Recording a call where the browser refuses, hangs or is gone: the call costs no more than its evidence."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import zipfile
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playwright.async_api import Error

from tests.support.fake_page import SECRET, FakePage
from tests.support.rows import each_row
from transports._internal.redaction import REDACTED, EvidenceRedactor
from transports.playwright._evidence import LIMITS, Limits, PageEvidence
from transports.playwright._evidence_kinds import KINDS
from transports.playwright._evidence_secrets import clean_body, clean_entry, clean_event, clean_trace


async def recorded(page: Any, limits: Limits = LIMITS) -> tuple[Any, list[str]]:
    evidence = PageEvidence(SimpleNamespace(page=page), limits=limits)
    call = await evidence.begin(KINDS, "sign.in", {})
    files = {file.kind: file.path for file in await call.end(KINDS)}
    assert not evidence.busy and page.listeners == 0
    return files, call.notes


async def test_browser_evidence_is_redacted_and_unreadable_parts_dropped() -> None:
    files, notes = await recorded(FakePage())
    assert [*files] == [*KINDS] and not notes
    assert SECRET not in files["har"].read_text() and "said=<redacted>" in files["har"].read_text()
    with zipfile.ZipFile(files["trace"]) as archive:
        (line,) = archive.read("trace.trace").decode().splitlines()
        assert json.loads(line) == {"type": "log", "message": "<redacted>"}
        assert archive.read("resources/one.bin") == b""


async def test_unredactable_file_is_not_kept() -> None:
    files, notes = await recorded(FakePage(file="broken"))
    assert "har" not in files and "trace" in files and notes[0].startswith("har: it was not kept: ")


@each_row(
    ("mime_type", "body"),
    [
        ("application/x-ndjson", f'{{"user":"bob"}}\n{{"password":"{SECRET}","pin":"1234"}}\n'),
        ("text/event-stream", f'event: a\ndata: {{"access_token":"{SECRET}","pin":"1234"}}\n\n'),
        ("application/json", f')]}}\'\n{{"password":"{SECRET}","pin":"1234"}}'),
        ("application/json", json.dumps({"pin": "1234", "body": json.dumps({"body": f'{{"password":"{SECRET}"}}'})})),
        ("text/plain", f'[1]\n[{{"password":"{SECRET}"}}]'),
    ],
)
def test_secret_in_json_is_redacted_in_any_encoding(mime_type: str, body: str) -> None:
    first = EvidenceRedactor()
    clean_body(body, mime_type, first)
    redactor = first.with_values()
    assert redactor.known.mask_text(f"later {SECRET}") == "later <redacted>"
    cleaned = clean_body(body, mime_type, redactor)
    assert SECRET not in cleaned and "1234" not in cleaned and cleaned.count("\n") in (0, body.count("\n"))


def test_overly_deep_json_body_is_left_out_of_evidence() -> None:
    # the parser takes deeper JSON than the rules, which call themselves several times for a level
    body = "said:\n" + "[" * 600 + f'"{SECRET}"' + "]" * 600 + f'\n{{"password":"{SECRET}"}}'
    clean_body(body, "text/plain", first := EvidenceRedactor())
    redactor = first.with_values()
    assert redactor.known.mask_text(SECRET) == "<redacted>" and SECRET not in clean_body(body, "text/plain", redactor)


def test_secret_in_websocket_frame_or_base64_body_is_redacted(tmp_path: Path) -> None:
    text = json.dumps({"password": SECRET, "pin": "1234"})
    encoded = base64.b64encode(text.encode()).decode()
    content = {"mimeType": "application/octet-stream", "text": encoded, "encoding": "base64"}
    messages = [{"opcode": 1, "data": text}, {"opcode": 2, "data": encoded}]
    for entry in (*({"_webSocketMessages": [message]} for message in messages), {"response": {"content": content}}):
        first = EvidenceRedactor()
        clean_entry(entry, first)
        redactor = first.with_values()
        assert redactor.known.mask_text(f"later {SECRET}") == "later <redacted>"
        cleaned = json.dumps(clean_entry(entry, redactor))
        assert SECRET not in cleaned and "1234" not in cleaned and encoded[:24] not in cleaned
    for line in messages:
        with zipfile.ZipFile(trace := tmp_path / "trace.zip", "w") as archive:
            archive.writestr("resources/frames.jsonl", f"{json.dumps(line)}\n{json.dumps(line)}\n")
        ((_, cleaned_frames),) = clean_trace(trace, first := EvidenceRedactor())
        assert first.with_values().known.mask_text(f"later {SECRET}") == "later <redacted>"
        assert SECRET.encode() not in cleaned_frames and encoded.encode() not in cleaned_frames


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
async def test_failed_evidence_kind_does_not_affect_others(does: Any, lost: str, note: str) -> None:
    files, notes = await recorded(FakePage(**does), Limits(step=0.05, picture=0.05))
    assert {*KINDS} - {*files} == {lost} and len(notes) == 1 and note in notes[0]


async def test_concurrent_calls_do_not_share_trace_and_closed_page_has_none() -> None:
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


async def test_missing_evidence_folder_does_not_fail_call() -> None:
    page: Any = FakePage()
    evidence = PageEvidence(SimpleNamespace(page=page))
    shutil.rmtree(evidence._folder)
    call = await evidence.begin(KINDS, "one", {})
    assert not evidence.busy and await call.end(KINDS) == []
    assert call.notes == ["nothing can be recorded: No such file or directory"]
    call.discard()
    evidence.close()


_DEEP = '{"a":' * 2000 + f'{{"password":"{SECRET}"}}' + "}" * 2000
_MULTI = "--XyZ\r\nContent-Disposition: form-data; {}\r\n{}\r\n{}\r\n--XyZ--\r\n"
_FORM, _PARTS = "application/x-www-form-urlencoded", "multipart/form-data; boundary=xyz"
#: Bodies whose secret has a name that a rule knows, in forms that the rules did not look into.
BODIES = {
    "deep": ("application/json", _DEEP),
    "deep, of another type": ("text/plain", _DEEP),
    "deep in a text": ("application/json", json.dumps({"body": _DEEP})),
    "a large number": ("application/json", f'{{"n":1e999999,"password":"{SECRET}"}}'),
    "a large number first": ("text/plain", f'[1e999999,{{"password":"{SECRET}"}}]'),
    "a long number": ("application/json", f'{{"n":{"9" * 5000},"password":"{SECRET}"}}'),
    "a large number in a later line": ("application/x-ndjson", f'{{"a":1}}\n{{"n":1e999999,"password":"{SECRET}"}}\n'),
    "broken": ("application/json", f'{{"password":"{SECRET}"'),
    "broken lines": ("text/plain", f'{{\n  "n": 1e999999,\n  "password": "{SECRET}"\n}}'),
    "a number in a stream": ("text/event-stream", f'data: {{"n":1e999999,"password":"{SECRET}"}}\n\n'),
    "an escaped key": (_FORM, f"user=bob&p%61ssword={SECRET}"),
    "an escaped key twice": (_FORM, f"p%2561ssword={SECRET}&user=bob"),
    "a key escaped as in JavaScript": (_FORM, f"\\u0070assword={SECRET}&user=bob"),
    "a key escaped as in HTML": (_FORM, f"%26%23112%3Bassword={SECRET}"),
    "a key of an object": (_FORM, f"user%5Bpassword%5D={SECRET}"),
    "spaces in a value": (_FORM, f"password=a b {SECRET}&user=bob"),
    "JSON in a form": (_FORM, f"payload=%7B%22n%22%3A1e999999%2C%22password%22%3A%22{SECRET}%22%7D"),
    "a form in JSON": ("application/json", json.dumps({"body": f"p%61ssword={SECRET}&user=bob"})),
    "a part": (_PARTS, _MULTI.format('name="password"', "", SECRET)),
    "a part without quotes": (_PARTS, _MULTI.format("name=password", "", SECRET)),
    "a part with an escaped name": (_PARTS, _MULTI.format('name="p%61ssword"', "", SECRET)),
    "a part with a name of RFC 2231": (_PARTS, _MULTI.format("name*=utf-8''p%61ssword", "", SECRET)),
    "a part with a folded head": (_PARTS, _MULTI.format('\r\n name="password"', "", SECRET)),
    "a part of JSON": (
        _PARTS,
        _MULTI.format('name="a"', "Content-Type: application/json\r\n", f'{{"n":1e999999,"password":"{SECRET}"}}'),
    ),
    "a part in base64": (
        _PARTS,
        _MULTI.format('name="a"', "Content-Transfer-Encoding: base64\r\n",
                      base64.b64encode(json.dumps({"password": SECRET}).encode()).decode()),
    ),
    "a part with dashes": (_PARTS, _MULTI.format('name="password"', "", f"a\r\n--b {SECRET}")),
    "parts without a beginning": (_PARTS, f'name="password"\r\n\r\n{SECRET}'),
    "XML": ("application/xml", f"<login><user>bob</user><n:password a='1'>{SECRET}</n:password></login>"),
    "XML in CDATA": ("text/xml", f"<login><password><![CDATA[{SECRET}]]></password></login>"),
    "an attribute": ("application/soap+xml", f"<login user='bob' password = '{SECRET}'/>"),
    "an entity": ("text/xml", f"<!DOCTYPE a [<!ENTITY e '{SECRET}'>]><password>&e;</password>"),
    "GraphQL": ("application/graphql", f'mutation {{ login(user: "bob", password: "{SECRET}") {{ id }} }}'),
    "GraphQL in JSON": ("application/json", json.dumps({"query": f'mutation {{ go(password: "{SECRET}") {{ id }} }}'})),
    "a key that stands there twice": ("application/json", f'{{"a":{{"password":"{SECRET}"}},"a":1}}'),
    "the same in a line": ("text/plain", f'first\n{{"a":{{"password":"{SECRET}"}},"a":1}}'),
}  # fmt: skip


@each_row("kind", BODIES)
def test_named_secret_is_masked_in_any_body_format(kind: str) -> None:
    mime_type, body = BODIES[kind]
    assert SECRET not in clean_body(body, mime_type, EvidenceRedactor())
    entry: Any = {
        "request": {"url": "http://a.test/", "postData": {"mimeType": mime_type, "text": body}},
        "response": {"content": {"mimeType": mime_type, "text": base64.b64encode(body.encode()).decode(),
                                 "encoding": "base64"}},
        "_webSocketMessages": [{"opcode": 1, "data": body}] if "json" in mime_type else [],
    }  # fmt: skip
    cleaned = json.dumps(clean_entry(entry, EvidenceRedactor()))
    assert SECRET not in cleaned
    assert base64.b64encode(SECRET.encode())[:-4].decode() not in cleaned


def test_rest_of_xml_stays_beside_a_secret() -> None:
    body = f"<login user='bob' password = '{SECRET}'><a>b</a></login>"
    assert clean_body(body, "text/xml", EvidenceRedactor()) == (
        "<login user='bob' password = \"<redacted>\"><a>b</a></login>"
    )


def test_short_value_of_a_query_pair_is_masked_by_its_name() -> None:
    pairs = [{"name": "sig", "value": "ab"}, {"name": "page", "value": "2"}]
    cleaned: Any = clean_entry({"request": {"url": "http://a.test/", "queryString": pairs}}, EvidenceRedactor())
    assert cleaned["request"]["queryString"] == [{"name": "sig", "value": "<redacted>"}, pairs[1]]


@each_row(
    "body",
    [
        f"p%61ssword={SECRET}&user=bob",
        _MULTI.format('name="password"', "", SECRET),
        json.dumps({"text": f"sent Authorization: Bearer {SECRET}"}),
        json.dumps({"text": f'<p>Hi <input type="password" value="{SECRET}">'}),
        json.dumps({"text": json.dumps([True, {"password": SECRET}])}),
        json.dumps({"text": f")]}}'\n{json.dumps({'password': SECRET})}"}),
        f'{{"broken":\n{{"password":"{SECRET}"}}\n',
        f"a line\n{{'broken\nAuthorization: Bearer {SECRET}",
    ],
)
def test_secret_of_body_is_removed_elsewhere_whatever_its_declared_type(body: str) -> None:
    for mime_type in ("", "application/json", "application/xml", "text/css", "text/html", "image/png"):
        clean_body(body, mime_type, first := EvidenceRedactor())
        assert first.with_values().redact_text(f"later {SECRET}") == f"later {REDACTED}", mime_type


def test_field_in_plain_text_is_removed_elsewhere() -> None:
    clean_body(f"Hi <input type=password value={SECRET}>", "text/plain", first := EvidenceRedactor())
    assert first.with_values().redact_text(f"later {SECRET}") == f"later {REDACTED}"


def test_value_of_cookie_is_removed_elsewhere_but_not_its_name() -> None:
    cookie = {"name": "theme-of-page", "value": SECRET}
    entry: Any = clean_entry({"request": {"cookies": [cookie]}}, first := EvidenceRedactor())
    assert entry["request"]["cookies"] == [{"name": REDACTED, "value": REDACTED}]
    assert first.with_values().redact_text(f"theme-of-page {SECRET}") == f"theme-of-page {REDACTED}"


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"password=hunter22"), f"\xff\nAuthorization: Bearer {SECRET}".encode("latin-1")],
    ids=["compressed", "marked-secret"],
)
def test_binary_content_that_is_compressed_or_has_marked_secret_is_left_out(data: bytes) -> None:
    content = {"mimeType": "application/octet-stream", "text": base64.b64encode(data).decode(), "encoding": "base64"}
    entry: Any = clean_entry({"response": {"content": content}}, EvidenceRedactor())
    assert entry["response"]["content"]["text"] == ""
    harmless = {**content, "text": base64.b64encode(b"\xff\x00picture").decode()}
    assert clean_entry({"response": {"content": harmless}}, EvidenceRedactor()) == {"response": {"content": harmless}}


def test_snapshot_keeps_its_texts_but_their_secrets_are_removed() -> None:
    text = f'{{ "password":  "{SECRET}" }}'
    event = {"type": "frame-snapshot", "snapshot": {"html": ["PRE", {}, text]}}
    clean_event(event, first := EvidenceRedactor())
    cleaned = {"type": "frame-snapshot", "snapshot": {"html": ["PRE", {}, text.replace(SECRET, REDACTED)]}}
    assert clean_event(event, first.with_values()) == cleaned


@each_row(
    ("head", "content"),
    [
        ("", "HIDE"),  # without a name
        ("Content-Transfer-Encoding: base64\r\n", "HIDE"),
        ("Content-Type: application/xml\r\n", "<login><password>HIDE</password></login>"),
    ],
)
def test_multipart_part_is_masked_entirely_or_by_its_type(head: str, content: str) -> None:
    secret = base64.b64encode(json.dumps({"password": SECRET}).encode()).decode()
    body = _MULTI.format('name="a"' if head else "filename=a", head, content)
    assert clean_body(body.replace("HIDE", secret), _PARTS, EvidenceRedactor()) == body.replace("HIDE", REDACTED)


def test_json_as_deep_as_the_parser_allows_is_masked_or_redacted() -> None:
    lines = ["[" * depth + f'{{"password":"{SECRET}"}}' + "]" * depth for depth in (50, 250, 400, 490)]
    cleaned = clean_body("\n".join(["first", *lines, "last"]), "text/plain", EvidenceRedactor())
    assert SECRET not in cleaned and cleaned.startswith("first\n") and cleaned.endswith("\nlast")


def test_secret_text_that_is_json_is_removed_as_it_was_written() -> None:
    written = '{ "id":  "canary" }'
    clean_body(json.dumps({"credentials": written}), "", first := EvidenceRedactor())
    assert first.with_values().redact_text(f"later {written}") == f"later {REDACTED}"


@each_row("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-7", "gzip", "deflate"])
@pytest.mark.parametrize("mime_type", ["application/json", "application/json; charset=utf-16", _FORM])
def test_undecodable_text_body_is_left_out_of_evidence(encoding: str, mime_type: str, tmp_path: Path) -> None:
    text = f'{{"password":"{SECRET}"}}' if "json" in mime_type else f"password={SECRET}"
    data = text.encode("utf-8" if encoding in ("gzip", "deflate") else encoding)
    data = gzip.compress(data) if encoding == "gzip" else zlib.compress(data) if encoding == "deflate" else data
    body = {"mimeType": mime_type, "text": base64.b64encode(data).decode(), "encoding": "base64"}
    entry = {"request": {"url": "http://a.test/"}, "response": {"content": body}}
    cleaned = clean_entry(entry, EvidenceRedactor())
    assert body["text"] not in json.dumps(cleaned) and SECRET not in json.dumps(cleaned)
    with zipfile.ZipFile(trace := tmp_path / "trace.zip", "w") as archive:
        named = {"mimeType": mime_type, "_sha1": "one.dat"}
        event = {"type": "resource-snapshot", "snapshot": {"request": {"postData": named}}}
        archive.writestr("trace.network", json.dumps(event))
        archive.writestr("resources/one.dat", data)
    kept = dict(clean_trace(trace, EvidenceRedactor()))["resources/one.dat"]
    assert data not in kept and SECRET.encode() not in kept and SECRET.encode("utf-16-le") not in kept


@each_row(
    ("mime_type", "body"),
    [
        ("application/json", '{"user":"bob","n":[1,2.5,null],"text":"a=b"}'),
        ("application/json", ""),
        ("text/plain", "[INFO] it began\n[1] first\n{not json}"),
        (_FORM, "user=bob&note=50%25+of+it"),
        (_PARTS, _MULTI.format('name="note"; filename="a.txt"', "Content-Type: text/plain\r\n", "a\r\n\r\nb")),
        ("application/xml", "<a b='c'><d>e</d></a>"),
        ("text/html", "<p>The password is asked for later.</p>"),
        ("text/javascript", '{ let a = [1]; f("b") }'),
    ],
)
def test_body_without_secrets_is_unchanged(mime_type: str, body: str) -> None:
    assert clean_body(body, mime_type, EvidenceRedactor()) == body
    data = base64.b64encode(body.encode()).decode()
    entry = {"request": {}, "response": {"content": {"mimeType": mime_type, "text": data, "encoding": "base64"}}}
    assert clean_entry(entry, EvidenceRedactor()) == entry


def test_percent_encoded_secret_name_is_redacted() -> None:
    for name in ("p%61ssword", "p%2561ssword", "user%5Bpassword%5D", "\\u0070assword"):
        entry: Any = {"request": {"url": f"http://a.test/?user=bob&{name}={SECRET}#{name}={SECRET}"}}
        cleaned = json.dumps(clean_entry(entry, EvidenceRedactor()))
        assert SECRET not in cleaned and "bob" in cleaned
        frame: dict[str, Any] = {"opcode": 2, "data": base64.b64encode(json.dumps({"a": _DEEP}).encode()).decode()}
        assert frame["data"] not in json.dumps(clean_entry({"_webSocketMessages": [frame]}, EvidenceRedactor()))
