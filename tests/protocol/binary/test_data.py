"""The BinaryData union: strict base64, sizes in bytes, content from files and bytes."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.support.rows import each_row
from transports.errors import BadEncoding, SizeMismatch, UsageError
from transports.protocol import binary
from transports.protocol.binary import (
    BinaryData,
    Content,
    Download,
    Encoded,
    Handle,
    LocalFile,
    base64_head,
)


def decode(text: str) -> bytes:
    return b"".join(Encoded(text, "base64").chunks())


# --- base64 (docs/protocol.md 9.8) ------------------------------------------------------------------------------------

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "standard": base64.b64encode,
    "unpadded": lambda data: base64.b64encode(data).rstrip(b"="),
    "url-safe": base64.urlsafe_b64encode,
    "url-safe unpadded": lambda data: base64.urlsafe_b64encode(data).rstrip(b"="),
}


@pytest.mark.requirement("R0-6e", "R1-6c")
@pytest.mark.parametrize("form", FORMS)
@given(data=st.binary(max_size=200))
def test_every_binary_form_decodes_to_exact_bytes(form: str, data: bytes) -> None:
    assert decode(FORMS[form](data).decode()) == data


@pytest.mark.fault(24)
@each_row(
    "text",
    [
        *("JVBE!i0x", "JVBERi0x\n", "JVBE Ri0x", "JVBERi0é", "\ud800BER", "JVBER"),
        *("AB==", "ABD=", "AB", "AA=", "AAAA====", "====", "AA==AAAA"),  # not as an encoder writes it
        *("+_AA", "/-AA", "data:;base64,AAAA"),  # both alphabets; no base64
    ],
)
def test_ambiguous_or_broken_base64_is_rejected(text: str) -> None:
    with pytest.raises(BadEncoding, match="strictly valid base64") as caught:
        decode(text)
    assert text[:8] not in caught.value.message


def test_base64_is_decoded_in_4_mib_pieces() -> None:
    assert [len(part) for part in Encoded("A" * (4 << 20), "base64").chunks()] == [3 << 20]
    assert [len(part) for part in Encoded("A" * ((4 << 20) + 4), "base64").chunks()] == [3 << 20, 3]
    assert [len(part) for part in Encoded("a" * ((4 << 20) + 1), "utf-8").chunks()] == [4 << 20, 1]


def test_base64_head_decodes_at_most_4098_bytes() -> None:
    assert len(base64_head("A" * 6000)) == 4098
    assert base64_head("A" * 5463) == bytes(4098)
    assert base64_head("QUJD!" + "A" * 100) == b"ABC"


class TestInSlices:
    """Content larger than one slice; the slice is made small so that the tests are quick."""

    @pytest.fixture(autouse=True)
    def small_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(binary, "_CHUNK_CHARS", 8)

    def test_base64_is_decoded_slice_by_slice(self) -> None:
        for size in range(20):
            data = bytes(range(240, 240 + size)) if size < 16 else bytes(size)
            assert decode(base64.b64encode(data).decode()) == data
        chunks = list(Encoded(base64.b64encode(bytes(14)).decode(), "base64").chunks())
        assert [len(chunk) for chunk in chunks] == [6, 6, 2]
        assert decode("AAAAAAAA____") == bytes(6) + b"\xff\xff\xff"

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("AAAAAAA_AAAAAAA/", "strictly valid"),
            ("AAAAAA==AAAA", "middle of the text, before character 8"),
            ("AAAAAAA=AAAAAAAA", "middle of the text, before character 8"),
            ("AAAAAAAAAAA!AAAAAAAA", "characters 8-16"),
        ],
    )
    def test_broken_base64_is_rejected_with_its_place(self, text: str, message: str) -> None:
        with pytest.raises(BadEncoding, match=message):
            decode(text)

    def test_utf8_text_is_sliced_between_characters(self) -> None:
        text = "aé€😀" * 5
        chunks = list(Encoded(text, "utf-8").chunks())
        assert b"".join(chunks).decode() == text and len(chunks) == 3
        with pytest.raises(BadEncoding, match="surrogate"):
            BinaryData(Encoded("a\ud800", "utf-8")).read()

    def test_files_are_read_in_chunks(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(bytes(20))
        assert [len(chunk) for chunk in BinaryData.from_path(path).chunks()] == [8, 8, 4]


# --- size (docs/protocol.md 9.9; docs/faults.md 25) -------------------------------------------------------------------


@pytest.mark.requirement("R1-14b", "R5-4a")
@pytest.mark.fault(25)
@pytest.mark.parametrize("declared", [0, 3, 5])
def test_declared_size_must_match_bytes_not_characters(declared: int) -> None:
    content = Encoded("éé", "utf-8")
    assert BinaryData(content, size=4).read() == BinaryData(content).read() == "éé".encode()
    with pytest.raises(SizeMismatch) as caught:
        BinaryData(content, size=declared).read()
    assert caught.value.details == {"declared": declared, "actual": 4}


# --- content from here ------------------------------------------------------------------------------------------------


def test_bytes_have_size_and_detected_type() -> None:
    buffer = bytearray(b"%PDF-1.7 ...")
    data = BinaryData.from_bytes(buffer, filename="a.pdf")
    buffer[0] = 0  # it has a copy
    assert data == BinaryData(b"%PDF-1.7 ...", "application/pdf", 12, "a.pdf")
    assert BinaryData.from_bytes(b"abc", mime_type="text/x").mime_type == "text/x"
    assert BinaryData.from_bytes(b"abc").mime_type is None


def test_from_path_detects_name_size_and_type(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"GIF89a" + bytes(5000))
    data = BinaryData.from_path(str(path))
    assert data == BinaryData(LocalFile(path), "image/gif", 5006, "a.bin")
    assert data.read() == path.read_bytes()
    assert BinaryData.from_path(path, mime_type="x/y").mime_type == "x/y"
    path.write_bytes(b"GIF89a")
    with pytest.raises(SizeMismatch):
        data.read()


def test_unreadable_file_is_rejected_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    for path, reason in ((tmp_path, "regular"), (tmp_path / "pipe", "regular"), (tmp_path / "no", "No such file")):
        with pytest.raises(UsageError, match=reason):
            BinaryData.from_path(path)
    with pytest.raises(UsageError, match="null"):
        BinaryData.from_path("a\0b")


@pytest.mark.parametrize("content", [Handle("1"), Download("https://app.example/x")])
def test_reading_remote_content_raises_type_error(content: Content) -> None:
    with pytest.raises(TypeError, match="fetched by"):
        BinaryData(content).read()


def test_repr_hides_text_and_credentials() -> None:
    shown = repr(
        [
            Encoded("secret", "utf-8"),
            Download("https://app.example/x", None, {"Authorization": "secret"}, {"token": "secret"}),
        ]
    )
    assert "secret" not in shown
