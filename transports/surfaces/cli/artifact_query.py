"""Options of ``abp artifacts list`` that say which artifacts are wanted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...artifacts import Query

__all__ = ["App", "Capability", "Larger", "Since", "Smaller", "Type", "Until", "query_of"]

_TIME = "a date, a time (2026-01-31T12:00Z), or so long ago: 30m, 1h, 7d"

Capability = Annotated[str | None, typer.Option("--capability", metavar="NAME", help="Only those of this capability.")]
App = Annotated[str | None, typer.Option("--app", metavar="ID", help="Only those of this app.")]
Type = Annotated[
    str | None, typer.Option("--type", metavar="TYPE", help="Only this MIME type, or a kind of them: image/.")
]
Since = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help=f"Only those that were stored first since then: {_TIME}.")
]
Until = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Only those that were stored first before then.")
]
Larger = Annotated[int | None, typer.Option("--min-bytes", metavar="N", min=0, help="Only those of N bytes or more.")]
Smaller = Annotated[int | None, typer.Option("--max-bytes", metavar="N", min=0, help="Only those of N bytes or less.")]


def query_of(
    capability: str | None = None,
    app: str | None = None,
    mime_type: str | None = None,
    since: str | None = None,
    until: str | None = None,
    min_bytes: int | None = None,
    max_bytes: int | None = None,
    *,
    limit: int | None,
) -> Query:
    """Return the query that the options mean. Raises :class:`~transports.errors.UsageError`."""
    from ...artifacts import Query

    return Query(
        capability=capability,
        app=app,
        mime_type=mime_type,
        since=_time(since, "--since"),
        until=_time(until, "--until"),
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        limit=limit,
    )


def _time(text: str | None, option: str) -> datetime | None:
    from ...errors import UsageError
    from ...protocol.durations import parse_duration

    if text is None:
        return None
    if text[-1:] in tuple("smhd") and (seconds := parse_duration(text)) is not None:
        return datetime.now(UTC) - timedelta(seconds=seconds)
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone()  # without a zone it is local time
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} takes {_TIME}; this is {text!r}") from None
