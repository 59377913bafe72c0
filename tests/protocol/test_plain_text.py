"""Texts of an app as people and models see them; what a message shows of an address, a name or a time."""

from __future__ import annotations

from tests.support.rows import each_row
from transports.protocol._plain_text import (
    is_loopback,
    plain_line,
    plain_schema,
    plain_text,
    plain_tree,
    redact_url,
    similar_names,
)
from transports.protocol._times import format_duration, iso_utc, parse_duration


@each_row(
    ("text", "plain"),
    [
        ("plain, café, 日本語\tand\nlines", "plain, café, 日本語\tand\nlines"),
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("a\x9b2Jb\x07\x00", "a\ufffd2Jb\ufffd\ufffd"),
        ("photo\u202egnp.exe", "photo\ufffdgnp.exe"),
        ("\u2066a\u2069\u061c\u200e\u200f", "\ufffda\ufffd\ufffd\ufffd\ufffd"),
        ("ad\u200bmin\ufeff\u2060\u00ad", "admin"),
        ("hid\u200dden\u200c\ufe0f", "hidden"),
        ("tags\U000e0049\U000e0067 and\ufe00\U000e0101 selectors", "tags and selectors"),
        ("é\ufe0f\ufe0f\ufe01\ufe0fx", "é\ufe0fx"),
        ("one\r\ntwo\u2028three\rover", "one\ntwo\nthree\ufffdover"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_plain_text_neutralizes_control_and_bidi_characters(text: str, plain: str) -> None:
    assert plain_text(text) == plain
    assert plain_text(plain) == plain
    assert plain_line(text) == " ".join(plain.replace("\ufffdover", " over").split())


def test_plain_line_joins_lines_and_cuts_to_limit() -> None:
    assert plain_line(" a\r\n\tb\x85c\rd\u2029e ") == "a b c d e"
    assert plain_line("x" * 9, 9) == "x" * 9 and plain_line("x" * 10, 9) == "x" * 8 + "…"
    assert len(plain_line("x\n" * 10**6, 50)) == 50


def test_plain_tree_cleans_every_text() -> None:
    tree = {"a\x1b": ["b\u200b", ("c\r\nd", 5)], 7: {"e": None, "f": "\u202e"}}
    assert plain_tree(tree) == {"a\ufffd": ["b", ["c\nd", 5]], 7: {"e": None, "f": "\ufffd"}}


def test_schema_texts_are_sanitized_or_schema_is_dropped() -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string", "title": "T\x1b", "description": "a\nb"}}}
    one = {"type": "string", "title": "T\ufffd", "description": "a b"}
    assert plain_schema(schema) == {"type": "object", "properties": {"title": one}}
    left_out: list[dict[str, object]] = [
        {"enum": ["a\u202e"]},
        {"properties": {"a\u200bb": {}}},
        {"default": {"b": ["\x1b"]}},
    ]
    for value in left_out:
        assert plain_schema({"type": "object", **value}) is None


def test_three_similar_names_are_of_60_percent_of_200_characters() -> None:
    known = ["export.pdg", "export.pdf2", "EXPORT.PDF", "export.pd"]
    assert similar_names("Export.pdf", known) == ["EXPORT.PDF", "export.pdf2", "export.pd"]
    assert similar_names("Export.pdf", known, max_names=1) == ["EXPORT.PDF"]
    name = "".join(chr(0x4E00 + n) for n in range(300))
    alike, less = name[:87] + "-", name[:86] + "-"  # 2 * 87 of 88 + 200 characters, and 2 * 86 of 87 + 200
    assert similar_names(name, [alike]) == [alike] and similar_names(name, [less]) == []
    assert similar_names("labels", ["as", "csv"]) == []  # two letters of a longer word are no likeness


@each_row(
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
        ("data:" + "s" * 74 + ",secret", "data:" + "s" * 74 + ",…"),
        ("data:" + "s" * 75 + ",secret", "data:,…"),
        ("mcp+stdio:server --token x", "mcp+stdio:server …"),
        ("MCP+stdio:server", "MCP+stdio:server"),
        ("", ""),
    ],
)
def test_a_redacted_url_shows_no_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_is_loopback_accepts_only_loopback_hosts() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]")))
    others = ("", None, "localhost.example", "0.0.0.0", "10.0.0.1", "::", "app.example", "::1%")
    assert not any(map(is_loopback, others))


def test_timestamp_defaults_to_utc_with_milliseconds() -> None:
    assert iso_utc(0) == "1970-01-01T00:00:00.000Z"
    assert iso_utc(1_785_240_000.2509) == "2026-07-28T12:00:00.250Z"
    assert iso_utc(1_785_240_000.9, timespec="seconds") == "2026-07-28T12:00:00Z"


@each_row(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (1, "1 second"),
        (1.5, "1.5 seconds"),
        (90, "90 seconds"),
        (3600, "1 hour"),
        (86400, "1 day"),
        (172800, "2 days"),
    ],
)
def test_duration_is_printed_in_largest_exact_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration("999999999d") == 999_999_999 * 86400 and parse_duration("1000000000d") is None
