"""Plug-ins: transports of other distributions, under the entry-point group ``abp.transports``.

The name of an entry point is a URL scheme (``connect("myscheme://…")``) or a transport's name (``transport="mine"``);
what it names is called as ``factory(target, timeout=seconds)`` and returns a :class:`~transports.Transport`::

    [project.entry-points."abp.transports"]
    myscheme = "my_package:MyTransport"
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from ..base import Transport
from ..errors import UsageError

__all__ = ["Plugin", "installed_plugins", "make_transport"]

GROUP = "abp.transports"


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point: its ``name``, the object it refers to, and its distribution (``my-package 1.2``)."""

    name: str
    value: str
    distribution: str


def installed_plugins() -> list[Plugin]:
    """Return the plug-ins that are installed, by name. Imports none of them."""
    return [Plugin(point.name, point.value, _distribution_of(point)) for point in sorted(entry_points(group=GROUP))]


def make_transport(name: str, target: str, *, timeout: float) -> Transport | None:
    """Return the transport that the plug-in ``name`` makes for ``target``; ``None`` if there is no such plug-in.

    ``timeout`` in seconds is for connecting. Raises :class:`~transports.errors.UsageError` for a plug-in that does not
    work, and for a name that several distributions use for different objects.
    """
    points = tuple(entry_points(group=GROUP, name=name))
    if not points:
        return None
    (point, *others) = points
    label = f"the transport {name!r} of {_distribution_of(point)}"
    if any(other.value != point.value for other in others):
        also = ", ".join(_distribution_of(other) for other in others)
        raise UsageError(f"{label} is offered by {also}, too; uninstall all but one")
    try:
        made = point.load()(target, timeout=timeout)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{label} does not work ({type(error).__name__}: {error}); reinstall or report it") from error
    if not isinstance(made, Transport):
        raise UsageError(f"{label} made a {type(made).__name__}, which is no transports.Transport; please report it")
    return made


def _distribution_of(point: EntryPoint) -> str:
    return f"{point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
