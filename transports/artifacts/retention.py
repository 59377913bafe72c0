"""How long artifacts are kept and how many: the policy as a value. No I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Literal, NamedTuple

from ..errors import StoreFull, TooLarge, UsageError
from .ref import Scope

__all__ = ["Entry", "Incoming", "Removal", "Retention"]


class Entry(NamedTuple):
    """What a policy looks at. Times are seconds since 1970; ``used`` is when it was put or read last."""

    id: str
    size: int
    stored: float
    used: float
    scope: Scope


class Incoming(NamedTuple):
    """What is about to be stored. The same ``id`` again takes no more room."""

    id: str
    size: int
    scope: Scope


class Removal(NamedTuple):
    """One thing that was removed, or would be. ``kind`` is ``artifact``, ``staged``, ``content`` or ``quarantine``;
    ``reason`` is ``expired``, ``lru``, ``fifo`` or ``orphan``."""

    kind: str
    id: str
    size_bytes: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A policy (seed 002 §7.1; the defaults are those). ``None`` is no limit.

    Sizes are bytes. Session and trace limits hold within each session and trace; artifacts that belong to none know
    only ``ttl_seconds``, counted from when they were stored last, and ``max_artifact_bytes``. ``cleanup_strategy`` says
    what goes when a limit is met: what was used longest ago (``lru``), what was stored first (``fifo``), or nothing
    (``none``: the new artifact is refused). Raises :class:`~transports.errors.UsageError` for a negative limit.
    """

    ttl_seconds: float | None = 3600
    max_artifact_bytes: int | None = 50 << 20
    max_session_bytes: int | None = 500 << 20
    max_trace_bytes: int | None = 100 << 20
    max_artifacts_per_trace: int | None = 100
    max_artifacts_per_session: int | None = 1000
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"
    cleanup_on_session_end: bool = False

    def __post_init__(self) -> None:
        for one in fields(self)[:6]:
            value = getattr(self, one.name)
            if value is not None and not value >= 0:
                raise UsageError(f"retention: {one.name} must not be negative (it is {value})")
        if self.cleanup_strategy not in ("lru", "fifo", "none"):
            raise UsageError("retention: cleanup_strategy is one of lru, fifo, none")

    def expired(self, stored: float, now: float) -> bool:
        """Whether an artifact is past its time."""
        return self.ttl_seconds is not None and now - stored > self.ttl_seconds

    def plan(self, entries: Iterable[Entry], now: float, incoming: Incoming | None = None) -> list[Removal]:
        """What must go, so that what is left, with ``incoming``, keeps to the limits. Raises
        :class:`~transports.errors.TooLarge` if it never could, and :class:`~transports.errors.StoreFull` where nothing
        may be evicted."""
        kept: list[Entry] = []
        out: list[Removal] = []
        for entry in entries:
            if self.expired(entry.stored, now) and not (incoming and incoming.id == entry.id):
                out.append(Removal("artifact", entry.id, entry.size, "expired"))
            else:
                kept.append(entry)
        limits = (
            ("trace", self.max_trace_bytes, self.max_artifacts_per_trace),
            ("session", self.max_session_bytes, self.max_artifacts_per_session),
        )
        for level, most_bytes, most in limits:
            gone = self._over(kept, level, most_bytes, most, incoming)
            out += [Removal("artifact", entry.id, entry.size, self.cleanup_strategy) for entry in gone]
            kept = [entry for entry in kept if entry not in gone]
        return out

    def _over(
        self, entries: list[Entry], level: str, most_bytes: int | None, most: int | None, incoming: Incoming | None
    ) -> set[Entry]:
        groups: dict[object, list[Entry]] = defaultdict(list)
        for entry in entries:
            if getattr(entry.scope, level) is not None:
                groups[_group(entry.scope, level)].append(entry)
        mine = None
        if incoming and getattr(incoming.scope, level) is not None:
            groups[mine := _group(incoming.scope, level)]  # also where it is the first one
        gone: set[Entry] = set()
        for group, members in groups.items():
            new = incoming if group == mine else None
            if new and most_bytes is not None and new.size > most_bytes:
                raise TooLarge(
                    f"the content has {new.size:,} bytes, over the limit of {most_bytes:,} of a whole {level}; "
                    f"raise max_{level}_bytes of the retention",
                    details={"limit": most_bytes, "size": new.size},
                )
            others = [entry for entry in members if not (new and entry.id == new.id)]
            total, count = sum(entry.size for entry in others), len(others)
            if new:
                total, count = total + new.size, count + 1
            others.sort(key=lambda entry: entry.used if self.cleanup_strategy == "lru" else entry.stored, reverse=True)
            while (most_bytes is not None and total > most_bytes) or (most is not None and count > most):
                if self.cleanup_strategy == "none":
                    if new:
                        raise StoreFull(
                            f"the limits of this {level} are met; delete artifacts, or raise the retention's"
                        )
                    break
                if not others:
                    break
                oldest = others.pop()
                gone.add(oldest)
                total, count = total - oldest.size, count - 1
        return gone


def _group(scope: Scope, level: str) -> object:
    return scope.tenant, scope.user, scope.session, scope.trace if level == "trace" else None
