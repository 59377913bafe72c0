"""Files given with a call: what is accepted, what is stored, what the transport gets, what a reader is told."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from tests.support.apps import b64
from tests.support.rows import each_row
from transports import LocalStore, MemoryTransport, connect
from transports.artifacts import ArtifactRef, MemoryStore
from transports.errors import ABPError, ArtifactNotFound, BadDescriptor, BadEncoding, TooLarge, UsageError
from transports.memory import Call
from transports.protocol.binary import BinaryData, LocalFile
from transports.routing import FileLimits, GivenFile, accept_files, auto_read_safe, estimated_tokens, large_file_warning

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
Given = Mapping[str, GivenFile | BinaryData | Path | bytes]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.mark.requirement("R4-2a", "R4-4b", "R4-4g", "R4-5b", "R4-7b", "R4-13a")
async def test_accept_files_supports_every_input_form_and_gives_params(store: LocalStore, tmp_path: Path) -> None:
    file = tmp_path / "photo.png"
    file.write_bytes(PNG)
    earlier = await store.put_bytes(b"earlier", filename="old.bin")
    accepted = await accept_files(
        {
            "a": file,
            "b": PNG,
            "c": {"content": b64(PNG), "mimeType": "image/png", "name": "c.png"},
            "d": {"content": "a,b\n1,2\n", "encoding": "utf-8", "filename": "table.csv"},
            "e": BinaryData.from_bytes(b"{}", mime_type="application/json", filename="e.json"),
            "f": {"id": earlier.id},
            "g": {"uri": earlier.uri},
        },
        store=store,
        capability="image.resize",
    )
    told = {key: (item.ref.filename, item.ref.mime_type) for key, item in accepted.items() if key not in "b"}
    assert told == {
        "a": ("photo.png", "image/png"),
        "c": ("c.png", "image/png"),
        "d": ("table.csv", "text/csv"),
        "e": ("e.json", "application/json"),
        "f": ("old.bin", "application/octet-stream"),
        "g": ("old.bin", "application/octet-stream"),
    }
    for item in accepted.values():
        assert isinstance(item.binary.content, LocalFile)  # by path: nothing is read before the transport wants it
        assert item.binary.read() == await store.get(item.ref.id)
    assert accepted["a"].ref.source["input_of"] == "image.resize"
    assert accepted["f"].ref.id == earlier.id

    async def size(params: Mapping[str, object], call: Call) -> object:
        image = params["image"]
        assert isinstance(image, BinaryData)
        return {"size": len(image.read()), "type": image.mime_type}

    async with connect("memory:", transport=MemoryTransport({"size": size}), store=store) as app:
        result = await app.call("size", {"image": accepted["c"].binary})
    assert result.data == {"size": len(PNG), "type": "image/png"}


@pytest.mark.requirement("R4-5d", "R4-9e", "R4-9f", "R4-11a", "R4-11b", "R4-11d", "R4-14e", "R4-15c")
@each_row(
    ("given", "error", "words"),
    [
        ({"content": "###"}, BadEncoding, r"^bad: content: the text is not .* base64 .*; send .* base64 \(RFC 4648\)"),
        ({"content": "data:a/b;base64,QQ=="}, BadEncoding, "^bad: content: .*without data:"),
        ({"content": 7}, BadDescriptor, "must be text"),
        ({"content": "YQ==", "encoding": "rot13"}, BadDescriptor, "base64 or utf-8"),
        ({"content": "YQ==", "filename": 7}, BadDescriptor, "filename must be text"),
        ({}, BadDescriptor, "needs its content"),
        ({"id": "nobody_000000000000"}, ArtifactNotFound, "no artifact"),
        (Path("/nowhere/at/all"), UsageError, "cannot be read"),
        (7, UsageError, "cannot be given as int"),
        (bytes(1001), TooLarge, "1,001 bytes; at most 1,000"),
        ({"content": b64(bytes(1001))}, TooLarge, "at most 1,000"),
        ({"content": "é" * 501, "encoding": "utf-8"}, TooLarge, "1,002 bytes"),
        ({"content": b64(b"<html>"), "mimeType": "image/png"}, UsageError, "type text/html are not accepted"),
        ({"content": b64(b"MZ"), "filename": "a.exe"}, UsageError, r"give one of image/\*, text/csv"),
    ],
)
async def test_rejected_input_files_are_not_stored(
    given: object, error: type[ABPError], words: str, store: LocalStore
) -> None:
    limits = FileLimits(max_file_bytes=1000, allowed_mime_types=("image/*", "text/csv"))
    files = cast(Given, {"good": PNG, "bad": given})
    with pytest.raises(error, match=words) as caught:
        await accept_files(files, store=store, limits=limits)
    assert caught.value.details["field"] == "bad" and "the app" not in caught.value.message
    assert await store.list() == []


@pytest.mark.requirement("R4-9g", "R4-11c")
async def test_file_up_to_max_size_is_accepted_under_a_harmless_name(store: LocalStore) -> None:
    limits = FileLimits(max_file_bytes=1000)
    for size in (998, 999, 1000):
        given: GivenFile = {"content": b64(bytes(size)), "filename": "../../etc/passwd.png"}
        accepted = await accept_files({"a": given}, store=store, limits=limits)
        path = Path(accepted["a"].ref.path or "")
        assert path.parent == store.root and path.name.startswith("passwd")
    ref = await store.put_bytes(bytes(2000))
    with pytest.raises(TooLarge):
        await accept_files({"a": {"id": ref.id}}, store=store, limits=limits)
    memory = MemoryStore()  # it has no paths
    ref = await memory.put_bytes(b"earlier")
    accepted = await accept_files({"a": PNG, "b": {"id": ref.id}, "c": path}, store=memory)
    assert [item.binary.read() for item in accepted.values()] == [PNG, b"earlier", bytes(1000)]


def ref(size: int, mime_type: str) -> ArtifactRef:
    return ArtifactRef("i", "artifact://i", None, "f", mime_type, size, "0" * 64)


@pytest.mark.requirement("R4-4f", "R4-6b", "R4-8h", "R4-10c", "R4-10d")
@each_row(
    ("size", "mime_type", "tokens", "large", "safe"),
    [
        (0, "text/plain", 0, False, True),
        (5, "text/plain", 2, False, True),
        (40_000, "application/json", 10_000, False, True),
        (40_001, "text/csv", 10_001, True, False),
        (5, "image/png", 2, False, False),
        (5, "image/svg+xml", 2, False, True),
        (10 << 20, "application/pdf", 2_621_440, True, False),
    ],
)
def test_large_file_warning_and_auto_read_follow_size_and_type(
    size: int, mime_type: str, tokens: int, large: bool, safe: bool
) -> None:
    one = ref(size, mime_type)
    assert (estimated_tokens(one), large_file_warning(one), auto_read_safe(one)) == (tokens, large, safe)
    limits = FileLimits(large_file_tokens=1, max_auto_read_bytes=4)
    for size, fits in ((4, True), (5, False)):
        text = ref(size, "text/plain")
        assert bool(large_file_warning(text, limits)) is not fits and auto_read_safe(text, limits) is fits
