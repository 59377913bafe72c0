"""The metadata of one artifact, which stores keep beside its content: fields, file format, ids. No I/O."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from ..errors import ArtifactNotFound, Corrupt, UsageError
from ..protocol.strict_json import encode_json
from .clock import stamp
from .content import Description, Meter
from .metadata_json import LATEST, load, stored_at
from .ref import ArtifactRef, Scope

__all__ = [
    "ID",
    "Metadata",
    "Name",
    "OtherCase",
    "artifact_id",
    "candidate_ids",
    "damaged_metadata",
    "digest_prefix",
    "not_found",
]

#: Ids that this library makes; nothing else is ever joined to a path.
ID = re.compile(r"[A-Za-z0-9_-]{1,64}_[0-9a-f]{12,64}(?:-[0-9a-f]{20})?")
#: Suggested names of one content that are remembered.
_MAX_NAMES = 10
_LONGEST_NAME = 255  # bytes, the most that file systems take
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LONGEST_PLAIN = 4096


_NOBODY = Scope()


def artifact_id(namespace: str, digest: str, scope: Scope = _NOBODY, length: int = 12) -> str:
    """Return ``{namespace}_{sha256[:12]}`` (docs/requirements.md R2-5.3): the same content in one namespace is one
    artifact.

    In a scope, 20 more digits follow that depend on the content *and* the scope: the same content of two sessions is
    two artifacts, and nobody can guess the id from the content alone. ``length`` is the number of digits of the
    content's hash; it grows where two contents share their first digits.
    """
    head = f"{namespace}_{digest[:length]}"
    if not scope:
        return head
    whole = json.dumps([digest, scope.items()], ensure_ascii=True)
    return f"{head}-{hashlib.sha256(whole.encode()).hexdigest()[:20]}"


def candidate_ids(namespace: str, digest: str, scope: Scope) -> Iterator[str]:
    """Yield the ids that some content may have, the shortest first: a longer one is needed on a collision."""
    return (artifact_id(namespace, digest, scope, length) for length in (12, *range(16, 65, 8)))


def digest_prefix(key: str) -> str:
    """Return the digits of the content's SHA-256 that stand in an id, at least 12 of them."""
    return key.rpartition("_")[2].partition("-")[0]


def not_found(artifact_id: str) -> ArtifactNotFound:
    """Return the error for an id that is unknown, expired, or of another scope: a caller cannot tell these apart."""
    display_id = artifact_id if len(artifact_id) <= 200 else artifact_id[:200] + "…"
    return ArtifactNotFound(f"there is no artifact {display_id!r} in this store", details={"id": display_id})


def damaged_metadata(artifact_id: str, error: ValueError) -> Corrupt:
    """Return the error for metadata that :meth:`Metadata.decode` could not read."""
    return Corrupt(
        f"the metadata of artifact {artifact_id} is damaged ({error}); delete the artifact or store it again",
        details={"id": artifact_id},
    )


class OtherCase(FileNotFoundError):
    """The file is the metadata of an id that differs in case alone: the file system does not tell them apart."""


class Name(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A readable file of an artifact: its ``name`` in the root, and the name that was ``requested`` ("" if none)."""

    name: str
    requested: str


class Metadata(msgspec.Struct, frozen=True):
    """Everything that a store keeps of an artifact beside its content.

    The last of ``names`` is the current one. ``stored`` is when the artifact was stored last, in seconds since 1970.
    ``blob`` is the key of the content, in stores that do not find it by its hash.
    """

    id: str
    sha256: str
    size_bytes: int
    mime_type: str
    names: tuple[Name, ...]
    source: Mapping[str, object] = msgspec.field(default_factory=dict)
    scope: Scope = _NOBODY
    stored: float = 0.0
    blob: str = ""

    @classmethod
    def new(
        cls,
        key: str,
        meter: Meter,
        description: Description,
        scope: Scope,
        *,
        old: Metadata | None = None,
        names: tuple[Name, ...] = (),
        blob: str = "",
    ) -> Metadata:
        """Return the metadata of content that was measured and described. ``old`` is the metadata that it replaces:
        its time of creation stays, and its name unless another was suggested: then ``source`` says ``stored_again``."""
        earlier: dict[str, object] = {}
        if old and "created" in old.source:
            earlier["created"] = old.source["created"]
        if old and not description.suggested:
            earlier["stored_again"] = True
        if not names:
            names = (old.names[-1] if old and not description.suggested else Name(description.name, ""),)
        source = description.source | earlier | _requested_names(description, old)
        return cls(key, meter.sha256, meter.size, description.mime_type, names, source, scope, stamp(), blob)

    @property
    def age_key(self) -> tuple[str, str]:
        """The key that sorts metadata by age, the oldest first."""
        return str(self.source.get("created", "")), self.id

    def ref(self, path: Path | None = None) -> ArtifactRef:
        """Return the reference to hand out. ``path`` is the readable file, if there is one."""
        return ArtifactRef(
            id=self.id,
            uri=f"artifact://{self.id}",
            local_path=str(path) if path else None,
            filename=path.name if path else self.names[-1].name,
            mime_type=self.mime_type,
            size_bytes=self.size_bytes,
            sha256=self.sha256,
            source=dict(self.source),
            scope=self.scope,
        )

    def encode(self) -> bytes:
        """Return the metadata as the JSON of its file."""
        return msgspec.json.format(
            encode_json(
                {
                    "version": 1,
                    "id": self.id,
                    "sha256": self.sha256,
                    "size_bytes": self.size_bytes,
                    "mime_type": self.mime_type,
                    "names": [[name.name, name.requested] for name in self.names],
                    "source": self.source,
                    "scope": dict(self.scope.items()),
                    "stored": self.stored,
                    "blob": self.blob,
                },
            ),
            indent=1,
        )

    @classmethod
    def decode(cls, data: bytes, artifact_id: str) -> Metadata:
        """Return the metadata in a file of :meth:`encode`. Raises :class:`ValueError` if a field is missing or of
        another type, if the file is the metadata of another id, or if it holds what :meth:`encode` never writes and
        an index or a reader of JSON cannot take: numbers out of range, lone surrogates, deep nesting. Raises
        :class:`OtherCase` for an id that differs in case."""
        if (plain := _decode_plain(data, artifact_id)) is not None:
            return plain
        raw = load(data)
        if isinstance(raw, dict) and raw.get("id") != artifact_id and str(raw.get("id")).lower() == artifact_id.lower():
            raise OtherCase
        if not isinstance(raw, dict) or raw.get("version") != 1 or raw.get("id") != artifact_id:
            raise ValueError("not the metadata of this id")
        match raw:
            case {
                "sha256": str(sha256),
                "size_bytes": int(size),
                "mime_type": str(mime_type),
                "names": [*pairs],
                "source": dict(source),
            } if _SHA256.fullmatch(sha256) and size >= 0 and size is not True and pairs and mime_type.isprintable():
                names, scope = tuple(map(_name, pairs)), _scope(raw.get("scope", {}))
                stored, blob = stored_at(raw.get("stored"), source), raw.get("blob", "")
                if isinstance(blob, str):
                    return cls(artifact_id, sha256, size, mime_type, names, source, scope, stored, blob)
        raise ValueError("fields are missing or of another type")


class _Plain(msgspec.Struct):
    """The file of an artifact as :meth:`Metadata.encode` writes it."""

    version: Literal[1]
    id: str
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    size_bytes: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
    mime_type: str
    names: Annotated[tuple[Name, ...], msgspec.Meta(min_length=1)]
    source: dict[str, object]
    scope: dict[str, str]
    stored: Annotated[float, msgspec.Meta(ge=0, le=LATEST)]
    blob: str


_PLAIN = msgspec.json.Decoder(_Plain).decode


def _decode_plain(data: bytes, artifact_id: str) -> Metadata | None:
    """Decode in a tenth of the time what is as :meth:`Metadata.encode` writes it and holds nothing that needs a look at
    each value; ``None`` for all else, good or bad."""
    if len(data) > _LONGEST_PLAIN or not data.isascii() or b"\\" in data:
        return None
    try:
        raw = _PLAIN(data)
        if raw.id != artifact_id or not raw.mime_type.isprintable() or not all(map(_is_plain, raw.source.values())):
            return None
        for name in raw.names:
            _check_name(name.name)
        scope = _known_scope(tuple(raw.scope.items())) if raw.scope else _NOBODY
    except (ValueError, RecursionError):  # msgspec's errors are the first, too
        return None
    head = (raw.id, raw.sha256, raw.size_bytes, raw.mime_type, raw.names, raw.source)
    return Metadata(*head, scope, raw.stored, raw.blob)


def _is_plain(value: object) -> bool:
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    return isinstance(value, list) and all(type(inner) is str for inner in value)


@lru_cache(maxsize=1024)
def _known_scope(items: tuple[tuple[str, str], ...]) -> Scope:
    return _scope(dict(items))


def _requested_names(description: Description, old: Metadata | None) -> dict[str, object]:
    """The last file names that were suggested for the content, the newest last, as a part of its ``source``."""
    earlier = old.source.get("requested_names") if old else None
    names = [name for name in earlier if name != description.name] if isinstance(earlier, list) else []
    names = [*names, description.name][-_MAX_NAMES:] if description.suggested else names
    return {"requested_names": names} if names else {}


def _name(pair: object) -> Name:
    match pair:
        case [str(name), str(asked)]:
            _check_name(name)
            return Name(name, asked)
    raise ValueError("a file name is not valid")


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(name.encode()) > _LONGEST_NAME:
        raise ValueError("a file name is not valid")


def _scope(raw: object) -> Scope:
    try:
        return Scope(**raw) if isinstance(raw, dict) else _scope({"": raw})
    except (TypeError, UsageError) as error:
        raise ValueError(f"the scope is not valid: {error}") from error
