"""Behaviours of content in answers: every byte arrives, at any place of the answer."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

from webapp_fixture import digest

from ...artifacts import ArtifactRef
from ._behaviour import Subject, behaviour, expect, value

_PATTERN = (bytes(range(251)) * 4178)[: 1 << 20]


def _pattern(size: int) -> str:
    return hashlib.sha256(_PATTERN[:size]).hexdigest()


async def _generated(subject: Subject, size: int) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": size, "seed": 3})).artifacts["file"]
        expect((ref.size_bytes, ref.sha256), (size, digest(size, 3)), f"size and SHA-256 of {size} bytes")
        expect(Path(str(ref.path)).stat().st_size, size, "bytes of the stored file")


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
        expect(seen, [digest(300_000 + n, n) for n in range(8)], "SHA-256 of each")


@behaviour("one capability's bytes are the same over all transports", "docs/protocol.md 9.1")
async def _the_same(subject: Subject) -> None:
    async with subject.connect() as session:
        rows = [{"product": "tea", "sold": 12}, {"product": "cöffee, black", "sold": 30}]
        ref = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        content = Path(str(ref.path)).read_bytes()
        expect(content.decode(), 'product,sold\r\ntea,12\r\n"cöffee, black",30\r\n', "the CSV file")
        expect(ref.sha256, hashlib.sha256(content).hexdigest(), "SHA-256 of the file")


@behaviour("type and name of content arrive", "docs/protocol.md 9.11")
async def _described(subject: Subject) -> None:
    params = {"bytes": 10, "filename": "Übersicht 1.bin", "mimeType": "application/x-contract"}
    async with subject.connect() as session:
        ref = (await session.call("file.generate", params)).artifacts["file"]
        expect((ref.mime_type, ref.filename), ("application/x-contract", "Übersicht 1.bin"), "type and name")


@behaviour("declared text is a file and stays readable", "docs/protocol.md 9.3")
async def _declared_text(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("convert.markdownToHtml", {"markdown": "# 世界"})
        ref = result.artifact("html")
        html = value(result.data, "html", "text")
        expect("<h1>世界</h1>" in html, True, "whether the Markdown was rendered")
        expect(Path(str(ref.path)).read_bytes(), html.encode(), "the bytes of the file")
        expect((ref.mime_type, ref.size_bytes), ("text/html", len(html.encode())), "its type and size")


@behaviour("content is found six levels down", "docs/protocol.md 9.10")
async def _deep(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "deep"})
        expect(_sums(result.artifacts), {"one.two.three.four.five.six": _pattern(1024)}, "the artifacts")
        expect(value(result.data, "one", "two", "three", "four", "five", "note"), "six levels down", "its sibling")


@behaviour("content may be the whole answer", "docs/protocol.md 9.10")
async def _top(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "top"})
        expect(_sums(result.artifacts), {"": _pattern(1024)}, "the artifacts")


@behaviour("the flat form is content too", "docs/protocol.md 9.5")
async def _flat(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "flat"})
        expect([*_sums(result.artifacts).values()], [_pattern(1024)], "the artifacts")
        expect(value(result.data, "size"), 1024, "size, beside the content")


@behaviour("a list of content keeps its order", "docs/protocol.md 9.10")
async def _listed(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "list", "size": 2000})
        expected = {f"files.{n}": _pattern(2000 + n) for n in range(3)}
        expect(_sums(result.artifacts), expected, "the artifacts")
        expect(value(result.data, "note"), "metadata beside the file", "the note beside the files")


@behaviour(
    "large and small content of one answer arrive together", "docs/protocol.md 9.12; transports.base.Transport.save"
)
async def _mixed(subject: Subject) -> None:
    async with subject.connect() as session:
        sums = _sums((await session.call("shape", {"shape": "mixed"})).artifacts)
        expect(sums.get("large"), _pattern(300 * 1024), "the large one")
        expected = dict.fromkeys(("blob", "nested.0.item", "small", "text"), _pattern(1024))
        expect({name: sums.get(name) for name in expected}, expected, "the small ones")


@behaviour("a PDF arrives as a PDF", "docs/protocol.md 11.3, 9.11")
async def _pdf(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifacts["document"]
        expect(ref.mime_type, "application/pdf", "the type of the document")
        expect(Path(str(ref.path)).read_bytes()[:5], b"%PDF-", "its first bytes")


def _sums(artifacts: Mapping[str, ArtifactRef]) -> dict[str, str]:
    return {name: ref.sha256 for name, ref in artifacts.items()}
