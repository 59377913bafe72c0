"""References to artifacts (:class:`ArtifactRef`), the scopes that they belong to, and what a check of a store finds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from ..errors import UsageError
from .files import ExportFile, copy_out

__all__ = ["MAX_SCOPE_CHARS", "ArtifactRef", "CheckReport", "Problem", "ReindexReport", "Scope", "export_file", "id_of"]

#: Longest value of a field of a scope, in characters.
MAX_SCOPE_CHARS = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of an artifact (docs/requirements.md R2-7.2): a tenant, a user, a session, a trace.

    A field that is ``None`` is left open: ``Scope(session="s")`` covers every trace of that session, and ``Scope()``
    covers everything, including artifacts without an owner. Each value is 1 to 200 printable characters. Raises
    :class:`~transports.errors.UsageError` otherwise.
    """

    tenant: str | None = None
    user: str | None = None
    session: str | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.items():
            if not isinstance(value, str) or not 0 < len(value) <= MAX_SCOPE_CHARS or not value.isprintable():
                raise UsageError(f"scope: {name} must be 1 to {MAX_SCOPE_CHARS} printable characters")

    def __bool__(self) -> bool:
        """Whether any field is set, so that something lies outside the scope."""
        return bool(self.items())

    def items(self) -> list[tuple[str, str]]:
        """Return the fields that are set, as pairs of name and value, from tenant to trace."""
        return [(name, value) for name in _NAMES if (value := getattr(self, name)) is not None]

    @property
    def holder(self) -> str | None:
        """Who has what is in the scope, as ``users`` of the settings file name them: the user, else ``tenant:`` and the
        tenant; ``None`` for the operator."""
        return self.user if self.user or not self.tenant else f"tenant:{self.tenant}"

    def covers(self, other: Scope) -> bool:
        """Return whether a view with this scope sees an artifact of ``other``."""
        return all(getattr(other, name) == value for name, value in self.items())

    def within(self, inner: Scope) -> Scope:
        """Return ``inner`` narrowed by this scope. Raises :class:`~transports.errors.UsageError` if a field differs."""
        both = Scope(**dict(inner.items()) | dict(self.items()))
        if not inner.covers(both):
            raise UsageError("scope: a view can only be narrowed, not moved to another tenant, user, session or trace")
        return both


_NAMES = tuple(one.name for one in fields(Scope))


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """A reference to a stored file. It can be given to a model: it holds no content and no credentials.

    ``local_path`` is the artifact's readable file on this machine, or ``None`` if the store has none. It is text, since
    a :class:`~pathlib.Path` takes longer to make than the rest of a reference and a long list needs few of them;
    :attr:`path` makes one. ``size_bytes`` and ``sha256`` (in hex) were verified when the artifact was stored.
    ``source`` says where it comes from, as JSON values:
    ``capability``, ``app``, ``created`` (ISO 8601, UTC), ``declared_mime_type``, ``sniffed_mime_type``, ``verified``
    (whether a declared size was compared), ``warnings``, ``stored_again`` (the same content was there already, and no
    other name was suggested, so it keeps the older one). A reference of :class:`~transports.NoneStore` has no content
    behind it; see :attr:`stored`.
    """

    id: str
    uri: str
    local_path: str | None
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    source: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope()

    @property
    def stored(self) -> bool:
        """Whether there is content to read; ``False`` for a reference that a store made without keeping the content
        (docs/requirements.md R2-7.4)."""
        return not (self.id.startswith("truncated_") and self.source.get("truncated") is True)

    @property
    def path(self) -> Path | None:
        """The artifact's readable file on this machine, or ``None`` if the store has none."""
        return None if self.local_path is None else Path(self.local_path)

    def as_dict(self) -> dict[str, object]:
        """Return the reference as JSON values, without ``source``; with ``scope`` if it has one.

        If the content was not :attr:`stored`, ``uri`` is ``None``, ``truncated`` is ``True``, ``warning`` says why,
        and ``preview`` has the first 500 characters of a text.
        """
        out: dict[str, object] = {
            "id": self.id,
            "uri": self.uri if self.stored else None,
            "path": self.local_path,
            "filename": self.filename,
            "mime_type": self.mime_type,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }
        if self.scope:
            out["scope"] = dict(self.scope.items())
        if not self.stored:
            out |= {name: self.source[name] for name in ("truncated", "warning", "preview") if name in self.source}
        return out

    def save_as(self, path: str | os.PathLike[str]) -> Path:
        """Copy the local file to ``path``, and return the absolute path. It blocks.

        Missing folders are made and an existing file is replaced. The file appears at once, after its size and SHA-256
        were verified. Raises :class:`~transports.errors.UsageError` if the store has no local file (use
        ``await app.save(ref, path)`` then) or ``path`` is a folder, :class:`~transports.errors.Corrupt` if the content
        has changed, and :class:`~transports.errors.StoreError` if a file cannot be read or written.
        """
        if self.path is None:
            raise UsageError(
                f"artifact {self.id} has no file on this machine; copy it out of its store with "
                "`await app.save(ref, path)` or `await store.export(ref, path)`"
            )
        return copy_out(self.path, export_file(self, path))


def id_of(artifact: ArtifactRef | str) -> str:
    """Return the id of a reference, or an id as it is. Raises :class:`~transports.errors.UsageError` for anything else,
    such as the whole result of a call."""
    if isinstance(artifact, ArtifactRef):
        return artifact.id
    if isinstance(artifact, str):
        return artifact
    kind = type(artifact).__name__
    raise UsageError(f"a {kind} is no artifact; give a reference, such as result.artifact(), or its id")


def export_file(ref: ArtifactRef, path: str | os.PathLike[str]) -> ExportFile:
    """Return a file for a copy of an artifact at ``path``. Nothing on the disk is touched."""
    return ExportFile(path, artifact_id=ref.id, size=ref.size_bytes, sha256=ref.sha256, original=ref.path)


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of a check.

    ``kind`` is ``content`` (missing or damaged), ``metadata`` (unreadable), ``index`` (it said something else than
    the metadata; repaired), ``symlink`` (in a folder of the store), ``orphan`` (content that no metadata names)
    or ``name`` (a readable name that no artifact has).
    ``id`` is an artifact's id or a path below the store."""

    kind: str
    id: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check: how many artifacts were read, how many bytes they have, and what is wrong."""

    artifacts: int
    size_bytes: int
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self) | {"problems": [asdict(problem) for problem in self.problems]}


@dataclass(frozen=True, slots=True)
class ReindexReport:
    """The result of comparing an index with its store: how many artifacts there are, the ids whose rows were corrected
    (none where the index was new), and the ids whose metadata cannot be read."""

    artifacts: int
    corrected: tuple[str, ...]
    unreadable: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values."""
        return asdict(self)
