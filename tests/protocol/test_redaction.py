"""What of texts is secret, and that nothing else changes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from transports.protocol.redaction import REDACTED, Redactor

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["a", "token", "auth", "password", "url"]), inner),
)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("https://a.test/f?token=abc&x=1", "https://a.test/f?token=<scrubbed>&x=1"),
        ("https://a.test/f?x=1&X-Amz-Signature=abc#top", "https://a.test/f?x=1&X-Amz-Signature=<scrubbed>#top"),
        ("https://me:pw@a.test/", "https://<scrubbed>@a.test/"),
        ("Authorization: Basic YTpi", "Authorization: <scrubbed>"),
        ("a\nSet-Cookie: sid=1; Path=/\nb", "a\nSet-Cookie: <scrubbed>\nb"),
        ("use Bearer abc123-def456 here", "use Bearer <scrubbed> here"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig-n_ature1", "<scrubbed>"),
    ],
)
def test_secrets_in_texts(text: str, left: str) -> None:
    assert Redactor().text(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "the bearer of this letter",
        "token economics; a cookie recipe",
        "https://a.test/tokens/7?page=2",
        "mail@a.test",
        "authorization is needed",
        "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


def test_fields() -> None:
    given_ = {
        "clientSecret": "x",
        "api-key": 7,
        "tokens": 100,
        "progressToken": "id",
        "auth": {"type": "bearer", "header": "x"},
        "credentials": {"user": "u", "list": ["x", None, True]},
        "inputSchema": {"properties": {"password": {"type": "string", "description": "yours"}}},
        "token": {"content": b"bytes", "mimeType": "a/b"},
    }
    assert Redactor().tree(given_) == {
        **given_,
        "clientSecret": REDACTED,
        "api-key": REDACTED,
        "auth": {"type": "bearer", "header": REDACTED},
        "credentials": {"user": REDACTED, "list": [REDACTED, None, True]},
    }


@given(JSON)
def test_scrubbing_twice_changes_nothing(tree: object) -> None:
    once = Redactor().tree(tree)
    assert Redactor().tree(once) == once


@given(st.text(alphabet="abcdefgh0123-_.", min_size=8))
def test_no_password_is_left(secret: str) -> None:
    tree = {"password": secret, "deep": [{"url": f"http://a/?token={secret}"}, {"auth": {"token": secret}}]}
    assert f"={secret}" not in str(Redactor().tree(tree)) and f"'{secret}'" not in str(Redactor().tree(tree))
