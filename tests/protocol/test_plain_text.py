"""Texts of an app as people and models see them."""

import pytest

from transports.protocol._plain_text import plain_line, plain_schema, plain_text, plain_tree


@pytest.mark.parametrize(
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
        ("half \ud83d", "half \ufffd"),
        ("👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3", "👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3"),
        ("می\u200cخواهم", "می\u200cخواهم"),
    ],
)
def test_nothing_in_a_text_is_obeyed_hidden_or_turned_around(text: str, plain: str) -> None:
    assert plain_text(text) == plain
    assert plain_text(plain) == plain
    assert plain_line(text) == " ".join(plain.replace("\ufffdover", " over").split())


def test_a_line_is_one_line_and_no_longer_than_its_limit() -> None:
    assert plain_line(" a\r\n\tb\x85c\rd\u2029e ") == "a b c d e"
    assert plain_line("x" * 9, 9) == "x" * 9 and plain_line("x" * 10, 9) == "x" * 8 + "…"
    assert len(plain_line("x\n" * 10**6, 50)) == 50


def test_every_text_of_a_tree_is_plain() -> None:
    tree = {"a\x1b": ["b\u200b", ("c\r\nd", 5)], 7: {"e": None, "f": "\u202e"}}
    assert plain_tree(tree) == {"a\ufffd": ["b", ["c\nd", 5]], 7: {"e": None, "f": "\ufffd"}}


def test_a_schema_keeps_its_words_only_if_they_are_plain() -> None:
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
