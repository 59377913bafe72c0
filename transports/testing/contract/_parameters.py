"""Behaviours of content in parameters."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from ...binary import BinaryData
from ...errors import CapabilityError
from ._behaviour import Subject, behaviour, expect, raises, value

_DATA = bytes(n % 251 for n in range(300_000))


async def _digest(subject: Subject, *given: object) -> list[dict[str, object]]:
    async with subject.connect() as session:
        return [value((await session.call("file.digest", {"file": item})).data) for item in given]


def _files(folder: Path, *contents: bytes) -> list[Path]:
    paths = [folder / f"in-{n}.bin" for n in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content)
    return paths


@behaviour("bytes in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _given_bytes(subject: Subject) -> None:
    contents = [_DATA[:size] for size in (0, 10, 300_000)]
    seen = [answer["sha256"] for answer in await _digest(subject, *contents)]
    expect(seen, [hashlib.sha256(content).hexdigest() for content in contents], "SHA-256 of the received content")


@behaviour("files in parameters arrive byte for byte", "docs/protocol.md 9.13")
async def _given_files(subject: Subject) -> None:
    contents = [_DATA[:size] for size in (0, 10, 300_000)]
    seen = [answer["sha256"] for answer in await _digest(subject, *_files(subject.folder, *contents))]
    expect(seen, [hashlib.sha256(content).hexdigest() for content in contents], "SHA-256 of the received content")


@behaviour("content in parameters is a buffer", "docs/protocol.md 9.13")
async def _buffers(subject: Subject) -> None:
    seen = [answer["received"] for answer in await _digest(subject, b"small", _DATA)]
    expect(seen, ["ArrayBuffer", "ArrayBuffer"], "how the app received small and large content")


@behaviour("content in parameters keeps its description", "docs/protocol.md 9.13")
async def _keeps_description(subject: Subject) -> None:
    described = {"content": b"GIF89a", "mimeType": "image/x-contract", "filename": "a.gif"}
    answers = await _digest(subject, described, BinaryData.from_bytes(b"GIF89a", mime_type="image/gif"))
    expected = [hashlib.sha256(b"GIF89a").hexdigest()] * 2
    expect([answer["sha256"] for answer in answers], expected, "SHA-256 of the received content")
    expect([answer["size"] for answer in answers], [6, 6], "its size")


@behaviour("content of many calls at once is not mixed up", "docs/protocol.md 3.1; transports.base.Transport.request")
async def _at_once(subject: Subject) -> None:
    contents = [_DATA[n : n + 100_000] for n in range(6)]
    async with subject.connect() as session:
        calls = [session.call("file.digest", {"file": content}) for content in contents]
        seen = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
    expect(seen, [hashlib.sha256(content).hexdigest() for content in contents], "SHA-256 of each")


@behaviour("an app's refusal of content is a CapabilityError", "docs/protocol.md 3.5, 3.6")
async def _refused(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(CapabilityError, "image.info of content that is not a PNG", code="INVALID_PARAMS"):
            await session.call("image.info", {"image": {"content": b"no picture", "mimeType": "image/png"}})
