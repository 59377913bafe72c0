"""What comes from a page is checked once, at one door: whatever it is, only our own error comes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.rows import each_row
from transports._internal.masking import KnownSecrets
from transports.errors import ProtocolError
from transports.playwright._received import Clipboard, Print, parse_event, parse_reply
from transports.protocol.messages import Message

_DIGITS = "9" * 5000
_NESTED = "[" * 100_000 + "]" * 100_000


@each_row(
    "text",
    [
        "",
        "7",
        "[]",
        "{}",
        "\ud800",
        _DIGITS,
        _NESTED,
        '{"threw": 5}',
        '{"refused": []}',
        '{"answer": 1, "rest": 7}',
        f'{{"answer": {_DIGITS}, "rest": {{}}}}',
        f'{{"answer": {_NESTED}, "rest": {{}}}}',
        *(
            json.dumps({"answer": {"a": [1]}, "rest": rest})
            for rest in list[object](
                (
                    None,
                    {"warnings": 1},
                    {"warnings": [1]},
                    {"binaries": 1},
                    {"binaries": {}},
                    {"binaries": [[]]},
                    {"binaries": [[["b"], "base64", "AAAA"]]},
                    {"binaries": [[["a", "0"], "base64", "AAAA"]]},
                    {"binaries": [[["a", -1], "base64", "AAAA"]]},
                    {"binaries": [[["a"] * 100_000, "base64", "AAAA"]]},
                    {"binaries": [[[], "base64", "?"]]},
                    {"binaries": [[[], "base64", 5]]},
                    {"binaries": [[[], "held", "0"]]},
                    {"binaries": [[[], "held", "0", "", "", -1]]},
                    {"binaries": [[[], "held", "0", "", "", 1e300]]},
                    {"binaries": [[[], "other", "0"]]},
                )
            )
        ),
    ],
)
def test_malformed_agent_reply_raises_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_reply(Message("capabilities/call", id="1"), text)


@pytest.mark.parametrize(
    ("threw", "said"),
    [
        ({"threw": "kaputt", "name": ""}, "the app threw 'kaputt'"),
        ({"threw": "no", "name": "TypeError"}, "the app threw TypeError: no"),
    ],
)
def test_thrown_error_message_includes_its_kind(threw: dict[str, str], said: str) -> None:
    payload: Any = parse_reply(Message("capabilities/call", id="1"), json.dumps(threw)).payload
    assert payload["error"]["message"] == said


@pytest.mark.parametrize("name", ["", "Error"])
def test_secret_in_thrown_string_is_masked(name: str) -> None:
    secrets = KnownSecrets()
    secret = "pa'ss\"word-1\xa023"
    secrets.add("pw", secret)
    reasons = "and so on, " * 60
    threw = json.dumps({"threw": f"bad login, {reasons}with {secret}", "name": name})
    payload: Any = parse_reply(Message("capabilities/call", id="1"), threw).payload
    thrown = f"bad login, {reasons}with ${{SECRET:pw}}"
    said = f"{name}: {thrown}" if name else f"'{thrown}'"
    assert secrets.mask_text(payload["error"]["message"]) == f"the app threw {said}"


@pytest.mark.parametrize(
    "event",
    [
        7,
        [],
        ["print"],
        ["print", 1],
        ["print", {"call": 5}],
        ["print", {"call": None, "id": "x"}],
        ["clipboard", {"type": 1}],
        ["clipboard", {"size": -1}],
        ["clipboard", {"base64": "?"}],
        ["filechooser", None],
        ["download", {"call": {}}],
        ["elicitation", {}],
        ["submitting", []],
        ["counts", {"x": "y"}],
        ["no such kind", {}],
    ],
    ids=json.dumps,
)
def test_unknown_agent_event_raises_protocol_error(event: Any) -> None:
    with pytest.raises(ProtocolError):
        parse_event(json.dumps(event))


def test_malformed_event_text_raises_protocol_error() -> None:
    for text in (None, 5, "", "\ud800", f'["progress", {_DIGITS}]', f'["progress", {_NESTED}]', "[" + " " * (9 << 20)):
        with pytest.raises(ProtocolError):
            parse_event(text)


def test_agent_events_are_parsed() -> None:
    assert parse_event('["progress", {"a": [null]}]') == ("progress", {"a": [None]})
    assert parse_event('["unloaded", null]') == ("unloaded", None)
    assert parse_event('["print", {"call": "1", "id": 0, "title": "A"}]') == ("print", Print("1", 0, title="A"))
    copied = Clipboard(None, "text/plain", 2, None, b"hi")
    assert parse_event('["clipboard", {"call": null, "type": "text/plain", "size": 2, "base64": "aGk="}]')[1] == copied
