"""Files that are given with a call: checked and stored, and checks before a model reads a file."""

from __future__ import annotations

import math
import mimetypes
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from io import FileIO
from pathlib import Path
from typing import TypeAlias, TypedDict

from ..artifacts._base import ArtifactStore
from ..artifacts._content import PutOptions
from ..artifacts._files import pieces_of, read_at
from ..artifacts._ref import ArtifactRef
from ..errors import ABPError, BadDescriptor, BadEncoding, TooLarge, UsageError
from ..protocol._media import HEAD_BYTES, OCTET_STREAM, contradicts, is_binary_mime, normalise_mime, sniff
from ..protocol.binary import BinaryData, Encoded, LocalFile


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

    An open file is stored as it was checked, even if its path leads to another file meanwhile.
    """

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


#: A given file, before and after it was checked.
_Source: TypeAlias = ArtifactRef | BinaryData | OpenFile


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
    sources: dict[str, _Source] = {}
    for key, file in files.items():
        try:
            sources[key] = _checked_source(await _as_source(file, store), limits)
        except BadEncoding as error:
            raise _encoding_error(key, error) from error
        except ABPError as error:
            error.details.setdefault("field", key)
            raise

    accepted_files: dict[str, Accepted] = {}
    for key, source in sources.items():
        if isinstance(source, ArtifactRef):
            ref = source
        else:
            ref = await _store_input(source, store, limits, capability)
        accepted_files[key] = Accepted(ref, await _as_parameter(ref, source, store))
    return accepted_files


async def _as_source(file: object, store: ArtifactStore) -> _Source:
    """Return a given file in one of the three forms that are checked: an artifact, binary data or an open file."""
    match file:
        case OpenFile() | BinaryData():
            return file
        case bytes() | bytearray() | memoryview():
            return BinaryData.from_bytes(file)
        case Path():
            return BinaryData.from_path(file)
        case Mapping() if file.get("content") is None:
            reference = file.get("id") or file.get("uri")
            if not isinstance(reference, str):
                raise BadDescriptor("a file needs its content (base64), or the id of an artifact")
            return await store.stat(reference.removeprefix("artifact://"))
        case Mapping():
            return _binary_of_json(file)
        case _:
            raise UsageError(f"a file cannot be given as {type(file).__name__}; use a path, bytes or an object")


def _binary_of_json(file: Mapping[str, object]) -> BinaryData:
    content = file.get("content")
    encoding = file.get("encoding", "base64")
    if not isinstance(content, str) or encoding not in ("base64", "utf-8"):
        raise BadDescriptor("a file's content must be text, and its encoding base64 or utf-8")
    encoded = Encoded(content, encoding)
    filename = _optional_text(file, "filename") or _optional_text(file, "name")
    return BinaryData(encoded, mime_type=_optional_text(file, "mimeType"), filename=filename)


def _optional_text(file: Mapping[str, object], key: str) -> str | None:
    value = file.get(key)
    if value is not None and not isinstance(value, str):
        raise BadDescriptor(f"a file's {key} must be text")
    return value


def _encoding_error(key: str, error: BadEncoding) -> BadEncoding:
    """Reword the decoder's message, which speaks of an app: it had no part in this file."""
    reason = error.message.partition("; the app")[0]
    return BadEncoding(
        f"{key}: content: {reason}; send the file's bytes as standard, padded base64 (RFC 4648), without line breaks "
        "and without data:…;base64, before it",
        details={"field": key},
    )


def _checked_source(source: _Source, limits: FileLimits) -> _Source:
    match source:
        case ArtifactRef():
            _check_allowed(source.size_bytes, source.mime_type, limits)
            return source
        case OpenFile():
            return _check_open_file(source, limits)
        case BinaryData():
            return _check_binary(source, limits)


def _check_open_file(source: OpenFile, limits: FileLimits) -> OpenFile:
    descriptor = source.file.fileno()
    try:
        size = os.fstat(descriptor).st_size
        head = read_at(descriptor, HEAD_BYTES, 0)
    except OSError as error:
        raise UsageError(f"cannot read {source.filename!r}: {error.strerror}") from error

    mime_type = _type_of(head, source)
    _check_allowed(size, mime_type, limits)
    return OpenFile(source.file, mime_type, source.filename)


def _check_binary(binary: BinaryData, limits: FileLimits) -> BinaryData:
    content = binary.content
    if isinstance(content, Encoded):
        if content.encoding == "base64":
            # Check the size before decoding. Every 4 characters are 3 bytes; the last two bytes may be padding.
            least_size = len(content.text) * 3 // 4 - 2
            _check_allowed(least_size, None, limits)
        content = b"".join(binary.chunks())

    if isinstance(content, bytes):
        size = len(content)
        head = content[:HEAD_BYTES]
    elif isinstance(content, LocalFile):
        size = BinaryData.from_path(content.path).size or 0
        with content.path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    else:
        raise UsageError("a file given with a call must be here already: a path, bytes or base64")

    mime_type = _type_of(head, binary)
    _check_allowed(size, mime_type, limits)
    return BinaryData(content, mime_type, size, binary.filename, binary.extra)


def _type_of(head: bytes, source: BinaryData | OpenFile) -> str:
    """Return the type of a file: that of its signature, else the declared type, else that of its extension."""
    type_of_name, _ = mimetypes.guess_type(source.filename or "")
    declared_type = normalise_mime(source.mime_type) or normalise_mime(type_of_name)
    type_of_signature = sniff(head)
    if declared_type is None or declared_type == OCTET_STREAM:
        return type_of_signature or OCTET_STREAM
    if type_of_signature and contradicts(declared_type, type_of_signature):
        return type_of_signature
    return declared_type


def _check_allowed(size: int, mime_type: str | None, limits: FileLimits) -> None:
    if size > limits.max_file_bytes:
        raise TooLarge(
            f"the file has {size:,} bytes; at most {limits.max_file_bytes:,} are accepted with a call",
            details={"limit": limits.max_file_bytes, "size": size},
        )

    patterns = limits.allowed_mime_types
    if mime_type is not None and not any(fnmatchcase(mime_type, pattern.lower()) for pattern in patterns):
        raise UsageError(
            f"files of type {mime_type} are not accepted; give one of {', '.join(patterns)}",
            details={"mime_type": mime_type, "allowed": list(patterns)},
        )


async def _store_input(
    source: BinaryData | OpenFile, store: ArtifactStore, limits: FileLimits, capability: str
) -> ArtifactRef:
    options: PutOptions = {
        "mime_type": source.mime_type,
        "filename": source.filename,
        "namespace": capability,
        "meta": {"input_of": capability},
    }

    if isinstance(source, OpenFile):
        return await store.put_stream(_read_limited(source.file, limits), **options)

    if isinstance(source.content, LocalFile):
        options["size"] = source.size
        options["filename"] = source.filename or source.content.path.name
        return await store.put_file(source.content.path, **options)

    return await store.put_bytes(source.read(), **options)


async def _read_limited(file: FileIO, limits: FileLimits) -> AsyncGenerator[bytes, None]:
    """Read a file in pieces, and check its size again: it may have grown since it was checked."""
    size = 0
    async for piece in pieces_of(file):
        size += len(piece)
        _check_allowed(size, None, limits)
        yield piece


async def _as_parameter(ref: ArtifactRef, source: _Source, store: ArtifactStore) -> BinaryData:
    """Return the content of a stored file for a call: by path if possible, so that it need not be read yet."""
    if ref.path is not None:
        return BinaryData(LocalFile(ref.path), ref.mime_type, ref.size_bytes, ref.filename)
    if isinstance(source, BinaryData):
        return BinaryData(source.content, ref.mime_type, ref.size_bytes, ref.filename)
    return BinaryData(await store.get(ref), ref.mime_type, ref.size_bytes, ref.filename)


# --- before a file is read (docs/requirements.md R4-6) ----------------------------------------------------------------


def estimated_tokens(ref: ArtifactRef) -> int:
    """Return the estimated number of tokens of the content: one for every four bytes."""
    return math.ceil(ref.size_bytes / 4)


def large_file_warning(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a file is too large for a model's context: more than ``large_file_tokens``."""
    return estimated_tokens(ref) > (limits or FileLimits()).large_file_tokens


def auto_read_safe(ref: ArtifactRef, limits: FileLimits | None = None) -> bool:
    """Return whether a program may read a file into a model without asking.

    That is text of at most ``max_auto_read_bytes``, without a :func:`large_file_warning`."""
    limits = limits or FileLimits()
    is_small = ref.size_bytes <= limits.max_auto_read_bytes and not large_file_warning(ref, limits)
    return is_small and is_textual(ref.mime_type)


def is_textual(mime_type: str) -> bool:
    """Return whether content of a type is text for people: ``text/*``, JSON, XML and JavaScript."""
    return not is_binary_mime(mime_type) or mime_type.endswith(("+xml", "+json", "/xml", "/javascript"))
