"""File format of recordings: lines of JSON in ``FILE``, content in ``FILE.d/`` under its SHA-256.

A line is written whole, after the content that it names: the file of a killed process can be read up to its last whole
line.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import secrets
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from .. import errors
from .._internal.arguments import validate_fields
from .._internal.files import open_regular, read_regular, regular_file
from .._internal.masking import KNOWN_SECRETS, MAX_MASKED_BYTES, KnownSecrets
from .._internal.redaction import Redactor
from ..artifacts._files import map_os_errors, open_file, read_at, try_lock, unlock, write_all
from ..artifacts._ref import ArtifactRef
from ..artifacts.local._tree import SYMLINK, Tree
from ..errors import (
    ABPError,
    BadEncoding,
    BadRecording,
    CapabilityError,
    DiscoveryFailed,
    ProtocolError,
    StoreError,
    TransportError,
    UsageError,
    spelled,
)
from ..protocol._capabilities import Discovery
from ..protocol._declarations import Manifest, parse
from ..protocol._find_content import Place, replace_values
from ..protocol._strict_json import (
    MAX_LISTED,
    MAX_ON_LOOP,
    decode_json,
    encode_json,
    has_more_values,
    is_larger,
    members_of,
)
from ..protocol.binary import BinaryData, Broken, Encoded, Handle, LocalFile

logger = logging.getLogger("transports.recording")

#: Version of the format: the one written, and the newest one read.
FORMAT = 1
#: Event that the recorder adds when the address or the features of the transport have changed.
STATE = "recorder/state"

Kind: TypeAlias = Literal["open", "close", "discover", "request", "notify", "save", "download"]


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class ContentEntry(_Line):
    """Content that was taken out of a payload, with the ``path`` of its place. ``kind`` is ``bytes`` (a BinaryData with
    its content), ``raw`` (plain bytes), ``encoded`` (text in ``encoding``), ``text`` (a long plain text), ``handle``
    (stayed on the far side, fetched by an :class:`Operation` of the kind ``save``) or ``broken`` (could not be read,
    for ``reason``). ``sha256`` names the file that holds it."""

    path: list[str | int]
    kind: Literal["bytes", "raw", "encoded", "text", "handle", "broken"]
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    encoding: Literal["base64", "utf-8"] = "base64"
    handle: str = ""
    length: int | None = None
    reason: str = ""
    mime_type: str | None = None
    size: int | None = None
    filename: str | None = None
    extra: dict[str, object] = {}


class Header(_Line):
    """First line of a recording. ``server`` is true for an MCP server. ``discovers`` is true if the page's manifest was
    read, too. ``fields`` are names of secrets in addition to the usual ones."""

    abp_recording: int
    transport: str
    server: bool = False
    discovers: bool = False
    fields: list[str] = []


class _Numbered(_Line):
    """Line about the operation ``n``, ``at`` seconds after the recording began."""

    n: int
    at: float = 0.0


class Operation(_Numbered):
    """What the client asked. For ``request`` and ``notify``, ``type`` and ``payload`` are those of the message; for
    other kinds ``payload`` holds the arguments."""

    does: Literal["ask"] = "ask"
    kind: Kind
    type: str = ""
    id: str | None = None
    payload: object = None
    leaves: list[ContentEntry] = []


class RecordedEffect(_Line):
    kind: str
    call: str | None = None
    detail: dict[str, object] = {}


class Answer(_Numbered):
    """The app's answer to an operation. ``shown`` are ``tool``, ``arguments`` and ``result`` of an MCP server's call,
    if a view was opened with it."""

    does: Literal["answer"] = "answer"
    type: str = ""
    payload: object = None
    leaves: list[ContentEntry] = []
    outputs: list[ContentEntry] = []
    effects: list[RecordedEffect] = []
    warnings: list[str] = []
    shown: dict[str, object] | None = None
    shown_leaves: list[ContentEntry] = []


class RecordedError(_Line):
    """An :class:`~transports.errors.ABPError`. ``name`` is the name of its class."""

    name: str
    code: str
    message: str
    retryable: bool = False
    retry_after: float | None = None
    alternatives: list[str] = []
    details: dict[str, object] = {}
    cancelled: bool = False


class Failed(_Numbered):
    """The operation raised an error."""

    does: Literal["failed"] = "failed"
    error: RecordedError


class Abandoned(_Numbered):
    """The caller was cancelled before there was an answer."""

    does: Literal["abandoned"] = "abandoned"


class EventEntry(_Line):
    """An event of the app. ``effect`` is set instead of ``payload`` for a side effect."""

    does: Literal["event"] = "event"
    at: float = 0.0
    type: str
    id: str | None = None
    payload: object = None
    effect: RecordedEffect | None = None


Entry: TypeAlias = Operation | Answer | Failed | Abandoned | EventEntry

ENTRY: TypeAdapter[Entry] = TypeAdapter(Annotated[Entry, Field(discriminator="does")])


def record_error(error: ABPError, scrubber: Redactor) -> RecordedError:
    details: Any = scrubber.redact_tree(error.details)
    return RecordedError(
        name=type(error).__name__,
        code=error.code,
        message=scrubber.redact_text(error.message),
        retryable=error.retryable,
        retry_after=error.retry_after,
        alternatives=[*error.alternatives],
        details=details,
        cancelled=getattr(error, "cancelled", False),
    )


def restore_error(problem: RecordedError) -> ABPError:
    """Return a recorded error. An error of an unknown class becomes a ``TransportError``."""
    error_class = getattr(errors, problem.name, None)
    if not isinstance(error_class, type) or not issubclass(error_class, ABPError):
        error_class = TransportError
    error = error_class(
        problem.message,
        code=problem.code,
        retryable=problem.retryable,
        retry_after=problem.retry_after,
        alternatives=problem.alternatives,
        details=problem.details,
    )
    if isinstance(error, CapabilityError):
        error.cancelled = problem.cancelled
    return error


_CHUNK = 1 << 20
#: Characters of a text that stays in its line, and bytes of content that is written on the event loop.
_SMALL = 64 * 1024
#: Maximum bytes of one content. A larger file is not read.
_MAX_CONTENT = 4 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Prefix of the names of content that is not whole yet.
_STAGED = ".staged-"


def _map_os_errors(folder: Path) -> AbstractContextManager[None]:
    other = f"record to another file ({spelled('record=')})"
    return map_os_errors("write the recording", folder, other=other)


@validate_fields
@dataclass(frozen=True, slots=True)
class Recording:
    """File to record a conversation in, with rules for additional secrets.

    ``fields`` are name endings of secret values, such as ``pin``. ``patterns`` are regular expressions whose matches
    (or their group ``secret``) are replaced. Binary content is never searched."""

    path: Path | str
    fields: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def scrubber(self, known: KnownSecrets = KNOWN_SECRETS) -> Redactor:
        """Return a redactor of the secrets. Raises :class:`~transports.errors.UsageError` for an invalid pattern."""
        try:
            return Redactor(self.fields, self.patterns, secrets=known)
        except re.error as error:
            raise UsageError(
                f"patterns= of a recording: {error.pattern!r} is not a regular expression: {error}"
            ) from None


class Writer:
    """Writer of a recording. An existing recording is replaced, together with its content in the folder beside it.

    Creating the writer raises :class:`~transports.errors.UsageError` if the file or the folder is a symlink, if the
    file is not a recording or is being written by another session, or if the folder is another user's. Every method
    raises :class:`~transports.errors.StoreError` if the disk refuses."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._content = Tree(_folder(path), private=True)
        with _map_os_errors(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open_file()
            try:
                self._clear_former_recording()
            except BaseException:
                self.close()
                raise
        self._began = time.monotonic()
        self.write(header)

    def _open_file(self) -> FileIO:
        """Open and lock the file of the recording."""
        try:
            fd = open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            # Check that it is a regular file. This closes only a copy of the descriptor.
            regular_file(os.dup(fd), str(self._path)).close()
        except OSError as error:
            if error.errno in SYMLINK:
                raise UsageError(f"{self._path} is a symlink; name its target") from None
            raise
        file = FileIO(fd, "a")
        is_in_use = False
        with contextlib.suppress(OSError):  # a file system without locks
            is_in_use = not try_lock(fd)
        if is_in_use:
            file.close()
            raise UsageError(f"another session records to {self._path} now; name another file")
        return file

    def _clear_former_recording(self) -> None:
        head = read_at(self._file.fileno(), 64, 0)
        if head and b'"abp_recording"' not in head:
            raise UsageError(f"{self._path} exists and is not a recording; name another file")
        try:
            # Open the folder even if nothing is removed: this refuses a symlink, and a folder of another user.
            with self._content.folder() as folder:
                for name in folder.names():
                    is_content = _SHA256.fullmatch(name) or name.startswith(_STAGED)
                    if head and is_content:
                        folder.unlink(name)
        except FileNotFoundError:
            pass
        except StoreError:
            raise UsageError(
                f"{self._content.root} is a symlink, not a folder, or another user's, so content cannot go there; "
                "remove it, or record to another file"
            ) from None

        self._file.truncate(0)

    @property
    def now(self) -> float:
        """Seconds since the recording began."""
        return round(time.monotonic() - self._began, 4)

    def write(self, line: Header | Entry) -> None:
        """Write a line; after :meth:`close`, do nothing.

        Raises :class:`TypeError` or :class:`ValueError` for a value that is not JSON."""
        if self._file.closed:
            return
        fields = line.model_dump(exclude_defaults=True)
        # This field is written although it has its default.
        if not isinstance(line, Header):
            fields["does"] = line.does
        data = encode_json(fields) + b"\n"
        with _map_os_errors(self._path.parent):
            end = os.fstat(self._file.fileno()).st_size
            try:
                write_all(self._file.fileno(), memoryview(data))
            except OSError:
                # Remove a part of this line, to which the next line would be joined.
                self._file.truncate(end)
                raise

    def store_content(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Write content into the folder, and return its SHA-256. Equal content is stored once."""
        digest = hashlib.sha256()
        staged = f"{_STAGED}{secrets.token_hex(8)}"
        with _map_os_errors(self._content.root), self._content.folder(create=True) as folder:
            fd = folder.create(staged)
            try:
                try:
                    for chunk in chunks:
                        digest.update(chunk)
                        write_all(fd, memoryview(chunk))
                finally:
                    os.close(fd)
                folder.move(staged, folder, digest.hexdigest())
            finally:
                folder.unlink(staged)
        return digest.hexdigest()

    def close(self) -> None:
        if not self._file.closed:
            with contextlib.suppress(OSError):
                unlock(self._file.fileno())
        with _map_os_errors(self._path.parent):
            self._file.close()


class Reader:
    """Reader of a recording and its content. Every method raises :class:`~transports.errors.BadRecording`, with the
    number of the line in ``details["line"]``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = Tree(_folder(path), private=False)
        try:
            data = read_regular(path, 1 << 30).removeprefix(BOM_UTF8)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadRecording(
                f"the recording {path} cannot be read ({reason}); make one with "
                f"{spelled('record= or ')}`abp call --record`"
            ) from None

        *lines, rest = data.split(b"\n")
        if not lines or b'"abp_recording"' not in lines[0]:
            fix = f"name a file written by {spelled('record= or ')}`abp call --record`"
            raise self.error(1, "this is not a recording", fix)

        self.header = self._parse_header(lines[0])
        #: Lines after the header, with their numbers.
        self.entries: list[tuple[int, Entry]] = [
            (number, self._parse_entry(number, line)) for number, line in enumerate(lines[1:], 2)
        ]
        if rest:
            logger.warning("%s ends in the middle of line %d, which is left out", path, len(lines) + 1)

    def error(self, line: int, what: str, fix: str = "undo the edit, or record again") -> BadRecording:
        return BadRecording(f"{self.path}, line {line}: {what}; {fix}", details={"path": str(self.path), "line": line})

    def _parse_header(self, data: bytes) -> Header:
        if has_more_values(data, MAX_ON_LOOP):
            raise self.error(1, f"it has more than {MAX_ON_LOOP:,} values and names", "record again")

        version: object = None
        # For a line that is not JSON, the validation below raises the error.
        with contextlib.suppress(ProtocolError):
            version = members_of(decode_json(data)).get("abp_recording")
        if isinstance(version, int) and version > FORMAT:
            raise self.error(
                1,
                f"it was written by a newer version (format {version}, this one reads {FORMAT})",
                "upgrade abp-transports, or record again",
            )

        try:
            return Header.model_validate_json(data)
        except ValidationError as error:
            raise self._invalid_line(1, error) from None

    def _parse_entry(self, line: int, data: bytes) -> Entry:
        if has_more_values(data, MAX_LISTED):
            raise self.error(line, f"it has more than {MAX_LISTED:,} values and names", "record again")
        try:
            return ENTRY.validate_json(data)
        except ValidationError as error:
            raise self._invalid_line(line, error) from None

    def _invalid_line(self, line: int, error: ValidationError) -> BadRecording:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        fault = f"{place}: {first['msg']}" if place else first["msg"]
        return self.error(line, fault)

    def open_content(self, entry: ContentEntry, line: int) -> FileIO:
        """Open content at its beginning; the caller closes the file. Raises an error if its SHA-256 has changed."""
        path = self._content.root / str(entry.sha256)
        fix = "put the file back, or record again"
        with contextlib.ExitStack() as stack:
            try:
                with self._content.folder() as folder:
                    file = stack.enter_context(regular_file(folder.open(path.name), path.name))
                if os.fstat(file.fileno()).st_size > _MAX_CONTENT:
                    raise self.error(line, f"its content {path} is larger than {_MAX_CONTENT:,} bytes", fix)
                sha256 = _hash_file(file)
            except (OSError, StoreError) as error:
                reason = error.message if isinstance(error, StoreError) else error.strerror or error
                raise self.error(line, f"its content {path} cannot be read ({reason})", fix) from None

            if sha256 != entry.sha256:
                raise self.error(
                    line, f"its content {path} was changed", "put the file back as it was, or record again"
                )
            stack.pop_all()  # keeps the file open
        return file


def _hash_file(file: FileIO) -> str:
    """Return the SHA-256 of a file, and go back to its beginning. A file that grows is read up to the limit."""
    digest = hashlib.sha256()
    while file.tell() <= _MAX_CONTENT and (chunk := file.read(_CHUNK)):
        digest.update(chunk)
    file.seek(0)
    return digest.hexdigest()


def read_header(path: Path) -> Header | None:
    """Return the first line of a recording, or ``None`` if it cannot be read: opening the recording raises the
    reason."""
    try:
        with open_regular(path) as file:
            first_line = file.read(_CHUNK).removeprefix(BOM_UTF8).partition(b"\n")[0]
            return Header.model_validate_json(first_line)
    except (OSError, ValueError):
        return None


def _folder(path: Path) -> Path:
    """Return the folder for the content of a recording.

    Raises :class:`~transports.errors.UsageError` for a path that names no file, such as an empty one."""
    if not path.name:
        raise UsageError(f"{path} is a folder; name the file of a recording")
    return path.with_name(f"{path.name}.d")


async def scrubbed(scrubber: Redactor, payload: object) -> object:
    """Return a payload without its secrets. A large one is redacted in a thread (measured: 13 µs for each value)."""
    if is_larger(payload, 1000):
        return await asyncio.to_thread(scrubber.redact_tree, payload)
    return scrubber.redact_tree(payload)


@dataclass(frozen=True, slots=True)
class ContentPacker:
    """Moves content from payloads into files of the recording. ``store`` writes content and returns its SHA-256. In a
    replay, ``store`` only computes the SHA-256."""

    store: Callable[[Iterable[bytes | memoryview]], str]
    scrubber: Redactor

    async def pack(self, payload: object, *, is_parameter: bool = False) -> tuple[object, list[ContentEntry]]:
        """Return a payload without secrets and content, and the content. With ``is_parameter``, content is recorded
        decoded, so that calls with the same bytes in different encodings match."""
        content: list[tuple[Place, object]] = []
        plain = _take_content_out(await scrubbed(self.scrubber, payload), (), content)
        return plain, [await self.pack_content(value, path, is_parameter=is_parameter) for path, value in content]

    async def pack_content(self, value: object, path: Place = (), *, is_parameter: bool = False) -> ContentEntry:
        place = [*path]
        match value:
            case BinaryData():
                entry = await self._pack_binary(value, place, is_parameter)
                return _with_description(value, entry)
            case Broken(reason=reason):
                return ContentEntry(path=place, kind="broken", reason=reason)
            case str():
                sha256 = await self._store([value.encode()], len(value))
                return ContentEntry(path=place, kind="text", sha256=sha256)
            case bytes() | bytearray() | memoryview():
                sha256 = await self._store([bytes(value)], len(value))
                return ContentEntry(path=place, kind="raw", sha256=sha256)
        raise TypeError(f"{type(value).__name__} cannot be recorded")

    async def _pack_binary(self, binary: BinaryData, place: list[str | int], is_parameter: bool) -> ContentEntry:
        match binary.content:
            case Handle(id=handle, size=length):
                return ContentEntry(path=place, kind="handle", handle=handle, length=length)
            case Encoded(text=text, encoding=encoding) if not is_parameter:
                chunk = text.encode() if isinstance(text, str) else text
                sha256 = await self._store([chunk], len(chunk))
                return ContentEntry(path=place, kind="encoded", sha256=sha256, encoding=encoding)
            case bytes() | LocalFile() | Encoded():
                sha256 = await self._store(_decoded_or_text(binary), binary.size)
                return ContentEntry(path=place, kind="bytes", sha256=sha256)
        raise TypeError(f"{type(binary.content).__name__} cannot be recorded")

    async def pack_file(self, path: Path) -> ContentEntry:
        return await self.pack_content(BinaryData(LocalFile(path)))

    async def _store(self, chunks: Iterable[bytes | memoryview], size: int | None) -> str:
        if self.scrubber.known:
            chunks = _mask_chunks(chunks, self.scrubber.known)
        if size is not None and size <= _SMALL:
            return self.store(chunks)
        return await asyncio.to_thread(self.store, chunks)


def hash_content(chunks: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _mask_chunks(chunks: Iterable[bytes | memoryview], known_secrets: KnownSecrets) -> Iterator[bytes | memoryview]:
    """Mask secrets in content, but not beyond its first ``MAX_MASKED_BYTES``."""
    beginning = bytearray()
    rest = iter(chunks)
    for chunk in rest:
        beginning += chunk
        if len(beginning) > MAX_MASKED_BYTES:
            break
    yield known_secrets.mask_file(bytes(beginning))
    yield from rest


def _decoded_or_text(binary: BinaryData) -> Iterator[bytes]:
    """Yield the bytes of a parameter or, if its text cannot be decoded, the text."""
    try:
        yield from binary.chunks()
    except BadEncoding:
        # The transport will raise this error, so record the text itself.
        assert isinstance(binary.content, Encoded)
        text = binary.content.text
        yield text.encode() if isinstance(text, str) else bytes(text)


def _with_description(binary: BinaryData, entry: ContentEntry) -> ContentEntry:
    description = {
        "mime_type": binary.mime_type,
        "size": binary.size,
        "filename": binary.filename,
        "extra": dict(binary.extra),
    }
    return entry.model_copy(update=description)


def _take_content_out(node: object, path: Place, content: list[tuple[Place, object]]) -> object:
    """Return a payload with null in the place of content, which is added to ``content`` with its place."""
    match node:
        case dict():
            return {str(key): _take_content_out(value, (*path, str(key)), content) for key, value in node.items()}
        case list() | tuple():
            return [_take_content_out(value, (*path, index), content) for index, value in enumerate(node)]
        case str() if len(node) <= _SMALL:
            return node
        case BinaryData() | Broken() | bytes() | bytearray() | memoryview() | str():
            content.append((path, node))
            return None
        case ArtifactRef():
            # The app has stored it: a replay has the reference, not the file.
            return node.as_dict()
        case _:
            return node


def unpack(reader: Reader, line: int, payload: object, leaves: Sequence[ContentEntry]) -> object:
    """Put content back into the payload of a line. Raises :class:`~transports.errors.BadRecording` if a place does not
    exist."""
    values: dict[Place, object] = {tuple(entry.path): unpack_content(reader, line, entry) for entry in leaves}
    try:
        return replace_values(payload, values)
    except KeyError as error:
        raise reader.error(line, str(error.args[0])) from None


def unpack_content(reader: Reader, line: int, entry: ContentEntry) -> object:
    if entry.kind == "broken":
        return Broken(entry.reason)
    description = (entry.mime_type, entry.size, entry.filename, entry.extra)
    if entry.kind == "handle":
        return BinaryData(Handle(entry.handle, entry.length), *description)
    with reader.open_content(entry, line) as file:
        data = file.read()
    match entry.kind:
        case "bytes":
            return BinaryData(data, *description)
        case "encoded":
            return BinaryData(Encoded(data.decode(), entry.encoding), *description)
        case "text":
            return data.decode()
        case _:
            return cast(object, data)


def pack_discovery(discovery: Discovery, scrubber: Redactor) -> object:
    manifest = None
    if discovery.manifest is not None:
        manifest = discovery.manifest.model_dump(by_alias=True)
    reason = None
    if discovery.reason is not None:
        reason = record_error(discovery.reason, scrubber).model_dump()
    return scrubber.redact_tree(
        {
            "page_url": discovery.page_url,
            "manifest_url": discovery.manifest_url,
            "title": discovery.title,
            "manifest": manifest,
            "warnings": [*discovery.warnings],
            "reason": reason,
        }
    )


def unpack_discovery(recorded: Mapping[str, Any]) -> Discovery:
    """Return a recorded discovery. Raises :class:`~transports.errors.ProtocolError` if it was edited to be invalid."""
    manifest: Manifest | None = None
    if recorded.get("manifest") is not None:
        manifest = parse(Manifest, recorded["manifest"], "the recorded manifest")

    reason: DiscoveryFailed | None = None
    if recorded.get("reason") is not None:
        problem = parse(RecordedError, recorded["reason"], "the recorded reason")
        reason = DiscoveryFailed(problem.message, code=problem.code, details=problem.details)

    return Discovery(
        page_url=str(recorded.get("page_url")),
        manifest_url=recorded.get("manifest_url"),
        title=str(recorded.get("title")),
        manifest=manifest,
        warnings=tuple(recorded.get("warnings", ())),
        reason=reason,
    )
