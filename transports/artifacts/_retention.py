"""Retention policies: time to live, limits by session and trace, and the plan of removals. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Literal, NamedTuple, TypedDict, Unpack

from .._internal.arguments import require_plain_function, validate_fields
from ..errors import StoreFull, TooLarge, UsageError
from ..protocol._times import format_duration
from ._ref import Scope


class Entry(NamedTuple):
    """An artifact as the limits see it. ``size`` is in bytes; ``stored`` (last storing) and ``used`` (last storing or
    reading) are seconds since 1970."""

    id: str
    size: int
    stored: float
    used: float
    scope: Scope


class Removal(NamedTuple):
    """A removed artifact or file, or a planned removal in a dry run.

    ``kind`` is ``artifact``, ``staged``, ``name``, ``content`` or ``quarantine``; ``reason`` is ``expired``,
    ``lru``, ``fifo``, ``session end`` or ``orphan``."""

    kind: str
    id: str
    size_bytes: int
    reason: str


class Limits(TypedDict, total=False):
    """Fields of a :class:`Retention`, for :meth:`Retention.only`."""

    ttl_seconds: float | None
    max_artifact_bytes: int | None
    max_session_bytes: int | None
    max_trace_bytes: int | None
    max_artifacts_per_trace: int | None
    max_artifacts_per_session: int | None
    cleanup_strategy: Literal["lru", "fifo", "none"]
    cleanup_on_session_end: bool
    keep_unscoped: bool
    on_removal: Callable[[Removal], object] | None


@validate_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The limits of a store (docs/requirements.md R2-7.1, with its defaults). ``None`` means no limit; sizes are in
    bytes.

    ``ttl_seconds`` counts from the last storing of an artifact. Session and trace limits hold within each session and
    each trace; an artifact without either is subject only to ``ttl_seconds`` and ``max_artifact_bytes``.
    ``cleanup_strategy`` selects the artifact to evict when a limit is reached: the least recently used one (``lru``),
    the one stored first (``fifo``), or none (``none``: the new artifact is refused). With ``keep_unscoped``, artifacts
    without an owner do not expire, for a folder that other programs use as well. ``on_removal`` is called with each
    :class:`Removal` of this process, once the artifact is gone; an error of it is logged. Raises
    :class:`~transports.errors.UsageError` for a negative limit."""

    ttl_seconds: float | None = 3600
    max_artifact_bytes: int | None = 50 << 20
    max_session_bytes: int | None = 500 << 20
    max_trace_bytes: int | None = 100 << 20
    max_artifacts_per_trace: int | None = 100
    max_artifacts_per_session: int | None = 1000
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"
    cleanup_on_session_end: bool = False
    keep_unscoped: bool = False
    on_removal: Callable[[Removal], object] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        require_plain_function("on_removal", self.on_removal)
        number_of_limits = 6  # they are the first fields
        for limit in fields(self)[:number_of_limits]:
            value = getattr(self, limit.name)
            if value is not None and not value >= 0:
                raise UsageError(f"retention: {limit.name} must not be negative (it is {value})")
        if self.cleanup_strategy not in ("lru", "fifo", "none"):
            raise UsageError("retention: cleanup_strategy must be lru, fifo or none")

    @classmethod
    def only(cls, **limits: Unpack[Limits]) -> Retention:
        """Return a retention with these limits only: the others are ``None``, not the defaults."""
        unlimited = cls(
            ttl_seconds=None,
            max_artifact_bytes=None,
            max_session_bytes=None,
            max_trace_bytes=None,
            max_artifacts_per_trace=None,
            max_artifacts_per_session=None,
        )
        return replace(unlimited, **limits)

    @property
    def expiry(self) -> Retention:
        """A retention with the time to live alone, without the other limits."""
        return self.only(ttl_seconds=self.ttl_seconds, keep_unscoped=self.keep_unscoped)

    def expired(self, stored: float, now: float, scope: Scope) -> bool:
        """Return whether an artifact of ``scope`` is expired. The times are seconds since 1970."""
        if self.ttl_seconds is None or (self.keep_unscoped and not scope):
            return False
        return now - stored > self.ttl_seconds

    def __str__(self) -> str:
        """Return the rest of the sentence "each artifact is …", such as ``removed 1 hour after it was stored``."""
        parts = []
        if self.ttl_seconds is not None:
            exception = ", unless it belongs to no session" if self.keep_unscoped else ""
            parts.append(f"removed {format_duration(self.ttl_seconds)} after it was stored{exception}")
        if self.cleanup_strategy != "none":
            levels = [level for level in ("trace", "session") if self.limits(level) != (None, None)]
            parts += [f"removed earlier where its {level} is over a limit" for level in levels]
        return "; ".join(parts) or "kept until it is deleted"

    def limits(self, level: str) -> tuple[int | None, int | None]:
        """Return the limits of bytes and of artifacts of a level, which is ``session`` or ``trace``."""
        if level == "trace":
            return self.max_trace_bytes, self.max_artifacts_per_trace
        return self.max_session_bytes, self.max_artifacts_per_session

    @property
    def counts(self) -> bool:
        """``True`` if a session or a trace has a limit, for which its artifacts must be counted."""
        return any(self.limits(level) != (None, None) for level in ("trace", "session"))

    def plan(self, entries: Iterable[Entry], now: float, incoming: Entry | None = None) -> list[Removal]:
        """Return the removals after which the rest, together with ``incoming``, is within the limits. ``incoming`` is
        about to be stored; it takes the place of an entry with its id.

        Raises :class:`~transports.errors.TooLarge` if ``incoming`` alone is over a limit, and
        :class:`~transports.errors.StoreFull` if room is needed and the strategy is ``none``."""
        remaining: list[Entry] = []
        removals: list[Removal] = []
        for entry in entries:
            if incoming and entry.id == incoming.id:
                continue
            if self.expired(entry.stored, now, entry.scope):
                removals.append(Removal("artifact", entry.id, entry.size, "expired"))
            else:
                remaining.append(entry)
        if incoming:
            remaining.append(incoming)

        # Traces come first: what is removed for the limit of a trace makes room in its session, too.
        for level in ("trace", "session"):
            entries_to_evict = self._choose_evicted(remaining, level, incoming)
            removals += [Removal("artifact", entry.id, entry.size, self.cleanup_strategy) for entry in entries_to_evict]
            remaining = [entry for entry in remaining if entry not in entries_to_evict]
        return removals

    def _choose_evicted(self, entries: list[Entry], level: str, incoming: Entry | None) -> set[Entry]:
        """Return the entries that must go, so that each session or each trace is within its limits."""
        groups: dict[object, list[Entry]] = defaultdict(list)
        for entry in entries:
            if getattr(entry.scope, level) is not None:
                groups[_group_key(entry.scope, level)].append(entry)
        evicted: set[Entry] = set()
        for members in groups.values():
            evicted.update(self._shrink_group(members, level, incoming))
        return evicted

    def _shrink_group(self, members: list[Entry], level: str, incoming: Entry | None) -> Iterator[Entry]:
        """Yield the members that must go, so that the rest is within the limits of one group. ``incoming`` stays."""
        total_bytes = sum(entry.size for entry in members)
        count = len(members)
        evictable = [entry for entry in members if entry is not incoming]
        has_incoming = len(evictable) < count
        if incoming and has_incoming:
            self._require_fit(incoming, level)

        if self.cleanup_strategy == "none":
            if has_incoming and self._is_over_limit(level, total_bytes, count):
                setting = " (ABP_MAX_SESSION_BYTES)" if level == "session" else ""
                raise StoreFull(
                    f"this {level} has reached a limit of the retention; delete artifacts, or raise the limit{setting}"
                )
            return

        age_field = "used" if self.cleanup_strategy == "lru" else "stored"
        for oldest in sorted(evictable, key=attrgetter(age_field)):
            if not self._is_over_limit(level, total_bytes, count):
                return
            yield oldest
            total_bytes -= oldest.size
            count -= 1

    def _require_fit(self, incoming: Entry, level: str) -> None:
        max_bytes, _ = self.limits(level)
        if max_bytes is not None and incoming.size > max_bytes:
            raise TooLarge(
                f"the content has {incoming.size:,} bytes, over the limit of {max_bytes:,} of a whole {level}; "
                f"raise max_{level}_bytes of the retention",
                details={"limit": max_bytes, "size": incoming.size},
            )

    def _is_over_limit(self, level: str, total_bytes: int, count: int) -> bool:
        max_bytes, max_count = self.limits(level)
        is_over_bytes = max_bytes is not None and total_bytes > max_bytes
        is_over_count = max_count is not None and count > max_count
        return is_over_bytes or is_over_count


def _group_key(scope: Scope, level: str) -> object:
    trace = scope.trace if level == "trace" else None
    return scope.tenant, scope.user, scope.session, trace
