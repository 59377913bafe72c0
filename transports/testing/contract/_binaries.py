"""Behaviours of content: in answers, in parameters, and behind a ``downloadUrl``. Every byte arrives.

Downloads are the session's; the transport provides cookies and the app's address, the base of relative URLs.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

import pytest

from webapp_fixture import digest

from ...artifacts._ref import ArtifactRef
from ...errors import CapabilityError, DownloadFailed, SizeMismatch, UrlExpired
from ...protocol.binary import BinaryData
from ._behaviour import Subject, behaviour, value

_PATTERN = (bytes(range(251)) * 4178)[: 1 << 20]
_DATA = bytes(n % 251 for n in range(300_000))


def _pattern(size: int) -> str:
    return hashlib.sha256(_PATTERN[:size]).hexdigest()


async def _generated(subject: Subject, size: int) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": size, "seed": 3})).artifacts["file"]
        assert (ref.size_bytes, ref.sha256) == (size, digest(size, 3)), f"size and SHA-256 of {size} bytes"
        assert Path(str(ref.path)).stat().st_size == size


@behaviour("empty content arrives", "docs/protocol.md 9.9")
async def _empty(subject: Subject) -> None:
    await _generated(subject, 0)


@behaviour("small content arrives byte for byte", "docs/protocol.md 9.1")
async def _small(subject: Subject) -> None:
    await _generated(subject, 1000)


@behaviour("content above 256 KB arrives byte for byte", "docs/protocol.md 9.12")
async def _medium(subject: Subject) -> None:
    await _generated(subject, 256 * 1024 + 1)


@behaviour("content of 3 MB arrives byte for byte", "docs/protocol.md 9.12")
async def _large(subject: Subject) -> None:
    await _generated(subject, 3 << 20)


@behaviour("content of 8 calls at once is not mixed up", "docs/protocol.md 3.1; transports.base.Transport.request")
async def _at_once(subject: Subject) -> None:
    async with subject.connect() as session:
        calls = [session.call("file.generate", {"bytes": 300_000 + n, "seed": n}) for n in range(8)]
        seen = [result.artifacts["file"].sha256 for result in await asyncio.gather(*calls)]
        assert seen == [digest(300_000 + n, n) for n in range(8)]


@behaviour("one capability's bytes are the same over all transports", "docs/protocol.md 9.1")
async def _the_same(subject: Subject) -> None:
    async with subject.connect() as session:
        rows = [{"product": "tea", "sold": 12}, {"product": "cöffee, black", "sold": 30}]
        ref = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        content = Path(str(ref.path)).read_bytes()
        assert content.decode() == 'product,sold\r\ntea,12\r\n"cöffee, black",30\r\n'
        assert ref.sha256 == hashlib.sha256(content).hexdigest()


@behaviour("type and name of content arrive", "docs/protocol.md 9.11")
async def _type_and_name(subject: Subject) -> None:
    params = {"bytes": 10, "filename": "Übersicht 1.bin", "mimeType": "application/x-contract"}
    async with subject.connect() as session:
        ref = (await session.call("file.generate", params)).artifacts["file"]
        assert (ref.mime_type, ref.filename) == ("application/x-contract", "Übersicht 1.bin")


@behaviour("declared text is a file and stays readable", "docs/protocol.md 9.3")
async def _declared_text(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("convert.markdownToHtml", {"markdown": "# 世界"})
        ref = result.artifact("html")
        html = value(result.data, "html", "text")
        assert "<h1>世界</h1>" in html
        assert Path(str(ref.path)).read_bytes() == html.encode()
        assert (ref.mime_type, ref.size_bytes) == ("text/html", len(html.encode()))


@behaviour("content is found six levels down", "docs/protocol.md 9.10")
async def _deep(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "deep"})
        assert _sums(result.artifacts) == {"one.two.three.four.five.six": _pattern(1024)}
        assert value(result.data, "one", "two", "three", "four", "five", "note") == "six levels down"


@behaviour("content may be the whole answer", "docs/protocol.md 9.10")
async def _top(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "top"})
        assert _sums(result.artifacts) == {"": _pattern(1024)}


@behaviour("the flat form is content too", "docs/protocol.md 9.5")
async def _flat(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "flat"})
        assert [*_sums(result.artifacts).values()] == [_pattern(1024)]
        assert value(result.data, "size") == 1024


@behaviour("a list of content keeps its order", "docs/protocol.md 9.10")
async def _listed(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "list", "size": 2000})
        expected = {f"files.{n}": _pattern(2000 + n) for n in range(3)}
        assert _sums(result.artifacts) == expected
        assert value(result.data, "note") == "metadata beside the file"


@behaviour(
    "large and small content of one answer arrive together", "docs/protocol.md 9.12; transports.base.Transport.save"
)
async def _mixed(subject: Subject) -> None:
    async with subject.connect() as session:
        sums = _sums((await session.call("shape", {"shape": "mixed"})).artifacts)
        assert sums.get("large") == _pattern(300 * 1024)
        expected = dict.fromkeys(("blob", "nested.0.item", "small", "text"), _pattern(1024))
        assert {name: sums.get(name) for name in expected} == expected


@behaviour("a PDF arrives as a PDF", "docs/protocol.md 11.3, 9.11")
async def _pdf(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifacts["document"]
        assert ref.mime_type == "application/pdf"
        assert Path(str(ref.path)).read_bytes()[:5] == b"%PDF-"


def _sums(artifacts: Mapping[str, ArtifactRef]) -> dict[str, str]:
    return {name: ref.sha256 for name, ref in artifacts.items()}


async def _digest(subject: Subject, *files: object) -> list[dict[str, object]]:
    async with subject.connect() as session:
        return [value((await session.call("file.digest", {"file": file})).data) for file in files]


def _files(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"in-{n}.bin" for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@behaviour("bytes in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _given_bytes(subject: Subject) -> None:
    contents = [_DATA[:size] for size in (0, 10, 300_000)]
    seen = [answer["sha256"] for answer in await _digest(subject, *contents)]
    assert seen == [hashlib.sha256(content).hexdigest() for content in contents]


@behaviour("files in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _given_files(subject: Subject) -> None:
    contents = [_DATA[:size] for size in (0, 10, 300_000)]
    seen = [answer["sha256"] for answer in await _digest(subject, *_files(subject.folder, *contents))]
    assert seen == [hashlib.sha256(content).hexdigest() for content in contents]


@behaviour("content in parameters is a buffer", "docs/protocol.md 9.13")
async def _buffers(subject: Subject) -> None:
    seen = [answer["received"] for answer in await _digest(subject, b"small", _DATA)]
    assert seen == ["ArrayBuffer", "ArrayBuffer"]


@behaviour("content in parameters keeps its description", "docs/protocol.md 9.13")
async def _keeps_description(subject: Subject) -> None:
    described = {"content": b"GIF89a", "mimeType": "image/x-contract", "filename": "a.gif"}
    answers = await _digest(subject, described, BinaryData.from_bytes(b"GIF89a", mime_type="image/gif"))
    expected = [hashlib.sha256(b"GIF89a").hexdigest()] * 2
    assert [answer["sha256"] for answer in answers] == expected
    assert [answer["size"] for answer in answers] == [6, 6]


@behaviour("content of many calls at once is not mixed up", "docs/protocol.md 3.1; transports.base.Transport.request")
async def _given_at_once(subject: Subject) -> None:
    contents = [_DATA[n : n + 100_000] for n in range(6)]
    async with subject.connect() as session:
        calls = [session.call("file.digest", {"file": content}) for content in contents]
        seen = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
    assert seen == [hashlib.sha256(content).hexdigest() for content in contents]


@behaviour("an app's refusal of content is a CapabilityError", "docs/protocol.md 3.5, 3.6")
async def _refused(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("image.info", {"image": {"content": b"no picture", "mimeType": "image/png"}})
        assert caught.value.code == "INVALID_PARAMS"


@behaviour("download URLs are followed", "docs/protocol.md 10.1, 10.2")
async def _followed(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": 50_000, "as": "url"})).artifacts["file"]
        assert ref.sha256 == digest(50_000, 0)


@behaviour("download URLs get their credentials", "docs/protocol.md 10.3")
async def _credentials(subject: Subject) -> None:
    async with subject.connect() as session:
        for auth in ("bearer", "bearerLine", "bearerToken", "query"):
            params = {"bytes": 5000, "as": "url", "auth": auth}
            ref = (await session.call("file.generate", params)).artifacts["file"]
            assert ref.sha256 == digest(5000, 0), f"SHA-256 of the download with {auth}"


@behaviour("data URLs need no server", "docs/protocol.md 9.7; RFC 2397")
async def _data_urls(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": 5000, "as": "dataUrl"})).artifacts["file"]
        assert ref.sha256 == digest(5000, 0)


@behaviour("a download that was cut is resumed", "docs/protocol.md 10.6; docs/faults.md 28, 33")
async def _cut_once(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("fault.cut_once", {"bytes": 200_000})).artifacts["document"]
        assert ref.sha256 == digest(200_000, 0)


@behaviour("a download that is not there is refused", "docs/protocol.md 10.7; docs/faults.md 38")
async def _gone(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(DownloadFailed) as caught:
            await session.call("fault.gone", {"bytes": 1000})
        assert caught.value.code == "DOWNLOAD_FAILED"
        assert caught.value.details.get("status") == 404
        assert caught.value.details.get("field") == "document"


@behaviour("a download that has expired is refused", "docs/protocol.md 10.4; docs/faults.md 37")
async def _expired(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(UrlExpired):
            await session.call("fault.expired", {"bytes": 1000})


@behaviour("a download of another size is refused", "docs/protocol.md 9.9, 10.6; docs/faults.md 28")
async def _wrong_size(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(SizeMismatch):
            await session.call("fault.short_download", {"bytes": 5000})
        assert [*(await session.call("file.list")).artifacts] == [""]
