"""Files that are given with a call: checked and stored, and checks before a model reads a file."""

from __future__ import annotations

import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import TypedDict

from ..artifacts._base import ArtifactStore
from ..artifacts._content import PutOptions
from ..artifacts._files import pieces_of, read_at
from ..artifacts._ref import ArtifactRef
from ..errors import ABPError, BadDescriptor, BadEncoding, TooLarge, UsageError
from ..protocol._media import OCTET_STREAM, contradicts, is_binary_mime, normalise_mime, sniff
from ..protocol.binary import BinaryData, Encoded, LocalFile

_HEAD = 4096  # bytes that signatures are looked for in


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLimits:
    """Limits for files that are given with a call; the defaults are those of docs/requirements.md R4-10.

    ``allowed_mime_types`` are patterns such as ``image/*``. ``large_file_tokens`` and ``max_auto_read_bytes`` are for
    readers: see :func:`large_file_warning` and :func:`auto_read_safe`.
    """

    max_file_bytes: int = 100 << 20
    allowed_mime_types: Sequence[str] = ("*/*",)
    large_file_tokens: int = 10_000
    max_auto_read_bytes: int = 1 << 20


class GivenFile(TypedDict, total=False):
    """File as JSON: its ``content``, or the ``id`` or ``uri`` of an artifact in the store.

    ``content`` is base64, or text if ``encoding`` is ``utf-8``. ``name`` is another word for ``filename``.
    """

    content: str
    encoding: str
    mimeType: str
    filename: str
    name: str
    id: str
    uri: str


@dataclass(frozen=True, slots=True)
class OpenFile:
    """File that is open for reading at its beginning; the caller closes it.

    So the checked file is the stored one, even if its path leads to another file meanwhile."""

    file: FileIO
    mime_type: str | None
    filename: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """File that was checked and stored.

    ``ref`` is its reference, ``binary`` the file as a parameter for :meth:`~transports.Session.call`: by path if the
    store has paths, so that no content is read yet.
    """

    ref: ArtifactRef
    binary: BinaryData


async def accept_files(
    files: Mapping[str, GivenFile | BinaryData | OpenFile | Path | bytes],
    *,
    store: ArtifactStore,
    limits: FileLimits | None = None,
    capability: str = "input",
) -> dict[str, Accepted]:
    """Check and store files that are given with a call; the keys name their places in the parameters.

    All files are checked before any is stored, and the store makes their names safe. The type of a file is that of its
    signature, else the declared type, else that of its extension.

    Raises :class:`~transports.errors.TooLarge`, :class:`~transports.errors.UsageError` for a type that is not allowed
    or a file that cannot be read, :class:`~transports.errors.BadEncoding`, :class:`~transports.errors.BadDescriptor`
    and :class:`~transports.errors.ArtifactNotFound`, each with the key as ``details["field"]``.
    """
    limits = limits or FileLimits()
    checked: dict[str, ArtifactRef | BinaryData | OpenFile] = {}
    for key, file in files.items():
        try:
            stored = await _referenced_artifact(file, store)
            item = file if isinstance(file, OpenFile) else stored or _binary_of(file)
            checked[key] = _check_open(item, limits) if isinstance(item, OpenFile) else _check(item, limits)
        except BadEncoding as error:
            raise _bad_argument(key, error) from error
        except ABPError as error:
            error.details.setdefault("field", key)
            raise
    accepted: dict[str, Accepted] = {}
    for key, item in checked.items():
        ref = item if isinstance(item, ArtifactRef) else await _store_file(item, store, limits, capability)
        accepted[key] = Accepted(ref, await _parameter(ref, item, store))
    return accepted


async def _referenced_artifact(file: object, store: ArtifactStore) -> ArtifactRef | None:
    if not isinstance(file, Mapping) or file.get("content") is not None:
        return None
    identity = file.get("id") or file.get("uri")
    if not isinstance(identity, str):
        raise BadDescriptor("a file needs its content (base64), or the id of an artifact")
    return await store.stat(identity.removeprefix("artifact://"))


def _binary_of(file: object) -> BinaryData:
    match file:
        case BinaryData():
            return file
        case bytes() | bytearray() | memoryview():
            return BinaryData.from_bytes(file)
        case Path():
            return BinaryData.from_path(file)
        case Mapping():
            return _binary_of_json(file)
        case _:
            raise UsageError(f"a file cannot be given as {type(file).__name__}; use a path, bytes or an object")


def _binary_of_json(file: Mapping[str, object]) -> BinaryData:
    content, encoding = file.get("content"), file.get("encoding", "base64")
    if not isinstance(content, str) or encoding not in ("base64", "utf-8"):
        raise BadDescriptor("a file's content must be text, and its encoding base64 or utf-8")
    encoded = Encoded(content, "utf-8" if encoding == "utf-8" else "base64")
    filename = _optional_text(file, "filename") or _optional_text(file, "name")
    return BinaryData(encoded, _optional_text(file, "mimeType"), None, filename)


def _bad_argument(key: str, error: BadEncoding) -> BadEncoding:
    """Return the error of a file's content for its sender: the decoder's message is about an app, which had no part."""
    reason = error.message.partition("; the app")[0]
    return BadEncoding(
        f"{key}: content: {reason}; send the file's bytes as standard, padded base64 (RFC 4648), without line breaks "
        "and without data:…;base64, before it",
        details={"field": key},
    )


def _optional_text(file: Mapping[str, object], key: str) -> str | None:
    value = file.get(key)
    if value is not None and not isinstance(value, str):
        raise BadDescriptor(f"a file's {key} must be text")
    return value


def _check(item: ArtifactRef | BinaryData, limits: FileLimits) -> ArtifactRef | BinaryData:
    """Return the same file with its size and type known, and encoded content decoded."""
    if isinstance(item, ArtifactRef):
        _check_allowed(item.size_bytes, item.mime_type, limits)
        return item
    if isinstance(item.content, Encoded):
        _check_allowed(len(item.content.text) * 3 // 4 - 2 if item.content.encoding == "base64" else 0, None, limits)
        data = b"".join(item.chunks())
        item = BinaryData(data, item.mime_type, item.size, item.filename, item.extra)
    if isinstance(item.content, bytes):
        size, head = len(item.content), item.content[:_HEAD]
    elif isinstance(item.content, LocalFile):
        fresh = BinaryData.from_path(item.content.path)
        size = fresh.size or 0
        with item.content.path.open("rb") as file:
            head = file.read(_HEAD)
    else:
        raise UsageError("a file given with a call must be here already: a path, bytes or base64")
    mime_type = _type_of(head, item)
    _check_allowed(size, mime_type, limits)
    return BinaryData(item.content, mime_type, size, item.filename, item.extra)


def _check_open(item: OpenFile, limits: FileLimits) -> OpenFile:
    """Return the same file with its type known."""
    fd = item.file.fileno()
    try:
        size, head = os.fstat(fd).st_size, read_at(fd, _HEAD, 0)
    except OSError as error:
        raise UsageError(f"cannot read {item.filename!r}: {error.strerror}") from error
    mime_type = _type_of(head, item)
    _check_allowed(size, mime_type, limits)
    return OpenFile(item.file, mime_type, item.filename)


def _type_of(head: bytes, item: BinaryData | OpenFile) -> str:
    declared = normalise_mime(item.mime_type) or normalise_mime(mimetypes.guess_type(item.filename or "")[0])
    signed = sniff(head)
    if signed and (declared in (None, OCTET_STREAM) or contradicts(declared or "", signed)):
        return signed
    return declared or OCTET_STREAM


def _check_allowed(size: int, mime_type: str | None, limits: FileLimits) -> None:
    if size > limits.max_file_bytes:
        raise TooLarge(
            f"the file has {size:,} bytes; at most {limits.max_file_bytes:,} are accepted with a call",
            details={"limit": limits.max_file_bytes, "size": size},
        )
    allowed = limits.allowed_mime_types
    if mime_type is not None and not any(fnmatchcase(mime_type, pattern.lower()) for pattern in allowed):
        raise UsageError(
            f"files of type {mime_type} are not accepted; give one of {', '.join(allowed)}",
            details={"mime_type": mime_type, "allowed": list(allowed)},
        )


async def _store_file(
    binary: BinaryData | OpenFile, store: ArtifactStore, limits: FileLimits, capability: str
) -> ArtifactRef:
    options: PutOptions = {
        "mime_type": binary.mime_type,
        "filename": binary.filename,
        "namespace": capability,
        "meta": {"input_of": capability},
    }
    if isinstance(binary, OpenFile):
        return await store.put_stream(_limited(binary.file, limits), **options)
    if isinstance(binary.content, LocalFile):
        options["size"] = binary.size
        options["filename"] = binary.filename or binary.content.path.name
        return await store.put_file(binary.content.path, **options)
    return await store.put_bytes(binary.read(), **options)


async def _limited(file: FileIO, limits: FileLimits) -> AsyncGenerator[bytes, None]:
    """Yield the content of an open file, which may have grown since it was checked."""
    size = 0
    async for piece in pieces_of(file):
        size += len(piece)
        _check_allowed(size, None, limits)
        yield piece


async def _parameter(ref: ArtifactRef, item: ArtifactRef | BinaryData | OpenFile, store: ArtifactStore) -> BinaryData:
    """Return the stored file as a parameter: by path if there is one, else the content in memory or from the store."""
    content = item.content if isinstance(item, BinaryData) else None
    if ref.path is not None:
        content = LocalFile(ref.path)
    elif content is None:
        content = await store.get(ref)
    return BinaryData(content, ref.mime_type, ref.size_bytes, ref.filename)


# --- before a file is read (docs/requirements.md R4-6) ----------------------------------------------------------------


def estimated_tokens(ref: ArtifactRef) -> int:
    """Return the estimated number of tokens of the content: one for every four bytes."""
    return -(-ref.size_bytes // 4)


def large_file_warning(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a file is too large for a model's context: more than ``large_file_tokens``."""
    return estimated_tokens(ref) > (limits or FileLimits()).large_file_tokens


def auto_read_safe(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a program may read a file into a model without asking.

    That is text of at most ``max_auto_read_bytes``, without a :func:`large_file_warning`."""
    limits = limits or FileLimits()
    small = ref.size_bytes <= limits.max_auto_read_bytes and not large_file_warning(ref, limits)
    return small and is_textual(ref.mime_type)


def is_textual(mime_type: str) -> bool:
    """Return whether content of a type is text for people: ``text/*``, JSON, XML and JavaScript."""
    return not is_binary_mime(mime_type) or mime_type.endswith(("+xml", "+json", "/xml", "/javascript"))
