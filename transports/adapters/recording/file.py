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

from ...artifacts.os_errors import map_os_errors
from ...errors import BadRecording, UsageError
from ...protocol.redaction import Redactor
from ...protocol.secrets import KNOWN_SECRETS, KnownSecrets
from ...protocol.strict_json import encode_json
from .entries import ENTRY, FORMAT, ContentEntry, Entry, Header

__all__ = ["Reader", "Recording", "Writer", "read_header"]

logger = logging.getLogger("transports.recording")

_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


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

    An existing file is replaced if it is a recording; else raises :class:`~transports.errors.UsageError`. Every method
    raises :class:`~transports.errors.StoreError` if the disk refuses.
    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._folder = _folder(path)
        with map_os_errors("write the recording", path.parent):
            self._replace()
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = FileIO(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600), "a")
        self._began = time.monotonic()
        self._line(header)

    def _replace(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            head = file.read(64)
        if head and b'"abp_recording"' not in head:
            raise UsageError(f"{self._path} is there already and is no recording; name another file")
        for content in self._folder.glob("*"):
            if _SHA256.fullmatch(content.name):
                content.unlink()

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
        digest = hashlib.sha256()
        with map_os_errors("write the recording", self._folder):
            self._folder.mkdir(mode=0o700, exist_ok=True)
            staged = self._folder / f".staged-{secrets.token_hex(8)}"
            try:
                with staged.open("xb") as file:
                    for chunk in chunks:
                        digest.update(chunk)
                        file.write(chunk)
                staged.replace(self._folder / digest.hexdigest())
            finally:
                staged.unlink(missing_ok=True)
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
        self._folder = _folder(path)
        try:
            data = path.read_bytes()
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

    def content(self, leaf: ContentEntry, line: int) -> Path:
        """Return the file with the content of an entry. Raises unless its SHA-256 is the recorded one."""
        path = self._folder / str(leaf.sha256)
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            what = f"its content {path} cannot be read ({error.strerror or error})"
            raise self.error(line, what, "put the file back, or record again") from None
        if digest.hexdigest() != leaf.sha256:
            raise self.error(line, f"its content {path} was changed", "put the file back as it was, or record again")
        return path


def read_header(path: Path) -> Header | None:
    """Return the header of a recording, or ``None`` if it cannot be read: opening it will say why."""
    try:
        with path.open("rb") as file:
            return Header.model_validate_json(file.readline(_CHUNK))
    except (OSError, ValueError):
        return None


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.d")
