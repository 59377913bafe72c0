"""Tools for tests: of apps, of transports, and of programs that use them. :mod:`transports` itself loads none of it.

* :mod:`.plugin` — the pytest plugin; :mod:`.options`, :mod:`.run_folder`, :mod:`.failure_report` and :mod:`.servers` do
  its work.
* :mod:`.assertions` — assertions about results.
* :mod:`.conformance` — checks whether an app speaks ABP.
* :mod:`.contract` — the behaviours that every transport must show, for authors of transports.
* :class:`Call` — what a handler of a :class:`transports.MemoryTransport` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..adapters.memory import Call

__all__ = ["Call"]


def __getattr__(name: str) -> object:
    """Load :class:`Call` on first use: the pytest plugin imports this package in every run of pytest."""
    if name != "Call":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ..adapters.memory import Call

    return Call
