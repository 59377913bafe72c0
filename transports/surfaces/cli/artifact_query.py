"""Options of ``abp artifacts list`` that say which artifacts are wanted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ...artifacts import Query

__all__ = ["QueryOptions"]

_TIME = "a date, a time (2026-01-31T12:00Z), or so long ago: 30m, 1h, 7d"


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Which artifacts are wanted, all of them unless an option says otherwise."""

    capability: Annotated[
        str | None, typer.Option("--capability", metavar="NAME", help="Only those of this capability.")
    ] = None
    app: Annotated[str | None, typer.Option("--app", metavar="ID", help="Only those of this app.")] = None
    mime_type: Annotated[
        str | None, typer.Option("--type", metavar="TYPE", help="Only this MIME type, or a kind of them: image/*.")
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help=f"Only those that were stored first since then: {_TIME}."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only those that were stored first before then.")
    ] = None
    min_bytes: Annotated[
        int | None, typer.Option("--min-bytes", metavar="N", min=0, help="Only those of N bytes or more.")
    ] = None
    max_bytes: Annotated[
        int | None, typer.Option("--max-bytes", metavar="N", min=0, help="Only those of N bytes or less.")
    ] = None

    def query(self, limit: int | None) -> Query:
        """Return the query that the options mean. Raises :class:`~transports.errors.UsageError`."""
        from ...artifacts import Query

        given = asdict(self)
        given |= {"since": _time(self.since, "--since"), "until": _time(self.until, "--until")}
        return Query(**given, limit=limit)


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
