"""The metadata file of one artifact, ``.abp/meta/<id>.json``: what it says and how it is checked. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .base import ArtifactRef

__all__ = ["ID", "Name", "Record"]

#: Ids that this library makes; nothing else is ever joined to a path.
ID = re.compile(r"[A-Za-z0-9_-]{1,64}_([0-9a-f]{12,64})")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Name:
    """A readable file of an artifact: its ``name`` in the root, and the one that was ``asked`` for ("" if none)."""

    name: str
    asked: str


@dataclass(frozen=True, slots=True)
class Record:
    """Everything a metadata file holds. The last of ``names`` is the current one."""

    id: str
    sha256: str
    size_bytes: int
    mime_type: str
    names: tuple[Name, ...]
    source: Mapping[str, object] = field(default_factory=dict)

    @property
    def age_key(self) -> tuple[str, str]:
        """Sorts the oldest first."""
        return str(self.source.get("created", "")), self.id

    def ref(self, path: Path | None) -> ArtifactRef:
        """The reference to hand out; ``path`` is the readable file, if there is one."""
        return ArtifactRef(
            id=self.id,
            uri=f"artifact://{self.id}",
            path=str(path) if path else None,
            filename=path.name if path else self.names[-1].name,
            mime_type=self.mime_type,
            size_bytes=self.size_bytes,
            sha256=self.sha256,
            source=dict(self.source),
        )

    def encode(self) -> bytes:
        """The file's content."""
        return json.dumps(
            {
                "version": 1,
                "id": self.id,
                "sha256": self.sha256,
                "size_bytes": self.size_bytes,
                "mime_type": self.mime_type,
                "names": [[name.name, name.asked] for name in self.names],
                "source": self.source,
            },
            indent=1,
        ).encode()

    @classmethod
    def decode(cls, data: bytes, artifact_id: str) -> Record:
        """Raises :class:`ValueError` unless ``data`` is the whole, unaltered shape of :meth:`encode`."""
        try:
            raw = json.loads(data)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error
        if not isinstance(raw, dict) or raw.get("version") != 1 or raw.get("id") != artifact_id:
            raise ValueError("not the metadata of this id")
        match raw:
            case {
                "sha256": str(sha256),
                "size_bytes": int(size),
                "mime_type": str(mime_type),
                "names": [*pairs],
                "source": dict(source),
            } if _SHA256.fullmatch(sha256) and size >= 0 and pairs:
                return cls(artifact_id, sha256, size, mime_type, tuple(map(_name, pairs)), source)
        raise ValueError("fields are missing or of another type")


def _name(pair: object) -> Name:
    match pair:
        case [str(name), str(asked)] if name not in ("", ".", "..") and "/" not in name and "\0" not in name:
            return Name(name, asked)
    raise ValueError("a file name is not valid")
