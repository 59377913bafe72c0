"""Every entry that parses foreign input answers with an error of the kit, and one fault with one code."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import jwt

from transports import connect, open_store
from transports._internal.redaction import EvidenceRedactor
from transports.artifacts import _arrow
from transports.artifacts._ref import Metadata
from transports.errors import ABPError, Corrupt, UsageError
from transports.mcp._servers import parse_server
from transports.mcp._wire import parse_json_text
from transports.mcp.views._host import read_profile
from transports.playwright._evidence_secrets import clean_body, read_lines
from transports.playwright._received import parse_event, parse_reply
from transports.playwright._scripts import read_adapter
from transports.playwright._source import PageSource
from transports.protocol._strict_json import decode_json, decode_user_json, json_lines
from transports.protocol.messages import Message
from transports.session._evidence import read_evidence
from transports.surfaces.cli._shell import parse_line
from transports.surfaces.mcp._http import _KeySet, _usable_keys
from transports.surfaces.mcp._messages import Refused, parse_message
from transports.websocket.envelope import decode_envelope

#: Inputs by fault, in the forms that it has.
FAULTS = {
    "too deep": {
        "lists of 501 levels": b"[" * 501 + b"]" * 501,
        "objects of 600 levels": b'{"a":' * 600 + b"1" + b"}" * 600,
        "lists of 20,000 levels": b"[" * 20_000 + b"]" * 20_000,
        "objects of 20,000 levels": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        "lists in an object": b'{"a": 1, "b": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
        "never closed": b"[" * 90_000,
    },
    "not JSON": {"a word": b"hello", "cut": b'{"a": ', "NaN": b'{"a": NaN}'},
    "nothing": {"nothing": b""},
    "not UTF-8": {"not UTF-8": b'{"a": "\xff\xfe"}'},
    "half of a surrogate pair": {"high": b'{"a": "\\ud800"}', "low": b'{"a": "\\udc00"}'},
    "a number of 5,000 digits": {
        "positive": b'{"a": ' + b"9" * 5000 + b"}",
        "negative": b'{"a": -' + b"9" * 5000 + b"}",
    },
    "a number out of range": {"1e999": b'{"a": 1e999}', "-1e999999": b'{"a": -1e999999}'},
}


#: The code for JSON that is too deep, of the entries that parse JSON with :func:`decode_json` or
#: :func:`decode_user_json`.
TOO_DEEP = {
    **dict.fromkeys(("bytes of an app", "text of an app", "envelope of an app"), "PROTOCOL_ERROR"),
    **dict.fromkeys(("reply of a page", "event of a page", "text of a server of MCP"), "PROTOCOL_ERROR"),
    **dict.fromkeys(("JSON of a user", "lines of JSON", "profile of a host", "object in the shell"), "INVALID_PARAMS"),
    **dict.fromkeys(("rows of JSON", "lines of rows"), "NOT_A_TABLE"),
    "metadata of an artifact": "CORRUPT",
}


def evidence(data: bytes) -> None:
    clean_body(data.decode(errors="replace"), "application/json", EvidenceRedactor())
    list(read_lines(data))


def caught(read: Callable[[bytes], object], error: type[Exception]) -> Callable[[bytes, Path], object]:
    """An entry whose one error is turned into one of the kit by its caller."""

    def reading(data: bytes, _: Path) -> object:
        try:
            return read(data)
        except error as fault:
            raise Corrupt(str(fault)) from fault

    return reading


def table(data: bytes, path: Path, kind: str) -> None:
    ref = asyncio.run(open_store(path.with_name("store")).put_bytes(data, mime_type="application/json"))
    _arrow.read(ref, kind)


async def replay(path: Path) -> None:
    async with connect(f"replay:{path}"):
        pass


async def named(path: Path) -> None:
    async with connect("one", config=path):
        pass


ENTRIES: dict[str, Callable[[bytes, Path], object]] = {
    "bytes of an app": lambda data, _: decode_json(data),
    "text of an app": lambda data, _: decode_json(data.decode(errors="replace")),
    "envelope of an app": lambda data, _: decode_envelope(b'{"type": "x", "payload": %s}' % data),
    "reply of a page": lambda data, _: parse_reply(
        Message("capabilities/call", {}, id="1"), b'{"rest": {}, "answer": %s}' % data
    ),
    "event of a page": lambda data, _: parse_event(f'["progress", {data.decode(errors="replace")}]'),
    "text of a server of MCP": lambda data, _: parse_json_text(data.decode(errors="replace")),
    "JSON of a user": lambda data, _: decode_user_json(data, "it"),
    "lines of JSON": lambda data, _: list(json_lines(io.BytesIO(data), "it", "of a job")),
    "rows of JSON": lambda data, path: table(b'[{"a": %s}]' % data, path, "json"),
    "lines of rows": lambda data, path: table(b'{"a": %s}\n' % data, path, "jsonl"),
    "object in the shell": lambda data, _: parse_line(f'call {{"a": {data.decode(errors="replace")}}}'),
    "value in the shell": lambda data, _: parse_line(f"call a={data.decode(errors='replace')}"),
    "message over stdio": caught(parse_message, Refused),
    "evidence": lambda data, _: evidence(data),
    "keys of an issuer": caught(_usable_keys, jwt.PyJWTError),
    "metadata of an artifact": caught(lambda data: Metadata.decode(data, "a_1"), ValueError),
    "recording": lambda _, path: asyncio.run(replay(path)),
    "servers of MCP": lambda _, path: parse_server(f"mcp:{path}#one"),
    "profile of a host": lambda _, path: read_profile(str(path)),
    "state of a browser": lambda _, path: PageSource(storage_state=str(path))._load_storage_state(),
    "settings": lambda _, path: asyncio.run(named(path)),
}
#: What stands around the input in the file of an entry.
FILES = {
    "recording": b'{"abp_recording": 1, "more": %s}\n',
    "servers of MCP": b'{"mcpServers": {"one": {"command": "a"}}, "history": %s}',
    "state of a browser": b'{"cookies": [], "origins": %s}',
    "settings": b"[app]\nvalue = %s\n",
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_entry_points_raise_only_abp_errors(tmp_path: Path, entry: str) -> None:
    path = tmp_path / ("abp.toml" if entry == "settings" else "it.json")
    for fault, forms in FAULTS.items():
        codes: dict[str, str] = {}
        for form, data in forms.items():
            path.write_bytes(FILES.get(entry, b"%s") % data)
            try:
                ENTRIES[entry](data, path)
            except ABPError as error:
                assert error.message
                codes[form] = error.code
            else:
                codes[form] = "a value"
        if fault == "too deep" and entry in TOO_DEEP:
            assert set(codes.values()) == {TOO_DEEP[entry]}, codes
        elif fault != "not JSON":  # cut JSON is whole in some files
            assert len(set(codes.values())) == 1, (fault, codes)


@pytest.mark.parametrize(
    "html", ['<input type="password" value="&#%s;">', '<input name="&#%s;" value="x">', '{"password&#%s;": "x"}']
)
def test_character_reference_with_thousands_of_digits_is_parsed(html: str) -> None:
    for digits in ("9" * 5000, "0" * 5000 + "65"):
        assert clean_body(html % digits, "text/html", EvidenceRedactor())


def test_huge_number_and_broken_address_are_rejected() -> None:
    for read in (
        lambda: read_evidence(f"max_files={'9' * 5000}"),
        lambda: read_adapter("adapter.js", "http://["),
        lambda: _KeySet("http://["),
    ):
        with pytest.raises(UsageError):
            read()
