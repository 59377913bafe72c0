"""Tools for tests: of apps, of transports, and of programs that use them. :mod:`transports` itself loads none of it.

* :mod:`.plugin` — the pytest plugin; :mod:`.options`, :mod:`.run_folder`, :mod:`.failure_report` and :mod:`.servers` do
  its work.
* :class:`Golden`, :func:`assert_schema`, :func:`assert_size` — assertions about results.
* :mod:`.conformance` — checks whether an app speaks ABP.
* :mod:`.contract` — the behaviours that every transport must show, for authors of transports.
* :class:`Call` — what a handler of a :class:`transports.MemoryTransport` is given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..adapters.memory import Call
    from ._assertions import Golden, assert_schema, assert_size

__all__ = ["Call", "Golden", "assert_schema", "assert_size"]


if not TYPE_CHECKING:  # a type checker would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load a public name on first use: the pytest plugin imports this package in every run of pytest."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        home = "..adapters.memory" if name == "Call" else ".assertions"
        found: object = getattr(importlib.import_module(home, __name__), name)
        return found
