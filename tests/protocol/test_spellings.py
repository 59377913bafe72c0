"""A value that is known is found however it is spelled, by whichever encoder, and whatever stands beside it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from tests.support.processor import BOUND, seconds
from tests.support.rows import each_row
from tests.support.spelled import SPELLED, readings
from transports._internal.masking import Finder, KnownSecrets, Occurrence
from transports.protocol.binary import BinaryData

VALUE = 'O\'Hara (7*~!)+"pass/word" ü😀&9'
NAME = "${SECRET:CRM}"


def known_of(value: str) -> KnownSecrets:
    known = KnownSecrets()
    known.add("CRM", value)
    return known


@each_row("name", SPELLED)
@each_row("value", [VALUE, "%41%42%43%44", "&amp;&lt;&gt;", "\\u0041 and \\n more", "ääääääää\u0301"])
def test_secret_is_masked_in_every_encoding(name: str, value: str) -> None:
    spelled = SPELLED[name](value)
    said = known_of(value).mask_text(f"the page said <{spelled}> and went on")
    assert NAME in said and said.startswith("the page said <") and said.endswith("> and went on"), said
    if value == VALUE:
        assert VALUE not in set(readings(said)), said
        tree = known_of(VALUE).mask_tree({"said": [{spelled: 1}, f"it is {spelled}"], "other": "words"})
        assert VALUE not in {one for text in strings(tree) for one in readings(text)}, tree


def strings(node: object) -> list[str]:
    match node:
        case str():
            return [node]
        case dict():
            return [text for pair in node.items() for one in pair for text in strings(one)]
        case list():
            return [text for one in node for text in strings(one)]
    return []


@each_row(
    ("character", "escape"),
    [
        *(
            ("'", escape)
            for escape in (
                "%27", "%u0027", r"\u0027", r"\u{27}", r"\u{000027}", r"\U00000027", r"\x27", r"\047", r"\'",
                "&#x27;", "&#X000027;", "&#39;", "&#0039;", "&apos;",
            )
        ),
        ("😀", "%uD83D%uDE00"),
        ("😀", r"\ud83d\ude00"),
        ("😀", r"\u{1f600}"),
        ("😀", r"\U0001F600"),
        ("😀", "&#128512;"),
        ("7", r"\37 "),
        ("\n", r"\n"),
        ("/", r"\/"),
        (" ", "+"),
    ],
)  # fmt: skip
def test_secret_with_escaped_character_is_masked(character: str, escape: str) -> None:
    assert known_of(f"12345{character}67890").mask_text(f"a 12345{escape}67890 b") == f"a {NAME} b"


@pytest.mark.parametrize("text", [json.dumps(json.dumps(VALUE)), base64.b64encode(json.dumps(VALUE).encode()).decode()])
def test_doubly_encoded_secret_is_not_masked(text: str) -> None:
    """Whatever is found by more steps, another step would hide (docs/security.md)."""
    assert known_of(VALUE).mask_text(text) == text
    plain = "correct-horse-battery"
    assert NAME in known_of(plain).mask_text(json.dumps(json.dumps({"a": plain})))


def test_masking_keeps_surrounding_text_of_any_length() -> None:
    known = known_of(VALUE)
    for size in range(300):
        assert known.mask_text("ab%20" * size + VALUE + "&amp;c" * size) == "ab%20" * size + NAME + "&amp;c" * size
    for text in ("100% &c. \\o/ &nope; %zz \\", "ü" * 5000, "\ud800\udfff %ud800"):
        assert known.mask_text(text) == text


def test_secret_split_across_frames_is_masked_in_each() -> None:
    known = known_of(VALUE)
    for spelled in (VALUE, json.dumps(VALUE), base64.b64encode(VALUE.encode()).decode()):
        for at in range(1, len(spelled)):
            frames = known.mask_texts(["said ", spelled[:at], spelled[at:], " and on"])
            assert VALUE not in set(readings("".join(frames), 1)), frames
            assert all(NAME in one or len(one) < 3 for one in frames[1:3]), frames
            assert frames[0] == "said " and frames[3] == " and on"


def test_numeric_secret_is_masked_as_number() -> None:
    known = known_of("12345678901")
    known.add("PRICE", "000123456.750")
    tree = {"a": 12345678901, "b": [12345678901.0, 123456.75, 7, True, 1e308], "c": "no 12345678901"}
    masked = {"a": NAME, "b": [NAME, "${SECRET:PRICE}", 7, True, 1e308], "c": f"no {NAME}"}
    assert known.mask_tree(tree) == masked
    assert known.mask_text(json.dumps(tree)).count(NAME) == 3
    assert known.mask_tree({"a": 10**400}) == {"a": 10**400}


def test_masked_file_text_keeps_size_in_any_spelling() -> None:
    known = known_of(VALUE)
    for name, spell in SPELLED.items():
        content = f"a {spell(VALUE)} b".encode()
        masked = known.mask_file(content)
        assert len(masked) == len(content) and b"*" in masked and masked[:2] == b"a " and masked[-2:] == b" b", name
        assert VALUE not in set(readings(masked.decode(errors="replace"))), name


def test_tree_without_known_secret_is_returned_unchanged() -> None:
    known = known_of(VALUE)
    tree = {"a": ["b", {"c": 1}], "file": BinaryData.from_bytes(b"a", filename="a%20b")}
    assert known.mask_tree(tree) is tree
    assert known.mask_tree(split := {VALUE[:9]: [VALUE[9:]]}) is split  # not one text
    assert KnownSecrets().mask_tree(tree) is tree


@pytest.mark.parametrize("known", [1, pytest.param(100, marks=pytest.mark.load)])
def test_searching_64_kb_on_event_loop_is_fast(known: int) -> None:
    """64 KB, of which longer ones are searched in a thread, in pieces."""
    finder = Finder({f"value-number-{number:05}": NAME for number in range(known)})
    for kind in (b"words and ", b"%41", b"%2541a", b"\\u0041", b"&#39;", b"QUJD", b"4a", b"\\\\\\\\", b"&amp;amp;"):
        content = (kind * (64 * 1024))[: 64 * 1024]
        assert seconds(lambda: finder.find(content)) < BOUND, kind  # noqa: B023


def test_secret_search_runs_in_short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long content is, each step looks at a piece of it; a value across two pieces is found."""
    finder, sizes = Finder({VALUE: NAME}), list[int]()
    search = Finder._search

    def noted(self: Finder, content: bytes) -> Iterator[Occurrence]:
        sizes.append(len(content))
        return search(self, content)

    monkeypatch.setattr(Finder, "_search", noted)
    encoded = json.dumps(VALUE)[1:-1].encode()
    content = bytearray(b"words, " * 200_000)
    for at in (1 << 18, 1 << 19, (1 << 18) - 9, len(content)):
        content[at:at] = encoded
    assert len(finder.find(bytes(content))) == 4
    assert max(sizes) < 600 << 10
