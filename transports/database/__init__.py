"""Database access (SQLite, PostgreSQL): one connection in a thread of its own, and transactions.

* :mod:`._transactions` — the protocol of a connection, and :class:`Transactions`, which retries lost connections.
* :mod:`._sqlite`, :mod:`._postgres` — the two connections.
"""

from __future__ import annotations

from ._postgres import PostgresConnection, PostgresUrl, without_password
from ._sqlite import SqliteConnection
from ._transactions import Connection, Cursor, Transactions, Value, without_nul

__all__ = [
    "Connection",
    "Cursor",
    "PostgresConnection",
    "PostgresUrl",
    "SqliteConnection",
    "Transactions",
    "Value",
    "without_nul",
    "without_password",
]
