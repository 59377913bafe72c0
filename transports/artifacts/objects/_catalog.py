"""A bucket, and catalogs of the artifacts in it, by listing the metadata objects or by an index.

:class:`Bucket` is an object store (S3, GCS, Azure) through ``obstore``, which is imported only when one is opened. The
metadata objects in it stay the truth. :class:`Catalog` lists them for every query; :class:`IndexedCatalog` answers
queries from a :class:`~._index.StoreIndex`, which it builds, keeps up to date and repairs.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from ..._internal.recent import Recent
from ...errors import Corrupt, StoreUnavailable, UsageError, first_line
from ...protocol._plain_text import is_loopback, origin_of
from .._ref import ID, Metadata, Query, ReindexReport, Scope, age_key, damaged_metadata
from .._retention import Entry, Retention
from ._index import Indexed, NotBuilt, StoreIndex

if TYPE_CHECKING:
    from obstore.store import ObjectStore

logger = logging.getLogger("transports.artifacts")

T = TypeVar("T")
_UNINDEXED = "unindexed/"


@dataclass(frozen=True, slots=True)
class Limits:
    """Times of an index in seconds, and the size of its pages."""

    #: Time between two searches for changes that the index lacks; also the age of a change that is looked up.
    interval: float = 60.0
    #: Time after which the writer of an announced change has ended for certain.
    given_up: float = 900.0
    #: Number of artifacts that are read at once for a full listing.
    page: int = 5000


LIMITS = Limits()


# --- the bucket -------------------------------------------------------------------------------------------------------

#: What the library asks for credentials if no variable has them: a file, or services of clouds.
_CREDENTIALS_SOURCE = re.compile(r"token file|://169\.254\.|/latest/(api|meta-data)/|/computeMetadata/")
_REFUSAL_CODES = {
    "AuthorizationHeaderMalformed",
    "PermanentRedirect",
    "RequestTimeTooSkewed",
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
    """The objects below one prefix of a bucket (``s3://bucket/prefix``, ``gs://``, ``az://``…).

    Credentials and the endpoint come from the usual environment variables. ``timeout`` in seconds limits a request with
    its retries, one part of an upload, and a pause in a download. Plain HTTP is refused except for an endpoint on this
    machine, or with ``AWS_ALLOW_HTTP``. Every method raises :class:`~transports.errors.StoreUnavailable`, and
    :class:`FileNotFoundError` for a missing object."""

    def __init__(self, url: str, timeout: float) -> None:
        options: dict[str, object] = {}
        if url.lower().startswith(("s3:", "s3a:")):
            _require_usable_variables()
            # With options, the library does not read AWS_ALLOW_HTTP itself.
            options["allow_http"] = _http_is_allowed()
        self._obstore, open_url = _import_obstore()
        self._errors = self._obstore.exceptions
        self.url = url
        self._timeout = timeout
        # No retry starts after half of `timeout`, and an attempt takes at most the other half.
        half = timedelta(seconds=timeout / 2)
        retries = {"retry_timeout": half, "backoff": {"max_backoff": timedelta(seconds=2)}}
        options["connect_timeout"] = half

        try:
            self._store = open_url(url, client_options={**options, "timeout": half}, retry_config=retries)
            # A download may take any time as long as bytes arrive.
            streaming = {**options, "timeout": timedelta(days=1), "read_timeout": half}
            self._streaming_store = open_url(url, client_options=streaming, retry_config=retries)
        except (ValueError, self._errors.BaseError) as error:
            raise UsageError(f"cannot use {url}: {first_line(error)[:200]}") from None

    async def put(self, key: str, data: bytes | Path, mime_type: str) -> str:
        """Upload an object, whole or not at all, and return its ETag ("" if the server has none)."""
        size = len(data) if isinstance(data, bytes) else data.stat().st_size
        # S3 accepts parts of 5 MiB and more, at most 10,000.
        min_part_size, max_parts = 5 << 20, 9000
        part_size = max(min_part_size, size // max_parts + 1)
        concurrency = 4
        request = self._obstore.put_async(
            self._store,
            key,
            data,
            attributes={"Content-Type": mime_type, "Content-Disposition": "attachment"},
            chunk_size=part_size,
            max_concurrency=concurrency,
        )
        # The library limits the time of each part. Allow that time for each round of parts that are sent together.
        rounds = 1 + size // (part_size * concurrency)
        answer = await self._run_request(request, f"store {key}", self._timeout * rounds)
        return answer["e_tag"] or ""

    async def get(self, key: str) -> tuple[bytes, str]:
        """Return the content of a small object, and its ETag ("" if the server has none)."""

        async def read_object() -> tuple[bytes, str]:
            result = await self._obstore.get_async(self._store, key)
            return bytes(await result.bytes_async()), result.meta["e_tag"] or ""

        return await self._run_request(read_object(), f"read {key}", self._timeout)

    async def stream(self, key: str, start: int, end: int, chunk_size: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes ``start`` to ``end`` (exclusive, and greater). A download that breaks off is resumed."""
        action = f"read {key}"
        request = self._obstore.get_async(self._streaming_store, key, options={"range": (start, end)})
        result = await self._run_request(request, action, self._timeout)
        chunks: AsyncIterator[object] = aiter(result.stream(min_chunk_size=min(chunk_size, 1 << 20)))
        while True:
            try:
                chunk = memoryview(await self._run_request(anext(chunks), action, self._timeout))  # type: ignore[arg-type]
            except StopAsyncIteration:
                return
            for position in range(0, len(chunk), chunk_size):
                yield bytes(chunk[position : position + chunk_size])

    async def sign(self, key: str, seconds: float) -> str:
        request = self._obstore.sign_async(self._store, "GET", key, timedelta(seconds=seconds))
        return str(await self._run_request(request, f"sign {key}", self._timeout))

    async def list(self, prefix: str) -> AsyncGenerator[ListedObject, None]:
        pages = aiter(self._obstore.list(self._store, prefix, chunk_size=1000))
        while True:
            try:
                page = await self._run_request(anext(pages), f"list {prefix}", self._timeout)
            except StopAsyncIteration:
                return
            for item in page:
                yield ListedObject(item["path"], item["size"], item["last_modified"], item["e_tag"] or "")

    async def delete(self, key: str) -> None:
        with suppress(FileNotFoundError):
            await self._run_request(self._obstore.delete_async(self._store, key), f"delete {key}", self._timeout)

    async def move(self, key: str, new: str) -> None:
        await self._run_request(self._obstore.rename_async(self._store, key, new), f"move {key}", self._timeout)

    async def _run_request(self, request: Awaitable[T], action: str, seconds: float) -> T:
        """Await a request, and raise our errors for its errors. They do not quote the library: a server's answer may
        contain the signed request."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except StopAsyncIteration:
            raise
        except Exception as error:
            # Catch every exception: the library raises its panics as one without a name.
            reason = _failure_reason(error)
            if isinstance(error, FileNotFoundError) and reason != "NoSuchBucket":
                raise
            raise self._unavailable_error(error, reason, action) from None

    def _unavailable_error(self, error: Exception, reason: str, action: str) -> StoreUnavailable:
        details = {"store": self.url, "reason": reason}
        if reason == "NoSuchBucket":
            return StoreUnavailable(f"cannot {action}: the bucket of {self.url} does not exist", details=details)

        if reason == "no credentials":
            return StoreUnavailable(
                f"cannot {action} in {self.url}: no credentials were found; set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or the variables of your cloud (profiles in ~/.aws are not read)",
                retryable=True,
                details=details,
            )
        refusal_errors = (self._errors.PermissionDeniedError, self._errors.UnauthenticatedError)
        if isinstance(error, refusal_errors) or reason in _REFUSAL_CODES:
            return StoreUnavailable(
                f"cannot {action} in {self.url}: the server refused access ({reason}); check the credentials "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or those of your cloud), their permissions, AWS_REGION "
                "and the clock of this machine",
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


def _import_obstore() -> tuple[ModuleType, Callable[..., ObjectStore]]:
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


#: Variables of the endpoint. The library takes the first that is set.
_ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_CREDENTIAL_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
)


def _require_usable_variables() -> None:
    """Refuse values with which every request of the library would panic, such as a key with a line end."""
    for name in _CREDENTIAL_VARIABLES:
        value = os.environ.get(name, "")
        if not value.isprintable() or value != value.strip():
            raise UsageError(f"{name} has a space or a line end that is not part of it; remove it")

    # If the first variable is set, even to nothing, the library reads no other.
    first, *others = _ENDPOINT_VARIABLES
    names = [first] if first in os.environ else others
    for name in names:
        address = os.environ.get(name)
        if address is not None and not _is_http_address(address):
            raise UsageError(f"{name} is not an address such as https://host:9000; correct it, or unset it")


def _is_http_address(text: str) -> bool:
    has_scheme = text.lower().startswith(("http://", "https://"))
    return has_scheme and text == text.strip() and origin_of(text) is not None


def _http_is_allowed() -> bool:
    """Return whether the endpoint may be reached by plain HTTP. Refuse an endpoint that must not be, but is."""
    variable = next((name for name in _ENDPOINT_VARIABLES if os.environ.get(name)), "")
    endpoint = os.environ.get(variable, "")
    if is_loopback(urlsplit(endpoint).hostname):
        return True

    is_allowed = os.environ.get("AWS_ALLOW_HTTP", "").strip().lower() in ("1", "true", "on", "yes", "y")
    if endpoint.lower().startswith("http:") and not is_allowed:
        raise UsageError(
            f"{variable} leads to another machine by plain http:, where others could read or change the files; "
            "use https:, or set AWS_ALLOW_HTTP=true in a network that you trust"
        )
    return is_allowed


def _failure_reason(error: BaseException) -> str:
    """Return the server's error code, or the kind of the error: one or two words, without any text of the request."""
    text = str(error)
    if _CREDENTIALS_SOURCE.search(text):
        return "no credentials"
    match = re.search(r"<Code>(\w{1,64})</Code>", text) or re.search(r"status code: (\d{3})", text)
    if match:
        return match[1]
    if isinstance(error, TimeoutError) or "timed out" in text:
        return "timeout"
    if "configured region" in text:
        return "PermanentRedirect"
    return "no connection"


# --- its artifacts ----------------------------------------------------------------------------------------------------


class Catalog:
    """The metadata objects of one store. They are the truth: writing or removing one is the commit."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        #: Metadata that was read, with its ETag; and the time of the last use of each artifact.
        self._metadata: dict[str, Indexed] = {}
        self._used: dict[str, float] = {}

    async def aclose(self) -> None: ...

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def load(self, key: str) -> Metadata | None:
        record = await self._read_object(key)
        if record is None:
            self._metadata.pop(key, None)
            return None
        self._remember_metadata(record)
        return record.metadata

    async def content_of(self, key: str) -> str | None:
        """Return the key of the content of an artifact, as it was when the metadata was read last."""
        if key in self._metadata:
            return self._metadata[key].metadata.blob
        metadata = await self.load(key)
        return metadata.blob if metadata else None

    async def write(self, metadata: Metadata) -> None:
        self._remember_metadata(await self._write_object(metadata))
        self._used[metadata.id] = metadata.stored

    async def remove(self, key: str) -> None:
        await self._bucket.delete(f"meta/{key}.json")
        self._metadata.pop(key, None)
        self._used.pop(key, None)

    async def repair_entry(self, key: str) -> None:
        """Repair the entry of an artifact that turned out to differ from the result of a query."""

    async def touch(self, key: str) -> None:
        self._used[key] = time.time()

    async def _write_object(self, metadata: Metadata) -> Indexed:
        e_tag = await self._bucket.put(f"meta/{metadata.id}.json", metadata.encode(), "application/json")
        return Indexed(metadata, e_tag)

    async def _read_object(self, key: str) -> Indexed | None:
        try:
            data, e_tag = await self._bucket.get(f"meta/{key}.json")
            return Indexed(Metadata.decode(data, key), e_tag)
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise damaged_metadata(key, error) from error

    def _remember_metadata(self, record: Indexed) -> None:
        self._metadata[record.metadata.id] = record

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all_metadata(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        """Return the metadata that ``scope`` covers, the oldest first. Add ids of unreadable metadata to
        ``unreadable``."""
        visible: list[Metadata] = []
        async for page in self._list_pages():
            # An object is read again only if its ETag has changed.
            changed = [key for key, e_tag in page.items() if not self._is_current(key, e_tag)]
            records = await self._read_all(changed, unreadable)
            for key in changed:
                self._metadata.pop(key, None)
            for record in records:
                self._remember_metadata(record)

            for key in page:
                current = self._metadata.get(key)
                if current and scope.covers(current.metadata.scope):
                    visible.append(current.metadata)
        return sorted(visible, key=age_key)

    def _is_current(self, key: str, e_tag: str) -> bool:
        """Return whether the remembered metadata has this ETag. Servers without ETags send an empty text."""
        record = self._metadata.get(key)
        return record is not None and e_tag != "" and record.e_tag == e_tag

    async def entries(self, scope: Scope) -> list[Entry]:
        entries = []
        for metadata in await self.all_metadata(scope):
            used = max(metadata.stored, self._used.get(metadata.id, 0.0))
            entries.append(Entry(metadata.id, metadata.size_bytes, metadata.stored, used, metadata.scope))
        return entries

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        return await self.entries(scope)

    async def find_page(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None] | None:
        """Return one page, the newest first, and the cursor of the next one; ``None`` without an index."""
        return None

    async def change_token(self) -> int | None:
        """Return a number that differs after every change; ``None`` without an index."""
        return None

    async def compare(self) -> ReindexReport:
        """Compare the index, if there is one, with all metadata objects, and correct it."""
        unreadable: list[str] = []
        readable = await self.all_metadata(Scope(), unreadable)
        return ReindexReport(len(readable), (), tuple(unreadable))

    async def contents(self) -> set[str]:
        return {metadata.blob for metadata in await self.all_metadata(Scope())}

    async def _list_pages(self) -> AsyncIterator[dict[str, str]]:
        """Yield the ETags of the metadata objects in the bucket by their ids, a page at a time."""
        page_size = 1000
        page: dict[str, str] = {}
        async for item in self._bucket.list("meta/"):
            key = item.key.rpartition("/")[2].removesuffix(".json")
            if ID.fullmatch(key):
                page[key] = item.e_tag
            if len(page) == page_size:
                yield page
                page = {}
        yield page

    async def _read_all(self, keys: Iterable[str], unreadable: list[str] | None = None) -> list[Indexed]:
        """Read metadata objects, some at a time. Ids of unreadable objects are added to ``unreadable``."""
        max_at_once = 16
        slots = asyncio.Semaphore(max_at_once)

        async def read_if_valid(key: str) -> Indexed | None:
            async with slots:
                try:
                    return await self._read_object(key)
                except Corrupt as error:
                    logger.warning("%s", error.message)
                    if unreadable is not None:
                        unreadable.append(key)
                    return None

        records = await asyncio.gather(*map(read_if_valid, keys))
        return [record for record in records if record]


class IndexedCatalog(Catalog):
    """A catalog with an index. Reading, storing and removing one artifact depend on the metadata objects alone.

    A change is announced in the index before it is made and settled after it. A change that was announced but not
    settled, because its writer died or the index could not be reached, is looked up in the bucket by the next query
    over all artifacts, a minute later at most. A change that could not even be announced is noted in the bucket as
    ``unindexed/<id>``. The index may therefore be lost at any time: the first query builds a new one."""

    def __init__(self, bucket: Bucket, index: StoreIndex) -> None:
        super().__init__(bucket)
        self._metadata = Recent(10_000)
        self._index = index
        #: Time of the last search for changes that the index lacks (monotonic).
        self._caught_up = -LIMITS.interval
        self._catching_up = asyncio.Lock()
        #: Ids of changes that did not reach the index.
        self._missed: set[str] = set()

    async def aclose(self) -> None:
        await self._index.aclose()

    # --- one artifact -------------------------------------------------------------------------------------------------

    async def write(self, metadata: Metadata) -> None:
        announcement = await self._announce_change(metadata.id)
        record = await self._write_object(metadata)
        self._remember_metadata(record)
        await self._update_index(metadata.id, self._index.put(record, announcement))

    async def remove(self, key: str) -> None:
        announcement = await self._announce_change(key)
        await super().remove(key)
        await self._update_index(key, self._index.remove(key, announcement))

    async def repair_entry(self, key: str) -> None:
        await self._correct_rows([key], even_if_equal=True)

    async def touch(self, key: str) -> None:
        with suppress(StoreUnavailable):
            await self._index.touch(key)

    async def _announce_change(self, key: str) -> int:
        """Announce a change and return the number of the announcement; 0 if the index could not be reached."""
        announcement = await self._update_index(key, self._index.announce(key))
        if announcement is None:
            await self._bucket.put(f"{_UNINDEXED}{key}", b"", "text/plain")
        return announcement or 0

    async def _update_index(self, key: str, work: Awaitable[T]) -> T | None:
        """Await ``work`` on the index; return ``None`` and remember ``key`` if the index cannot be reached."""
        try:
            return await work
        except StoreUnavailable as error:
            # Log this once, not with every artifact.
            if not self._missed:
                logger.warning("%s. Artifacts are still stored, and are listed once it is back", error.message)
            self._missed.add(key)
            return None

    # --- all artifacts ------------------------------------------------------------------------------------------------

    async def all_metadata(self, scope: Scope, unreadable: list[str] | None = None) -> list[Metadata]:
        newest_first: list[Metadata] = []
        cursor: str | None = None
        while True:
            page, cursor = await self.find_page(scope, Query(limit=LIMITS.page, cursor=cursor))
            newest_first += page
            if cursor is None:
                return newest_first[::-1]

    async def find_page(self, scope: Scope, query: Query) -> tuple[Sequence[Metadata], str | None]:
        return await self._query_index(lambda: self._index.find_page(scope, query))

    async def entries(self, scope: Scope) -> list[Entry]:
        return await self._query_index(lambda: self._index.entries(scope))

    async def candidates(self, scope: Scope, policy: Retention) -> list[Entry]:
        return await self._query_index(lambda: self._index.candidates(scope, policy))

    async def change_token(self) -> int:
        return await self._query_index(self._index.change_token)

    async def compare(self) -> ReindexReport:
        """Correct the index. An object is read only if its ETag differs or its row cannot be read."""
        number, was_built = await self._index.state()
        unreadable: list[str] = []
        listed_ids, wrong_ids = await self._compare_objects(unreadable)
        wrong_ids += await self._compare_rows(listed_ids, unreadable)
        # An index that is recreated meanwhile has another number, and is not marked.
        await self._index.mark_built(number)
        corrected = wrong_ids if was_built else []
        return ReindexReport(len(listed_ids), tuple(corrected), tuple(unreadable))

    async def _compare_objects(self, unreadable: list[str]) -> tuple[set[str], list[str]]:
        """Correct the rows whose ETag is not that of their object. Return the ids of all objects, and the corrected."""
        listed_ids: set[str] = set()
        wrong_ids: list[str] = []
        async for page in self._list_pages():
            e_tags = await self._index.e_tags(page.keys())
            changed = [key for key, e_tag in page.items() if not e_tag or e_tags.get(key) != e_tag]
            records = await self._read_all(changed, unreadable)
            read_ids = {record.metadata.id for record in records}
            missing = [key for key in changed if key not in read_ids]
            await self._index.apply_differences(records, missing, e_tags)
            wrong_ids += [record.metadata.id for record in records if e_tags.get(record.metadata.id) != record.e_tag]
            listed_ids.update(page)
        return listed_ids, wrong_ids

    async def _compare_rows(self, listed: Container[str], unreadable: list[str]) -> list[str]:
        """Correct the rows without an object among the ``listed``, or without readable metadata. Return their ids."""
        wrong_ids: list[str] = []
        async for rows in self._index.keys():
            unlisted = [key for key in rows if key not in listed]
            without_object = await self._correct_rows(unlisted)
            # A row that lost its metadata may have kept its ETag.
            damaged = [key for key, is_readable in rows.items() if key in listed and not is_readable]
            await self._correct_rows(damaged, even_if_equal=True, unreadable=unreadable)
            wrong_ids += [*without_object, *damaged]
        return wrong_ids

    async def _correct_rows(
        self, keys: Sequence[str], *, even_if_equal: bool = False, unreadable: list[str] | None = None
    ) -> list[str]:
        """Correct the rows whose ETags differ from those of their objects, or all of them ``even_if_equal``. Return the
        ids without an object. Ids whose object cannot be read are added to ``unreadable``."""
        gone: list[str] = []
        for start in range(0, len(keys), LIMITS.page):
            part = keys[start : start + LIMITS.page]
            e_tags = await self._index.e_tags(part)
            records = await self._read_all(part, unreadable)
            read_ids = {record.metadata.id for record in records}
            missing = [key for key in part if key not in read_ids]
            gone += missing

            changed = records
            if not even_if_equal:
                # Without an ETag of the object, nothing can be compared.
                changed = [
                    record for record in records if not record.e_tag or e_tags.get(record.metadata.id) != record.e_tag
                ]
            await self._index.apply_differences(changed, missing, e_tags)
        return gone

    async def _query_index(self, query: Callable[[], Awaitable[T]]) -> T:
        """Bring the index up to date and answer a query from it. An index that was lost meanwhile is rebuilt."""
        max_attempts = 3
        for _ in range(max_attempts):
            await self._catch_up()
            try:
                return await query()
            except NotBuilt:
                self._caught_up = -LIMITS.interval
        raise StoreUnavailable("the index keeps disappearing; find out what deletes it, and try again", retryable=True)

    async def _catch_up(self) -> None:
        """Add the changes that the index may lack: every minute, and at once after a failed change."""
        if not self._is_due():
            return
        async with self._catching_up:
            # Another task may have done this while this one waited.
            if not self._is_due():
                return

            started = time.monotonic()
            missed = list(self._missed)
            _, is_built = await self._index.state()
            if not is_built:
                logger.info("the index of %s is built from its metadata, which takes a while", self._bucket.url)
                await self.compare()

            unsettled = await self._index.unsettled_ids(LIMITS.interval)
            await self._correct_rows([*missed, *unsettled])
            await self._index.drop_old_announcements(LIMITS.given_up)
            await self._correct_noted_changes()
            self._caught_up = started
            self._missed.difference_update(missed)

    async def _correct_noted_changes(self) -> None:
        """Correct the rows of changes that other machines noted in the bucket, and remove the old notes."""
        notes = [note async for note in self._bucket.list(_UNINDEXED)]
        await self._correct_rows([note.key.removeprefix(_UNINDEXED) for note in notes])
        for note in notes:
            if time.time() - note.modified.timestamp() > LIMITS.given_up:
                await self._bucket.delete(note.key)

    def _is_due(self) -> bool:
        return bool(self._missed) or time.monotonic() - self._caught_up >= LIMITS.interval
