"""URLs as text: what a message shows of one, and which hosts are this machine."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from transports.protocol._plain_text import is_loopback, redact_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://app.example/a/b.pdf", "https://app.example/a/b.pdf"),
        ("https://app.example/@user/a@b.png", "https://app.example/@user/a@b.png"),
        ("https://user:secret@app.example/x", "https://app.example/x"),
        ("HTTPS://user:sec@ret@app.example:8443", "HTTPS://app.example:8443"),
        ("//user:secret@app.example/x", "//app.example/x"),
        ("https:\\\\user:secret@app.example", "https:\\\\app.example"),
        ("https:/user:secret@app.example", "https:/app.example"),
        ("  https://user:secret@app.example/ ", "https://app.example/"),
        ("blob:https://user:secret@app.example/1-2", "blob:https://app.example/1-2"),
        ("https://app.example/x?sig=secret", "https://app.example/x?…"),
        ("https://app.example/x?sig=secret#secret", "https://app.example/x?…"),
        ("https://app.example/x#secret?no=query", "https://app.example/x"),
        ("/relative?token=secret@x", "/relative?…"),
        ("data:text/plain;base64,c2VjcmV0", "data:text/plain;base64,…"),
        (" DATA:,secret", "DATA:,…"),
        ("data:secret", "data:,…"),
        ("data:" + "s" * 100 + ",secret", "data:,…"),
        ("", ""),
    ],
)
def test_a_redacted_url_shows_no_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


_PART = st.text(st.characters(exclude_characters="/\\?#", exclude_categories=["Cc", "Cs", "Z"]), max_size=8)


@given(_PART, st.text(max_size=20), st.text(max_size=20))
def test_no_part_of_a_secret_is_shown(user: str, query: str, fragment: str) -> None:
    assert redact_url(f"https://{user}@app.example/x?{query}#{fragment}") == "https://app.example/x?…"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_hosts_that_are_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", None, "localhost.example", "0.0.0.0", "10.0.0.1", "::", "app.example", "::1%"])
def test_hosts_that_are_not_or_may_not_be_this_machine(host: str | None) -> None:
    assert not is_loopback(host)


def test_a_long_url_takes_time_in_proportion_to_its_length() -> None:
    began = time.thread_time()
    assert redact_url("a:" * 60_000) == "a:" * 60_000
    assert redact_url("a:" * 60_000 + "u:p@x") == "a:" * 60_000 + "u:x"
    assert time.thread_time() - began < 1.0  # quadratic time would be half a minute
