"""Downloads into a real store, as a session makes them: the download under test and what it needs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from transports.artifacts import ArtifactRef, LocalStore, PutOptions, Staged
from transports.base import Fetched
from transports.errors import ABPError
from transports.protocol.binary import Download
from transports.routing.http._downloads import download
from transports.routing.http._request import DownloadRequest

#: Requests at most: the first and three retries.
REQUESTS = 4
#: Unix seconds of the clock that the tests hold.
NOW = 1_760_000_000.0
LIMIT = 1 << 20
TOKEN = "s3cr3t-t0ken"


@dataclass
class Got:
    fetched: Fetched
    data: bytes
    resets: int


class Counting(Staged):
    """The real staged file, with its restarts counted."""

    def __init__(self, inner: Staged) -> None:
        self.inner, self.resets = inner, 0

    @property
    def path(self) -> Path:
        return self.inner.path

    @property
    def size(self) -> int:
        return self.inner.size

    async def write(self, chunk: bytes | memoryview) -> None:
        await self.inner.write(chunk)

    async def reset(self) -> None:
        self.resets += 1
        await self.inner.reset()

    async def commit(self, **options: Unpack[PutOptions]) -> ArtifactRef:
        return await self.inner.commit(size=options.get("size"))


class Get:
    """``download`` into the real store; what was staged is committed, as its caller would."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder)
        self.staged: Staged | None = None
        self.received = 0

    async def __call__(self, reference: str | Download, *, timeout: float = 5.0, **options: Any) -> Got:
        """``options`` are those of a :class:`DownloadRequest`."""
        defaults: dict[str, Any] = {
            "reference": Download(reference) if isinstance(reference, str) else reference,
            "limit": LIMIT,
            "allow_private": True,
            "stall_timeout": 2.0,
            "clock": lambda: NOW,
        }
        request = DownloadRequest(**(defaults | options))
        async with self.store.stage() as inner:
            staged = Counting(inner)
            try:
                fetched = await download(request, staged, timeout=timeout)
            finally:
                self.received = staged.size
            ref = await staged.commit(size=request.size)
        return Got(fetched, await self.store.get(ref), staged.resets)


def clean(error: ABPError, *secrets: str) -> None:
    """No secret in anything an error shows, also not in the traceback that a log would hold."""
    import traceback

    text = "".join(traceback.format_exception(error)) + repr(error.as_dict())
    assert not [secret for secret in secrets if secret in text], text


def with_auth(url: str) -> Download:
    return Download(url, headers={"Authorization": f"Bearer {TOKEN}", "X-API-Key": TOKEN}, query={"token": TOKEN})
