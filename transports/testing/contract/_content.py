"""Behaviours of content, of which every byte arrives: in answers, in parameters, and behind a ``downloadUrl``.

Downloads are the session's; the transport provides cookies and the app's address, the base of relative URLs. An answer
that is nonsense raises a typed error, nothing wrong is stored, and the session continues.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import pytest

from webapp_fixture import digest

from ...artifacts._ref import ArtifactRef
from ...errors import (
    BadDescriptor,
    BadEncoding,
    BinaryError,
    CapabilityError,
    DownloadFailed,
    ProtocolError,
    SizeMismatch,
    UrlExpired,
)
from ...protocol.binary import BinaryData
from ...session._session import Session
from ._behaviour import Subject, Theme, value_at

BINARIES = Theme("binaries")
FAULTS = Theme("faults")


#: The content of the app's capability `shape`, up to 1 MiB, which is content of parameters too.
_PATTERN = (bytes(range(251)) * 4178)[: 1 << 20]


def _sha256_of_pattern(size: int) -> str:
    return hashlib.sha256(_PATTERN[:size]).hexdigest()


async def _check_generated(session: Session, *, size: int) -> None:
    ref = (await session.call("file.generate", {"bytes": size, "seed": 3})).artifacts["file"]
    assert (ref.size_bytes, ref.sha256) == (size, digest(size, 3)), f"size and SHA-256 of {size} bytes"
    assert Path(str(ref.path)).stat().st_size == size


for _name, _source, _size in (
    ("empty content arrives", "docs/protocol.md 9.9", 0),
    ("small content arrives byte for byte", "docs/protocol.md 9.1", 1000),
    ("content above 256 KB arrives byte for byte", "docs/protocol.md 9.12", 256 * 1024 + 1),
    ("content of 3 MB arrives byte for byte", "docs/protocol.md 9.12", 3 << 20),
):
    BINARIES.in_session(_name, _source)(partial(_check_generated, size=_size))


@BINARIES.in_session(
    "content of 8 calls at once is not mixed up", "docs/protocol.md 3.1; transports.base.Transport.request"
)
async def _check_at_once(session: Session) -> None:
    calls = [session.call("file.generate", {"bytes": 300_000 + n, "seed": n}) for n in range(8)]
    seen = [result.artifacts["file"].sha256 for result in await asyncio.gather(*calls)]
    assert seen == [digest(300_000 + n, n) for n in range(8)]


@BINARIES.in_session("one capability's bytes are the same over all transports", "docs/protocol.md 9.1")
async def _check_the_same(session: Session) -> None:
    rows = [{"product": "tea", "sold": 12}, {"product": "cöffee, black", "sold": 30}]
    ref = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
    content = Path(str(ref.path)).read_bytes()
    assert content.decode() == 'product,sold\r\ntea,12\r\n"cöffee, black",30\r\n'
    assert ref.sha256 == hashlib.sha256(content).hexdigest()


@BINARIES.in_session("type and name of content arrive", "docs/protocol.md 9.11")
async def _check_type_and_name(session: Session) -> None:
    params = {"bytes": 10, "filename": "Übersicht 1.bin", "mimeType": "application/x-contract"}
    ref = (await session.call("file.generate", params)).artifacts["file"]
    assert (ref.mime_type, ref.filename) == ("application/x-contract", "Übersicht 1.bin")


@BINARIES.in_session("declared text is a file and stays readable", "docs/protocol.md 9.3")
async def _check_declared_text(session: Session) -> None:
    result = await session.call("convert.markdownToHtml", {"markdown": "# 世界"})
    ref = result.artifact("html")
    html = value_at(result.data, "html", "text")
    assert "<h1>世界</h1>" in html
    assert Path(str(ref.path)).read_bytes() == html.encode()
    assert (ref.mime_type, ref.size_bytes) == ("text/html", len(html.encode()))


@BINARIES.in_session("content is found six levels down", "docs/protocol.md 9.10")
async def _check_deep(session: Session) -> None:
    result = await session.call("shape", {"shape": "deep"})
    assert _sha256_by_place(result.artifacts) == {"one.two.three.four.five.six": _sha256_of_pattern(1024)}
    assert value_at(result.data, "one", "two", "three", "four", "five", "note") == "six levels down"


@BINARIES.in_session("content may be the whole answer", "docs/protocol.md 9.10")
async def _check_top(session: Session) -> None:
    result = await session.call("shape", {"shape": "top"})
    assert _sha256_by_place(result.artifacts) == {"": _sha256_of_pattern(1024)}


@BINARIES.in_session("the flat form is content too", "docs/protocol.md 9.5")
async def _check_flat(session: Session) -> None:
    result = await session.call("shape", {"shape": "flat"})
    assert [*_sha256_by_place(result.artifacts).values()] == [_sha256_of_pattern(1024)]
    assert value_at(result.data, "size") == 1024


@BINARIES.in_session("a list of content keeps its order", "docs/protocol.md 9.10")
async def _check_listed(session: Session) -> None:
    result = await session.call("shape", {"shape": "list", "size": 2000})
    expected = {f"files.{n}": _sha256_of_pattern(2000 + n) for n in range(3)}
    assert _sha256_by_place(result.artifacts) == expected
    assert value_at(result.data, "note") == "metadata beside the file"


@BINARIES.in_session(
    "large and small content of one answer arrive together", "docs/protocol.md 9.12; transports.base.Transport.save"
)
async def _check_mixed(session: Session) -> None:
    sums = _sha256_by_place((await session.call("shape", {"shape": "mixed"})).artifacts)
    assert sums.get("large") == _sha256_of_pattern(300 * 1024)
    expected = dict.fromkeys(("blob", "nested.0.item", "small", "text"), _sha256_of_pattern(1024))
    assert {name: sums.get(name) for name in expected} == expected


@BINARIES.in_session("a PDF arrives as a PDF", "docs/protocol.md 11.3, 9.11")
async def _check_pdf(session: Session) -> None:
    ref = (await session.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifacts["document"]
    assert ref.mime_type == "application/pdf"
    assert Path(str(ref.path)).read_bytes()[:5] == b"%PDF-"


def _sha256_by_place(artifacts: Mapping[str, ArtifactRef]) -> dict[str, str]:
    return {name: ref.sha256 for name, ref in artifacts.items()}


def _sha256_of_each(contents: Iterable[bytes]) -> list[str]:
    return [hashlib.sha256(content).hexdigest() for content in contents]


async def _digest_in_app(session: Session, files: Iterable[object]) -> list[dict[str, object]]:
    return [value_at((await session.call("file.digest", {"file": file})).data) for file in files]


@BINARIES.in_session("bytes in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _check_sent_bytes(session: Session) -> None:
    contents = [_PATTERN[:size] for size in (0, 10, 300_000)]
    assert [answer["sha256"] for answer in await _digest_in_app(session, contents)] == _sha256_of_each(contents)


@BINARIES("files in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _check_sent_files(subject: Subject) -> None:
    contents = [_PATTERN[:size] for size in (0, 10, 300_000)]
    paths = [subject.folder / f"in-{n}.bin" for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    async with subject.connect() as session:
        assert [answer["sha256"] for answer in await _digest_in_app(session, paths)] == _sha256_of_each(contents)


@BINARIES.in_session("content in parameters is a buffer", "docs/protocol.md 9.13")
async def _check_buffers(session: Session) -> None:
    answers = await _digest_in_app(session, (b"small", _PATTERN[:300_000]))
    assert [answer["received"] for answer in answers] == ["ArrayBuffer", "ArrayBuffer"]


@BINARIES.in_session("content in parameters keeps its description", "docs/protocol.md 9.13")
async def _check_keeps_description(session: Session) -> None:
    described = {"content": b"GIF89a", "mimeType": "image/x-contract", "filename": "a.gif"}
    answers = await _digest_in_app(session, (described, BinaryData.from_bytes(b"GIF89a", mime_type="image/gif")))
    assert [answer["sha256"] for answer in answers] == _sha256_of_each([b"GIF89a"] * 2)
    assert [answer["size"] for answer in answers] == [6, 6]


@BINARIES.in_session(
    "content of many calls at once is not mixed up", "docs/protocol.md 3.1; transports.base.Transport.request"
)
async def _check_sent_at_once(session: Session) -> None:
    contents = [_PATTERN[n : n + 100_000] for n in range(6)]
    results = await asyncio.gather(*(session.call("file.digest", {"file": content}) for content in contents))
    assert [value_at(result.data, "sha256") for result in results] == _sha256_of_each(contents)


@BINARIES.in_session("an app's refusal of content is a CapabilityError", "docs/protocol.md 3.5, 3.6")
async def _check_content_refused(session: Session) -> None:
    with pytest.raises(CapabilityError) as caught:
        await session.call("image.info", {"image": {"content": b"no picture", "mimeType": "image/png"}})
    assert caught.value.code == "INVALID_PARAMS"


@BINARIES.in_session("download URLs are followed", "docs/protocol.md 10.1, 10.2")
async def _check_followed(session: Session) -> None:
    ref = (await session.call("file.generate", {"bytes": 50_000, "as": "url"})).artifacts["file"]
    assert ref.sha256 == digest(50_000, 0)


@BINARIES.in_session("download URLs get their credentials", "docs/protocol.md 10.3")
async def _check_credentials(session: Session) -> None:
    for auth in ("bearer", "bearerLine", "bearerToken", "query"):
        params = {"bytes": 5000, "as": "url", "auth": auth}
        ref = (await session.call("file.generate", params)).artifacts["file"]
        assert ref.sha256 == digest(5000, 0), f"SHA-256 of the download with {auth}"


@BINARIES.in_session("data URLs need no server", "docs/protocol.md 9.7; RFC 2397")
async def _check_data_urls(session: Session) -> None:
    ref = (await session.call("file.generate", {"bytes": 5000, "as": "dataUrl"})).artifacts["file"]
    assert ref.sha256 == digest(5000, 0)


@BINARIES.in_session("a download that was cut is resumed", "docs/protocol.md 10.6; docs/faults.md 28, 33")
async def _check_cut_once(session: Session) -> None:
    ref = (await session.call("fault.cut_once", {"bytes": 200_000})).artifacts["document"]
    assert ref.sha256 == digest(200_000, 0)


@BINARIES.in_session("a download that is not there is refused", "docs/protocol.md 10.7; docs/faults.md 38")
async def _check_gone(session: Session) -> None:
    with pytest.raises(DownloadFailed) as caught:
        await session.call("fault.gone", {"bytes": 1000})
    assert caught.value.code == "DOWNLOAD_FAILED"
    assert caught.value.details.get("status") == 404
    assert caught.value.details.get("field") == "document"


@BINARIES.in_session("a download that has expired is refused", "docs/protocol.md 10.4; docs/faults.md 37")
async def _check_expired(session: Session) -> None:
    with pytest.raises(UrlExpired):
        await session.call("fault.expired", {"bytes": 1000})


@BINARIES.in_session("a download of another size is refused", "docs/protocol.md 9.9, 10.6; docs/faults.md 28")
async def _check_wrong_download_size(session: Session) -> None:
    with pytest.raises(SizeMismatch):
        await session.call("fault.short_download", {"bytes": 5000})
    assert [*(await session.call("file.list")).artifacts] == [""]


async def _check_refused(subject: Subject, *, error: type[BinaryError], fault: str) -> None:
    def stored_files() -> set[Path]:
        return {path for path in (subject.folder / "out").rglob("*") if path.is_file()}

    async with subject.connect() as session:
        earlier = stored_files()
        with pytest.raises(error) as caught:
            await session.call(fault, {"value": -1})
        assert caught.value.details.get("field") == "document"
        assert stored_files() == earlier
        assert [*(await session.call("file.list")).artifacts] == [""]


_SIZE = "docs/protocol.md 9.9; docs/faults.md 25"
_BASE64 = "docs/protocol.md 9.8; docs/faults.md 24"
for _name, _source, _error, _fault in (
    ("content of another size than declared is refused", _SIZE, SizeMismatch, "fault.wrong_size"),
    ("an invalid size is refused", _SIZE, BadDescriptor, "fault.bad_size"),
    ("base64 with junk is refused", _BASE64, BadEncoding, "fault.bad_base64"),
    ("base64 that is not canonical is refused", f"{_BASE64}; RFC 4648 §3.5", BadEncoding, "fault.noncanonical_base64"),
):
    FAULTS(_name, _source)(partial(_check_refused, error=_error, fault=_fault))


@FAULTS.in_session(
    "base64 without padding and URL-safe base64 are understood", "docs/protocol.md 9.8; docs/faults.md 24"
)
async def _check_lenient(session: Session) -> None:
    for fault, size in (("fault.no_padding", 1000), ("fault.url_safe_base64", 200)):
        ref = (await session.call(fault)).artifacts["document"]
        assert ref.size_bytes == size, f"bytes of {fault}"


@FAULTS.in_session("of several files only the broken one is lost", "docs/protocol.md 9.10")
async def _check_partial(session: Session) -> None:
    with pytest.raises(SizeMismatch) as caught:
        await session.call("fault.partial", {"index": 1, "count": 3})
    stored = caught.value.result.artifacts if caught.value.result else {}
    assert [*stored] == ["files.0", "files.2"]
    assert caught.value.details.get("field") == "files.1"


@FAULTS("a file name cannot lead out of the store", "docs/protocol.md 9.11; docs/faults.md 42")
async def _check_bad_name(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("fault.bad_name")).artifacts["document"]
        inside = (subject.folder / "out").resolve()
        assert Path(str(ref.path)).resolve().is_relative_to(inside)


@FAULTS.in_session(
    "content of another type than declared is stored under its real type", "docs/protocol.md 9.11; docs/faults.md 27"
)
async def _check_wrong_type(session: Session) -> None:
    ref = (await session.call("fault.wrong_mime")).artifacts["image"]
    assert ref.mime_type == "text/html"


@FAULTS.in_session("an invalid answer fails alone", "docs/protocol.md 3.3")
async def _check_bad_answer(session: Session) -> None:
    answers: tuple[object, ...] = ("text", 7, [], {})
    for nonsense in answers:
        with pytest.raises(ProtocolError):
            await session.call("fault.bad_answer", {"value": nonsense})
    assert [*(await session.call("file.list")).artifacts] == [""]
