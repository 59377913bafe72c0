"""What stands for an artifact outside the store: :class:`ArtifactRef`, and owner it is: :class:`Scope`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from ..errors import UsageError

__all__ = ["ArtifactRef", "CheckReport", "Problem", "Scope"]

_LONGEST = 200


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose an artifact is (seed 002 §7.2). What is ``None`` is left open: ``Scope(session="s")`` covers every trace of
    that session, and ``Scope()`` covers everything, also what belongs to nobody.

    Each value is 1 to 200 characters. Raises :class:`~transports.errors.UsageError`.
    """

    tenant: str | None = None
    user: str | None = None
    session: str | None = None
    trace: str | None = None

    def __post_init__(self) -> None:
        for name, value in self.items():
            if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
                raise UsageError(f"scope: {name} must be 1 to {_LONGEST} printable characters")

    def __bool__(self) -> bool:
        """Whether it leaves anything out."""
        return bool(self.items())

    def items(self) -> list[tuple[str, str]]:
        """The values that are set, by name, in a fixed order."""
        return [(name, value) for name in _NAMES if (value := getattr(self, name)) is not None]

    def covers(self, other: Scope) -> bool:
        """Whether a view with this scope sees what belongs to ``other``."""
        return all(getattr(other, name) == value for name, value in self.items())

    def within(self, inner: Scope) -> Scope:
        """``inner``, narrowed by this scope. Raises :class:`~transports.errors.UsageError` where the two differ."""
        both = Scope(**dict(inner.items()) | dict(self.items()))
        if not inner.covers(both):
            raise UsageError("scope: a view can only be narrowed, not moved to another tenant, user, session or trace")
        return both


_NAMES = tuple(one.name for one in fields(Scope))


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """What stands for a stored file everywhere outside the store. It is fit for a model: no content, no credentials.

    ``path`` is a readable local path, or ``None`` where the store has none. ``source`` says where it comes from, in
    JSON values: ``capability``, ``app``, ``created`` (ISO 8601, UTC), ``declared_mime_type``, ``sniffed_mime_type``,
    ``verified`` (whether a declared size was compared), ``warnings``.
    """

    id: str
    uri: str
    path: str | None
    filename: str
    mime_type: str
    size_bytes: int
    sha256: str
    source: Mapping[str, object] = field(default_factory=dict)
    scope: Scope = Scope()

    def as_dict(self) -> dict[str, object]:
        """The reference as JSON, without ``source``; with ``scope`` if it belongs to somebody."""
        out: dict[str, object] = {
            "id": self.id,
            "uri": self.uri,
            "path": self.path,
            "filename": self.filename,
            "mime_type": self.mime_type,
            "size_bytes": self.size_bytes,
            "sha256": self.sha256,
        }
        if self.scope:
            out["scope"] = dict(self.scope.items())
        return out


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` is ``content`` (missing or damaged), ``metadata`` (unreadable), ``index`` (it said something else than
    the metadata; repaired), ``symlink`` (in a folder of the store) or ``orphan`` (content that no metadata names).
    ``id`` is an artifact's id or a path below the store."""

    kind: str
    id: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """How many artifacts were read, their bytes, and what is wrong."""

    artifacts: int
    size_bytes: int
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self) | {"problems": [asdict(problem) for problem in self.problems]}
