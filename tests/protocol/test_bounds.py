"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import json
import logging

import pytest

from transports._internal.privacy._redaction import REDACTED, Redactor
from transports.errors import CapabilityError
from transports.protocol._capabilities import Capabilities, is_long, with_suggestions
from transports.protocol._plain_text import redact_url, similar_names
from transports.protocol._times import format_duration, parse_duration
from transports.protocol.binary import BinaryData, Encoded
from transports.protocol.messages import Message
from transports.protocol.schema import check_output, shorten, unnamed_params
from transports.websocket.envelope import decode_envelope
from transports.websocket.pending import PendingReplies


def unchecked(reason: str) -> list[str]:
    return [f"the answer was not checked against outputSchema: {reason}"]


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_a_schema_of_10000_values_is_checked() -> None:
    assert check_output({"enum": list(range(9998))}, 5) == []
    assert check_output({"enum": list(range(9999))}, 5) == unchecked("the schema has more than 10,000 values")
    # 64 characters of a name or a text count as one value more
    assert check_output({"enum": ["x" * 127, *range(9996)]}, 5) == []
    assert check_output({"enum": ["x" * 128, *range(9996)]}, 5) == unchecked("the schema has more than 10,000 values")
    assert check_output({"enum": [{"x" * 128: 0}, *range(9995)]}, 5) == unchecked(
        "the schema has more than 10,000 values"
    )


def test_a_schema_of_256_kib_is_checked() -> None:
    description = "x" * (256 * 1024 - len('{"description":""}'))
    assert check_output({"description": description}, 5) == []
    assert check_output({"description": description + "x"}, 5) == unchecked(
        "the schema takes 262,145 bytes, more than 262,144"
    )


def test_a_schema_with_100_patterns_is_checked() -> None:
    assert check_output({"allOf": [{"pattern": "a"}] * 100}, "a") == []
    assert check_output({"allOf": [{"pattern": "a"}] * 101}, "a") == unchecked("the schema has more than 100 patterns")
    several: dict[str, object] = {"patternProperties": {f"a{n}": {} for n in range(100)}}
    assert check_output(several, {}) == []
    assert check_output({**several, "pattern": "a"}, {}) == unchecked("the schema has more than 100 patterns")


def test_a_value_of_100000_values_is_checked() -> None:
    assert check_output({"type": "array"}, [0] * 99_999) == []
    assert check_output({"type": "array"}, [0] * 100_000) == unchecked("the value has more than 100,000 values")


def test_15000_steps_are_taken() -> None:
    assert check_output({"items": {}}, [0] * 14_999) == []
    assert check_output({"items": {}}, [0] * 15_000) == unchecked("it would take too long")


def test_after_2000_steps_faults_are_listed() -> None:
    schema = {"items": {"type": "integer"}}
    assert len(check_output(schema, ["x"] * 1999)) == 5
    assert check_output(schema, ["x"] * 2000) == unchecked("it does not fit, but is too large to list its faults")


def test_130_characters_of_a_text_are_shown() -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(131))
    assert shorten(text[:130]) == text[:130]
    assert shorten(text) == f"{text[:60]}…{text[-70:]}"


def test_three_reasons_against_alternatives_are_told() -> None:
    kinds = ("string", "null", "array", "object")
    for most in (3, 4):
        (told,) = check_output({"anyOf": [{"type": kind} for kind in kinds[:most]]}, 1)
        reasons = "; ".join(f'1 is not of type "{kind}"' for kind in kinds[:3])
        assert told == f"outputSchema: data: fits no alternative: {reasons}" + "; …" * (most > 3)


def test_eight_names_of_a_schema_are_listed_and_500_compared() -> None:
    def hint(names: int, *others: str) -> str:
        listed = [*(f"{n:03}" for n in range(names)), *others]
        schema: dict[str, object] = {"properties": {name: {} for name in listed}}
        (found,) = unnamed_params(schema, {"format": 1})
        return found.partition("; ")[2]

    assert hint(8) == "it has 000, 001, 002, 003, 004, 005, 006, 007"
    assert hint(9) == "it has 000, 001, 002, 003, 004, 005, 006, 007 …"
    assert hint(499, "formats", "formal") == "did you mean 'formats'?"
    assert hint(500, "formats") == "it has 000, 001, 002, 003, 004, 005, 006, 007 …"


def test_1000_objects_of_parameters_are_looked_at() -> None:
    schema: dict[str, object] = {"properties": {"pages": {"items": {"properties": {"title": {}}}}}}

    def hints(before: int, after: int) -> int:
        return len(unnamed_params(schema, {"pages": [*([{}] * before), {"titel": 1}, *([{}] * after)]}))

    assert (hints(0, 997), hints(0, 998)) == (1, 0)  # the last is looked at first; two are the list and what holds it
    assert (hints(999, 0), hints(1000, 0)) == (1, 0)


def test_19999_names_of_a_schema_are_looked_at() -> None:
    def hints(names: int) -> int:
        return len(unnamed_params({"properties": {f"p{n}": {} for n in range(names)}}, {"x": 1}))

    assert (hints(19_999), hints(20_000)) == (1, 0)


# --- messages ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("chars", "kind"), [(128 * 1024, memoryview), (128 * 1024 - 4, str)])
def test_128_kib_of_base64_are_a_run(chars: int, kind: type) -> None:
    payload = {"content": "A" * chars, "mimeType": "image/png"}
    message = decode_envelope(json.dumps({"type": "x", "payload": {**payload, "beside": "x" * 100}}).encode())
    assert isinstance(message.payload, dict)
    content = message.payload["content"]
    if kind is memoryview:
        assert isinstance(content, BinaryData) and isinstance(content.content, Encoded)
        content = content.content.text
    assert isinstance(content, kind) and isinstance(content, str | memoryview) and len(content) == chars


def test_signs_of_another_alphabet_count_in_the_first_128_kib_of_a_run() -> None:
    def content(sign_at: int) -> object:
        text = "A" * sign_at + "-" + "A" * (256 * 1024 - sign_at - 1)
        document = {"type": "x", "payload": {"content": text, "mimeType": "image/png"}}
        payload = decode_envelope(json.dumps(document).encode()).payload
        assert isinstance(payload, dict)
        return payload["content"]

    assert isinstance(content(128 * 1024 - 1), str)
    assert isinstance(content(128 * 1024), BinaryData)  # an error when it is decoded


async def test_4096_ended_requests_are_remembered() -> None:
    pending = PendingReplies()
    for n in range(4097):
        pending.register(Message("capabilities/call", id=str(n)))
        pending.forget(str(n))
    assert pending.deliver(Message("capabilities/call-result", id="0")) == "unknown"
    assert pending.deliver(Message("capabilities/call-result", id="1")) == "late"


# --- capabilities -----------------------------------------------------------------------------------------------------


def test_five_entries_without_a_name_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert not Capabilities().merge([1, 2, 3, 4, 5, 6])
    assert [record.getMessage() for record in caplog.records] == [
        f"left out of the app's capabilities: {n} has no name" for n in range(1, 6)
    ]


@pytest.mark.parametrize(("others", "found"), [(4999, True), (5000, False)])
def test_5000_names_are_searched_for_one_that_is_alike(others: int, found: bool) -> None:
    known = Capabilities().merge([*(f"{n:040}" for n in range(others)), "export.pdf"])
    error = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "export.pfd", known)
    assert (error.alternatives == ("export.pdf",)) is found
    assert ("did you mean export.pdf?" in error.message) is found


def test_a_list_of_more_than_3000_capabilities_is_long() -> None:
    assert not is_long(["a"] * 3000) and is_long(["a"] * 3001)
    assert not is_long({"data": {"capabilities": ["a"] * 3000}}) and is_long({"data": {"capabilities": ["a"] * 3001}})


@pytest.mark.parametrize(("others", "first"), [(4999, "a"), (5000, "n00000")])
def test_of_5000_names_the_first_in_the_alphabet_are_listed(others: int, first: str) -> None:
    known = Capabilities().merge([*(f"n{n:05}" for n in range(others)), "a"])
    error = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "zzzzzzzz", known)
    assert f"the app has {first}, " in error.message and error.message.count(",") == 7


def test_three_names_are_alike_unless_another_number_is_asked_for() -> None:
    known = ["export.pdg", "export.pdf2", "EXPORT.PDF", "export.pd"]
    assert similar_names("Export.pdf", known) == ["EXPORT.PDF", "export.pdf2", "export.pd"]
    assert similar_names("Export.pdf", known, most=1) == ["EXPORT.PDF"]


def test_200_characters_of_a_name_are_compared_and_three_fifths_must_be_alike() -> None:
    name = "".join(chr(0x4E00 + n) for n in range(300))
    alike, less = name[:87] + "-", name[:86] + "-"  # 2 * 87 of 88 + 200 characters, and 2 * 86 of 87 + 200
    assert similar_names(name, [alike]) == [alike] and similar_names(name, [less]) == []
    assert similar_names("labels", ["as", "csv"]) == []  # two letters of a longer word are no likeness


def test_eight_alternatives_and_three_requirements_are_named() -> None:
    other = with_suggestions(CapabilityError("no", alternatives=[f"a{n}" for n in range(9)]), "x", {})
    assert other.message == "no; instead there is a0, a1, a2, a3, a4, a5, a6, a7"
    known = Capabilities().merge([f"n{n}" for n in range(9)])
    unknown = with_suggestions(CapabilityError("no", code="UNKNOWN_CAPABILITY"), "zzz", known)
    assert unknown.alternatives == ()
    assert unknown.message == "no; the app has n0, n1, n2, n3, n4, n5, n6, n7 and 1 more"
    needs = [{"description": f"r{n}", "resolution": "do it" if n else None} for n in range(4)]
    known = Capabilities().merge([{"name": "x", "requirements": [{"type": "met", "met": True}, *needs]}])
    unmet = with_suggestions(CapabilityError("no", code="REQUIREMENT_NOT_MET"), "x", known)
    assert unmet.message == "no; it needs r0; it needs r1: do it; it needs r2: do it"


# --- texts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("secret", "short"),
    [
        ("bearer abcdef1~", "bearer abcde1~"),
        ("basic QWxhZ1", "basic QWxh1"),
        ("eyJabcdefgh.eyJabcdefgh.x", "eyJabcdefg.eyJabcdefgh.x"),
        ("eyJabcdefgh.12345678.x", "eyJabcdefgh.1234567.x"),
    ],
)
def test_credentials_have_a_length(secret: str, short: str) -> None:
    assert REDACTED in Redactor().text(secret)
    assert Redactor().text(short) == short


def test_of_a_match_the_group_called_secret_is_replaced_or_the_whole() -> None:
    redactor = Redactor(patterns=[r"pin(?P<secret>\d+)?!", r"card \d+", r"(?P<other>seat) 1"])
    assert redactor.text("pin12! pin! card 12 seat 1") == f"pin{REDACTED}! {REDACTED} {REDACTED} {REDACTED}"
    assert redactor.text("see pin12!") == f"see pin{REDACTED}!"


def test_80_characters_of_a_data_url_are_searched_for_the_end_of_its_head() -> None:
    head = "data:" + "x" * 74
    assert redact_url(head + ",abc") == head + ",…"
    assert redact_url(head + "x,abc") == "data:,…"


def test_a_duration_has_nine_digits_at_most() -> None:
    assert parse_duration("999999999d") == 999_999_999 * 86400
    assert parse_duration("1000000000d") is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (1.5, "1.5 seconds"),
        (60, "1 minute"),
        (90, "90 seconds"),
        (3600, "1 hour"),
        (5400, "90 minutes"),
        (86400, "1 day"),
        (172800, "2 days"),
    ],
)
def test_a_duration_in_the_largest_unit_that_divides_it(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


def test_of_a_command_line_the_command_is_shown() -> None:
    assert redact_url("mcp+stdio:server --token x") == "mcp+stdio:server …"
    assert redact_url("MCP+stdio:server") == "MCP+stdio:server"


def test_a_header_alone_and_a_long_name_are_secret_too() -> None:
    assert Redactor().text("x-api-key: abc") == f"x-api-key: {REDACTED}"
    assert Redactor().is_secret("x" * 64 + "_Api-Key") and not Redactor().is_secret("x" * 64 + "_Passwort")
