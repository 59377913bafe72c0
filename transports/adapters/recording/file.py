"""A recording on the disk: lines of JSON in ``FILE``, content in ``FILE.d/`` under its SHA-256.

A line is written whole and at once, after the content that it names: whoever is killed leaves a file that can be read
up to its last whole line.
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
from ...protocol.strict_json import encode_json
from .entries import FORMAT, Entry, Header, Leaf, entry

__all__ = ["Reader", "Recording", "Writer", "header_of"]

logger = logging.getLogger("transports.recording")

_CHUNK = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Recording:
    """Where a conversation is recorded, and what else is secret in it: ``fields`` are ends of names such as ``pin``,
    ``patterns`` regular expressions whose matches (or their group ``secret``) are replaced. Content is never looked
    into."""

    path: Path | str
    fields: Sequence[str] = ()
    patterns: Sequence[str] = ()

    def scrubber(self) -> Redactor:
        """Raises :class:`~transports.errors.UsageError` for a pattern that is no regular expression."""
        try:
            return Redactor(self.fields, self.patterns)
        except re.error as error:
            raise UsageError(f"patterns= of a recording: {error.pattern!r} is no regular expression: {error}") from None


class Writer:
    """Writes one recording. A file that is there already is replaced if it is a recording, and refused if not: raises
    :class:`~transports.errors.UsageError`, and :class:`~transports.errors.StoreError` if the disk refuses."""

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
        """Append one line; after :meth:`close` nothing is written any more. Raises :class:`TypeError` and
        :class:`ValueError` for values that are no JSON."""
        if not self._file.closed:
            self._line(line)

    def _line(self, line: BaseModel) -> None:
        data = encode_json(line.model_dump(exclude_defaults=True) | _kept(line)) + b"\n"
        with map_os_errors("write the recording", self._path.parent):
            self._file.write(data)

    def keep(self, chunks: Iterable[bytes | memoryview]) -> str:
        """Store content; returns its SHA-256."""
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
        """Idempotent."""
        self._file.close()


def _kept(line: BaseModel) -> dict[str, object]:
    """What must be in a line although it is a default."""
    return {"does": line.does} if hasattr(line, "does") else {}


class Reader:
    """Reads one recording. Raises :class:`~transports.errors.BadRecording`, whose message names the line and what helps
    and whose ``details["line"]`` is its number."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._folder = _folder(path)
        try:
            data = path.read_bytes()
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadRecording(
                f"cannot read the recording {path}: {reason}; make one with record= or `abp call --record`"
            ) from error
        *lines, rest = data.split(b"\n")
        if not lines or b'"abp_recording"' not in lines[0]:
            raise self.bad(1, "this is no recording", "name a file that record= or `abp call --record` has written")
        self.header = self._header(lines[0])
        #: The lines after the header, each with its number.
        self.entries: list[tuple[int, Entry]] = [(at, self._entry(at, line)) for at, line in enumerate(lines[1:], 2)]
        if rest:
            logger.warning("%s ends in the middle of line %d, which is left out", path, len(lines) + 1)

    def bad(self, line: int, what: str, fix: str) -> BadRecording:
        """The error for one line."""
        return BadRecording(f"{self.path}, line {line}: {what}; {fix}", details={"path": str(self.path), "line": line})

    def _header(self, data: bytes) -> Header:
        try:
            version = json.loads(data)["abp_recording"]
            newer = isinstance(version, int) and version > FORMAT
        except (ValueError, KeyError, TypeError, RecursionError):
            newer = False
        if newer:
            raise self.bad(
                1,
                f"it was written by a newer version (format {version}, this one reads {FORMAT})",
                "upgrade abp-transports, or record again",
            )
        try:
            return Header.model_validate_json(data)
        except ValidationError as error:
            raise self._wrong(1, error) from error

    def _entry(self, at: int, data: bytes) -> Entry:
        try:
            return entry.validate_json(data)
        except ValidationError as error:
            raise self._wrong(at, error) from error

    def _wrong(self, at: int, error: ValidationError) -> BadRecording:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return self.bad(
            at, f"{where}: {first['msg']}" if where else first["msg"], "undo what was edited, or record again"
        )

    def content(self, leaf: Leaf, line: int) -> Path:
        """The file with a leaf's content, as it was recorded."""
        path = self._folder / str(leaf.sha256)
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            what = f"its content {path} cannot be read ({error.strerror or error})"
            raise self.bad(line, what, "put the file back, or record again") from error
        if digest.hexdigest() != leaf.sha256:
            raise self.bad(line, f"its content {path} was changed", "put the file back as it was, or record again")
        return path


def header_of(path: Path) -> Header | None:
    """What a recording says of itself. One that cannot be read says so when it is opened."""
    try:
        with path.open("rb") as file:
            return Header.model_validate_json(file.readline(_CHUNK))
    except (OSError, ValueError):
        return None


def _folder(path: Path) -> Path:
    return path.with_name(f"{path.name}.d")
