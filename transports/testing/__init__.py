"""Tools for tests of apps, of transports, and of programs that use them. :mod:`transports` itself does not load them.

* :mod:`.plugin` — the pytest plugin.
* :class:`Golden`, :func:`assert_schema`, :func:`assert_size` — assertions about results.
* :mod:`.conformance` — conformance check of an app against ABP.
* :mod:`.contract` — the required behaviours of every transport, for authors of transports.
* :class:`Call` — argument of the handlers of a :class:`transports.MemoryTransport`.
"""

from __future__ import annotations

from .._internal.lazy import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
