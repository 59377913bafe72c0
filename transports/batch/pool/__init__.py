"""Pool of sessions and browsers for concurrent calls.

* :mod:`._pool` — the :class:`Pool`: calls, jobs and free memory.
* :mod:`._leases` — leases of sessions: opening, exclusive use, return.
* :mod:`._fleet` — the browsers and their slots: starting, watching and replacing browsers, statistics, latency.
"""
