"""Sessions and browsers for many calls at once.

* :mod:`.pool` — the :class:`Pool`: calls and jobs. :mod:`.leases` — each has a session for itself, and gives it back.
* :mod:`.slots` — who gets which slot next. :mod:`.members` — a browser of the pool, and its slots.
* :mod:`.fleet` — browsers: started one after the other, watched, replaced. :mod:`.endpoints` — where they come from.
* :mod:`.held` — a session that is held open, and what it leaves in its context.
* :mod:`.memory`, :mod:`.latency` — what is measured; :mod:`.stats` — what is told.
"""

from __future__ import annotations

from ._fleet import BrowserStats, Endpoint, PoolStats
from ._leases import Reuse
from ._pool import Pool

__all__ = ["BrowserStats", "Endpoint", "Pool", "PoolStats", "Reuse"]
