"""Tools for tests of apps, of transports, and of programs that use them. :mod:`transports` itself does not load them.

* :mod:`.plugin` — the pytest plugin; :mod:`.failure_report` — its reports of failed tests.
* :class:`Golden`, :func:`assert_schema`, :func:`assert_size` (:mod:`.assertions`) — assertions about results.
* :mod:`.conformance` — conformance check of an app against ABP.
* :mod:`.contract` — the required behaviours of every transport, for authors of transports.
* :class:`Call` — argument of the handlers of a :class:`transports.MemoryTransport`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..adapters.memory import Call
    from .assertions import Golden, assert_schema, assert_size

__all__ = ["Call", "Golden", "assert_schema", "assert_size"]


if not TYPE_CHECKING:  # a type checker would accept any name because of __getattr__

    def __getattr__(name: str) -> object:
        """Load a public name on first use: the pytest plugin imports this package in every run of pytest."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "..adapters.memory" if name == "Call" else ".assertions"
        found: object = getattr(importlib.import_module(home, __name__), name)
        return found
