"""Every entry that parses foreign input answers with an error of the kit, whatever the input is."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import jwt

from transports import connect
from transports.adapters.mcp._servers import parse_server
from transports.adapters.views._profiles import read_profile
from transports.browser.evidence._har import clean_body, learn_body, read_lines
from transports.errors import ABPError
from transports.privacy import SecretValues
from transports.protocol import decode_json
from transports.protocol._strict_json import decode_given, json_lines
from transports.surfaces.cli._shell import parse_line
from transports.surfaces.mcp._access import _usable_keys
from transports.surfaces.mcp._messages import refusal_of

INPUTS = {
    "too deep": b"[" * 100_000 + b"]" * 100_000,
    "one level too deep": b"[" * 501 + b"]" * 501,
    "never closed": b"[" * (20 << 20),
    "an object too deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "no JSON": b"hello",
    "empty": b"",
    "no UTF-8": b'{"a": "\xff\xfe"}',
    "half of a surrogate pair": b'{"a": "\\ud800"}',
    "a huge integer": b'{"a": ' + b"9" * 5000 + b"}",
    "NaN": b'{"a": NaN}',
    "a huge exponent": b'{"a": 1e999999}',
}


def evidence(data: bytes) -> None:
    text, secrets = data.decode(errors="replace"), SecretValues()
    learn_body(text, "application/json", secrets)
    clean_body(text, "application/json", secrets)
    list(read_lines(data))


def shell(data: bytes) -> None:
    text = data.decode(errors="replace")
    parse_line(f"call {text}")
    parse_line(f"call a={text}")


def key_set(data: bytes) -> None:
    try:
        _usable_keys(data)
    except jwt.PyJWTError as error:  # the one error of this entry, which its caller turns into a refusal
        raise ABPError(str(error)) from error


async def replay(path: Path) -> None:
    async with connect(f"replay:{path}"):
        pass


async def named(path: Path) -> None:
    async with connect("one", config=path):
        pass


ENTRIES: dict[str, Callable[[bytes, Path], object]] = {
    "bytes of an app": lambda data, _: decode_json(data),
    "text of an app": lambda data, _: decode_json(data.decode(errors="replace")),
    "JSON of a user": lambda data, _: decode_given(data, "it"),
    "lines of JSON": lambda data, _: list(json_lines(io.BytesIO(data), "it", "of a job")),
    "line of the shell": lambda data, _: shell(data),
    "message over stdio": lambda data, _: refusal_of(data),
    "evidence": lambda data, _: evidence(data),
    "keys of an issuer": lambda data, _: key_set(data),
    "recording": lambda _, path: asyncio.run(replay(path)),
    "servers of MCP": lambda _, path: parse_server(f"mcp:{path}#one"),
    "profile of a host": lambda _, path: read_profile(str(path)),
    "settings": lambda _, path: asyncio.run(named(path)),
}


@pytest.mark.parametrize("name", INPUTS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_raises_nothing_but_errors_of_the_kit(tmp_path: Path, entry: str, name: str) -> None:
    path = tmp_path / ("abp.toml" if entry == "settings" else "it.json")
    path.write_bytes(INPUTS[name])
    try:
        ENTRIES[entry](INPUTS[name], path)
    except ABPError as error:
        assert error.message
