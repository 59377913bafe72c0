"""Pool of sessions and browsers for concurrent calls.

:mod:`._pool` calls, :mod:`._leases` gives each call a session to itself, :mod:`._fleet` keeps the browsers.
"""
