"""What the kit needs of a database (SQLite, PostgreSQL): one connection in a thread of its own, and transactions."""

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
