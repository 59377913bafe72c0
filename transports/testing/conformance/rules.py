"""A check: one rule of the protocol, and the function that judges evidence by it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from .evidence import Evidence

__all__ = ["Check", "Judge", "Level", "NotApplicable", "Outcome", "Rules", "Status"]

#: MUST: an app that breaks it is not conformant. SHOULD: it is, with a warning (RFC 2119).
Level: TypeAlias = Literal["MUST", "SHOULD"]
Status: TypeAlias = Literal["passed", "failed", "warning", "not-applicable"]
#: What breaks the rule, in words, each thing once; nothing if it is kept.
Judge: TypeAlias = Callable[[Evidence], Iterable[str]]

#: What is told of one check; an app with a hundred capabilities may break it a hundred times.
_MOST = 8
_LONGEST = 300


class NotApplicable(Exception):
    """Why there is nothing to judge."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a check: ``seen`` is what broke the rule, or why it does not apply."""

    check: Check
    status: Status
    seen: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """The same as JSON values."""
        fix = {"fix": self.check.fix} if self.status in ("failed", "warning") else {}
        about = {"id": self.check.id, "level": self.check.level, "title": self.check.title}
        return {**about, "source": self.check.source, "status": self.status, "seen": list(self.seen), **fix}


@dataclass(frozen=True, slots=True)
class Check:
    """``id`` is ``theme.name``; ``source`` says where the rule stands; ``fix`` is what an app's author does."""

    id: str
    level: Level
    title: str
    source: str
    fix: str
    judge: Judge

    @property
    def theme(self) -> str:
        return self.id.partition(".")[0]

    def outcome(self, evidence: Evidence) -> Outcome:
        """Judge."""
        try:
            seen = tuple(dict.fromkeys(map(_cut, islice(self.judge(evidence), 10 * _MOST))))
        except NotApplicable as reason:
            return Outcome(self, "not-applicable", (str(reason),))
        if not seen:
            return Outcome(self, "passed")
        more = (f"… and {len(seen) - _MOST} more",) if len(seen) > _MOST else ()
        return Outcome(self, "failed" if self.level == "MUST" else "warning", (*seen[:_MOST], *more))


class Rules(list[Check]):
    """The checks of one theme; calling it makes a function one of them."""

    def __call__(self, id: str, level: Level, title: str, *, source: str, fix: str) -> Callable[[Judge], Judge]:
        def add(judge: Judge) -> Judge:
            self.append(Check(id, level, title, source, fix, judge))
            return judge

        return add


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"
