"""Transports of other distributions, under the entry-point group ``abp.transports``.

The name of an entry point is a URL scheme (``connect("myscheme://…")``) or a transport's name (``transport="mine"``);
what it names is called as ``factory(target, timeout=seconds)`` and returns a :class:`~transports.Transport`::

    [project.entry-points."abp.transports"]
    myscheme = "my_package:MyTransport"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ..base import Transport
from ..errors import UsageError
from ..plugins import blame_plugin, load_plugin

__all__ = ["GROUP", "make_transport"]

#: The entry-point group of transports.
GROUP = "abp.transports"


def make_transport(name: str, target: str, *, timeout: float) -> Transport | None:
    """Return the transport that the plug-in ``name`` makes for ``target``; ``None`` if there is no such plug-in.

    ``timeout`` in seconds is for connecting. Raises :class:`~transports.errors.UsageError` for a plug-in that does not
    work, and for a name that several distributions use for different objects.
    """
    plugin = load_plugin(GROUP, name, "transport")
    if plugin is None:
        return None
    with blame_plugin(plugin.label):
        made = cast(Callable[..., object], plugin.value)(target, timeout=timeout)
    if not isinstance(made, Transport):
        raise UsageError(
            f"{plugin.label} made a {type(made).__name__}, which is no transports.Transport; please report it"
        )
    return made
