"""Database access (SQLite, PostgreSQL): one connection in a thread of its own, and transactions.

* :mod:`.transactions` — the protocol of a connection, and :class:`Transactions`, which retries lost connections.
* :mod:`.sqlite`, :mod:`.postgres` — the two connections.
"""

from __future__ import annotations

from .postgres import PostgresConnection, PostgresUrl, without_password
from .sqlite import SqliteConnection
from .transactions import Connection, Cursor, Transactions, Value, without_nul

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
