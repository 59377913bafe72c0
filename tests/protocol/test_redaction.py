"""The rules of what is secret, shared by recordings (and the logs made of them) and artifacts; nothing else changes."""

from __future__ import annotations

import time

import pytest

from tests.support.rows import each_row
from transports._internal.redaction import REDACTED, Redactor
from transports.artifacts import open_store
from transports.protocol._plain_text import redact_url

_SECRET_NAMES = (
    *("password", "PASSWD", "passphrase", "privateKey", "private_key", "clientSecret", "secret", "access_key"),
    *("apiKey", "api-key", "API_KEY", "X-Api-Key", "token", "accessToken", "refresh_token", "id-token"),
    *("Authorization", "authorisation", "Proxy-Authorization", "cookie", "Set-Cookie", "set_cookie", "auth"),
    *("credential", "credentials", "awsCredentials", "passwords", "secrets", "cookies"),
    *("password1", "user[password][0]", "user.token.0", "password_confirmation", "pass%77ord"),
    *(r"pass\u0077ord", r"pass\x77ord", "pass&#119;ord", "pass%252577ord"),
    *("pwd", "userPwd", "pin", "PIN", "card_pin", "cardPin", "otp", "sessionId", "Mcp-Session-Id", "cvv"),
)
_JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0"


@pytest.mark.requirement("R4-15d")
@each_row(
    ("text", "left"),
    [
        ("https://a.test/f?token=abc&x=1", "https://a.test/f?token=<redacted>&x=1"),
        ("https://a.test/f?x=1&X-Amz-Signature=abc#top", "https://a.test/f?x=1&X-Amz-Signature=<redacted>#top"),
        (
            "https://a.test/?next=https://b.test/?token=abc&x=1",
            "https://a.test/?next=https://b.test/?token=<redacted>&x=1",
        ),
        ("https://a.test/?token=a?b;key=c&x=1", "https://a.test/?token=<redacted>&x=1"),
        ("https://me:pw@a.test/", "https://<redacted>@a.test/"),
        ("Authorization: Basic YTpi", "Authorization: <redacted>"),
        ("a\nSet-Cookie: sid=1; Path=/\nb", "a\nSet-Cookie: <redacted>\nb"),
        ("use Bearer abc123-def456 here", "use Bearer <redacted> here"),
        ("got Basic dXNlcjpwYXNzd29yZA== from it", "got Basic <redacted> from it"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sig-n_ature1", "<redacted>"),
        (f"a.b.{_JWT}.sig: x-{_JWT}..c", "a.b.<redacted>: x-<redacted>.c"),
        ("?token=a&key=b&x=1&sig=c", "?token=<redacted>&key=<redacted>&x=1&sig=<redacted>"),
        ("a.eyJabcdefgh.12345678", "a.eyJabcdefgh.12345678"),
        ("a.eyJabcdefgh.12345678.x.b", "a.<redacted>.b"),
        ("x-api-key: abc", "x-api-key: <redacted>"),
        *((f"{word} dXNlcjpw1x", f"{word} <redacted>") for word in ("BASIC", "bas\u0131c", "ba\u017fic", "BAS\u0130C")),
        ("curl -H 'authorization: Bearer abcdefgh' u", "curl -H 'authorization: <redacted>' u"),
        ('log: Proxy-Authorization: Digest username="a", x', "log: Proxy-Authorization: <redacted>"),
        ("-H 'Cookie: sid=abc; theme=dark' -v", "-H 'Cookie: <redacted>' -v"),
    ],
)
def test_secrets_in_text_are_redacted(text: str, left: str) -> None:
    assert Redactor().redact_text(text) == left
    assert Redactor().redact_text(left) == left


_PART = "--B\r\nContent-Disposition: form-data; {}\r\n\r\n{}\r\n--B--\r\n"


@each_row(
    "text",
    [
        *(
            "the bearer of this letter",
            "token economics; a cookie recipe",
            "authorization is needed",
            "basic knowledge",
        ),
        *("https://a.test/tokens/7?page=2", "mail@a.test", "https://a.test/f?shipping=1&spin=2"),
        "the authorization: none; see Authorization: required",
        "a cookie: sweet, and x-axis: 3",
        "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXo=",
        "user=bob&note=the+password",
        _PART.format('name="note"', "password=hunter2 is a bad one"),
        "<script>const html = `<input type=password value=${kept}>`;</script>",
        "<textarea name=note><input type=password value=a></textarea><input type=password value=''>",
        "if (a < input.length) password = value;",
    ],
)
def test_text_without_secrets_is_unchanged(text: str) -> None:
    assert Redactor().redact_text(text) == Redactor().redact_tree(text) == text


def test_secret_fields_are_redacted_and_keep_shape() -> None:
    given_ = {
        "clientSecret": "x",
        "api-key": 7,
        "tokens": 100,
        "progressToken": "id",
        "auth": {"type": "bearer", "header": "x"},
        "credentials": {"user": "u", "list": ["x", None, True]},
        "inputSchema": {"properties": {"password": {"type": "string", "description": "yours"}}},
        "token": {"content": b"bytes", "mimeType": "a/b"},
        "pin": 1234,
        "cardPin": "1234",
        "map": {"pin": {"x": 1}, "pins": [1], "shipping": "a"},
        "headers": [{"name": "Authorization", "value": "abc"}, {"name": "Accept", "value": "a/b"}],
        "pairs": [["cookie", "a"], ["accept", "a/b"]],
    }
    left = {
        **given_,
        "clientSecret": REDACTED,
        "api-key": REDACTED,
        "auth": {"type": "bearer", "header": REDACTED},
        "credentials": {"user": REDACTED, "list": [REDACTED, None, True]},
        "pin": REDACTED,
        "cardPin": REDACTED,
        "headers": [{"name": "Authorization", "value": REDACTED}, {"name": "Accept", "value": "a/b"}],
        "pairs": [["cookie", REDACTED], ["accept", "a/b"]],
    }
    assert Redactor().redact_tree(given_) == left
    assert Redactor().redact_tree(left) == left


@each_row(
    ("name", "left"),
    [
        *((name, REDACTED) for name in _SECRET_NAMES),
        *((name, "hunter2") for name in ("tokens", "author", "keyboard", "secretary", "progressToken")),
        *((name, "hunter2") for name in ("authentication", "spin", "shipping", "session")),
    ],
)
async def test_recordings_and_artifacts_redact_same_names(name: str, left: str) -> None:
    assert Redactor().redact_tree({name: "hunter2"}) == {name: left}
    ref = await open_store("memory:").put_bytes(b"x", meta={name: "hunter2"})
    assert ref.source[name] == left


@each_row(
    ("text", "left"),
    [
        ("pass%77ord=hunter2&user=bob", "pass%77ord=<redacted>&user=bob"),
        ("password=&token=hunter2", "password=&token=<redacted>"),
        ("user=bob&user%5Bpassword%5D=hunter2", "user=bob&user%5Bpassword%5D=<redacted>"),
        (_PART.format('name="pass%77ord"', "hunter2"), _PART.format('name="pass%77ord"', REDACTED)),
        (_PART.format("name*=utf-8''pass%77ord", "hunter2"), _PART.format("name*=utf-8''pass%77ord", REDACTED)),
        (
            "a preamble\r\n" + _PART.format("name=token", "hunter2"),
            "a preamble\r\n" + _PART.format("name=token", REDACTED),
        ),
        ("<p>Hi <INPUT Value='hunter2' TYPE=PassWord></p>", '<p>Hi <INPUT Value="<redacted>" TYPE=PassWord></p>'),
        ('<input type="password" value="hunter2', '<input type="password" value="<redacted>"'),
        (
            '<!-- <a b=" --><input type=password value=hunter2>',
            '<!-- <a b=" --><input type=password value="<redacted>">',
        ),
        (
            "<script>if (a<b) {}</script ><input type=password value=hunter2>",
            '<script>if (a<b) {}</script ><input type=password value="<redacted>">',
        ),
        ("<input type=password type=text value=hunter2>", '<input type=password type=text value="<redacted>">'),
        ("<textarea name=token>hunter2</textarea> <b>", "<textarea name=token><redacted></textarea> <b>"),
    ],
)
def test_secret_form_fields_in_text_are_redacted(text: str, left: str) -> None:
    assert Redactor().redact_tree({"body": [text]}) == {"body": [left]}
    assert Redactor().redact_tree(left) == left


@pytest.mark.slow
@each_row(
    ("start", "repeated", "end"),
    [
        *(("", repeated, ":") for repeated in ("\n", " \n", "a.-", "-eyJ", "basic basic", "x-x-key-")),
        *(("", repeated, "=") for repeated in ("a.b", "?;&a", "cookie:")),
        *(
            ("", repeated, "")
            for repeated in ("eyJ-aaaaaaaa.", "authorization:digest ", "<!--", "<a ", "<input value='")
        ),
        *(("", "a://", "@"), ("bearer ", " ", ":"), ("", "x-key", " :"), ("authorization", " ", "")),
        *(("", "cookie:a=b ", ";"), ("", "--B\r\nContent-Disposition: a\r\n\r\n", "")),
    ],
)
def test_redaction_time_is_proportional_to_length(start: str, repeated: str, end: str) -> None:
    text = start + repeated * (200_000 // len(repeated)) + end
    began = time.thread_time()
    Redactor().redact_text(text)
    Redactor().redact_form(text)
    redact_url(text)
    assert time.thread_time() - began < 1.0  # quadratic time would be 3 s to minutes


def test_values_of_every_kind_are_redacted() -> None:
    secret, left = "Bearer abc12345", "Bearer <redacted>"
    assert Redactor().redact_tree([secret, (secret, 5), {5: secret, "a": [secret]}]) == [
        left,
        [left, 5],
        {5: left, "a": [left]},
    ]
    described = {"token": secret, "list": [secret, 5], "tuple": (secret, None)}
    described_left = {"token": left, "list": [left, 5], "tuple": [left, None]}
    assert Redactor().redact_tree({"inputSchema": described}) == {"inputSchema": described_left}


def test_overly_deep_values_are_redacted() -> None:
    deep: object = "s3cr3t"
    for _ in range(5000):
        deep = [deep]
    assert Redactor().redact_tree(deep) == REDACTED
    tree = {"a": 1, "token": "x", "b": deep, "password": deep}
    assert Redactor().redact_tree(tree) == {**dict.fromkeys(tree, REDACTED), "a": 1}


@pytest.mark.parametrize(
    ("secret", "short"),
    [
        ("bearer abcdef1~", "bearer abcde1~"),
        ("basic QWxhZ1", "basic QWxh1"),
        ("eyJabcdefgh.eyJabcdefgh.x", "eyJabcdefg.eyJabcdefgh.x"),
        ("eyJabcdefgh.12345678.x", "eyJabcdefgh.1234567.x"),
    ],
)
def test_only_long_enough_credentials_are_redacted(secret: str, short: str) -> None:
    assert REDACTED in Redactor().redact_text(secret)
    assert Redactor().redact_text(short) == short


def test_own_names_and_patterns_are_redacted() -> None:
    redactor = Redactor(["Pin", "x-y"], [r"pin(?P<secret>\d+)?!", r"card \d+", r"(?P<other>seat) 1"])
    assert redactor.redact_text("pin12! pin! CARD 12 seat 1") == f"pin{REDACTED}! {REDACTED} {REDACTED} {REDACTED}"
    tree = {"my_PIN": "1", "pinned": "2", "aXY": 3}
    assert redactor.redact_tree(tree) == {"my_PIN": REDACTED, "pinned": "2", "aXY": REDACTED}
    assert redactor.redact_text("?myPin=1&pinned=2") == f"?myPin={REDACTED}&pinned=2"
    assert redactor.is_secret("x" * 64 + "_Api-Key") and not redactor.is_secret("x" * 64 + "_Passwort")
