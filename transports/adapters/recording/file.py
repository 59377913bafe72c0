"""A recording on the disk: lines of JSON in ``FILE``, content in ``FILE.d/`` under its SHA-256.

A line is written whole, after the content that it names. So a process that is killed leaves a file that can be read up
to its last whole line.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pydantic import BaseModel, ValidationError

from ...artifacts.local.tree import SYMLINK, Tree
from ...artifacts.os_errors import map_os_errors, write_all
from ...artifacts.system import open_file, read_at
from ...errors import BadRecording, StoreError, UsageError
from ...files import open_regular, read_regular, regular_file
from ...protocol.redaction import Redactor
from ...protocol.secrets import KNOWN_SECRETS, KnownSecrets
from ...protocol.strict_json import MAX_LISTED, MAX_ON_LOOP, encode_json, has_more_values
from .entries import ENTRY, FORMAT, ContentEntry, Entry, Header

__all__ = ["Reader", "Recording", "Writer", "read_header"]

logger = logging.getLogger("transports.recording")

_CHUNK = 1 << 20
#: Bytes of a recording's lines, and of one content: a file of another size is not read.
_MAX_LINES, _MAX_CONTENT = 1 << 30, 4 << 30
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: What the names of content begin with that is not whole yet.
_STAGED = ".staged-"


@dataclass(frozen=True, slots=True)
class Recording:
    """The file that a conversation is recorded in, and rules for further secrets in it.

    ``fields`` are ends of names whose values are secret, such as ``pin``. ``patterns`` are regular expressions whose
    matches (or their group ``secret``) are replaced. Binary content is never searched.
    """

    path: Path | str
    fields: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def scrubber(self, known: KnownSecrets = KNOWN_SECRETS) -> Redactor:
        """Return what removes the secrets. Raises :class:`~transports.errors.UsageError` for an invalid pattern."""
        try:
            return Redactor(self.fields, self.patterns, known=known)
        except re.error as error:
            raise UsageError(f"patterns= of a recording: {error.pattern!r} is no regular expression: {error}") from None


class Writer:
    """Writes one recording.

    An existing file is replaced if it is a recording, and its content in the folder beside it goes. No symlink is
    followed: in the place of the file or of the folder it raises :class:`~transports.errors.UsageError`, as do any
    other file, and a folder of another user. Every method raises :class:`~transports.errors.StoreError` if the disk
    refuses.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._content = Tree(_folder(path), own=True)
        with map_os_errors("write the recording", path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._opened()
            try:
                self._replace()
            except BaseException:
                self._file.close()
                raise
        self._began = time.monotonic()
        self._line(header)

    def _opened(self) -> FileIO:
        try:
            fd = open_file(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            regular_file(os.dup(fd), str(self._path)).close()
        except OSError as error:
            if error.errno in SYMLINK:
                raise UsageError(f"{self._path} is a symlink; name the file that is meant") from None
            raise
        return FileIO(fd, "a")

    def _replace(self) -> None:
        """Empty the file, and remove the content of the recording that it was."""
        head = read_at(self._file.fileno(), 64, 0)
        if head and b'"abp_recording"' not in head:
            raise UsageError(f"{self._path} is there already and is no recording; name another file")
        try:
            with self._content.folder() as folder:
                for name in folder.names():
                    if head and (_SHA256.fullmatch(name) or name.startswith(_STAGED)):
                        folder.unlink(name)
        except FileNotFoundError:
            pass
        except StoreError:
            raise UsageError(
                f"{self._content.root} is a symlink, no folder, or another user's, and content would go there; remove "
                "it, or record to another file"
            ) from None
        self._file.truncate(0)

    @property
    def now(self) -> float:
        """Seconds since the recording began."""
        return round(time.monotonic() - self._began, 4)

    def write(self, line: Entry) -> None:
        """Append one line; after :meth:`close` does nothing.

        Raises :class:`TypeError` and :class:`ValueError` for values that JSON cannot hold.
        """
        if not self._file.closed:
            self._line(line)

    def _line(self, line: BaseModel) -> None:
        data = encode_json(line.model_dump(exclude_defaults=True) | _required_fields(line)) + b"\n"
        with map_os_errors("write the recording", self._path.parent):
            self._file.write(data)

    def store_content(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Store content and return its SHA-256. Content that is stored already takes no more space."""
        digest, staged = hashlib.sha256(), f"{_STAGED}{secrets.token_hex(8)}"
        with (
            map_os_errors("write the recording", self._content.root),
            self._content.folder(create=True) as folder,
        ):
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
        """Close the file. Idempotent."""
        self._file.close()


def _required_fields(line: BaseModel) -> dict[str, object]:
    """Return the fields that a line must have although they are defaults."""
    return {"does": line.does} if hasattr(line, "does") else {}


class Reader:
    """Reads one recording.

    Every method raises :class:`~transports.errors.BadRecording`, whose message says the line and how to repair it, and
    whose ``details["line"]`` is its number.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._content = Tree(_folder(path), own=False)
        try:
            data = read_regular(path, _MAX_LINES)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadRecording(
                f"cannot read the recording {path}: {reason}; make one with record= or `abp call --record`"
            ) from None
        *lines, rest = data.split(b"\n")
        if not lines or b'"abp_recording"' not in lines[0]:
            raise self.error(1, "this is no recording", "name a file that record= or `abp call --record` has written")
        self.header = self._header(lines[0])
        #: The lines after the header, each with its number.
        self.entries: list[tuple[int, Entry]] = [(at, self._entry(at, line)) for at, line in enumerate(lines[1:], 2)]
        if rest:
            logger.warning("%s ends in the middle of line %d, which is left out", path, len(lines) + 1)

    def error(self, line: int, what: str, fix: str) -> BadRecording:
        """Return the error for one line: ``what`` is wrong, and how to ``fix`` it."""
        return BadRecording(f"{self.path}, line {line}: {what}; {fix}", details={"path": str(self.path), "line": line})

    def _header(self, data: bytes) -> Header:
        if has_more_values(data, MAX_ON_LOOP):
            raise self.error(1, f"it has more than {MAX_ON_LOOP:,} values and names", "record again")
        try:
            version = json.loads(data)["abp_recording"]
            newer = isinstance(version, int) and version > FORMAT
        except (ValueError, KeyError, TypeError, RecursionError):
            newer = False
        if newer:
            raise self.error(
                1,
                f"it was written by a newer version (format {version}, this one reads {FORMAT})",
                "upgrade abp-transports, or record again",
            )
        try:
            return Header.model_validate_json(data)
        except ValidationError as error:
            raise self._wrong(1, error) from None

    def _entry(self, at: int, data: bytes) -> Entry:
        if has_more_values(data, MAX_LISTED):
            raise self.error(at, f"it has more than {MAX_LISTED:,} values and names", "record again")
        try:
            return ENTRY.validate_json(data)
        except ValidationError as error:
            raise self._wrong(at, error) from None

    def _wrong(self, at: int, error: ValidationError) -> BadRecording:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return self.error(
            at, f"{where}: {first['msg']}" if where else first["msg"], "undo what was edited, or record again"
        )

    def content(self, leaf: ContentEntry, line: int) -> FileIO:
        """Return the content of an entry as a file, open at its beginning. Raises unless its SHA-256 is the recorded
        one."""
        path, digest = self._content.root / str(leaf.sha256), hashlib.sha256()
        try:
            file = self._open(path.name)
            try:
                if os.fstat(file.fileno()).st_size > _MAX_CONTENT:
                    what = f"its content {path} is larger than {_MAX_CONTENT:,} bytes"
                    raise self.error(line, what, "put the file back, or record again")
                while file.tell() <= _MAX_CONTENT and (chunk := file.read(_CHUNK)):
                    digest.update(chunk)
                file.seek(0)
                if digest.hexdigest() != leaf.sha256:
                    what = f"its content {path} was changed"
                    raise self.error(line, what, "put the file back as it was, or record again")
            except BaseException:
                file.close()
                raise
        except (OSError, StoreError) as error:
            reason = error.message if isinstance(error, StoreError) else error.strerror or error
            what = f"its content {path} cannot be read ({reason})"
            raise self.error(line, what, "put the file back, or record again") from None
        return file

    def _open(self, name: str) -> FileIO:
        with self._content.folder() as folder:
            return regular_file(folder.open(name), name)


def read_header(path: Path) -> Header | None:
    """Return the header of a recording, or ``None`` if it cannot be read: opening it will say why."""
    try:
        with open_regular(path) as file:
            return Header.model_validate_json(file.read(_CHUNK).partition(b"\n")[0])
    except (OSError, ValueError):
        return None


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.d")
