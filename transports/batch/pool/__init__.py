"""Pool of sessions and browsers for concurrent calls.

* :mod:`.pool` — the :class:`Pool`: calls, jobs and free memory.
* :mod:`.leases` — leases of sessions: opening, exclusive use, return.
* :mod:`.fleet` — the browsers and their slots: starting, watching and replacing browsers, statistics, latency.
"""

from __future__ import annotations

from .fleet import BrowserStats, Endpoint, PoolStats
from .leases import Reuse
from .pool import Pool

__all__ = ["BrowserStats", "Endpoint", "Pool", "PoolStats", "Reuse"]
