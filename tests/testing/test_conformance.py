"""``abp conformance`` without a browser: how inputs are made, what is printed, and the table in the docs."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator, Mapping
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from websockets.sync.server import ServerConnection, serve as serve_websocket

import webapp_fixture
from tests.support.command_line import CommandLine, serving
from tests.support.planted import PLANTED, PLANTED_VIEWS
from tests.support.rows import each_row
from transports import BinaryData, Effect
from transports.errors import CallTimeout, Disconnected
from transports.protocol._declarations import Capability
from transports.protocol._find_content import find
from transports.protocol._strict_json import members_of
from transports.surfaces.cli import main
from transports.testing.conformance import CHECKS, VIEW_CHECKS, Outcome
from transports.testing.conformance._client import ContentMeter
from transports.testing.conformance._evidence import (
    Cancellation,
    ContentItem,
    Evidence,
    Exchange,
    FaultyCall,
    ServerViews,
    Trial,
)
from transports.testing.conformance._gather import _long_calls
from transports.testing.conformance._inputs import CannotGenerate, generated_params, with_wrong_type, without_required


@pytest.fixture(scope="module")
def served() -> Iterator[webapp_fixture.Fixture]:
    with serving() as fixture:
        yield fixture


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """The command sets up logging for its process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level
    logging.getLogger("asyncio").setLevel(logging.NOTSET)


# --- what answers say of their content --------------------------------------------------------------------------------


def evidence_of(data: object, schema: Mapping[str, object] | None = None, **item: Any) -> Evidence:
    """What is seen of an app with one capability that answers ``data``."""
    entry = {"name": "make", "outputSchema": schema or {}}
    contents: list[ContentItem] = []
    for content in find(data):
        node: Any = reduce(getitem, content.path, data)  # type: ignore[arg-type]
        contents.append(ContentItem(content.field, members_of(node), None, **{"size": 12, **item}))
    trial = Trial(
        Capability.model_validate(entry), entry, call=Exchange({"success": True, "data": data}), contents=contents
    )
    return Evidence("memory:", "page", 1.0, trials=[trial])


def findings(check: str, evidence: Evidence) -> tuple[str, ...]:
    outcome = next(one for one in CHECKS if one.id == check).outcome(evidence)
    return outcome.findings if outcome.status in ("failed", "warning") else ()


@each_row("check", ["errors.type", "errors.missing"])
def test_unanswered_faulty_call_is_a_finding_if_valid_call_is_answered(check: str) -> None:
    evidence = evidence_of({"count": 1})
    trial = evidence.trials[0]
    faulty_call = FaultyCall("size", Exchange(error=CallTimeout("no answer within 5 s")))
    trial.with_wrong_type = trial.without_required = faulty_call
    assert [one.partition(" was ")[2] for one in findings(check, evidence)] == ["not refused: no answer within 5 s"]
    trial.call = Exchange(error=CallTimeout("no answer within 5 s"))
    assert findings(check, evidence) == ()


def test_error_without_retryable_is_a_finding_quoting_it() -> None:
    evidence = evidence_of(None)
    error = {"code": "OPERATION_FAILED", "message": "the app threw 'no'"}
    evidence.trials[0].call = Exchange({"success": False, "error": error})
    said = "the app threw 'no' [OPERATION_FAILED]: it does not say retryable: true or false"
    assert findings("errors.shape", evidence) == (f"make: {said}",)


def test_dialog_outside_calls_is_a_finding() -> None:
    evidence = evidence_of({"count": 1})
    evidence.effects_outside_calls = [Effect("dialog", detail={"type": "alert"}), Effect("print")]
    assert findings("answers.native", evidence) == ("outside any call: dialog {'type': 'alert'}",)


CANCELLED, NOT_CANCELLED = Exchange({"cancelled": True}), Exchange({"cancelled": False})
DONE = Exchange({"success": True})


@each_row(
    ("cancellation", "running", "again"),
    [
        (Cancellation("make", CANCELLED, CANCELLED, CANCELLED, ran_on=0.1), (), ()),
        (
            Cancellation("make", CANCELLED, NOT_CANCELLED, DONE, ran_on=0.1),
            ("make: the cancelled call answered {'success': True}",),
            ("make: the second time it answered {'cancelled': False}",),
        ),
        (
            Cancellation("make", NOT_CANCELLED, NOT_CANCELLED, CANCELLED, ran_on=0.1),
            ("make: cancelling it while it ran: {'cancelled': False}",),
            (),
        ),
        # It may have ended by itself before the cancel.
        (Cancellation("make", NOT_CANCELLED, NOT_CANCELLED, DONE, ran_on=0.1), (), ()),
        (
            Cancellation("make", NOT_CANCELLED, NOT_CANCELLED, DONE, ran_on=2.0),
            ("make: cancelling it while it ran: {'cancelled': False}",),
            (),
        ),
    ],
)
def test_refused_or_ineffective_cancel_is_a_finding(
    cancellation: Cancellation, running: tuple[str, ...], again: tuple[str, ...]
) -> None:
    evidence = Evidence("memory:", "page", 1.0, cancellations=[cancellation])
    assert findings("cancel.running", evidence) == running
    assert findings("cancel.again", evidence) == again


@each_row(
    ("seconds", "success", "finding"),
    [
        (1.2, True, ()),
        (1.5, False, ()),
        (1.5, True, ("make: given 1 s, it answered after 1.50 s as if in time",)),
    ],
)
def test_late_success_is_a_finding(seconds: float, success: bool, finding: tuple[str, ...]) -> None:
    evidence = evidence_of(None)
    evidence.trials[0].call = Exchange({"success": success}, seconds=seconds)
    assert findings("answers.timeout", evidence) == finding


@each_row(
    ("content", "finding"),
    [
        ([], ("board answered no content",)),
        ([{"type": "text", "text": " "}], ("board answered empty texts alone",)),
        ([{"type": "text", "text": "a board"}], ()),
        ([{"type": "image", "data": "", "mimeType": "image/png"}], ()),
    ],
)
def test_tool_with_view_needs_content_for_other_hosts(content: list[object], finding: tuple[str, ...]) -> None:
    tool = {"_meta": {"ui": {"resourceUri": "ui://board"}}}
    views = ServerViews(tools={"board": tool}, results={"board": {"content": content}})
    outcome = next(check for check in VIEW_CHECKS if check.id == "APP-010").outcome(
        Evidence("memory:", "mcp", 1.0, views=views)
    )
    assert outcome.status == ("warning" if finding else "passed")
    assert outcome.findings == finding


def test_conformance_does_not_repeat_call_that_broke_connection() -> None:
    drop, slow = (Trial(Capability(name=name), {}) for name in ("drop", "slow"))
    called = [(drop, Exchange(error=Disconnected("gone"))), (slow, Exchange(error=CallTimeout("no answer")))]
    assert _long_calls(called) == [slow]


def test_conformance_checks_input_and_output_schemas() -> None:
    entries = [
        {"name": "first", "inputSchema": {"type": 7}, "outputSchema": {}},
        {"name": "second", "inputSchema": {}, "outputSchema": {"type": 8}},
    ]
    evidence = Evidence("memory:", "page", 1.0, trials=[Trial(Capability(name=str(e["name"])), e) for e in entries])
    assert [text.rpartition(": ")[0] for text in findings("schema.valid", evidence)] == [
        "first: inputSchema",
        "second: outputSchema",
    ]


@pytest.mark.requirement("R1-5c")
def test_reference_without_size_is_a_finding() -> None:
    reference = {"downloadUrl": "https://a.test/f", "mimeType": "application/pdf"}
    assert findings("binary.reference_size", evidence_of({"file": reference})) == (
        "make: file is a downloadUrl without size",
    )
    assert findings("binary.reference_size", evidence_of({"file": {**reference, "size": 12}})) == ()
    assert findings("binary.size_given", evidence_of({"file": reference})) == ()
    content = {"content": b"x", "mimeType": "application/pdf"}
    assert findings("binary.size_given", evidence_of({"file": content})) == ("make: file has no size",)


TEN_MEGABYTES = 10 * 1024 * 1024  # as the sample of the document counts them


@pytest.mark.requirement("R1-2c", "R1-2d", "R1-2e", "R1-13c")
@each_row(("size", "large"), [(10_000_001, False), (TEN_MEGABYTES, False), (TEN_MEGABYTES + 1, True)])
def test_conformance_flags_inline_content_over_10_mb(size: int, large: bool) -> None:
    content = {"content": b"x", "mimeType": "application/pdf"}
    found = findings("answers.size", evidence_of({"file": content}, size=size))
    assert found == ((f"make: file has {size:,} bytes",) if large else ())
    reference = {"downloadUrl": "https://a.test/f", "mimeType": "application/pdf", "size": size}
    assert findings("answers.size", evidence_of({"file": reference}, size=size)) == ()
    found = findings("answers.size", evidence_of({"text": "x" * (size - len('{"text":""}'))}))
    assert found == ((f"make answered {size:,} bytes of JSON",) if large else ())


PATHS = ("/tmp/output.pdf", r"C:\Users\me\report.pdf", "exports/2024", "report.pdf")


@pytest.mark.requirement("R0-11a", "R0-11d", "R6-2f")
@each_row(
    "data",
    [
        *({name: PATHS[0], "success": True} for name in ("path", "file", "filePath", "filename", "folder")),
        *({"path": path} for path in PATHS),
        {"status": "print_dialog_opened", "message": "Print dialog opened. Save as PDF from the print dialog."},
        {"status": "download_started", "filename": "a.csv"},
        {"status": "shareDialogOpened"},
        {"state": "copied-to-clipboard"},
        {"message": "HTML is ready for export", "status": "ready"},
        {"message": "PDF export started"},
        {"message": "Opening the share sheet"},
        {"message": "Listed 5 tabs"},
        "Report generated",
    ],
)
def test_path_or_status_alone_is_not_a_real_answer(data: object) -> None:
    assert findings("answers.real", evidence_of(data)) == (f"make answered {data}",)


@pytest.mark.requirement("R0-11a")
@each_row(
    "data",
    [
        {"path": "report"},  # no folder, no extension: a name of something else
        {"path": "/tmp/output.pdf", "pages": 3},  # there is data beside it
        {"route": "/tmp/output.pdf"},
        {"path": None},
        {"status": "active"},
        {"status": "completed"},  # of a job, for one
        {"status": "in progress"},
        {"message": "Hello, world"},
        {"status": "download_started", "downloads": 3},
        {"rendered": True},
    ],
)
def test_short_text_answers_are_accepted_as_real(data: object) -> None:
    assert findings("answers.real", evidence_of(data)) == ()


@pytest.mark.parametrize(
    ("data", "complete"),
    [({"message": "PDF generated"}, True), ({"status": "print_dialog_opened"}, False)],
)
def test_printed_page_is_an_answer_unless_user_must_save_it(data: object, complete: bool) -> None:
    evidence = evidence_of(data)
    assert evidence.trials[0].call is not None
    evidence.trials[0].call.outputs = 1
    assert (findings("answers.real", evidence) == ()) is complete


@pytest.mark.requirement("R6-2r")
@each_row(
    ("name", "is_delivery"),
    [
        ("clipboard.copy", True),
        ("share.page", True),
        ("com.acme.clipboard.write", True),
        ("generate.shareUrl", False),
        ("clipboardHistory.list", False),
    ],
)
def test_conformance_flags_delivery_capabilities(name: str, is_delivery: bool) -> None:
    evidence = Evidence("memory:", "page", 1.0, trials=[Trial(Capability(name=name), {})])
    assert findings("session.delivery", evidence) == ((f"{name} is declared",) if is_delivery else ())


@pytest.mark.requirement("R1-13d")
@each_row(("left", "finding"), [(None, ""), (7200, ""), (3590, ""), (600, "10 minutes"), (-5, "")])
def test_short_lived_download_url_is_reported(left: float | None, finding: str) -> None:
    reference = {"downloadUrl": "https://a.test/f", "mimeType": "application/pdf", "size": 12}
    found = findings("binary.lifetime", evidence_of({"file": reference}, expires_in=left))
    assert found == ((f"make: file expires in {finding}",) if finding else ())


FILE: dict[str, Any] = {
    "type": "object",
    "properties": {"mimeType": {"const": "application/pdf"}},
    "required": ["mimeType"],
}


@pytest.mark.requirement("R1-12a", "R1-12b", "R1-12c")
@each_row(
    ("schema", "silent_about"),
    [
        (None, ["document", "pages.0.image"]),
        ({"type": "object"}, ["document", "pages.0.image"]),
        ({"properties": {"document": FILE}}, ["pages.0.image"]),
        ({"properties": {"document": {**FILE, "required": []}}, "$ref": "#/$defs/x", "$defs": {"x": {}}}, []),
        ({"properties": {"document": {**FILE, "required": []}}}, ["document", "pages.0.image"]),
        ({"properties": {"document": FILE, "pages": {"items": {"properties": {"image": FILE}}}}}, []),
        ({"properties": {"document": FILE, "pages": {"prefixItems": [{"additionalProperties": FILE}]}}}, []),
        ({"additionalProperties": FILE}, ["pages.0.image"]),
        ({"properties": {"document": FILE, "pages": {"items": {"anyOf": [{}]}}}}, []),
        ({"properties": {"document": True}}, ["document", "pages.0.image"]),
    ],
)
def test_conformance_flags_content_missing_from_output_schema(
    schema: Mapping[str, object] | None, silent_about: list[str]
) -> None:
    content = {"content": b"%PDF-1.4 x", "mimeType": "application/pdf"}
    evidence = evidence_of({"document": content, "pages": [{"image": content}], "bare": b"bytes"}, schema)
    assert findings("schema.content", evidence) == tuple(
        f"make: outputSchema does not say that {place} is content with mimeType" for place in silent_about
    )
    url = {"downloadUrl": "data:application/pdf,x", "mimeType": "application/pdf", "size": 1}
    silent = {"properties": {"document": FILE}}
    assert findings("schema.content", evidence_of({"document": url}, silent)) == (
        "make: outputSchema does not say that document is content with downloadUrl and mimeType",
    )
    named = {**FILE, "properties": {**FILE["properties"], "downloadUrl": {"type": "string"}}}
    assert findings("schema.content", evidence_of({"document": url}, {"properties": {"document": named}})) == ()


# --- inputs -----------------------------------------------------------------------------------------------------------

OBJECT = {"type": "object"}


def schema_of(**properties: Mapping[str, object]) -> dict[str, object]:
    return {**OBJECT, "required": list(properties), "properties": properties}


@each_row(
    ("schema", "params"),
    [
        ({}, {}),
        ({**OBJECT, "properties": {"a": {"type": "string"}}}, {}),
        (schema_of(a={"type": "string"}), {"a": "abp"}),
        (schema_of(a={"type": "string", "minLength": 5, "maxLength": 6}), {"a": "abpab"}),
        (schema_of(a={"type": "string", "maxLength": 1}), {"a": "a"}),
        (schema_of(a={"type": "string", "format": "date"}), {"a": "2024-01-31"}),
        (schema_of(a={"type": "string", "pattern": "^#[0-9a-f]{6}$"}), {"a": "#336699"}),
        (schema_of(a={"type": ["null", "integer"], "minimum": 3}), {"a": 3}),
        (schema_of(a={"type": "integer", "exclusiveMinimum": 4, "multipleOf": 5}), {"a": 5}),
        (schema_of(a={"type": "integer", "exclusiveMaximum": 1}), {"a": 0}),
        (schema_of(a={"type": "number", "maximum": -1.5}), {"a": -1.5}),
        (schema_of(a={"enum": ["x", "y"]}, b={"const": 7}, c={"default": [1]}), {"a": "x", "b": 7, "c": [1]}),
        (schema_of(a={"type": "array", "items": {"type": "boolean"}, "minItems": 2}), {"a": [False, False]}),
        (schema_of(a={"type": "array", "maxItems": 0}, b={"type": "null"}), {"a": [], "b": None}),
        (
            schema_of(a={}, b={"minimum": 3}, c={"properties": {}}, d={"items": {}}),
            {"a": "abp", "b": 3, "c": {}, "d": ["abp"]},
        ),
        ({**OBJECT, "required": ["a"], "properties": {"a": True}}, {"a": "abp"}),
        (
            {**OBJECT, "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {}, "b": {}}},
            {"a": "abp"},
        ),
        (schema_of(a={"anyOf": [False, {"type": "integer"}]}), {"a": 1}),
        (schema_of(a={"allOf": [{"type": "integer"}, {"minimum": 9}]}), {"a": 9}),
        ({**schema_of(a={"$ref": "#/$defs/n"}), "$defs": {"n": {"type": "integer"}}}, {"a": 1}),
        ({**OBJECT, "required": ["a"], "examples": [{"a": "given"}]}, {"a": "given"}),
    ],
)
def test_generated_params_are_minimal(schema: dict[str, Any], params: dict[str, object]) -> None:
    assert generated_params("x", schema) == [params]


def test_conformance_uses_first_5_examples() -> None:
    examples = [{"a": number} for number in range(7)]
    assert generated_params("x", {**OBJECT, "examples": examples}) == examples[:5]


def test_generated_binary_parameters_are_small_files() -> None:
    file = {"properties": {"content": {}, "mimeType": {"type": "string"}}}
    (params,) = generated_params(
        "x",
        schema_of(image=file, page={"properties": {**file["properties"], "mimeType": {"const": "application/pdf"}}}),
    )
    image, page = params["image"], params["page"]
    assert isinstance(image, BinaryData) and image.mime_type == "image/png" and image.size == len(image.read())
    assert isinstance(page, BinaryData) and page.read().startswith(b"%PDF-") and page.filename == "page.pdf"


@each_row(
    "schema",
    [
        {"type": "array"},
        schema_of(a=False),  # type: ignore[arg-type]
        schema_of(a={"anyOf": []}),
        schema_of(a={"type": "array", "minItems": "x"}),
        schema_of(a={"type": "string", "minLength": None}),
        schema_of(a={"type": "string", "format": ["date"]}),
        schema_of(a={"type": "integer", "minimum": "x"}),
        schema_of(a={"type": "number", "multipleOf": 5e-324}),
        schema_of(a={"type": "string", "pattern": "^only-this-7$"}),
        schema_of(a={"type": "string", "pattern": "(?=x)x"}),
        schema_of(a={"$ref": "https://example.org/schema"}),
        {**schema_of(a={"$ref": "#"})},
        schema_of(a={"type": "array", "uniqueItems": True, "minItems": 2}),
        schema_of(a={"type": "array", "minItems": 10**9}),
        schema_of(a={"type": "string", "minLength": 10**9}),
        {
            **schema_of(a={"$ref": "#/$defs/0"}),
            "$defs": {
                f"{level}": schema_of(**{key: {"$ref": f"#/$defs/{level + 1}"} for key in "abcdefghij"})
                for level in range(5)
            }
            | {"5": {}},
        },
        {**OBJECT, "examples": [{"a": 1}], "required": ["b"]},
    ],
)
def test_schema_without_generatable_value_raises(schema: dict[str, Any]) -> None:
    with pytest.raises(CannotGenerate):
        generated_params("x", schema)


def test_conformance_generates_invalid_params() -> None:
    schema = schema_of(a={"type": "string"}, b={"type": "integer"})
    assert without_required(schema, {"a": "x", "b": 1}) == ("a", {"b": 1})
    assert with_wrong_type(schema, {"a": "x", "b": 1}) == ("a", {"a": 12345, "b": 1})
    assert without_required({}, {}) is None and with_wrong_type(schema_of(a={"enum": [1]}), {"a": 1}) is None


# --- the command ------------------------------------------------------------------------------------------------------


def test_conformance_writes_text_json_junit_and_badge(
    served: webapp_fixture.Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    junit, badge = tmp_path / "junit.xml", tmp_path / "badge.json"
    target = f"{served.ws_url}?faults=wrong_size,no_padding"
    args = ["conformance", target, "--only", "fault.*", "--skip", "fault.no_padding", "--timeout", "2"]
    assert main([*args, "--junit", str(junit), "--badge", str(badge)]) == 1
    text = capsys.readouterr().out
    assert "FAIL  binary.size" in text and "how to fix it: declare the length of the bytes" in text
    assert "NOT CONFORMANT: " in text and ", 1 failed, 0 warnings, " in text
    assert "fault.no_padding (excluded)" in text and "\x1b" not in text
    assert main([*args, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["success"] is False and document["counts"]["failed"] == 1 and document["kind"] == "websocket"
    (failed,) = [one for one in document["checks"] if one["status"] == "failed"]
    assert failed["id"] == "binary.size" and failed["level"] == "MUST" and failed["source"] and failed["fix"]
    assert "declared" in failed["findings"][0] and document["called"] == ["fault.wrong_size"]
    suite = ElementTree.parse(junit).getroot()[0]
    assert suite.get("failures") == "1" and suite.get("tests") == str(len(CHECKS)) == str(len(suite))
    assert [case.get("name") for case in suite if case.find("failure") is not None] == ["binary.size"]
    assert json.loads(badge.read_text())["message"] == "not conformant"


def test_conforming_app_passes_conformance_command(
    served: webapp_fixture.Fixture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    badge = tmp_path / "badge.json"
    assert main(["conformance", served.ws_url, "--no-calls", "--json", "--badge", str(badge)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["success"] is True and document["called"] == [] and document["app"] == "Workbench 1.0.0"
    assert set(document["skipped"].values()) == {"calls are turned off"}
    written = json.loads(badge.read_text())
    assert written == {"schemaVersion": 1, "label": "ABP 0.1", "message": "conformant", "color": "brightgreen"}
    target = f"{served.ws_url}?faults=no_padding"
    assert main(["conformance", target, "--only", "fault.*", "--badge", str(badge)]) == 0
    shown = capsys.readouterr().out
    assert "warn  binary.alphabet" in shown and ", 1 warning, " in shown and " not applicable, in " in shown
    assert json.loads(badge.read_text())["message"] == "conformant (1 warning)"


@pytest.mark.load
def test_a_terminal_shows_colours_and_the_current_step(
    served: webapp_fixture.Fixture, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    abp = CommandLine({"COLUMNS": "120"}, monkeypatch, capfdbinary)
    args = ("conformance", f"{served.ws_url}?faults=no_padding", "--only", "fault.*")
    ran = abp.at_terminal(*args, script=lambda _: None, term="xterm-256color", stdout=True)
    assert ran.status == 0
    assert "looking at" in ran.err and "\x1b[32m" in ran.err and "\x1b[33m  warn  binary.alphabet" in ran.err


@each_row(
    "args",
    [
        ["nowhere"],
        ["ftp://x/"],
        ["ws://127.0.0.1:1/", "--transport", "postmessage"],
        ["ws://127.0.0.1:1/", "--junit", "/nonexistent/junit.xml"],
        ["ws://127.0.0.1:1/", "--timeout", "0"],
    ],
)
def test_usage_error_is_reported(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conformance", *args]) == 2
    assert capsys.readouterr().err.startswith("abp: ")


def test_app_rejecting_initialize_is_a_finding(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing at all at the address is an error: ``tests/surfaces/cli/test_errors.py``."""

    def refuse(connection: ServerConnection) -> None:
        for text in connection:
            request = json.loads(text)
            payload = {"success": False, "error": {"code": "NOT_SUPPORTED", "message": "not today"}}
            answer = {"type": f"{request['type']}-result", "id": request["id"], "timestamp": 0, "payload": payload}
            connection.send(json.dumps(answer))

    with serve_websocket(refuse, "127.0.0.1", 0) as server:
        threading.Thread(target=server.serve_forever).start()
        port = server.socket.getsockname()[1]
        assert main(["conformance", f"ws://127.0.0.1:{port}/", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert "session.initialize" in {one["id"] for one in document["checks"] if one["status"] == "failed"}


# --- text that an app declares as a file ------------------------------------------------------------------------------

TEXT = {"content": "héllo 世界", "mimeType": "text/plain", "encoding": "utf-8", "size": 13}


@each_row(
    ("changed", "found"),
    [
        ({}, {}),
        ({"filename": "hello.txt"}, {}),
        ({"mimeType": "text/html", "content": "<p>", "size": 3}, {}),
        ({"mimeType": "application/json", "content": "[]", "size": 2, "filename": "a.json"}, {}),
        ({"size": 8}, {"binary.size": "failed"}),
        ({"size": -1}, {"binary.size": "failed"}),
        ({"size": None}, {"binary.size_given": "warning"}),
        ({"encoding": None}, {"binary.fields": "failed"}),
        ({"encoding": None, "filename": "../hello.txt"}, {"binary.fields": "failed", "binary.filename": "warning"}),
        ({"content": "%PDF-1.7 text", "size": 13}, {"binary.type": "failed"}),
        ({"content": "half \ud800", "size": None}, {"binary.encoding": "failed", "binary.size_given": "warning"}),
    ],
)
async def test_conformance_checks_declared_text_as_content(changed: dict[str, object], found: dict[str, str]) -> None:
    file = {**TEXT, **changed}
    for place, data in (("the answer", file), ("pages.0.file", {"pages": [{"file": file}]})):
        outcomes = await binary_outcomes(data)
        broken = [one for one in outcomes if one.status in ("failed", "warning")]
        assert {one.check.id: one.status for one in broken} == found
        assert all(finding.startswith(f"text.make: {place}") for one in broken for finding in one.findings)
        assert any(one.status == "passed" for one in outcomes)


async def test_conformance_treats_plain_text_as_data() -> None:
    outcomes = await binary_outcomes({"content": "some text", "mimeType": "text/plain"})
    assert {one.status for one in outcomes} == {"not-applicable"}


async def binary_outcomes(data: object) -> list[Outcome]:
    """What the checks of content say of an answer."""
    trial = Trial(Capability(name="text.make"), {}, call=Exchange({"success": True, "data": data}))
    trial.contents = await ContentMeter(None, None, allow_private=False).measure(data)
    evidence = Evidence("ws://127.0.0.1/", "websocket", 5.0, trials=[trial])
    return [check.outcome(evidence) for check in CHECKS if check.theme == "binary"]


# --- the tables -------------------------------------------------------------------------------------------------------


def test_every_check_finds_a_planted_fault() -> None:
    assert {check.id for check in CHECKS} == {planted.check for planted in PLANTED}
    assert {check.id for check in VIEW_CHECKS} == {planted.check for planted in PLANTED_VIEWS}
    assert len({check.id for check in CHECKS}) == len(CHECKS)


def test_all_mcp_apps_rules_are_checked() -> None:
    """Ids of `src/validator/rules.ts` in `modelcontextprotocol/ext-apps`."""
    official = [*range(1, 12), *range(100, 107)]
    assert [check.id for check in VIEW_CHECKS if check.theme == "APP"] == [f"APP-{number:03}" for number in official]
    warnings = {check.id for check in VIEW_CHECKS if check.level == "SHOULD" and check.theme == "APP"}
    assert warnings == {"APP-006", "APP-010", "APP-104"}
