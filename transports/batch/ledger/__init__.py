"""Ledger of a run: the state and outcome of each job, in SQLite or PostgreSQL.

:mod:`._ledger` is for workers, :mod:`._reads` is for pages and statistics.
"""
