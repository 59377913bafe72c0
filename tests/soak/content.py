"""Files whose bytes are known before they are asked for, and those that were stored."""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from dataclasses import dataclass, field

from transports import Result
from webapp_fixture import digest

#: Sizes in bytes that are asked for: inside an answer, by a handle or a download, in several pieces.
_SMALL, _MEDIUM, _LARGE = 10_000, 400_000, 1_500_000


@dataclass(frozen=True, slots=True)
class File:
    """A file that the app can make: its size in bytes and its SHA-256."""

    size: int
    sha256: str


@dataclass
class Contents:
    """The files that one store was asked to keep. No two are alike, so that each put makes one artifact.

    ``asked`` holds the hashes of files whose call has no outcome yet or failed; ``kept`` those that were answered and
    not deleted since, as (id, SHA-256), oldest first; ``answered`` and ``deleted`` count. ``shared`` are artifacts that
    many calls were answered with, and that nobody deletes.
    """

    kept: deque[tuple[str, str]] = field(default_factory=deque)
    shared: set[tuple[str, str]] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    answered: int = 0
    deleted: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next(self, chance: float) -> File:
        """Another file. ``chance``, from 0 to 1, says whether it is small, medium or large."""
        size = (_SMALL if chance < 0.6 else _MEDIUM if chance < 0.95 else _LARGE) + next(self._numbers)
        file = File(size, digest(size))
        self.asked.add(file.sha256)
        return file

    def stored(self, file: File, artifact_id: str, sha256: str) -> None:
        """The call for a file was answered with an artifact."""
        assert sha256 == file.sha256, f"{artifact_id} is another file than the app made"
        self.asked.discard(sha256)
        self.kept.append((artifact_id, sha256))
        self.answered += 1

    def share(self, answer: Result) -> None:
        """An answer is the same each time, and so are its artifacts, which nobody deletes."""
        self.shared |= {(ref.id, ref.sha256) for ref in answer.artifacts.values()}

    def oldest(self, most: int) -> tuple[str, str] | None:
        """The next one to delete, where more than ``most`` are kept. It counts as deleted."""
        if len(self.kept) <= most:
            return None
        self.deleted += 1
        return self.kept.popleft()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
