"""Content in answers: every byte, wherever it stands."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path

from webapp_fixture import digest

from ...artifacts import ArtifactRef
from .behaviour import Subject, behaviour, expect, value

_PATTERN = bytes(n % 251 for n in range(1 << 20))


def _pattern(size: int) -> str:
    return hashlib.sha256(_PATTERN[:size]).hexdigest()


async def _generated(subject: Subject, size: int) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": size, "seed": 3})).artifacts["file"]
        expect((ref.size_bytes, ref.sha256), (size, digest(size, 3)), f"size and SHA-256 of {size} bytes")
        expect(Path(str(ref.path)).stat().st_size, size, "bytes of the stored file")


@behaviour("empty content arrives", "seed 001: size 0 is a size")
async def empty(subject: Subject) -> None:
    await _generated(subject, 0)


@behaviour("small content arrives byte for byte", "seed 001; DESIGN: bytes are touched once")
async def small(subject: Subject) -> None:
    await _generated(subject, 1000)


@behaviour("content above 256 KB arrives byte for byte", "seed 001; transports.browser: larger content stays behind")
async def medium(subject: Subject) -> None:
    await _generated(subject, 256 * 1024 + 1)


@behaviour("content of 3 MB arrives byte for byte", "seed 001; FAULTS 13: beyond the usual limits of messages")
async def large(subject: Subject) -> None:
    await _generated(subject, 3 << 20)


@behaviour("content of 8 calls at once is not mixed up", "Transport: any number of requests at once")
async def at_once(subject: Subject) -> None:
    async with subject.connect() as session:
        calls = [session.call("file.generate", {"bytes": 300_000 + n, "seed": n}) for n in range(8)]
        seen = [result.artifacts["file"].sha256 for result in await asyncio.gather(*calls)]
        expect(seen, [digest(300_000 + n, n) for n in range(8)], "SHA-256 of each")


@behaviour("one capability's bytes are the same over all transports", "DESIGN: the same results over another wire")
async def the_same(subject: Subject) -> None:
    async with subject.connect() as session:
        rows = [{"product": "tea", "sold": 12}, {"product": "cöffee, black", "sold": 30}]
        ref = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        content = Path(str(ref.path)).read_bytes()
        expect(content.decode(), 'product,sold\r\ntea,12\r\n"cöffee, black",30\r\n', "the CSV file")
        expect(ref.sha256, hashlib.sha256(content).hexdigest(), "SHA-256 of the file")


@behaviour("type and name of content arrive", "seed 000: mimeType, filename")
async def described(subject: Subject) -> None:
    params = {"bytes": 10, "filename": "Übersicht 1.bin", "mimeType": "application/x-contract"}
    async with subject.connect() as session:
        ref = (await session.call("file.generate", params)).artifacts["file"]
        expect((ref.mime_type, ref.filename), ("application/x-contract", "Übersicht 1.bin"), "type and name")


@behaviour("declared text is a file and stays readable", "docs/protocol.md 9.3")
async def declared_text(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("convert.markdownToHtml", {"markdown": "# 世界"})
        ref = result.artifact("html")
        html = value(result.data, "html", "text")
        expect("<h1>世界</h1>" in html, True, "whether the Markdown was rendered")
        expect(Path(str(ref.path)).read_bytes(), html.encode(), "the bytes of the file")
        expect((ref.mime_type, ref.size_bytes), ("text/html", len(html.encode())), "its type and size")


@behaviour("content is found six levels down", 'seed 000 "Nested Binary Data Detection"')
async def deep(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "deep"})
        expect(_sums(result.artifacts), {"one.two.three.four.five.six": _pattern(1024)}, "the artifacts")
        expect(value(result.data, "one", "two", "three", "four", "five", "note"), "six levels down", "its sibling")


@behaviour("content may be the whole answer", "seed 000")
async def top(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "top"})
        expect(_sums(result.artifacts), {"": _pattern(1024)}, "the artifacts")


@behaviour("the flat form is content too", 'PROTOCOL "What public clients and apps get wrong"')
async def flat(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "flat"})
        expect([*_sums(result.artifacts).values()], [_pattern(1024)], "the artifacts")
        expect(value(result.data, "size"), 1024, "size, beside the content")


@behaviour("a list of content keeps its order", 'seed 000 "Nested Binary Data Detection"')
async def listed(subject: Subject) -> None:
    async with subject.connect() as session:
        result = await session.call("shape", {"shape": "list", "size": 2000})
        wanted = {f"files.{n}": _pattern(2000 + n) for n in range(3)}
        expect(_sums(result.artifacts), wanted, "the artifacts")
        expect(value(result.data, "note"), "metadata beside the file", "what stands beside the files")


@behaviour("large and small content of one answer arrive together", "seed 001; Transport.save")
async def mixed(subject: Subject) -> None:
    async with subject.connect() as session:
        sums = _sums((await session.call("shape", {"shape": "mixed"})).artifacts)
        expect(sums.get("large"), _pattern(300 * 1024), "the large one")
        wanted = dict.fromkeys(("blob", "nested.0.item", "small", "text"), _pattern(1024))
        expect({name: sums.get(name) for name in wanted}, wanted, "the small ones")


@behaviour("a printed or made PDF is a PDF", "seed 000: window.print; PROTOCOL: export")
async def pdf(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifacts["document"]
        expect(ref.mime_type, "application/pdf", "the type of the document")
        expect(Path(str(ref.path)).read_bytes()[:5], b"%PDF-", "its first bytes")


def _sums(artifacts: Mapping[str, ArtifactRef]) -> dict[str, str]:
    return {name: ref.sha256 for name, ref in artifacts.items()}
