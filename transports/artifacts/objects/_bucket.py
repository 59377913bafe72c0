"""A bucket of an object store (S3, GCS, Azure) through ``obstore``, which is imported only when one is opened."""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ...errors import StoreUnavailable, UsageError, first_line
from ...protocol._plain_text import is_loopback

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

_REFUSALS = {
    "SignatureDoesNotMatch",
    "InvalidAccessKeyId",
    "AccessDenied",
    "ExpiredToken",
    "InvalidToken",
    "401",
    "403",
}


class ListedObject(NamedTuple):
    """An object in a listing. ``key`` is relative to the store's prefix; ``size`` is in bytes."""

    key: str
    size: int
    modified: datetime
    e_tag: str


class Bucket:
    """The objects below one prefix of a bucket.

    ``url`` is ``s3://bucket/prefix`` (``gs://``, ``az://``…). Credentials and the endpoint come from the usual
    environment variables (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``). ``timeout`` in seconds limits a request with its
    retries, one part of an upload, and a pause in a download. Plain HTTP is refused except for an endpoint on this
    machine, or with ``AWS_ALLOW_HTTP``.

    Every method raises :class:`~transports.errors.StoreUnavailable`, and :class:`FileNotFoundError` for a missing
    object. Making one raises :class:`~transports.errors.UsageError` if ``obstore`` is not installed or the URL or a
    variable is not valid.
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._obstore, open_url = _library()
        self._errors = self._obstore.exceptions
        self.url = url
        self._timeout = timeout
        # No retry starts after half of the time, and an attempt takes at most half: together `timeout`.
        half = timedelta(seconds=timeout / 2)
        retries = {"max_retries": 3, "retry_timeout": half, "backoff": {"max_backoff": timedelta(seconds=2)}}
        options: dict[str, object] = {"connect_timeout": half}
        if _endpoint_is_local():
            options["allow_http"] = True

        try:
            self._store = open_url(url, client_options={**options, "timeout": half}, retry_config=retries)
            # A download may take any time as long as bytes arrive.
            streaming = {**options, "timeout": timedelta(days=1), "read_timeout": half}
            self._streaming_store = open_url(url, client_options=streaming, retry_config=retries)
        except (ValueError, self._errors.BaseError) as error:
            raise UsageError(f"cannot use {url}: {first_line(error)[:200]}") from None

    async def put(self, key: str, data: bytes | Path, mime_type: str) -> str:
        """Upload an object, whole or not at all, and return its ETag ("" if the server has none). A
        :class:`~pathlib.Path` is read piece by piece."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        # S3 accepts parts of 5 MiB and more, and 10,000 of them.
        part_size = max(5 << 20, size // 9000 + 1)
        concurrency = 4
        request = self._obstore.put_async(
            self._store,
            key,
            data,
            attributes={"Content-Type": mime_type, "Content-Disposition": "attachment"},
            chunk_size=part_size,
            max_concurrency=concurrency,
        )
        # The library limits the time of each part. This is the limit of all parts, some at a time.
        rounds = 1 + size // (part_size * concurrency)
        answer = await self._call(request, f"store {key}", self._timeout * rounds)
        return answer["e_tag"] or ""

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return the content of a small object, and its ETag ("" if the server has none)."""

        async def read_object() -> tuple[bytes, str]:
            result = await self._obstore.get_async(self._store, key)
            return bytes(await result.bytes_async()), result.meta["e_tag"] or ""

        return await self._call(read_object(), f"read {key}", self._timeout)

    async def stream(self, key: str, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Stream the bytes ``start`` to ``end`` (exclusive, and greater than ``start``) in pieces of at most
        ``chunk_size`` bytes. A download that breaks off is resumed."""
        action = f"read {key}"
        request = self._obstore.get_async(self._streaming_store, key, options={"range": (start, end)})
        result = await self._call(request, action, self._timeout)
        chunks: AsyncIterator[object] = aiter(result.stream(min_chunk_size=min(chunk_size, 1 << 20)))
        while True:
            try:
                chunk = memoryview(await self._call(anext(chunks), action, self._timeout))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
            for position in range(0, len(chunk), chunk_size):
                yield bytes(chunk[position : position + chunk_size])

    async def sign(self, key: str, seconds: float) -> str:
        """Return a signed URL that gives any client the object for that many seconds."""
        request = self._obstore.sign_async(self._store, "GET", key, timedelta(seconds=seconds))
        return str(await self._call(request, f"sign {key}", self._timeout))

    async def list(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        """Yield every object below ``prefix``."""
        pages = aiter(self._obstore.list(self._store, prefix, chunk_size=1000))
        while True:
            try:
                page = await self._call(anext(pages), f"list {prefix}", self._timeout)
            except StopAsyncIteration:
                return
            for item in page:
                yield ListedObject(item["path"], item["size"], item["last_modified"], item["e_tag"] or "")

    async def delete(self, key: str) -> None:
        """Delete an object if it exists."""
        with suppress(FileNotFoundError):
            await self._call(self._obstore.delete_async(self._store, key), f"delete {key}", self._timeout)

    async def move(self, key: str, new: str) -> None:
        await self._call(self._obstore.rename_async(self._store, key, new), f"move {key}", self._timeout)

    async def _call(self, request: Awaitable[T], action: str, seconds: float) -> T:
        """Await a request for at most ``seconds``. Its errors are mapped without quoting the library's messages: a
        server's answer may contain the signed request."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except (self._errors.BaseError, TimeoutError, OSError) as error:
            reason = _reason(error)
            if isinstance(error, FileNotFoundError) and reason != "NoSuchBucket":
                raise
            raise self._unavailable(error, reason, action) from None

    def _unavailable(self, error: Exception, reason: str, action: str) -> StoreUnavailable:
        """Return the error of the store for a failed request, with advice by its ``reason``."""
        details = {"store": self.url, "reason": reason}
        if reason == "NoSuchBucket":
            return StoreUnavailable(f"cannot {action}: the bucket of {self.url} does not exist", details=details)

        refused = (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
        if isinstance(error, refused) or reason in _REFUSALS:
            return StoreUnavailable(
                f"cannot {action} in {self.url}: the server refused access ({reason}); check the credentials "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of your cloud) and their permissions",
                details=details,
            )
        return StoreUnavailable(
            f"cannot {action} in {self.url}: the server did not answer properly ({reason}); try again, and check "
            "AWS_ENDPOINT_URL and the network",
            retryable=True,
            details=details,
        )


@cache
def _outlive_threads() -> None:
    """Wait 0.2 s at exit: threads of the library release Python objects shortly after they have answered, which aborts
    an interpreter that is shutting down."""
    atexit.register(time.sleep, 0.2)


def _library() -> tuple[ModuleType, Callable[..., ObjectStore]]:
    """Return ``obstore`` and its function that opens a URL. Raises :class:`~transports.errors.UsageError` if it is not
    installed."""
    try:
        import obstore
        import obstore.exceptions
        from obstore.store import from_url

        _outlive_threads()
    except ImportError as error:
        raise UsageError(
            "object stores (s3://, gs://, az://) need an extra: pip install 'abp-transports[cloud]'"
        ) from error
    return obstore, from_url


def _endpoint_is_local() -> bool:
    """Return whether the configured endpoint is on this machine, so that plain HTTP is safe."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    endpoints = (os.environ.get(name) for name in names)
    endpoint = next(filter(None, endpoints), "")
    try:
        return is_loopback(urlsplit(endpoint).hostname)
    except ValueError:
        return False


def _reason(error: BaseException) -> str:
    """Return the server's error code, or the kind of the error: one or two words, without any text of the request."""
    text = str(error)
    named = re.search(r"<Code>(\w{1,64})</Code>", text) or re.search(r"status code: (\d{3})", text)
    if named:
        return named[1]
    if isinstance(error, TimeoutError) or "timed out" in text:
        return "timeout"
    return "no connection"
