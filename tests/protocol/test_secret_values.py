"""What the rules find in one place is removed from every other, however it is spelled there."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote, quote_plus

import pytest

from transports._internal.masking import KNOWN_SECRETS
from transports._internal.redaction import REDACTED, EvidenceRedactor

SECRET = 'Canary/7+pass "word" ü&9'


def redactor_after(*nodes: object) -> EvidenceRedactor:
    """Return a redactor that removes the values which the rules find in these nodes."""
    first = EvidenceRedactor()
    for node in nodes:
        first.redact_tree(node)
    return first.with_values()


@pytest.mark.parametrize(
    "where",
    [
        {"user": "bob", "password": SECRET},
        {"headers": [{"name": "Cookie", "value": SECRET}]},
        [["Authorization", SECRET]],
        f"https://app.example/?token={quote(SECRET, safe='')}&user=bob",
        {"message": f"Authorization: Bearer {quote(SECRET, safe='')}"},
    ],
)
def test_secret_found_by_rule_is_redacted_everywhere(where: object) -> None:
    redactor = redactor_after(where)
    spelled = [SECRET, json.dumps(SECRET), quote(SECRET, safe=""), quote(SECRET)]
    spelled += [quote_plus(SECRET), SECRET.replace("&", "&amp;")]
    for before in range(4):
        text = "x" * before + SECRET + "y"
        spelled += [base64.b64encode(text.encode()).decode(), base64.urlsafe_b64encode(text.encode()).decode()]
    for text in spelled:
        said = redactor.redact_text(f"the page said {text} and went on")
        assert REDACTED in said and said.startswith("the page said ") and said.endswith(" and went on"), said
        assert redactor.known.any_in(f"\x00{text}".encode())
    tree = {"said": [SECRET], "type": SECRET}
    assert redactor.redact_tree(tree, {"type"}.__contains__) == {"said": [REDACTED], "type": SECRET}


def test_secrets_are_learned_from_html_forms_and_lines() -> None:
    first = EvidenceRedactor()
    first.redact_html(
        "<input type=password value='first&amp;one'><input name=api_key value=\"second-1\"><input value=open-1>"
    )
    first.redact_pairs("user=bob&client_secret=third%2Fone")
    first.redact_line("password: seventh-one")
    first.redact_tree({"card": {"pin": 7654321}})
    first.remember("theme=dark; sid=sixth%2Fone")
    redactor = first.with_values()
    assert redactor.redact_text("pin 7654321, sixth/one, seventh-one") == f"pin {REDACTED}, {REDACTED}, seventh-one"
    said = redactor.redact_line("first&one second-1 open-1 third/one {token: fourth-one, user: bob} password=fifth")
    assert said == f"{REDACTED} {REDACTED} open-1 {REDACTED} {{token: {REDACTED}, user: bob}} password={REDACTED}"


def test_non_secret_values_are_not_masked() -> None:
    cookie = {"name": "sid", "value": "0123456789", "domain": "app.example", "path": "/orders"}
    tree = {"cookies": [cookie], "schema": {"password": {"type": "string"}}, "pin": "12", "token": "abc"}
    redactor = redactor_after(tree, "<input type=password value='<redacted>'><input type=password value=${SECRET:A}>")
    text = "a string for app.example/orders by sid, 12 and abc"
    assert redactor.redact_text(text) == text
    assert redactor.redact_text("0123456789") == REDACTED
    assert not redactor.known.any_in(b"<redacted> ${SECRET:A}")


def test_known_and_learned_secrets_are_masked_together() -> None:
    known, named = 'K7-"known', "${SECRET:REPORTS}"
    KNOWN_SECRETS.add("REPORTS", known)
    try:
        redactor = redactor_after(
            f"https://x/cb?id={quote(known)}&token=hunter2-plain", {"password": known, "token": named}
        )
        assert redactor.redact_text(f"hunter2-plain {known}") == f"{REDACTED} {named}"
        for before in range(3):
            basic = base64.b64encode(b"u" * before + f":{known}:".encode()).decode()
            said = redactor.redact_text(f"sent {basic} ")
            assert said == f"sent {REDACTED} " or named in said
            assert redactor.known.any_in(basic.encode())
        assert json.loads(redactor.redact_text(json.dumps(known + "ü"))) == named + "ü"
        KNOWN_SECRETS.add("PIN", "12345678901")
        redactor = redactor_after({"pin": 7654321, "password": "hunter22", "token": "hunter22-and-more"})
        assert redactor.redact_tree([12345678901, 7654321, "7654321"]) == ["${SECRET:PIN}", 7654321, REDACTED]
        assert redactor.redact_text("hunter22-and-more hunter22") == f"{REDACTED} {REDACTED}"
    finally:
        KNOWN_SECRETS.forget()
    assert EvidenceRedactor().redact_text(known) == known


@pytest.mark.slow
@pytest.mark.load
def test_app_cannot_slow_down_redaction() -> None:
    redactor = redactor_after([{"password": f"value-{number:06}"} for number in range(5000)])
    started = time.process_time()
    redactor.redact_line("a=" * 20_000 + "<input " * 20_000 + "A" * 200_000)
    redactor.redact_html("<input " + "a='" * 20_000)
    redactor.redact_pairs("password" * 20_000)
    redactor.redact_text((base64.b64encode(b"value-000001").decode() + " ") * 50_000)
    assert time.process_time() - started < 20  # in proportion; quadratic work would take minutes


def test_long_text_is_redacted_in_pieces_without_losing_text() -> None:
    redactor = EvidenceRedactor()
    line = "https://app.example/?said=1&token=abcdefgh then words\n"
    for text in (line * 5000, line.replace("\n", " ") * 5000, "x" * 200_000 + f" {line}"):
        assert redactor.redact_text(text) == text.replace("abcdefgh", REDACTED)
    header = "Authorization: Basic dXNlcjpwYXNz\n"  # a piece ends with the line, not with a word of it
    assert redactor.redact_text(header * 5000) == header.replace("Basic dXNlcjpwYXNz", REDACTED) * 5000


def test_secret_in_key_is_redacted_but_format_keys_are_kept() -> None:
    redactor = redactor_after({"password": "snapshot"})
    tree = {"as snapshot of": 1, "snapshot": [{"url-snapshot": "snapshot"}]}
    assert redactor.redact_tree(tree) == {"as <redacted> of": 1, "<redacted>": [{"url-<redacted>": REDACTED}]}
    kept = {"as <redacted> of": 1, "snapshot": [{"url-<redacted>": REDACTED}]}
    assert redactor.redact_tree(tree, lambda _: False) == kept
