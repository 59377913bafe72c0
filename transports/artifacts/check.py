"""What :meth:`~transports.artifacts.ArtifactStore.fsck` found."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Checked", "Problem"]


@dataclass(frozen=True, slots=True)
class Problem:
    """``kind`` is ``content`` (missing or damaged), ``metadata`` (unreadable), ``index`` (it said something else than
    the metadata; repaired), ``symlink`` (in a folder of the store) or ``orphan`` (content that no metadata names).
    ``id`` is an artifact's id or a path below the store."""

    kind: str
    id: str
    message: str


@dataclass(frozen=True, slots=True)
class Checked:
    """How many artifacts were read, their bytes, and what is wrong."""

    artifacts: int
    size_bytes: int
    problems: tuple[Problem, ...]

    def as_dict(self) -> dict[str, object]:
        """As JSON."""
        return asdict(self) | {"problems": [asdict(problem) for problem in self.problems]}
