"""Tools for tests of apps, of transports, and of programs that use them. :mod:`transports` itself does not load them.

* :mod:`.plugin` — the pytest plugin; :mod:`._failure_report` — its reports of failed tests.
* :class:`Golden`, :func:`assert_schema`, :func:`assert_size` (:mod:`._assertions`) — assertions about results.
* :mod:`.conformance` — conformance check of an app against ABP.
* :mod:`.contract` — the required behaviours of every transport, for authors of transports.
* :class:`Call` — argument of the handlers of a :class:`transports.MemoryTransport`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ..memory import Call
    from ._assertions import Golden, assert_schema, assert_size
    from .conformance._inputs import CannotGenerate as CannotGenerate, generated_params as generated_params
else:  # the pytest plugin imports this package in every run of pytest
    __getattr__ = lazy_names(
        __name__,
        {
            ".memory": ("Call",),
            "_assertions": (
                "Golden",
                "assert_schema",
                "assert_size",
            ),
            "conformance._inputs": (
                "CannotGenerate",
                "generated_params",
            ),
        },
    )

__all__ = ["Call", "Golden", "assert_schema", "assert_size"]
