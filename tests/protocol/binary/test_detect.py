"""Which parts of an answer are binaries and which stay data; and trees with something else in a binary's place."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import random
import struct
import time
from typing import cast

import pytest
from hypothesis import example, given, strategies as st

from tests.support.processor import counted_calls
from tests.support.rows import each_row
from transports import NoneStore
from transports.errors import (
    ABPError,
    BadDescriptor,
    BadEncoding,
    ProtocolError,
    UnsupportedBinary,
    UsageError,
)
from transports.protocol._find_content import Place, find, find_values, replace_values
from transports.protocol._heuristics import Heuristics, Signature
from transports.protocol.binary import BinaryData, Broken, Download, Encoded, Handle
from transports.routing import Router

NOISE = random.Random(4).randbytes(3000)
PDF = b"%PDF-1.7\n" + NOISE
PNG = b"\x89PNG\r\n\x1a\n" + NOISE


#: Python refuses to write these in decimal.
HUGE = pytest.param(10**5000, id="huge")
NEGATIVE = pytest.param(-(10**5000), id="huge and negative")


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def one(tree: object, field: str | None = None) -> BinaryData:
    """The only binary of ``tree``, which stands at ``field``."""
    (found,) = find(tree)
    assert field is None or found.field == field
    assert isinstance(found.binary, BinaryData), found.binary
    return found.binary


def fault(tree: object, field: str | None = None) -> ABPError:
    (found,) = find(tree)
    assert field is None or found.field == field
    assert isinstance(found.binary, ABPError), found.binary
    return found.binary


# --- descriptors (docs/protocol.md 9.2) -------------------------------------------------------------------------------


@pytest.mark.requirement("R5-3b", "R0-4a", "R0-4c", "R0-6b", "R0-6c", "R0-6d", "R1-2a", "R1-4a", "R1-4c", "R1-15a")
@each_row(
    ("content", "mime_type", "encoding", "expected"),
    [
        # 1. the MIME type is binary
        ("YWJj", "image/png", None, b"abc"),
        ("YWJj", "image/png", "base64", b"abc"),
        ("YWJj", "application/octet-stream; x=1", None, b"abc"),
        ("YWJj", "application/xml", None, b"abc"),
        ("YWJj", "image/png", "utf-8", b"YWJj"),
        # 2. or the encoding is base64, for any type
        ("YWJj", "text/html", "base64", b"abc"),
        ("YWJj", "text/html; charset=utf-8", "BASE64", b"abc"),
        ("_-_-", "text/html", "base64url", b"\xff\xef\xfe"),
        ("_-_-", "text/html", "base64_url", b"\xff\xef\xfe"),
        ("YWJj", "no type", "base64", b"abc"),
        ("", "image/png", "base64", b""),
        # 3. or the encoding is utf-8, for any type
        ("YWJj", "text/html", "utf-8", b"YWJj"),
        ("héllo 世界", "text/plain; charset=iso-8859-1", "UTF-8", "héllo 世界".encode()),
        # else it is data
        ("YWJj", "text/html", None, None),
        ("YWJj", "application/json", None, None),
        ("YWJj", "TEXT/HTML", "gzip", None),
        ("YWJj", "text/plain", "utf-16", None),
        ("YWJj", "no type", None, None),
        ("YWJj", "no type", "utf-8", None),
        # text of a textual but binary type, without encoding, is taken as it stands
        ("<svg/>", "image/svg+xml", None, b"<svg/>"),
        ("f();", "application/x-javascript", None, b"f();"),
        ('{"a":1}\n', "application/x-ndjson", None, b'{"a":1}\n'),
        ("a,b\n", "application/csv", None, b"a,b\n"),
        ("v 0 0 0\n", "model/obj", None, b"v 0 0 0\n"),
        ("PHN2Zy8+", "image/svg+xml", None, b"<svg/>"),
        # data: URLs in the place of base64
        ("data:image/png;base64,YWJj", "image/png", None, b"abc"),
        ("data:image/png;base64,YWJj", "image/png", "base64", b"abc"),
        ("DATA:;charset=utf-8;BASE64,YWJj", "text/html", "base64", b"abc"),
        ("data:image/svg+xml,%3Csvg/%3E", "image/svg+xml", None, b"<svg/>"),
        ("data:,", "text/csv", "base64", b""),
        ("data:image/png;base64,YWJj", "text/html", None, None),
        ("data:image/png;base64,YWJj", "image/png", "utf-8", b"data:image/png;base64,YWJj"),
    ],
)
def test_binary_data_is_recognised_and_decoded(
    content: str, mime_type: str, encoding: str | None, expected: bytes | None
) -> None:
    node = {"content": content, "mimeType": mime_type} | ({} if encoding is None else {"encoding": encoding})
    assert [cast(BinaryData, found.binary).read() for found in find({"x": node})] == (
        [] if expected is None else [expected]
    )


@pytest.mark.requirement("R1-4d", "R1-4e", "R1-4f")
@pytest.mark.parametrize("more", [{"filename": "a.html"}, {"size": 3}, {"size": 3.0}, {"filename": "a", "size": 3}])
def test_text_with_a_name_or_a_size_is_a_file(more: dict[str, object]) -> None:
    binary = one({"content": "<p>", "mimeType": "text/html", **more})
    assert (binary.read(), binary.mime_type, binary.filename) == (b"<p>", "text/html", more.get("filename"))
    assert one({"content": "data:text/csv;base64,PHA+", "mimeType": "text/csv", **more}).read() == b"<p>"
    for size in (-1, 2.5, 2**60):
        assert isinstance(fault({"content": "<p>", "mimeType": "text/html", **more, "size": size}, ""), BadDescriptor)


@pytest.mark.parametrize("encoding", ["hex", 7, "", {"a": 1}, "x" * 100])
def test_unknown_encoding_raises_bad_encoding(encoding: object) -> None:
    error = fault({"content": "00", "mimeType": "image/png", "encoding": encoding}, "")
    assert isinstance(error, BadEncoding) and "unknown encoding" in error.message and len(error.message) < 120


# --- content that is not text (docs/faults.md 26) ---------------------------------------------------------------------


@pytest.mark.parametrize("content", [PNG, bytearray(PNG), memoryview(PNG)])
def test_bytes_are_detected_alone_or_in_descriptor(content: bytes) -> None:
    assert one({"a": content}, "a") == BinaryData(PNG)
    assert one([content], "0") == BinaryData(PNG)
    assert one({"content": content, "mimeType": "image/png", "size": 3}, "") == BinaryData(PNG, "image/png", 3)
    for no_type in ({}, {"mimeType": ""}, {"mimeType": 7}):
        assert one({"content": content, **no_type}, "") == BinaryData(PNG)


def test_handle_provides_size() -> None:
    assert one(Handle("1", 5), "") == BinaryData(Handle("1", 5), size=5)
    assert one({"content": Handle("1", 5), "mimeType": "image/png", "alt": "x"}, "") == BinaryData(
        Handle("1", 5), "image/png", 5, None, {"alt": "x"}
    )
    declared = one({"content": Handle("1", 5), "mimeType": "image/png", "size": 6})
    assert declared.size == 6  # a lie is for the one who fetches it to find


def test_page_file_keeps_type_and_name_unless_overridden() -> None:
    leaf = BinaryData(b"abc", "image/png", 3, "a.png")
    assert one({"x": leaf}, "x") is leaf
    assert one({"content": leaf}, "") == leaf
    assert one({"content": leaf, "mimeType": "", "filename": ""}) == leaf
    told = one({"content": leaf, "mimeType": "image/x", "filename": "b", "size": 4})
    assert told == BinaryData(b"abc", "image/x", 4, "b")


@pytest.mark.fault(26)
@pytest.mark.parametrize("tree", [Broken("detached"), {"content": Broken("detached"), "mimeType": "image/png"}])
def test_unreadable_content_error_includes_reason(tree: object) -> None:
    error = fault({"x": tree}, "x")
    assert isinstance(error, UnsupportedBinary) and error.message.endswith("detached")


@each_row(
    "content",
    [{"type": "Buffer", "data": [37, 80, 68, 70]}, {"0": 37, "1": 80, "2": 68, "3": 70}, [37, 80, 68, 70], {}],
)
def test_buffer_that_became_json_is_an_error(content: object) -> None:
    error = fault({"x": {"content": content, "mimeType": "application/pdf", "size": 4}}, "x")
    assert isinstance(error, UnsupportedBinary) and "must answer base64 text" in error.message
    # What declares no file is data.
    for mime_type in ("application/json", "application/vnd.api+json", "text/csv", None):
        assert find({"content": content, "mimeType": mime_type, "size": 4}) == []


# --- references (docs/protocol.md 10) ---------------------------------------------------------------------------------


def reference(**fields: object) -> dict[str, object]:
    return {"downloadUrl": "https://app.example/d/1", "mimeType": "application/pdf", **fields}


@pytest.mark.requirement("R5-3a", "R5-3b", "R0-4d", "R1-2c", "R1-5a", "R1-5d", "R1-15a")
def test_documented_reference_is_detected() -> None:
    tree = {"document": reference(size=52428800, filename="large.pdf", expiresAt=1707500000000, note="n")}
    content = Download("https://app.example/d/1", 1707500000000.0)
    assert one(tree, "document") == BinaryData(content, "application/pdf", 52428800, "large.pdf", {"note": "n"})
    for expires in (2**53 - 1, 1 - 2**53):
        assert one(reference(expiresAt=expires)).content == Download("https://app.example/d/1", expires)
    for url in ("/d/1", "d/1", "blob:https://app.example/1-2", "file:///etc/passwd"):
        assert one(reference(downloadUrl=url)).content == Download(url)
    for filename in (None, "", 7, ["a"]):
        assert one(reference(filename=filename)).filename is None


@pytest.mark.requirement("R1-6a", "R1-14a")
def test_download_url_takes_precedence_over_content() -> None:
    """docs/protocol.md 10.1; but an empty one is none."""
    assert isinstance(one(reference(content="YWJj", encoding="base64")).content, Download)
    assert one(reference(downloadUrl="", content="YWJj", encoding="base64")).read() == b"abc"


@pytest.mark.requirement("R1-4b", "R1-5b")
@each_row(
    "tree",
    [
        *({"content": "YWJj"}, {"mimeType": "image/png"}, {"content": 3, "mimeType": "a/b"}),
        *(reference(mimeType=None), reference(mimeType=3), reference(downloadUrl=7), reference(downloadUrl="")),
        *({"content": "<p>", "mimeType": "text/html", "filename": name, "size": None} for name in ("", 7)),
        *({"content": "<p>", "mimeType": "text/html", "size": size} for size in ("12pt", True)),
        {"content": "<p>", "mimeType": "text/html", "filename": "a.html", "encoding": "gzip"},
        *(
            {"content": content, "mimeType": "application/pdf"}
            for content in (None, ["page 1", "page 2"], {"title": "x"}, [[1, 2]], 5, [])
        ),
    ],
)
def test_object_without_all_of_a_descriptor_stays_data(tree: object) -> None:
    assert find(tree) == []


@each_row(
    ("url", "expected"),
    [
        ("data:application/pdf;base64,YWJj", b"abc"),
        ("data:application/pdf;base64,YWJj%2B%2F8%3D", b"abc\xfb\xff"),
        ("data:application/pdf;base64,YWJj\r\nZGVm\n", b"abcdef"),
        ("\n data:application/pdf;base64,\tYW Jj%0AZGVm\f", b"abcdef"),
        ("data:;base64,", b""),
        ("Data:text/plain,a%20b%ff", b"a b\xff"),
        ("data:,\u00e9", "é".encode()),
    ],
)
def test_download_data_url_is_read_inline(url: str, expected: bytes) -> None:
    assert one(reference(downloadUrl=url)).read() == expected


@pytest.mark.requirement("R1-5f", "R1-5g")
@each_row(
    ("auth", "headers", "query"),
    [
        (None, {}, {}),
        ({"type": "bearer", "header": "Bearer abc"}, {"Authorization": "Bearer abc"}, {}),
        ({"type": "bearer", "header": "Basic dXNlcjpw"}, {"Authorization": "Basic dXNlcjpw"}, {}),
        ({"type": "bearer", "header": "X-Key: abc"}, {"X-Key": "abc"}, {}),
        ({"type": "bearer", "header": "X-Key:abc "}, {"X-Key": "abc"}, {}),
        ({"type": "bearer", "header": "Authorization: Bearer a:b c"}, {"Authorization": "Bearer a:b c"}, {}),
        ({"type": "bearer", "header": "abc"}, {"Authorization": "Bearer abc"}, {}),
        ({"type": "bearer", "header": " abc "}, {"Authorization": "Bearer abc"}, {}),
        ({"type": "bearer", "token": "abc"}, {"Authorization": "Bearer abc"}, {}),
        ({"type": "bearer", "header": "", "token": "abc"}, {"Authorization": "Bearer abc"}, {}),
        ({"type": "Bearer", "header": "H", "token": "T"}, {"Authorization": "Bearer H"}, {}),
        ({"type": "query", "token": "abc"}, {}, {"token": "abc"}),
        ({"type": "query", "token": "abc", "header": "x"}, {}, {"token": "abc"}),
    ],
)
def test_every_documented_auth_form_is_accepted(auth: object, headers: dict[str, str], query: dict[str, str]) -> None:
    assert one(reference(auth=auth)).content == Download("https://app.example/d/1", None, headers, query)


@each_row(
    "auth",
    [
        "abc",
        ["bearer"],
        {},
        {"type": "bearer"},
        {"type": "bearer", "header": "  "},
        {"type": "query"},
        {"type": "query", "header": "abc"},
        {"type": "basic", "token": "abc"},
        {"type": ["bearer"], "token": "abc"},
        {"token": "abc"},
        {"type": "bearer", "token": 7},
        {"type": "bearer", "token": "a\r\nX: b"},
        {"type": "bearer", "header": "X-Key: a\nb"},
        {"type": "query", "token": "a\0b"},
    ],
)
def test_unsupported_auth_error_does_not_show_it(auth: object) -> None:
    error = fault(reference(auth=auth))
    assert isinstance(error, BadDescriptor) and "auth" in error.message and "abc" not in error.message


@each_row("expires", ["2024-02-09T17:33:20Z", True, math.nan, math.inf, 2**53, -(2**53), 10**400, [1], HUGE])
def test_invalid_expiry_raises_bad_descriptor(expires: object) -> None:
    error = fault(reference(expiresAt=expires))
    assert isinstance(error, BadDescriptor) and "expiresAt" in error.message and len(error.message) < 120


def test_broken_data_url_is_an_error() -> None:
    with pytest.raises(BadEncoding):
        one(reference(downloadUrl="data:;base64,YWJj!")).read()
    for tree in (reference(downloadUrl="data:,\ud800"), {"image": "data:,\ud800", "mimeType": "image/png"}):
        assert isinstance(fault(tree), BadEncoding)


# --- sizes (docs/faults.md 25) ----------------------------------------------------------------------------------------


@given(st.integers(0, 2**53 - 1))
@example(2**53 - 1)
def test_size_accepts_whole_numbers(size: int) -> None:
    assert one({"content": b"", "size": size}).size == size
    assert find({"content": b"", "size": float(size)})[0].binary == BinaryData(b"", size=int(float(size)))


@pytest.mark.fault(25)
@each_row(
    "size",
    [
        *(-1, -0.5, 0.5, 1e300, 2**53, 2**63, 10**400, math.nan, math.inf, -math.inf),
        *(HUGE, NEGATIVE),
        *("12", "", True, False, [], {}),
    ],
)
def test_invalid_size_raises_bad_descriptor(size: object) -> None:
    flat = {"image": b64(PNG), "mimeType": "image/png"}
    for node in ({"content": "YWJj", "mimeType": "image/png"}, reference(), flat):
        error = fault({**node, "size": size})
        assert isinstance(error, BadDescriptor) and error.message.startswith("size must be")
        assert len(error.message) < 120


# --- the flat form (docs/protocol.md 9.5) -----------------------------------------------------------------------------

SMALL = b64(NOISE[:30])
PLAIN = b64(NOISE[:75])  # no signature; 100 characters are long enough


@pytest.mark.requirement("R0-6a")
@each_row(
    ("tree", "field", "expected"),
    [
        # as documented
        ({"pdf": b64(PDF), "mimeType": "application/pdf", "size": len(PDF)}, "pdf", PDF),
        ({"image": b64(PNG), "mimeType": "image/png"}, "image", PNG),
        # named after the type, its subtype, its extension, or generically; in any case
        ({"png": b64(NOISE), "mimeType": "image/png"}, "png", NOISE),
        ({"jpg": b64(NOISE), "mimeType": "image/jpeg"}, "jpg", NOISE),
        ({"svg": b64(NOISE), "mimeType": "image/svg+xml"}, "svg", NOISE),
        ({"Data": b64(NOISE), "mimeType": "application/x-thing"}, "Data", NOISE),
        ({"bin": b64(NOISE), "mimeType": "application/x-thing"}, "bin", NOISE),
        # any name, if the content has a known signature
        ({"thumbnail": b64(PNG), "mimeType": "image/png"}, "thumbnail", PNG),
        ({"a": 1, "b": "text", "c": b64(PNG[:48]), "mimeType": "image/png"}, "c", PNG[:48]),
        # the name that says most goes first, wherever it stands
        ({"file": b64(NOISE), "pdf": b64(PDF), "mimeType": "application/pdf", "size": len(PDF)}, "pdf", PDF),
        ({"note": b64(PNG[:99]), "data": b64(PNG), "mimeType": "image/png"}, "data", PNG),
        ({"pdf": "see file", "file": b64(PDF), "mimeType": "application/pdf"}, "file", PDF),
        # short content: by its signature, or because it has the declared size exactly
        ({"png": "iVBORw0KGgo=", "mimeType": "image/png"}, "png", PNG[:8]),
        ({"image": SMALL, "mimeType": "image/png", "size": 30}, "image", NOISE[:30]),
        ({"image": "YWI=", "mimeType": "image/png", "size": 2}, "image", b"ab"),
        ({"image": "YWI", "mimeType": "image/png", "size": 2.0}, "image", b"ab"),
        ({"image": PLAIN, "mimeType": "image/png"}, "image", NOISE[:75]),
        ({"image": b64(bytes(300)), "mimeType": "image/x-raw"}, "image", bytes(300)),
        # unpadded and URL-safe
        ({"image": base64.urlsafe_b64encode(PNG).decode().rstrip("="), "mimeType": "image/png"}, "image", PNG),
        # encoding says it
        ({"html": "PHA+", "mimeType": "text/html", "encoding": "base64"}, "html", b"<p>"),
        ({"text": "aGk", "mimeType": "text/plain", "encoding": "Base64"}, "text", b"hi"),
        ({"image": "", "mimeType": "image/png", "encoding": "base64"}, "image", b""),
        # data: URLs
        ({"image": "data:image/png;base64,YWJj", "mimeType": "image/png"}, "image", b"abc"),
        ({"svg": "data:image/svg+xml,%3Csvg/%3E", "mimeType": "image/svg+xml"}, "svg", b"<svg/>"),
    ],
)
def test_flat_form_is_recognised(tree: dict[str, object], field: str, expected: bytes) -> None:
    binary = one(tree, field)
    assert binary.read() == expected
    assert (binary.mime_type, binary.size, binary.extra) == (tree["mimeType"], tree.get("size"), {})


@pytest.mark.parametrize(
    "content", [b"abc", bytearray(b"abc"), memoryview(b"abc"), BinaryData(b"abc", "image/x", 3, "leaf.png")]
)
def test_flat_form_of_non_text_content_is_recognised(content: object) -> None:
    tree = {"caption": "c", "image": content, "mimeType": "image/png", "filename": "flat.png"}
    binary = one(tree, "image")
    assert (binary.content, binary.mime_type, binary.filename) == (b"abc", "image/png", "flat.png")
    assert one({"image": Handle("1", 5), "mimeType": "image/png"}, "image").size == 5
    assert one({"image": BinaryData(b"a", None, 1, "a.png"), "mimeType": "image/png"}).filename == "a.png"
    assert isinstance(fault({"image": Broken("gone"), "mimeType": "image/png"}, "image"), UnsupportedBinary)


GENERIC = ["data", "base64", "bytes", "file", "blob", "buffer", "body", "binary", "document", "output", "result"]


@each_row("key", GENERIC)
def test_generic_content_keys_are_recognised(key: str) -> None:
    assert one({"id": "x", key: b64(NOISE), "mimeType": "application/x-thing"}, key).read() == NOISE


def test_content_beside_flat_form_is_found_separately() -> None:
    tree = {"thumbnail": b"abc", "pdf": b64(PDF), "mimeType": "application/pdf", "parts": [{"content": b"x"}]}
    found = find(tree)
    assert [(item.field, cast(BinaryData, item.binary).mime_type) for item in found] == [
        ("thumbnail", None),
        ("pdf", "application/pdf"),
        ("parts.0", None),
    ]


WORDS = "The report holds what the board asked for; see page nine. " * 40
MINIFIED = "!function(){var a=1,b=2;return(a+b)*2}();window.x=document.querySelector('#a');" * 30
JWT = f"{b64(json.dumps({'alg': 'RS256', 'kid': 'k' * 40}).encode())}.{b64(NOISE[:300])}.{b64(NOISE[:256])}"
PATH = "exports/2024/quarterly/reports/of/the/northern/region/with-all-of-its/attachments-and-annexes/final.pdf"


@each_row(
    "value",
    [
        pytest.param("", id="nothing"),
        pytest.param("photo", id="word"),
        pytest.param("avatars/users/12", id="path that is base64"),
        pytest.param("https://app.example/photo.png", id="URL"),
        pytest.param("blob:https://app.example/550e8400-e29b-41d4-a716-446655440000", id="blob URL"),
        pytest.param(PATH, id="long path"),
        pytest.param(hashlib.sha256(b"").hexdigest(), id="SHA-256 in hex"),
        pytest.param(b64(hashlib.sha256(b"").digest()), id="SHA-256 in base64"),
        pytest.param(f"sha384-{b64(hashlib.sha384(b'').digest())}", id="integrity"),
        pytest.param(NOISE.hex(), id="file in hex"),
        pytest.param(JWT, id="JWT"),
        pytest.param(WORDS, id="prose"),
        pytest.param("図" * 400, id="not ASCII"),
        pytest.param(MINIFIED, id="minified JavaScript"),
        pytest.param('{"a":' * 100, id="JSON"),
        pytest.param(7, id="number"),
    ],
)
def test_flat_form_look_alikes_stay_data(value: object) -> None:
    for key in ("image", "png", "data", "file", "body", "name", "hash"):
        tree = {key: value, "mimeType": "image/png"}
        assert find([tree, {**tree, "size": 48_213}]) == [], key


@each_row(
    "tree",
    [
        pytest.param({"name": "a.pdf", "mimeType": "application/pdf", "size": 1234}, id="file list"),
        pytest.param({"pdf": b64(NOISE), "mimeType": "pdf"}, id="no MIME type"),
        pytest.param({"pdf": b64(NOISE)}, id="no type"),
        pytest.param({"text": b64(NOISE), "mimeType": "text/plain"}, id="text"),
        pytest.param({"json": b64(NOISE), "mimeType": "application/json"}, id="JSON"),
        pytest.param({"data": b64(NOISE), "mimeType": "image/png", "encoding": "utf-8"}, id="declared text"),
        pytest.param({"data": b64(NOISE), "mimeType": "image/png", "encoding": "hex"}, id="other encoding"),
        pytest.param({"note": b64(NOISE), "mimeType": "image/png"}, id="a name that says nothing"),
        pytest.param({"note": "iVBORw0KGgo=", "mimeType": "image/png"}, id="and short"),
        pytest.param({"note": "data:image/png;base64,YWJj", "mimeType": "image/png"}, id="and a data URL"),
        pytest.param({"note": "YWJj", "mimeType": "text/html", "encoding": "base64"}, id="and base64 declared"),
        pytest.param({"image": "YWJj", "mimeType": "image/png", "size": 4}, id="size of something else"),
        pytest.param({"image": "photo.png", "mimeType": "image/png", "size": 6}, id="size that fits by chance"),
        pytest.param({"image": b64(NOISE[:72]), "mimeType": "image/png"}, id="96 characters of something unknown"),
        pytest.param({1: b64(NOISE), "mimeType": "image/png"}, id="a key that is no text"),
    ],
)
def test_other_objects_with_a_type_stay_data(tree: object) -> None:
    assert find({"files": [tree]}) == []


@each_row(
    "content", [b64(PDF)[:-3], base64.encodebytes(PDF).decode(), b64(NOISE)[:401], b64(NOISE)[:300] + "?" + b64(NOISE)]
)
@each_row("encoding", [{}, {"encoding": "base64"}])
def test_broken_base64_in_flat_form_is_an_error(content: str, encoding: dict[str, str]) -> None:
    """docs/faults.md 24."""
    binary = one({"pdf": content, "mimeType": "application/pdf", **encoding}, "pdf")
    with pytest.raises(BadEncoding):
        binary.read()


# --- bare base64 (docs/protocol.md 9.6) -------------------------------------------------------------------------------


@each_row(
    "text",
    [
        b64(PDF),
        b64(PDF[:750]),
        b64(PDF).rstrip("="),
        base64.urlsafe_b64encode(PDF).decode(),
        "data:application/pdf;base64," + b64(PDF),
        "data:;base64," + b64(PDF),
    ],
)
def test_long_base64_of_known_type_needs_no_descriptor(text: str) -> None:
    for tree, field in ((text, ""), ({"a": text}, "a"), ([1, text], "1")):
        binary = one(tree, field)
        assert binary.read() in (PDF, PDF[:750]) and binary.mime_type == "application/pdf" and binary.size is None


@each_row(
    "text",
    [
        pytest.param(b64(PDF[:749]).rstrip("="), id="short"),  # 999 characters; 1,000 are enough
        pytest.param(b64(NOISE), id="unknown"),
        pytest.param(b64(PDF)[:2001], id="not whole"),
        pytest.param(b64(PDF) + ".", id="and something else"),
        pytest.param("data:text/plain," + "a" * 2000, id="data URL of text"),
        pytest.param("data:image/x;base64," + b64(NOISE), id="data URL of something unknown"),
        pytest.param("deadbeef" * 300, id="more hex"),
        pytest.param(JWT * 3, id="JWTs"),
        pytest.param(WORDS, id="prose"),
        pytest.param(MINIFIED, id="minified JavaScript"),
        pytest.param("%PDF-1.7" * 300, id="not encoded"),
        pytest.param("%PDF-1.7\n%âãÏÓ\n" * 100 + "%%EOF and more of this text" + "." * 1100, id="about PDF"),
        pytest.param("+_" * 2000, id="both alphabets"),
    ],
)
def test_other_long_text_stays_data(text: str) -> None:
    assert find({"a": text, "b": [text]}) == []


# --- places -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-4e", "R2-3.2d")
def test_binaries_are_found_in_order_at_any_depth() -> None:
    tree = {
        "cover": b"1",
        "pages": [{"image": {"content": b"2", "mimeType": "image/png"}}, {"n": [None, True, 1.5, (b"3",)]}],
        "last": Handle("4"),
    }
    assert [found.field for found in find(tree)] == ["cover", "pages.0.image", "pages.1.n.3.0", "last"]
    assert [found.path for found in find(tree)][1] == ("pages", 0, "image")


async def test_self_referencing_data_is_rejected_quickly() -> None:
    endless: list[object] = []
    endless += [endless] * 5
    with pytest.raises(ProtocolError, match="64 levels"):
        await Router(NoneStore()).route(endless, capability="endless")


async def test_large_table_makes_no_per_row_call_on_event_loop() -> None:
    """Counted, because time depends on the machine. A search in a thread is another one's time."""
    rows = [{"id": n, "name": f"person {n}", "tags": ["a", "b"]} for n in range(2000)]
    router = Router(NoneStore())
    with counted_calls() as calls:
        result = await router.route({"rows": rows}, capability="table", started=time.perf_counter())
    assert result.data == {"rows": rows}
    assert calls.count < 1000


def test_key_with_a_dot_is_escaped_and_key_that_is_no_text_is_written_out() -> None:
    assert [found.field for found in find({"a.b": b"", "a": {"b": b""}, "a\\": {"b": b""}})] == [
        "a\\.b",
        "a.b",
        "a\\\\.b",
    ]
    tree = {1: b"x", None: b"y"}
    assert [found.field for found in find(tree)] == ["1", "None"]
    assert replace_values(tree, {found.path: 0 for found in find(tree)}) == {1: 0, None: 0}


def nested(levels: int, leaf: object) -> object:
    for level in range(levels):
        leaf = [leaf] if level % 2 else {"a": leaf}
    return leaf


@pytest.mark.fault(21)
@pytest.mark.parametrize("leaf", [1, "x", b"x", None])
def test_nesting_over_64_levels_raises_protocol_error(leaf: object) -> None:
    """docs/faults.md 21: never silence."""
    assert len(find(nested(64, leaf))) == (leaf == b"x")
    for levels in (65, 100_000):
        with pytest.raises(ProtocolError, match=r"deeper than 64 levels at \w\.\w"):
            find(nested(levels, leaf))
    descriptor = {"content": b"x", "mimeType": "a/b"}  # a level of its own
    assert len(find(nested(63, descriptor))) == 1
    with pytest.raises(ProtocolError):
        find(nested(64, descriptor))


# --- replace ----------------------------------------------------------------------------------------------------------


def test_replace_shares_untouched_subtrees() -> None:
    tree = {"a": [1, [2]], "b": {"c": 3}, "t": (1, 2)}
    copy = cast(dict[str, object], replace_values(tree, {("a", 0): "x", ("t", 1): "y"}))
    assert copy == {"a": ["x", [2]], "b": {"c": 3}, "t": [1, "y"]}
    assert copy["b"] is tree["b"] and cast(list[object], copy["a"])[1] is tree["a"][1]  # type: ignore[index]
    assert replace_values(tree, {}) is tree and replace_values(tree, {(): 1}) == 1


@pytest.mark.parametrize("place", [("b",), ("a", 1), ("a", "0"), ("a", 0, "x")])
def test_replacing_missing_place_raises_key_error(place: Place) -> None:
    with pytest.raises(KeyError, match="no place"):
        replace_values({"a": [1]}, {place: 0, ("a", 0): 0} if place[-1] != "x" else {place: 0})


# --- guesses by themselves --------------------------------------------------------------------------------------------


def test_base64_detection_validates_long_text_to_its_end() -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20_000  # more than one slice
    guess = Heuristics().recognise(b64(content))
    assert guess is not None and (guess.mime_type, b"".join(guess.chunks())) == ("image/png", content)
    assert Heuristics().recognise(b64(content)[:-8] + "!" + b64(content)[-7:]) is None


def test_invalid_data_url_and_numbers_are_no_content() -> None:
    assert find({"text": "data:text/plain," + "a" * 2000 + "\ud800"}) == []
    assert [found.path for found in find_values({"a": [1, 2.5, b"x"], "b": 3})] == [("a", 2)]


def test_base64_detection_requires_min_chars() -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(1000)
    assert Heuristics().recognise(b64(content)) is not None
    assert Heuristics(min_chars=5000).recognise(b64(content)) is None


@pytest.mark.requirement("R2-4.2b")
def test_custom_signature_takes_precedence_over_known_ones() -> None:
    own = Heuristics(signatures=[Signature(b"ACME", "application/x-acme", 4), Signature(b"%PDF", "application/x-own")])
    content = b"\1\2\3\4ACME" + bytes(range(256)) * 4
    for text in (b64(content), content.decode("latin-1")):
        assert Heuristics().recognise(text) is None
        found = own.recognise(text)
        assert found is not None and (found.mime_type, b"".join(found.chunks())) == ("application/x-acme", content)
    pdf = own.recognise(b64(b"%PDF-1.7\n" + bytes(1000)))
    assert pdf is not None and pdf.mime_type == "application/x-own"
    last = Heuristics(signatures=[Signature(b"abc", "a/b", 4093)])  # the first 4,096 bytes are compared
    for data in (b"\1" * 4093 + b"abc", b"\1" * 4093 + b"abc" + b"\1" * 3000):
        for text in (b64(data), data.decode("latin-1")):
            found = last.recognise(text)
            assert found is not None and found.mime_type == "a/b"


@pytest.mark.parametrize(
    ("magic", "mime_type", "offset"),
    [(b"ab", "a/b", 0), (b"abc", "a/b", -1), (b"abc", "a/b", 4094), (b"abc", "nonsense", 0)],
)
def test_invalid_signature_is_rejected(magic: bytes, mime_type: str, offset: int) -> None:
    with pytest.raises(UsageError, match=r"^Signature: "):
        Signature(magic, mime_type, offset)


@pytest.mark.requirement("R2-4.2e")
def test_base64_without_signature_is_a_file_if_not_required() -> None:
    content = bytes(range(256)) * 4
    loose = Heuristics(require_magic_bytes=False)
    assert Heuristics().recognise(b64(content)) is None
    found = loose.recognise(b64(content))
    assert found is not None and (found.mime_type, b"".join(found.chunks())) == (None, content)
    for text in ("prose " * 400, b64(content)[:-3], "data:," + "x" * 2000):
        assert loose.recognise(text) is None


@pytest.mark.requirement("R2-4.2d")
def test_content_up_to_decode_limit_is_recognised() -> None:
    content = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
    for text, size in ((b64(content), len(b64(content)) * 3 // 4), (content.decode("latin-1"), len(content))):
        assert Heuristics(max_decode_bytes=size).recognise(text) is not None
        assert Heuristics(max_decode_bytes=size - 1).recognise(text) is None


@pytest.mark.parametrize(
    "content",
    [
        b"BM" + struct.pack("<IHHI", 1200, 0, 0, 26) + bytes(1186),
        struct.pack("<HHHBBBBHHII", 0, 1, 1, 1, 1, 0, 0, 1, 32, 1178, 22) + PNG[:8] + bytes(1170),
    ],
    ids=["bmp", "ico"],
)
def test_bitmap_or_icon_that_is_cut_is_not_recognised(content: bytes) -> None:
    """A bitmap says how long it is, and an icon where its picture ends: that is compared with what is there."""
    kept = Heuristics().recognise(b64(content))
    assert kept is not None and kept.content == content
    assert Heuristics().recognise(b64(content[:-6])) is None
    if content.startswith(b"BM"):
        assert Heuristics().recognise(content.decode("latin-1")) is not None
        assert Heuristics().recognise((content + b"\0").decode("latin-1")) is None


@each_row(
    ("content", "known"),
    [
        *((b"\x1f\x8b\x08\x1f" + bytes(15), True), (b"\x1f\x8b\x08" + bytes(16), True)),
        *((b"\x1f\x8b\x08" + bytes(15), False), (b"\x1f\x8b\x08\x20" + bytes(15), False)),
        *((b"\xff\xd8\xff", False), (b"\xff\xd8\xff\xbf", False), (b"\xff\xd8\xff\xc0", True)),
    ],
)
def test_short_gzip_or_jpeg_must_be_whole(content: bytes, known: bool) -> None:
    text = f"data:a/b;x={'x' * 980};base64,{b64(content)}"
    assert (Heuristics().recognise(text) is not None) is known


def test_icon_picture_must_follow_directory() -> None:
    def icon(offset: int, count: int = 1) -> str:
        head = struct.pack("<HHHBBBBHHII", 0, 1, count, 1, 1, 0, 0, 1, 32, 1000, offset)
        data = bytearray(head.ljust(1200, b"\1"))
        data[offset : offset + 4] = b"\x89PNG"
        return b64(bytes(data))

    assert Heuristics().recognise(icon(22)) is not None and Heuristics().recognise(icon(38, 2)) is not None
    assert Heuristics().recognise(icon(18)) is None and Heuristics().recognise(icon(37, 2)) is None
    assert Heuristics().recognise(icon(201)) is None


@pytest.mark.parametrize(("tag", "known"), [(b"cvt ", True), (b"~~~~", True), (b"cv\x1f ", False), (b"cv\x7f ", False)])
def test_font_is_recognised_by_4_character_table_name(tag: bytes, known: bool) -> None:
    font = struct.pack(">4sHHHH4sIII", b"\0\1\0\0", 1, 0, 0, 0, tag, 0, 28, 4)
    assert (Heuristics().recognise(b64(font.ljust(900, b"\1"))) is not None) is known


def test_whole_pdf_needs_no_control_character() -> None:
    pdf = "%PDF-1.3\n%ºß¬à\n" + "0 0 obj\n" * 200 + "%%EOF\n"  # as jsPDF's output() gives it
    binary = Heuristics().recognise(pdf)
    assert binary is not None and (binary.read(), binary.mime_type) == (pdf.encode("latin-1"), "application/pdf")


def test_mcp_block_content_is_found_in_its_standard_field() -> None:
    image = {"type": "image", "data": b64(PNG), "mimeType": "image/png"}
    trees: list[object] = [[image], {"content": [image]}, {"a": {"contents": [1, image]}}]
    for tree in trees:
        (found,) = find(tree)
        assert (found.path[-1], found.layer) == ("data", "typed")
        assert isinstance(found.binary, BinaryData) and found.binary.content == Encoded(b64(PNG), "base64")
    assert [found.layer for found in find({"other": [image]})] == ["abp"]
    resource = {"uri": "file:///a/b.png?v=1.5#x.y", "blob": b64(PNG), "mimeType": "image/png"}
    resources: list[tuple[object, Place]] = [
        ({"type": "resource", "resource": resource}, ("resource", "blob")),
        (resource, ("blob",)),
    ]
    for tree, place in resources:
        (found,) = find(tree)
        assert (found.path, found.layer) == (place, "typed")
        assert isinstance(found.binary, BinaryData)
        assert (found.binary.mime_type, found.binary.filename) == ("image/png", "b.png")
    # The last segment of an address may be no name of a file.
    for uri in ("note:///today/..", "data:image/png;name=a.png;base64,eA=="):
        (found,) = find({**resource, "uri": uri})
        assert isinstance(found.binary, BinaryData) and found.binary.filename is None
    (found,) = find({**resource, "mimeType": 7})
    assert isinstance(found.binary, BinaryData) and found.binary.mime_type is None
    assert find({"type": "resource", "resource": {"uri": "a", "blob": 5}}) == []
    (found,) = find([{"type": "image", "data": BinaryData(b"x", "image/gif"), "mimeType": "image/png"}])
    assert found.binary == BinaryData(b"x", "image/png") and found.path == (0, "data")
