"""Tools for tests: of apps, of transports, and of programs that use them. :mod:`transports` itself loads none of it.

* :mod:`.plugin` — the pytest plugin; :mod:`.options`, :mod:`.run_folder`, :mod:`.failure_report` and :mod:`.servers` do
  its work.
* :class:`Golden`, :func:`assert_schema`, :func:`assert_size` — assertions about results.
* :mod:`.conformance` — checks whether an app speaks ABP.
* :mod:`.contract` — the behaviours that every transport must show, for authors of transports.
* :class:`Call` — what a handler of a :class:`transports.MemoryTransport` is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from ..adapters.memory import Call
    from ._assertions import Golden, assert_schema, assert_size
    from .conformance._inputs import CannotGenerate as CannotGenerate, generated_params as generated_params
else:  # the pytest plugin imports this package in every run of pytest
    __getattr__ = lazy_names(
        __name__,
        {
            ".adapters.memory": ("Call",),
            "_assertions": ("Golden", "assert_schema", "assert_size"),
            "conformance._inputs": ("CannotGenerate", "generated_params"),
        },
    )

__all__ = ["Call", "Golden", "assert_schema", "assert_size"]
