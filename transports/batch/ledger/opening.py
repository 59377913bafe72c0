"""Which ledger an address means."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from ...errors import UsageError
from ...protocol.urls import redact_url
from .ledger import Ledger
from .postgres import PostgresDatabase
from .sqlite import SqliteDatabase

__all__ = ["open_ledger"]


def open_ledger(where: str | os.PathLike[str], *, existing: bool = False) -> Ledger:
    """Return the ledger of a run, which ``async with`` opens.

    ``where`` is the run's folder, whose ``jobs.sqlite`` it is, or ``postgresql://[user@]host[:port]/database?run=NAME``
    for workers on many machines; without ``run=`` the run is called ``default``. With ``existing``,
    opening raises :class:`~transports.errors.LedgerError` for a run without an input, and writes nothing. Raises
    :class:`~transports.errors.UsageError` for another kind of address, or without the extra ``postgres``.
    """
    text = os.fspath(where)
    scheme, colon, _ = text.partition("://")
    if not colon:
        return Ledger(SqliteDatabase(Path(text)), "", existing=existing)
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"{redact_url(text)} is no ledger; name a folder, or postgresql://host/database?run=NAME")
    parts = urlsplit(text)
    query = parse_qsl(parts.query, keep_blank_values=True)
    run = next((value for name, value in reversed(query) if name == "run"), "") or "default"
    rest = urlencode([(name, value) for name, value in query if name != "run"])
    return Ledger(PostgresDatabase(urlunsplit(parts._replace(query=rest))), run, existing=existing)
