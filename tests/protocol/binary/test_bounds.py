"""Every bound of the room: a case at it, and one beyond it."""

from __future__ import annotations

import base64
import struct

import pytest

from transports.errors import BadDescriptor, UsageError
from transports.protocol._find_content import Place, find
from transports.protocol._heuristics import MIN_GUESSED, Heuristics, Signature
from transports.protocol._media import normalise_mime, safe_filename, sniff
from transports.protocol._params import set_path
from transports.protocol.binary import BinaryData, Download, Encoded, base64_head

PNG = b"\x89PNG\r\n\x1a\n"


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_base64_is_decoded_four_mebibytes_of_text_at_a_time() -> None:
    assert [len(part) for part in Encoded("A" * (4 << 20), "base64").chunks()] == [3 << 20]
    assert [len(part) for part in Encoded("A" * ((4 << 20) + 4), "base64").chunks()] == [3 << 20, 3]
    assert [len(part) for part in Encoded("a" * ((4 << 20) + 1), "utf-8").chunks()] == [4 << 20, 1]


def test_a_file_name_has_120_bytes_at_most() -> None:
    assert safe_filename("x" * 116 + ".pdf", fallback="file", mime_type=None) == "x" * 116 + ".pdf"
    assert safe_filename("x" * 117 + ".pdf", fallback="file", mime_type=None) == "x" * 116 + ".pdf"


@pytest.mark.parametrize(("after", "name"), [(495, "K.pdf"), (496, "pdf.bin")])
def test_of_a_name_of_more_than_1000_characters_the_middle_is_not_read(after: int, name: str) -> None:
    suggestion = "\u200b" * 500 + "K" + "\u200b" * after + ".pdf"
    assert safe_filename(suggestion, fallback="file", mime_type=None) == name


def test_512_characters_of_a_declared_type_are_read() -> None:
    assert normalise_mime(" " * 503 + "image/png") == "image/png"
    assert normalise_mime(" " * 504 + "image/png") != "image/png"


def test_text_of_1000_characters_is_looked_at() -> None:
    assert MIN_GUESSED == 1000
    text = text_of(PNG + bytes(741)).rstrip("=")
    assert len(text) == 999 and Heuristics().recognise(text) is None
    text = text_of(PNG + bytes(742))
    assert len(text) == 1000 and Heuristics().recognise(text) is not None


def test_a_signature_of_the_caller_has_three_bytes_within_the_first_4096() -> None:
    assert Signature(b"abc", "a/b", 4093).offset == 4093
    own = Heuristics(signatures=[Signature(b"abc", "a/b", 4093)])
    for data in (b"\1" * 4093 + b"abc", b"\1" * 4093 + b"abc" + b"\1" * 3000):
        for text in (text_of(data), data.decode("latin-1")):
            found = own.recognise(text)
            assert found is not None and found.mime_type == "a/b"


def test_what_is_decoded_may_have_just_the_size_of_the_limit() -> None:
    png = PNG + bytes(range(256)) * 4
    for text in (text_of(png), png.decode("latin-1")):
        assert Heuristics(max_decode_bytes=len(text) * 3 // 4 if text.isascii() else len(text)).recognise(text)
        assert not Heuristics(max_decode_bytes=len(text) * 3 // 4 - 1 if text.isascii() else len(text) - 1).recognise(
            text
        )


@pytest.mark.parametrize(
    "content",
    [
        b"BM" + struct.pack("<IHHI", 1200, 0, 0, 26) + bytes(1186),
        struct.pack("<HHHBBBBHHII", 0, 1, 1, 1, 1, 0, 0, 1, 32, 1178, 22) + PNG + bytes(1170),
    ],
    ids=["bmp", "ico"],
)
def test_content_that_is_too_long_to_keep_is_judged_by_its_head(
    content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bitmap says how long it is, and an icon where its picture ends: that is compared with what is there."""
    whole, cut = text_of(content), text_of(content[:-6])
    kept = Heuristics().recognise(whole)
    assert kept is not None and kept.content == content
    assert Heuristics().recognise(cut) is None
    monkeypatch.setattr("transports.protocol._heuristics._MAX_KEPT_CHARS", len(whole) - 1)
    for text in (whole, whole[:-8] + "AAAA" + whole[-4:]):
        guess = Heuristics().recognise(text)
        assert guess is not None and guess.content == Encoded(text, "base64")
    monkeypatch.setattr("transports.protocol._heuristics._MAX_KEPT_CHARS", len(whole))
    kept = Heuristics().recognise(whole)
    assert kept is not None and kept.content == content


def test_sizes_and_times_are_whole_numbers_of_javascript() -> None:
    def declared(**fields: object) -> BinaryData:
        (found,) = find({"mimeType": "image/png", **fields})
        if not isinstance(found.binary, BinaryData):
            raise found.binary
        return found.binary

    assert declared(content="AAAA", size=2**53 - 1).size == 2**53 - 1
    with pytest.raises(BadDescriptor, match=r"between 0 and 2\^53-1 bytes, the app sent 9007199254740992"):
        declared(content="AAAA", size=2**53)
    for time in (2**53 - 1, 1 - 2**53):
        content = declared(downloadUrl="https://a.test/", expiresAt=time).content
        assert isinstance(content, Download) and content.expires_at == time
    for time in (2**53, -(2**53), True):
        with pytest.raises(BadDescriptor, match=f"Unix milliseconds, the app sent {time}"):
            declared(downloadUrl="https://a.test/", expiresAt=time)


def test_4098_bytes_of_base64_are_its_head() -> None:
    assert len(base64_head("A" * 6000)) == 4098
    assert base64_head("A" * 5463) == bytes(4098)
    assert base64_head("QUJD!" + "A" * 100) == b"ABC"


@pytest.mark.parametrize(("magic", "known"), [(3389, False), (3390, True), (4999, True), (5000, False)])
def test_bytecode_has_a_magic_number_from_3390_to_4999(magic: int, known: bool) -> None:
    head = struct.pack("<H", magic) + b"\r\n" + bytes(12) + b"\xe3"
    assert (sniff(head) == "application/x-python-code") is known
    assert sniff(head[:-1]) is None and sniff(head[:-1] + b"\xe4") is None


def test_gzip_has_more_than_its_frame_and_no_reserved_flag() -> None:
    def recognised(flags: int, length: int) -> bool:
        text = (
            "data:application/gzip;x="
            + "x" * 980
            + ";base64,"
            + text_of(b"\x1f\x8b\x08" + bytes([flags]) + bytes(length - 4))
        )
        return Heuristics().recognise(text) is not None

    assert recognised(0x1F, 19) and recognised(0, 19)
    assert not recognised(0, 18) and not recognised(0x20, 19)


def test_three_bytes_of_a_jpeg_are_none() -> None:
    start = "data:image/jpeg;x=" + "x" * 980 + ";base64,"
    assert Heuristics().recognise(start + text_of(b"\xff\xd8\xff")) is None
    assert Heuristics().recognise(start + text_of(b"\xff\xd8\xff\xbf")) is None
    assert Heuristics().recognise(start + text_of(b"\xff\xd8\xff\xc0")) is not None


def test_content_of_a_block_stands_where_mcp_says() -> None:
    image = {"type": "image", "data": text_of(PNG), "mimeType": "image/png"}
    trees: list[object] = [[image], {"content": [image]}, {"a": {"contents": [1, image]}}]
    for tree in trees:
        (found,) = find(tree)
        assert (found.path[-1], found.layer) == ("data", "typed")
        assert isinstance(found.binary, BinaryData) and found.binary.content == Encoded(text_of(PNG), "base64")
    assert [found.layer for found in find({"other": [image]})] == ["abp"]
    resource = {"uri": "file:///a/b.png?v=1.5#x.y", "blob": text_of(PNG), "mimeType": "image/png"}
    resources: list[tuple[object, Place]] = [
        ({"type": "resource", "resource": resource}, ("resource", "blob")),
        (resource, ("blob",)),
    ]
    for tree, place in resources:
        (found,) = find(tree)
        assert (found.path, found.layer) == (place, "typed")
        assert isinstance(found.binary, BinaryData)
        assert (found.binary.mime_type, found.binary.filename) == ("image/png", "b.png")
    assert find({"type": "resource", "resource": {"uri": "a", "blob": 5}}) == []
    (found,) = find([{"type": "image", "data": BinaryData(b"x", "image/gif"), "mimeType": "image/png"}])
    assert found.binary == BinaryData(b"x", "image/png") and found.path == (0, "data")


def test_a_value_gets_a_place_in_parameters() -> None:
    params: dict[str, object] = {"a": [1, {"b": 2}]}
    set_path(params, ["a", "1", "b"], 3)
    set_path(params, ["a", "2"], 4)
    set_path(params, ["c", "d"], 5)
    assert params == {"a": [1, {"b": 3}, 4], "c": {"d": 5}}
    for step in ("4", "-1", "x", "²", "9" * 5000):
        with pytest.raises(UsageError, match=rf"^a\.{step}: 'a' already has a value that is not an object; give"):
            set_path(params, ["a", step], 6)
    with pytest.raises(UsageError, match=r"^c\.d\.e: 'd' already has a value that is not an object; give the whole"):
        set_path(params, ["c", "d", "e"], 6)


def test_the_picture_of_an_icon_stands_behind_its_directory() -> None:
    def icon(offset: int, count: int = 1) -> str:
        head = struct.pack("<HHHBBBBHHII", 0, 1, count, 1, 1, 0, 0, 1, 32, 1000, offset)
        data = bytearray(head.ljust(1200, b"\1"))
        data[offset : offset + 4] = b"\x89PNG"
        return text_of(bytes(data))

    assert Heuristics().recognise(icon(22)) is not None and Heuristics().recognise(icon(38, 2)) is not None
    assert Heuristics().recognise(icon(18)) is None and Heuristics().recognise(icon(37, 2)) is None
    assert Heuristics().recognise(icon(201)) is None


@pytest.mark.parametrize(("tag", "known"), [(b"cvt ", True), (b"~~~~", True), (b"cv\x1f ", False), (b"cv\x7f ", False)])
def test_the_first_table_of_a_font_has_a_name_of_four_characters(tag: bytes, known: bool) -> None:
    font = struct.pack(">4sHHHH4sIII", b"\0\1\0\0", 1, 0, 0, 0, tag, 0, 28, 4)
    assert (Heuristics().recognise(text_of(font.ljust(900, b"\1"))) is not None) is known


def test_a_binary_string_passes_the_second_check_too() -> None:
    bitmap = b"BM" + struct.pack("<IHHI", 1200, 0, 0, 26) + bytes(1186)
    assert Heuristics().recognise(bitmap.decode("latin-1")) is not None
    assert Heuristics().recognise((bitmap + b"\0").decode("latin-1")) is None


def test_bytes_under_any_name_stand_for_themselves() -> None:
    (found,) = find({"thing": b"x", "mimeType": "image/png", "filename": "a.png"})
    assert isinstance(found.binary, BinaryData) and (found.path, found.binary.mime_type) == (("thing",), None)
    (named,) = find({"image": b"x", "mimeType": "image/png", "filename": "a.png"})
    assert isinstance(named.binary, BinaryData) and (named.binary.mime_type, named.binary.filename) == (
        "image/png",
        "a.png",
    )
