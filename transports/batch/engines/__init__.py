"""Engines for the workers of a batch. The ledger holds the state of the run; an engine holds none.

* :mod:`._local` — one worker in this process.
* :mod:`._ray_engine` — workers in Ray actors, scaled with the ledger's backlog.
"""
