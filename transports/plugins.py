"""Plug-ins: objects that other distributions register under an entry-point group of this kit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from .errors import UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

__all__ = ["LoadedPlugin", "Plugin", "blame_plugin", "installed_plugins", "load_plugin"]


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point: its ``name``, the object it refers to, and its distribution (``my-package 1.2``)."""

    name: str
    value: str
    distribution: str


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """The object of an entry point, and what an error calls it: ``the transport 'mine' of my-package 1.2``."""

    value: object
    label: str


def installed_plugins(group: str) -> list[Plugin]:
    """Return the plug-ins of an entry-point group that are installed, by name. Imports none of them."""
    return [Plugin(point.name, point.value, _distribution_of(point)) for point in sorted(_group(group))]


def load_plugin(group: str, name: str, kind: str) -> LoadedPlugin | None:
    """Return the object that is registered as ``name`` in ``group``, imported; ``None`` if there is none.

    ``kind`` is the word for it in errors, such as ``transport``. Raises :class:`~transports.errors.UsageError` for one
    that cannot be imported, and for a name that several distributions use for different objects.
    """
    points = [point for point in _group(group) if point.name == name]
    if not points:
        return None
    (point, *others) = points
    label = f"the {kind} {name!r} of {_distribution_of(point)}"
    if any(other.value != point.value for other in others):
        also = ", ".join(_distribution_of(other) for other in others)
        raise UsageError(f"{label} is offered by {also}, too; uninstall all but one")
    with blame_plugin(label):
        return LoadedPlugin(point.load(), label)


@contextmanager
def blame_plugin(label: str) -> Iterator[None]:
    """Turn what a plug-in raises into a :class:`~transports.errors.UsageError` that names it; its own are passed on."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{label} does not work ({type(error).__name__}: {error}); reinstall or report it") from error


def _group(group: str) -> EntryPoints:
    return _read_group(group, tuple(sys.path))


@lru_cache(maxsize=16)
def _read_group(group: str, path: tuple[str, ...]) -> EntryPoints:
    """The entry points of a group. Reading them opens a file of each distribution, so it is done once for a path."""
    from importlib.metadata import entry_points  # late: it takes 20 ms to load

    return entry_points(group=group)


def _distribution_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
