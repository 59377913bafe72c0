"""The URL of an index, which follows ``?index=`` in the URL of an object store."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from ...database import Connection, PostgresConnection, SqliteConnection, without_password
from ...errors import StoreUnavailable, UsageError
from ...protocol import redact_url

_NAME = "the index"


def split_index(url: str) -> tuple[str, str | None]:
    """Return the URL of a store without its index, and the URL of the index.

    Everything after ``?index=`` belongs to the index, its own query too. It may be percent-encoded as a whole.
    """
    store, mark, index = url.partition("?index=")
    return store, (index if "://" in index else unquote(index)) if mark else None


def open_index(address: str) -> tuple[Connection, str]:
    """Return the database at ``postgresql://[user@]host[:port]/database`` or ``sqlite:///folder/file``, not connected
    yet, and its URL without a password.

    Raises :class:`~transports.errors.UsageError` for any other URL, or if the extra ``postgres`` is missing.
    """
    scheme, _, rest = address.partition("://")
    if scheme in ("postgresql", "postgres"):
        return PostgresConnection(address, _NAME, StoreUnavailable), without_password(address)
    path = unquote(rest)
    if scheme == "sqlite" and path.startswith("/") and not path.endswith("/") and "\0" not in path and "?" not in rest:
        advice = "name another file, or delete this one: it is rebuilt"
        return SqliteConnection(Path(path), _NAME, StoreUnavailable, advice), address
    raise UsageError(
        f"{redact_url(address)!r} is not an index; use postgresql://user@host/database, or "
        "sqlite:///absolute/file.sqlite (# as %23, ? as %3F)"
    )
