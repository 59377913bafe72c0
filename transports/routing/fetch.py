"""The fetcher: writes content into a staged file, wherever the content is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self, TypeAlias
from urllib.parse import urljoin

from ..artifacts import Staged
from ..artifacts.os_errors import map_os_errors
from ..base import Transport
from ..binary import BinaryData, Download, Handle, verify_size
from ..errors import ABPError, TooLarge, TransportError
from ..protocol.messages import Sender
from ..tasks import in_thread

__all__ = ["Fetcher", "OnDownload"]

#: Gets the place of a file that is downloaded, its bytes so far and the expected total, or ``None`` where nobody says
#: it. After a restart of the download it counts from zero again.
OnDownload: TypeAlias = Callable[[str, int, int | None], None]

#: Bytes from which on a file is hashed while it is written. Less is hashed faster than a thread is begun.
_FOLLOW_FROM = 4 << 20


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Writes the bytes of a :class:`~transports.BinaryData` into a staged file.

    ``transport`` is needed for content that stayed on the far side and for ``blob:`` URLs; downloads get its cookies.
    ``timeout`` is in seconds, for each file. ``limit`` is the largest file in bytes. ``allow_private`` admits downloads
    from private addresses other than the one at which the app was reached. With ``propagate``, downloads from the app's
    own origin carry ``traceparent``. ``sender`` is the document that the content belongs to; without one it is the app.
    """

    transport: Transport | None = None
    timeout: float = 300.0
    limit: int = 1 << 30
    allow_private: bool = False
    propagate: bool = False
    sender: Sender | None = None

    def asked_by(self, sender: Sender | None) -> Self:
        """Return this fetcher for content of the document ``sender``, in whose name it downloads."""
        return self if sender is None else replace(self, sender=sender)

    async def into(
        self,
        staged: Staged,
        binary: BinaryData,
        on_download: Callable[[int, int | None], None] | None = None,
    ) -> BinaryData:
        """Write the content into ``staged`` and return what is known of it now: HTTP headers may add a type or a name.
        ``on_download`` gets the bytes so far and the expected total of what is downloaded.

        Raises :class:`~transports.errors.BinaryError` for content that cannot be trusted,
        :class:`~transports.errors.TransportError` if the way to it failed, and
        :class:`~transports.errors.StoreError` if the file cannot be written.
        """
        match binary.content:
            case Handle() as handle:
                await self._save(handle, staged, binary.size)
            case Download(url=url) as reference:
                if url[:5].lower() == "blob:":
                    await self._save(Handle(url), staged, binary.size)
                else:
                    return await self._download(reference, staged, binary, on_download)
            case _:
                with map_os_errors("write a file", staged.path.parent):
                    await in_thread(_decode, binary, staged.path)
        return binary

    async def _save(self, handle: Handle, staged: Staged, declared: int | None) -> None:
        if self.transport is None:
            raise TransportError("this content stayed in the app; only the session that called it can fetch it")
        if handle.size is not None:
            verify_size(declared, handle.size)  # before a byte has moved
        if (handle.size or 0) > self.limit:
            raise TooLarge(
                f"the content has {handle.size} bytes, over the limit of {self.limit}; "
                "raise ABP_MAX_ARTIFACT_BYTES to accept it",
                details={"limit": self.limit, "size": handle.size},
            )
        if (handle.size or declared or 0) >= _FOLLOW_FROM and self.transport.features.appends:
            staged.follow()
        with map_os_errors("write a file", staged.path.parent):
            await self.transport.save(handle, staged.path, timeout=self.timeout)

    async def _download(
        self,
        reference: Download,
        staged: Staged,
        binary: BinaryData,
        on_download: Callable[[int, int | None], None] | None,
    ) -> BinaryData:
        from ..http import Downloads, cookies_of, download  # late: most answers have no download

        app, sender = self.transport, self.sender
        fetch = partial(
            download,
            reference,
            timeout=self.timeout,
            size=binary.size,
            limit=self.limit,
            base_url=app.url if app else None,
            server_address=app.server_address if app else None,
            sender=sender,
            cookies=cookies_of(app, sender),
            allow_private=self.allow_private,
            propagate=self.propagate,
            on_progress=on_download,
        )
        if isinstance(self.transport, Downloads):
            fetched = await self.transport.fetch_download(reference, staged, fetch)
        else:
            fetched = await fetch(staged)
        return replace(
            binary,
            mime_type=binary.mime_type or fetched.content_type,
            filename=binary.filename or fetched.filename,
        )

    def content_url(self, binary: BinaryData) -> str | None:
        """Return the absolute URL of content behind a ``downloadUrl``, else ``None``. It may hold credentials."""
        if not isinstance(binary.content, Download):
            return None
        base = self.sender.url if self.sender else self.transport.url if self.transport else None
        try:
            return urljoin(base or "", binary.content.url)
        except ValueError:  # http://[ and the like
            return binary.content.url

    async def release(self, binary: BinaryData | ABPError) -> None:
        """Tell the far side that it may drop content which it kept. Other content needs no release."""
        if self.transport is not None and isinstance(binary, BinaryData) and isinstance(binary.content, Handle):
            await self.transport.release(binary.content)


def _decode(binary: BinaryData, path: Path) -> None:
    """Write decoded content to a new file. It runs in one thread; the store measures and syncs the file meanwhile."""
    with path.open("xb", buffering=0) as file:
        for chunk in binary.chunks():
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) :]
