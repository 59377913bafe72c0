"""One bucket of an object store (S3, GCS, Azure), through ``obstore``: a few verbs, each with an end in time and with
our errors. ``obstore`` is imported here and nowhere else, when a bucket is first opened."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ...errors import StoreUnavailable, UsageError, first_line
from ...protocol.urls import is_loopback

if TYPE_CHECKING:
    from obstore.store import ObjectStore

__all__ = ["Bucket", "Listed"]

T = TypeVar("T")

_PART = 5 << 20  # bytes; the least that S3 takes. Larger content goes up in parts of this size, several at once
_PARTS = 9000  # S3 takes 10,000
_AT_ONCE = 4
_DAY = timedelta(days=1)
_LAST_WORDS = 0.2  # seconds
_REFUSALS = {
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "AccessDenied",
    "ExpiredToken",
    "InvalidToken",
    "401",
    "403",
}


class Listed(NamedTuple):
    """One object in a listing. ``key`` is below the store's prefix."""

    key: str
    size: int
    modified: datetime
    e_tag: str


class Bucket:
    """``url`` is ``s3://bucket/prefix`` (``gs://``, ``az://``…); credentials and the endpoint come from the usual
    environment variables (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``).

    ``timeout`` in seconds: a request, or one part of an upload, or a pause in a download may take that long in all,
    with its retries. Plain HTTP is refused but for an endpoint on this machine (or with ``AWS_ALLOW_HTTP``).

    Every method raises :class:`~transports.errors.StoreUnavailable`; :class:`FileNotFoundError` goes through. Raises
    :class:`~transports.errors.UsageError` if ``obstore`` is not installed or the URL or a variable makes no sense.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._obstore, open_url = _library()
        self._errors = self._obstore.exceptions
        self.url = url
        self._timeout = timeout
        half = timedelta(seconds=timeout / 2)
        options: dict[str, object] = {"connect_timeout": half}
        if _on_this_machine():
            options["allow_http"] = True
        retries = {"max_retries": 3, "retry_timeout": half, "backoff": {"max_backoff": timedelta(seconds=2)}}
        try:
            self._store = open_url(url, client_options={**options, "timeout": half}, retry_config=retries)
            # a download may take as long as it likes, while something arrives
            patient = {**options, "timeout": _DAY, "read_timeout": half}
            self._patient = open_url(url, client_options=patient, retry_config=retries)
        except (ValueError, self._errors.BaseError) as error:
            raise UsageError(f"cannot use {url}: {first_line(error)[:200]}") from None

    async def put(self, key: str, data: bytes | Path, mime_type: str) -> None:
        """Upload at once or not at all; a :class:`~pathlib.Path` is read piece by piece."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        part = max(_PART, size // _PARTS + 1)
        work = self._obstore.put_async(
            self._store,
            key,
            data,
            attributes={"Content-Type": mime_type, "Content-Disposition": "attachment"},
            chunk_size=part,
            max_concurrency=_AT_ONCE,
        )
        # each part has its own end; this one is for all of them, one after the other
        await self._within(work, f"store {key}", self._timeout * (1 + size // (part * _AT_ONCE)))

    async def get(self, key: str) -> bytes:
        """The whole of a small object."""

        async def work() -> bytes:
            result = await self._obstore.get_async(self._store, key)
            return bytes(await result.bytes_async())

        return await self._within(work(), f"read {key}", self._timeout)

    async def stream(self, key: str, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """The bytes ``start`` to ``end`` (exclusive; not none) in pieces of at most ``chunk_size``. A connection that
        breaks off is made again, and goes on where it was."""
        action = f"read {key}"
        asked = self._obstore.get_async(self._patient, key, options={"range": (start, end)})
        result = await self._within(asked, action, self._timeout)
        chunks: AsyncIterator[object] = aiter(result.stream(min_chunk_size=min(chunk_size, 1 << 20)))
        while True:
            try:
                chunk = memoryview(await self._within(anext(chunks), action, self._timeout))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
            for at in range(0, len(chunk), chunk_size):
                yield bytes(chunk[at : at + chunk_size])

    async def sign(self, key: str, seconds: float) -> str:
        """An address from which anybody can fetch the object for that time."""
        work = self._obstore.sign_async(self._store, "GET", key, timedelta(seconds=seconds))
        return str(await self._within(work, f"sign {key}", self._timeout))

    async def list(self, prefix: str) -> AsyncGenerator[Listed, None]:
        """Every object below ``prefix``."""
        pages = aiter(self._obstore.list(self._store, prefix, chunk_size=1000))
        while True:
            try:
                page = await self._within(anext(pages), f"list {prefix}", self._timeout)
            except StopAsyncIteration:
                return
            for one in page:
                yield Listed(one["path"], one["size"], one["last_modified"], one["e_tag"] or "")

    async def delete(self, key: str) -> None:
        """Remove an object, if it is there."""
        with suppress(FileNotFoundError):
            await self._within(self._obstore.delete_async(self._store, key), f"delete {key}", self._timeout)

    async def move(self, key: str, new: str) -> None:
        """Give an object another key."""
        await self._within(self._obstore.rename_async(self._store, key, new), f"move {key}", self._timeout)

    async def _within(self, work: Awaitable[T], action: str, seconds: float) -> T:
        with self._reporting(action):
            async with asyncio.timeout(seconds):
                return await work

    @contextmanager
    def _reporting(self, action: str) -> Iterator[None]:
        """The library's words are left out: a server's answer may quote the signed request."""
        try:
            yield
        except (self._errors.BaseError, TimeoutError, OSError) as error:
            reason = _reason(error)
            details = {"store": self.url, "reason": reason}
            if reason == "NoSuchBucket":
                raise StoreUnavailable(f"cannot {action}: there is no bucket for {self.url}", details=details) from None
            if isinstance(error, FileNotFoundError):
                raise
            refused = (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
            if isinstance(error, refused) or reason in _REFUSALS:
                raise StoreUnavailable(
                    f"cannot {action} in {self.url}: the server refused us ({reason}); check the credentials "
                    "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of your cloud) and what they may do",
                    details=details,
                ) from None
            raise StoreUnavailable(
                f"cannot {action} in {self.url}: the server gives no good answer ({reason}); try again, and check "
                "AWS_ENDPOINT_URL and the network",
                retryable=True,
                details=details,
            ) from None


@cache
def _last_words() -> None:
    """Its threads let go of our objects a moment after they have answered; in a Python that is ending by then they
    would abort the whole program."""
    atexit.register(time.sleep, _LAST_WORDS)


def _library() -> tuple[ModuleType, Callable[..., ObjectStore]]:
    try:
        import obstore
        import obstore.exceptions
        from obstore.store import from_url

        _last_words()
    except ImportError as error:
        raise UsageError(
            "object stores (s3://, gs://, az://) need a package more: pip install 'abp-transports[cloud]'"
        ) from error
    return obstore, from_url


def _on_this_machine() -> bool:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoint = next((os.environ[name] for name in names if os.environ.get(name)), "")
    try:
        return is_loopback(urlsplit(endpoint).hostname)
    except ValueError:
        return False


def _reason(error: BaseException) -> str:
    """What a server called the error, or its kind: a word without anything of the request."""
    text = str(error)
    named = re.search(r"<Code>(\w{1,64})</Code>", text) or re.search(r"status code: (\d{3})", text)
    if named:
        return named[1]
    return "timeout" if isinstance(error, TimeoutError) or "timed out" in text else "no connection"
