"""Queries for artifacts of a store: filters and pagination, the newest first. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from ..errors import UsageError
from ..protocol._times import iso_utc
from ._ref import ArtifactRef, Scope


class Page(NamedTuple):
    """One page of a query: its artifacts, the newest first, and the cursor of the next page; ``None`` after the last.

    A page may be shorter than the limit although there is a next one: expired artifacts are left out.
    """

    artifacts: Sequence[ArtifactRef]
    next: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Filters of :func:`~transports.artifacts.find`; ``None`` matches every artifact.

    ``capability`` and ``app`` are the origin of the artifact (``ref.source``). ``mime_type`` is a whole type or a
    wildcard such as ``image/*`` (kept as ``image/``). ``since`` (inclusive) and ``until`` (exclusive) are times with a
    time zone, compared with the time at which an artifact was stored first. ``min_bytes`` and ``max_bytes`` are
    inclusive. ``limit`` is 1 to 10,000, or ``None`` for all in one page; ``cursor`` is :attr:`Page.next` of the page
    before.

    Raises :class:`~transports.errors.UsageError` for a time without a zone, a limit out of range, or an invalid cursor.
    """

    capability: str | None = None
    app: str | None = None
    mime_type: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    limit: int | None = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        if self.mime_type == "*/*":
            object.__setattr__(self, "mime_type", None)
        elif self.mime_type is not None and self.mime_type.endswith("/*"):
            object.__setattr__(self, "mime_type", self.mime_type[:-1])

        for time in (self.since, self.until):
            if time is not None and time.tzinfo is None:
                raise UsageError("since and until must have a time zone, as datetime.now(UTC) has")
        if self.limit is not None and not 1 <= self.limit <= 10_000:
            raise UsageError(f"limit must be between 1 and 10,000, not {self.limit}")
        if self.cursor is not None and "~" not in self.cursor:
            raise UsageError("invalid cursor; use `next` of the previous page")

    @property
    def times(self) -> tuple[str | None, str | None]:
        """``since`` and ``until`` in the text form of the times in references."""
        return _iso_text(self.since), _iso_text(self.until)

    @property
    def after(self) -> tuple[str, str] | None:
        """Key of the last artifact of the page before."""
        created, tilde, key = (self.cursor or "").rpartition("~")
        return (created, key) if tilde else None

    def matches(self, ref: ArtifactRef) -> bool:
        """Return whether an artifact passes the filters; the cursor is ignored."""
        created, _ = age_key(ref)
        since, until = self.times
        return (
            self.capability in (None, ref.source.get("capability"))
            and self.app in (None, ref.source.get("app"))
            and self._matches_type(ref.mime_type)
            and (since is None or created >= since)
            and (until is None or created < until)
            and (self.min_bytes is None or ref.size_bytes >= self.min_bytes)
            and (self.max_bytes is None or ref.size_bytes <= self.max_bytes)
        )

    def _matches_type(self, mime_type: str) -> bool:
        if self.mime_type is None:
            return True
        if self.mime_type.endswith("/"):
            return mime_type.startswith(self.mime_type)
        return mime_type == self.mime_type


def age_key(ref: ArtifactRef) -> tuple[str, str]:
    """Return the sort key of stores: the time at which the artifact was stored first, and its id."""
    return str(ref.source.get("created", "")), ref.id


def page_of(query: Query, oldest_first: Sequence[ArtifactRef]) -> Page:
    """Return the page of a list of artifacts that matches ``query``."""
    after = query.after
    page: list[ArtifactRef] = []
    for ref in reversed(oldest_first):
        is_on_earlier_page = after is not None and age_key(ref) >= after
        if is_on_earlier_page or not query.matches(ref):
            continue
        if len(page) == query.limit:
            return Page(page, "~".join(age_key(page[-1])))
        page.append(ref)
    return Page(page, None)


def _iso_text(time: datetime | None) -> str | None:
    return None if time is None else iso_utc(time.timestamp())


def scope_condition(scope: Scope) -> tuple[str, list[str]]:
    """Return the SQL condition for the artifacts that ``scope`` covers, to follow another, and its values."""
    fields = scope.items()
    # The names are quoted, because "user" is reserved in PostgreSQL.
    condition = "".join(f' AND "{name}" = ?' for name, _ in fields)
    return condition, [value for _, value in fields]
