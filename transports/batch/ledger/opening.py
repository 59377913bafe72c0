"""Which ledger an address means."""

from __future__ import annotations

import os
from pathlib import Path

from ...database import PostgresUrl
from ...errors import UsageError
from ...protocol.urls import redact_url
from .database import Database
from .ledger import Ledger
from .postgres import PostgresDatabase
from .sqlite import SqliteDatabase
from .view import LedgerView

__all__ = ["open_ledger", "open_view"]


def open_ledger(where: str | os.PathLike[str], *, existing: bool = False, read_only: bool = False) -> Ledger:
    """Return the ledger of a run, which ``async with`` opens.

    ``where`` is the run's folder, whose ``ledger.sqlite`` it is, or ``postgresql://[user@]host[:port]/database?run=NAME``
    for workers on many machines; without ``run=`` the run is called ``default``. With ``existing``,
    opening raises :class:`~transports.errors.LedgerError` for a run without an input, and writes nothing. One that is
    ``read_only`` can be looked at alone. Raises
    :class:`~transports.errors.UsageError` for another kind of address, or without the extra ``postgres``.
    """
    return Ledger(*_database_at(os.fspath(where), read_only=read_only), existing=existing or read_only)


def open_view(where: str | os.PathLike[str]) -> LedgerView:
    """Return what looks into the ledger of a run that is there already, and changes nothing. ``where`` is as in
    :func:`open_ledger`, and so is what is raised."""
    return LedgerView(*_database_at(os.fspath(where), read_only=True))


def _database_at(where: str, *, read_only: bool = False) -> tuple[Database, str]:
    """The database of an address, and the name that the run has in it."""
    scheme, colon, _ = where.partition("://")
    if not colon:
        return SqliteDatabase(Path(where), read_only=read_only), ""
    if scheme not in ("postgresql", "postgres"):
        raise UsageError(f"{redact_url(where)} is no ledger; name a folder, or postgresql://host/database?run=NAME")
    address, run = PostgresUrl.read(where).take("run")
    return PostgresDatabase(address, read_only=read_only), run or "default"
