"""Plug-ins: objects that other distributions register under an entry-point group of this kit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    value: object
    label: str


def installed_plugins(group: str) -> list[str]:
    """Return the names of the plug-ins of a group. They are not imported."""
    return sorted(_entry_points(group).names)


def load_plugin(group: str, name: str, kind: str) -> LoadedPlugin | None:
    """Import a plug-in; return ``None`` if the group has none of this name. ``kind`` is a label in errors, such as
    ``transport``. Raises :class:`~transports.errors.UsageError` for a plug-in that cannot be imported, and for a name
    that several distributions use for different objects."""
    points = [point for point in _entry_points(group) if point.name == name]
    if not points:
        return None
    point, *others = points
    label = f"the {kind} {name!r} of {_distribution_of(point)}"
    if any(other.value != point.value for other in others):
        other_distributions = ", ".join(_distribution_of(other) for other in others)
        raise UsageError(f"{label} is offered by {other_distributions}, too; uninstall all but one")

    with blame_plugin(label):
        return LoadedPlugin(point.load(), label)


@contextmanager
def blame_plugin(label: str) -> Iterator[None]:
    """Turn an exception into a :class:`~transports.errors.UsageError` that names the plug-in, unless it is one
    already."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{label} does not work ({type(error).__name__}: {error}); reinstall or report it") from error


def _entry_points(group: str) -> EntryPoints:
    return _read_entry_points(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _read_entry_points(group: str, path: tuple[str, ...]) -> EntryPoints:
    """Cached for each ``sys.path``, since reading opens a file of each distribution."""
    from importlib.metadata import entry_points  # late: it takes 20 ms to load

    return entry_points(group=group)


def _distribution_of(point: EntryPoint) -> str:
    if point.dist is None:
        return "an unknown distribution"
    return f"{point.dist.name} {point.dist.version}"
