"""Measuring, verifying and describing content before it is stored."""

from __future__ import annotations

import codecs
import hashlib
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event, Thread
from typing import Literal, TypeAlias, TypedDict, Unpack

from .._internal.masking import NO_SECRETS, map_texts
from .._internal.redaction import Redactor
from ..errors import ABPError, StoreError, TooLarge, UsageError
from ..protocol._heuristics import loss_by_decoding
from ..protocol._media import (
    HEAD_BYTES,
    MARKUP,
    OCTET_STREAM,
    contradicts,
    extension_for,
    is_binary_mime,
    normalise_mime,
    safe_filename,
    sniff,
    text_type_of_name,
    type_of_extension,
)
from ..protocol._plain_text import redact_url
from ..protocol._strict_json import decode_json, encode_json, items_of
from ..protocol._times import iso_utc
from ..protocol.binary import verify_size
from ._files import PIECE, read_at, sync_data

logger = logging.getLogger("transports.artifacts")

#: The head of the id of content without a namespace.
NO_NAMESPACE = "artifact"
_JSON_START = re.compile(rb'\s*(?:\{\s*["}]|\[\s*\{)')
#: Bytes between two syncs to the disk, so that the last sync has little to do.
_SYNC_EVERY = 16 << 20
#: Redactor without known values: the session itself masks the secret values of its user.
REDACTOR = Redactor(secrets=NO_SECRETS)


def too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the content is over the limit of {limit:,} bytes; to keep it, raise ABP_MAX_ARTIFACT_BYTES (max_bytes=)",
        details={"limit": limit},
    )


def as_bytes(chunk: bytes | memoryview) -> memoryview:
    """Return a view of single bytes; of a copy, if the chunk is not contiguous in memory."""
    view = memoryview(chunk)
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())


def encode_text(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text cannot be written as UTF-8: {error.reason} at {error.start}") from error


class Meter:
    """Running measurement of content: its size, its SHA-256 and its ``head``, enough to recognise every signature."""

    __slots__ = ("_digest", "head", "limit", "size")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.head = b""
        self._digest = hashlib.sha256()

    def add(self, chunk: memoryview) -> None:
        if self.size + len(chunk) > self.limit:
            raise too_large(self.limit)
        missing = HEAD_BYTES - len(self.head)
        if missing > 0:
            self.head += chunk[:missing]
        self.size += len(chunk)
        self._digest.update(chunk)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


def measure_file(
    fd: int,
    limit: int,
    partial_meter: Meter | None = None,
    store: Callable[[memoryview], object] = lambda _: None,
) -> Meter:
    """Measure an open file. ``partial_meter`` has measured its beginning already; ``store`` gets each later piece."""
    first_status = os.fstat(fd)
    if not stat.S_ISREG(first_status.st_mode):
        raise StoreError("the staged file is not a regular file; nothing was stored")
    if first_status.st_size > limit:
        raise too_large(limit)

    meter = partial_meter or Meter(limit)
    while content := memoryview(read_at(fd, PIECE, meter.size)):
        meter.add(content)
        store(content)

    last_status = os.fstat(fd)
    if last_status.st_size != meter.size or last_status.st_mtime_ns != first_status.st_mtime_ns:
        raise StoreError("the staged file changed while it was read; commit it when its writer has finished")
    return meter


def clean_namespace(namespace: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", namespace[:256]).lstrip("-")[:64]
    return name if name.strip("_-") else NO_NAMESPACE


Durability: TypeAlias = Literal["process", "disk"]
"""Durability of stored content: it survives the death of the process (``process``) or a power cut too (``disk``)."""


class PutOptions(TypedDict, total=False):
    """The keyword arguments of the ``put_…`` methods; see :meth:`Staged.commit`."""

    size: int | None
    mime_type: str | None
    filename: str | None
    namespace: str | None
    meta: Mapping[str, object] | None
    durability: Durability


@dataclass(frozen=True, slots=True)
class Description:
    """What is known of content before it is stored. ``head`` is its beginning (:class:`Meter`). ``name`` is a safe file
    name; ``suggested`` is true if the caller suggested it. ``source`` holds JSON values only."""

    size: int
    sha256: str
    head: bytes
    namespace: str
    mime_type: str
    name: str
    suggested: bool
    source: dict[str, object]
    durability: Durability = "disk"


def describe(meter: Meter, *, now: float | None = None, **options: Unpack[PutOptions]) -> Description:
    """Verify the size of content and decide on its MIME type and file name. ``now`` is its time of creation, in Unix
    seconds.

    The declared type is used unless the first bytes prove another type, which then replaces it, with a line in
    ``source["warnings"]``. If the type is neither declared nor proven, that of a text comes from the extension of its
    name."""
    declared_size = options.get("size")
    verify_size(declared_size, meter.size)
    if now is None:
        now = time.time()

    filename = options.get("filename")
    stated_type = options.get("mime_type")
    declared = normalise_mime(stated_type)
    sniffed = sniff(meter.head)
    warning = ""
    if declared and sniffed and contradicts(declared, sniffed):
        mime_type = sniffed
        warning = f"declared as {declared}, but the content is {sniffed}; stored as {sniffed}"
    else:
        head_is_whole = meter.size == len(meter.head)
        mime_type = declared or sniffed or text_type_of_name(filename, meter.head, whole=head_is_whole) or OCTET_STREAM
        warning = _content_warning(meter, declared, sniffed, filename)
        if not warning and stated_type and declared is None:
            warning = f"declared as {stated_type[:60]!r}, which is not a MIME type; stored as {mime_type}"

    source = readable_copy(options.get("meta")) | {
        "created": iso_utc(now),
        "declared_mime_type": declared,
        "sniffed_mime_type": sniffed,
        "verified": declared_size is not None,
    }
    if warning:
        source["warnings"] = [*items_of(source.get("warnings")), warning]

    namespace = clean_namespace(options.get("namespace") or NO_NAMESPACE)
    milliseconds = int(now * 1000)
    generated_stem = f"{namespace}_{milliseconds}"
    if filename:
        name = safe_filename(filename, fallback=generated_stem, mime_type=mime_type)
    else:
        name = generated_stem + extension_for(mime_type)
    # If nothing of a suggested name is safe, the generated name has replaced it.
    suggested = name.rpartition(".")[0] != generated_stem

    return Description(
        size=meter.size,
        sha256=meter.sha256,
        head=meter.head,
        namespace=namespace,
        mime_type=mime_type,
        name=name,
        suggested=suggested,
        source=source,
        durability=options.get("durability", "disk"),
    )


def _content_warning(meter: Meter, declared: str | None, sniffed: str | None, filename: str | None) -> str:
    """Return a warning if content cannot be the file that its type or its name promises, else an empty text."""
    loss = loss_by_decoding(_head_as_text(meter.head))
    if loss is not None:
        return f"the content is {loss}"

    expected = declared or type_of_extension((filename or "").rpartition(".")[2])
    if expected is None:
        return ""

    promise = f"declared as {declared}" if declared else f"named as {expected}"
    if sniffed in MARKUP and not _may_be_markup(expected):
        return f"{promise}, but the content is {sniffed}"
    is_known_binary = is_binary_mime(expected) and extension_for(expected) != ".bin"
    if is_known_binary and meter.size == 0:
        return f"{promise}, but the content is empty"
    if is_known_binary and sniffed is None and _JSON_START.match(meter.head):
        return f"{promise}, but the content is JSON; it may be an error message"
    return ""


def _may_be_markup(mime_type: str) -> bool:
    # Some programs write tables and letters in HTML under the names of old Office files, and Office opens them.
    is_old_office = not contradicts(mime_type, "application/x-ole-storage")
    return is_old_office or (mime_type != "text/csv" and not contradicts(mime_type, "text/html"))


def _head_as_text(head: bytes) -> str:
    """Return the head as text if it is UTF-8 and has U+FFFD, the mark of a loss by decoding; else an empty text."""
    if "\ufffd".encode() not in head:
        return ""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return ""


def readable_copy(meta: Mapping[str, object] | None) -> dict[str, object]:
    """Return a copy of ``meta`` without credentials and content, for models to read."""
    if not meta:
        return {}
    try:
        values = decode_json(encode_json(dict(meta)))
        copy = map_texts(REDACTOR.redact_tree(values), _shorten_text)
        size = len(encode_json(copy))
    except (TypeError, ValueError, ABPError) as error:
        raise UsageError(f"meta must hold JSON values only: {error}") from error

    assert isinstance(copy, dict)
    max_bytes = 32 << 10
    if size > max_bytes:
        return {"warnings": [f"meta had {size:,} bytes of JSON and was left out"]}
    return copy


def _shorten_text(text: str) -> str:
    """Return a text cut at 1,000 characters, without base64, tokens and the queries of URLs."""
    if "://" in text[:40] or text[:5].lower() == "data:":
        text = redact_url(text)
    text = re.sub(r"[A-Za-z0-9+/=_-]{100,}", "…", text)
    max_chars = 1000
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


class Follower:
    """A thread that measures a file while another program appends to it; :meth:`stop` ends the thread.

    ``open_file()`` returns a descriptor, or -1 while there is no file. The caller passes the measurement to
    :func:`measure_file`, which reads the rest. A file that shrank, or another one in its place, is read from its start.
    Without this, storing 64 MB from a page takes 10 to 47 % longer (docs/performance.md)."""

    def __init__(self, open_file: Callable[[], int], limit: int) -> None:
        self._open_file = open_file
        self._limit = limit
        self._fd = -1
        self._meter = Meter(limit)
        self._synced = 0
        self._sync_error: OSError | None = None
        self._stopping = Event()
        # A separate thread, because the writers of the file need the threads of the pool.
        self._thread = Thread(target=self._follow_file, name="abp-follow", daemon=True)
        self._thread.start()

    def _follow_file(self) -> None:
        shortest_wait, longest_wait = 0.001, 0.01
        wait = shortest_wait
        try:
            while not self._stopping.wait(wait):
                if self._read_new_bytes():
                    wait = shortest_wait
                else:
                    wait = min(2 * wait, longest_wait)
                self._sync_if_due()
        except (ABPError, OSError):
            # measure_file() reads the file again, and reports what is wrong with it.
            pass
        except Exception:
            logger.exception("a file could not be measured while it was written; it is read again")
            # The meter may have counted half of a piece, so begin with a new one.
            self._meter = Meter(self._limit)

    def _read_new_bytes(self) -> bool:
        """Measure what was appended to the file. Return whether there was anything."""
        if self._fd < 0:
            self._fd = self._open_file()
            if self._fd < 0:
                return False

        status = os.fstat(self._fd)
        has_shrunk = status.st_size < self._meter.size
        if has_shrunk:
            self._meter = Meter(self._limit)
            self._synced = 0

        if not stat.S_ISREG(status.st_mode) or status.st_size == self._meter.size:
            return False
        start = self._meter.size
        while not self._stopping.is_set():
            piece = read_at(self._fd, PIECE, self._meter.size)
            if not piece:
                break
            self._meter.add(memoryview(piece))
        return self._meter.size > start

    def _sync_if_due(self) -> None:
        if self._meter.size - self._synced < _SYNC_EVERY:
            return
        self._synced = self._meter.size
        try:
            sync_data(self._fd)
        except OSError as error:
            # The system reports a failed sync only once, so stop() must raise it.
            self._sync_error = error
            raise

    def stop(self, fd: int = -1) -> Meter | None:
        """Return the meter if it read the file that is open at ``fd``, and the file did not shrink since."""
        self._stopping.set()
        self._thread.join()
        if self._fd < 0:
            return None

        try:
            is_same_file = fd >= 0 and os.path.samestat(os.fstat(self._fd), os.fstat(fd))
            if not is_same_file:
                return None
            if self._sync_error is not None:
                raise self._sync_error

            has_shrunk = os.fstat(fd).st_size < self._meter.size
            return None if has_shrunk else self._meter
        finally:
            os.close(self._fd)
            self._fd = -1
