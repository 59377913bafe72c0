"""Database access (SQLite, PostgreSQL): one connection in a thread of its own, and transactions.

* :mod:`._transactions` — the protocol of a connection, and :class:`Transactions`, which retries lost connections.
* :mod:`._sqlite`, :mod:`._postgres` — the two connections; every SQLite file is opened by :func:`open_sqlite`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import lazy_names

if TYPE_CHECKING:
    from ._postgres import (
        PostgresConnection as PostgresConnection,
        PostgresUrl as PostgresUrl,
        without_password as without_password,
    )
    from ._sqlite import (
        SqliteConnection as SqliteConnection,
        open_sqlite as open_sqlite,
        sqlite_transaction as sqlite_transaction,
    )
    from ._transactions import (
        Connection as Connection,
        Cursor as Cursor,
        Transactions as Transactions,
        Value as Value,
        without_nul as without_nul,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "_postgres": (
                "PostgresConnection",
                "PostgresUrl",
                "without_password",
            ),
            "_sqlite": (
                "SqliteConnection",
                "open_sqlite",
                "sqlite_transaction",
            ),
            "_transactions": (
                "Connection",
                "Cursor",
                "Transactions",
                "Value",
                "without_nul",
            ),
        },
    )
