"""Database access (SQLite, PostgreSQL): one connection in a thread of its own, and transactions.

* :mod:`._transactions` — the protocol of a connection, and :class:`Transactions`, which retries lost connections.
* :mod:`._sqlite`, :mod:`._postgres` — the two connections; every SQLite file is opened by :func:`open_sqlite`.
"""
