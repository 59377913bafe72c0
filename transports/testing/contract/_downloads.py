"""Behaviours of content behind a ``downloadUrl``.

The session fetches the content. The transport provides cookies and the app's address, the base of relative URLs.
"""

from __future__ import annotations

from webapp_fixture import digest

from ...errors import DownloadFailed, SizeMismatch, UrlExpired
from ._behaviour import Subject, behaviour, expect, raises


@behaviour("download URLs are followed", "docs/protocol.md 10.1, 10.2")
async def _followed(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": 50_000, "as": "url"})).artifacts["file"]
        expect(ref.sha256, digest(50_000, 0), "SHA-256 of the download")


@behaviour("download URLs get their credentials", "docs/protocol.md 10.3")
async def _credentials(subject: Subject) -> None:
    async with subject.connect() as session:
        for auth in ("bearer", "bearerLine", "bearerToken", "query"):
            params = {"bytes": 5000, "as": "url", "auth": auth}
            ref = (await session.call("file.generate", params)).artifacts["file"]
            expect(ref.sha256, digest(5000, 0), f"SHA-256 of the download with {auth}")


@behaviour("data URLs need no server", "docs/protocol.md 9.7; RFC 2397")
async def _data_urls(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("file.generate", {"bytes": 5000, "as": "dataUrl"})).artifacts["file"]
        expect(ref.sha256, digest(5000, 0), "SHA-256 of the content")


@behaviour("a download that was cut is resumed", "docs/protocol.md 10.6; docs/faults.md 28, 33")
async def _cut_once(subject: Subject) -> None:
    async with subject.connect() as session:
        ref = (await session.call("fault.cut_once", {"bytes": 200_000})).artifacts["document"]
        expect(ref.sha256, digest(200_000, 0), "SHA-256 of the download")


@behaviour("a download that is not there is refused", "docs/protocol.md 10.7; docs/faults.md 38")
async def _gone(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(DownloadFailed, "a download that answers 404", code="DOWNLOAD_FAILED") as caught:
            await session.call("fault.gone", {"bytes": 1000})
        expect(caught.error.details.get("status"), 404, "the status in its details")
        expect(caught.error.details.get("field"), "document", "the field in its details")


@behaviour("a download that has expired is refused", "docs/protocol.md 10.4; docs/faults.md 37")
async def _expired(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(UrlExpired, "a download whose expiresAt has passed", code="REFERENCE_EXPIRED"):
            await session.call("fault.expired", {"bytes": 1000})


@behaviour("a download of another size is refused", "docs/protocol.md 9.9, 10.6; docs/faults.md 28")
async def _wrong_size(subject: Subject) -> None:
    async with subject.connect() as session:
        with raises(SizeMismatch, "a download one byte short", code="SIZE_MISMATCH"):
            await session.call("fault.short_download", {"bytes": 5000})
        expect([*(await session.call("file.list")).artifacts], [""], "the artifacts of the next call")
