"""Behaviours with apps that answer nonsense: the error is typed, nothing wrong is stored, the session continues."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...errors import BadDescriptor, BadEncoding, BinaryError, ProtocolError, SizeMismatch
from ._behaviour import Subject, behaviour


async def _refused(subject: Subject, kind: type[BinaryError], fault: str, **params: object) -> None:
    async with subject.connect() as session:
        with pytest.raises(kind) as caught:
            await session.call(fault, params)
        assert caught.value.details.get("field") == "document"
        stored = [path.name for path in (subject.folder / "out").rglob("*") if path.is_file()]
        assert stored == []
        assert [*(await session.call("file.list")).artifacts] == [""]


@behaviour("content of another size than declared is refused", "docs/protocol.md 9.9; docs/faults.md 25")
async def _wrong_size(subject: Subject) -> None:
    await _refused(subject, SizeMismatch, "fault.wrong_size")


@behaviour("an invalid size is refused", "docs/protocol.md 9.9; docs/faults.md 25")
async def _bad_size(subject: Subject) -> None:
    await _refused(subject, BadDescriptor, "fault.bad_size", value=-1)


@behaviour("base64 with junk is refused", "docs/protocol.md 9.8; docs/faults.md 24")
async def _bad_base64(subject: Subject) -> None:
    await _refused(subject, BadEncoding, "fault.bad_base64")


@behaviour("base64 that is not canonical is refused", "docs/protocol.md 9.8; RFC 4648 §3.5; docs/faults.md 24")
async def _noncanonical(subject: Subject) -> None:
    await _refused(subject, BadEncoding, "fault.noncanonical_base64")


@behaviour("base64 without padding and URL-safe base64 are understood", "docs/protocol.md 9.8; docs/faults.md 24")
async def _lenient(subject: Subject) -> None:
    async with subject.connect() as session:
        for fault, size in (("fault.no_padding", 1000), ("fault.url_safe_base64", 200)):
            ref = (await session.call(fault)).artifacts["document"]
            assert ref.size_bytes == size, f"bytes of {fault}"


@behaviour("of several files only the broken one is lost", "docs/protocol.md 9.10")
async def _partial(subject: Subject) -> None:
    async with subject.connect() as session:
        with pytest.raises(SizeMismatch) as caught:
            await session.call("fault.partial", {"index": 1, "count": 3})
        stored = caught.value.result.artifacts if caught.value.result else {}
        assert [*stored] == ["files.0", "files.2"]
        assert caught.value.details.get("field") == "files.1"


@behaviour("a file name cannot lead out of the store", "docs/protocol.md 9.11; docs/faults.md 42")
async def _bad_name(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("fault.bad_name")).artifacts["document"]
        inside = (subject.folder / "out").resolve()
        assert Path(str(ref.path)).resolve().is_relative_to(inside)


@behaviour(
    "content of another type than declared is stored under its real type", "docs/protocol.md 9.11; docs/faults.md 27"
)
async def _wrong_type(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("fault.wrong_mime")).artifacts["image"]
        assert ref.mime_type == "text/html"


@behaviour("an invalid answer fails alone", "docs/protocol.md 3.3")
async def _bad_answer(subject: Subject) -> None:
    async with subject.connect() as session:
        answers: tuple[object, ...] = ("text", 7, [], {})
        for nonsense in answers:
            with pytest.raises(ProtocolError):
                await session.call("fault.bad_answer", {"value": nonsense})
        assert [*(await session.call("file.list")).artifacts] == [""]
