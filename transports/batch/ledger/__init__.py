"""Ledger of a run: the state and outcome of each job, in SQLite in the run's folder, or in PostgreSQL for workers on
many machines.

* :mod:`._ledger` — the :class:`Ledger` of a worker; :mod:`._reads` — :class:`LedgerView`: lists and statistics.
* :mod:`._writes` — adding, leasing and settling jobs; :mod:`._schema` — records, databases and tables.
"""
