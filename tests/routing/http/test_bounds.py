"""Every bound of the room that no other test has: a case at it, and one beyond it."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import aiohttp
import pytest
from multidict import CIMultiDict

from tests.support.rows import each_row
from transports.routing.http._addresses import AddressGuard
from transports.routing.http._request import body_excerpt
from transports.routing.http._urls import BadHeader, BadUrl, check_headers, display_unparsed_url, parse, secret_forms

# --- connections ------------------------------------------------------------------------------------------------------


def test_connected_address_is_known_for_only_one_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        guard = AddressGuard(allow_private=True)
        assert guard.connected_address() is None
        opened = [guard((socket.AF_INET, socket.SOCK_STREAM, 0, "", (host, 0))) for host in ("127.0.0.1", "127.0.0.2")]
        try:
            assert guard.connected_address() is None and guard.allowed == 2
            opened[1].connect(server.getsockname())
            assert guard.connected_address() == "127.0.0.2"
            opened[0].connect(server.getsockname())
            assert guard.connected_address() is None  # which of them is used, nobody can tell
        finally:
            for one in opened:
                one.close()


# --- texts ------------------------------------------------------------------------------------------------------------


class Body:
    """The body of an answer, given in pieces of ``piece`` bytes at most. It may break instead of ending."""

    def __init__(self, data: bytes, piece: int, breaks: bool) -> None:
        self.data, self.piece, self.breaks = data, piece, breaks

    async def read(self, size: int) -> bytes:
        if self.breaks and not self.data:
            raise ConnectionResetError
        size = min(size, self.piece)
        taken, self.data = self.data[:size], self.data[size:]
        return taken


def excerpt(data: bytes, *secrets: str, piece: int = 1 << 20, breaks: bool = False) -> str:
    class Response:
        headers = CIMultiDict[str]()
        content = Body(data, piece, breaks)

    return asyncio.run(body_excerpt(cast("aiohttp.ClientResponse", Response()), secrets))


@pytest.mark.parametrize("piece", [1 << 20, 1000])
def test_error_excerpt_shows_200_characters_of_first_4096_bytes(piece: int) -> None:
    assert excerpt(b"x" * 200, piece=piece) == "x" * 200
    assert excerpt(b"x" * 201, piece=piece) == "x" * 200
    assert excerpt(b" " * 4095 + b"abc", piece=piece) == "a"
    assert excerpt(b"a" + b" " * 4095 + b"b", piece=piece) == "a"
    assert excerpt(b"", piece=piece) == ""


def test_excerpt_drops_end_that_may_cut_a_secret() -> None:
    assert excerpt(b"no: secr", "secret", breaks=True) == "no"
    assert excerpt(b"no: secr", breaks=True) == "no: secr"
    assert excerpt(b" " * 4085 + b"0123456789", "other", "secret") == "0123456789"
    assert excerpt(b" " * 4086 + b"0123456789", "other", "secret") == "0123"
    assert excerpt(b" " * 4086 + b"0123456789") == "0123456789"
    assert excerpt(b"my secrets and others", "secret", "secrets", "other") == "my … and …s"
    # nor does a control character hide one
    assert excerpt(b"no pass\0word, pass \n\0\t word", "password", "pass word") == "no …, …"


def test_secret_forms_have_at_least_4_characters() -> None:
    assert secret_forms("abc", "abcd") == {"abcd"}
    assert secret_forms("a b", "a%20b/c") == {"a%20b", "a%20b/c", "a b/c", "a%2520b/c", "a%2520b%2Fc"}
    assert secret_forms("Basic dXNlcjpwYXNzOndvcmQ=") >= {"user:pass:word", "user", "pass:word", "user%3Apass%3Aword"}
    assert secret_forms("Basic dXNlcjpwYXNzOndvcmQ") >= {"user:pass:word"}  # without its padding
    assert secret_forms("Basic ä§") == {"Basic ä§", "Basic", "Basic%20%C3%A4%C2%A7", "%C3%A4%C2%A7"}


@each_row(
    ("text", "shown"),
    [
        ("blob:" + "x" * 195, "blob:" + "x" * 195),
        ("blob:" + "x" * 196, "blob:" + "x" * 194 + "…"),
        (" ftp://me:secret@a.test/", "ftp:…"),
        ("me:secret@a.test", "me:…"),
        ("/me@secret", "…"),
        ("x" * 30 + "://me@a", "x" * 20 + "…"),
        ("/path?secret", "/path?…"),
    ],
)
def test_unparsable_url_is_shown_without_secrets(text: str, shown: str) -> None:
    assert display_unparsed_url(text) == shown


def test_bad_url_and_header_reasons_are_short() -> None:
    with pytest.raises(BadUrl, match=rf"its scheme is {'x' * 20}:, and only"):
        parse("x" * 21 + ":y")
    with pytest.raises(BadHeader, match=rf"may not set the header {'x' * 40};"):
        check_headers({"x" * 41: "a"})
    with pytest.raises(BadHeader, match="is not valid"):
        check_headers({"": "a"})
    with pytest.raises(BadHeader, match=r"its header X-Token holds characters"):
        check_headers({"Authorization": "a", "X-Token": "a\n"})
