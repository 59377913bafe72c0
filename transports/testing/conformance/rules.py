"""A check: one rule of the protocol, and the function that judges the evidence by it. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Literal, TypeAlias

from .evidence import Evidence

__all__ = ["Check", "Judge", "Level", "NotApplicable", "Outcome", "Rules", "Status"]

#: How strict a rule is (RFC 2119). An app that breaks a MUST does not conform; a broken SHOULD is a warning.
Level: TypeAlias = Literal["MUST", "SHOULD"]
Status: TypeAlias = Literal["passed", "failed", "warning", "not-applicable"]
#: Yields what breaks the rule, in words; nothing if the rule is kept. May raise :class:`NotApplicable`.
Judge: TypeAlias = Callable[[Evidence], Iterable[str]]

#: Findings that are reported of one check; an app with a hundred capabilities may break a rule a hundred times.
_MAX_FINDINGS = 8
#: Characters of one finding.
_MAX_LENGTH = 300


class NotApplicable(Exception):
    """There is nothing to judge; the message says why. Raised by judges."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one check. ``findings`` are what broke the rule, each once and at most eight of them, or why the
    rule does not apply."""

    check: Check
    status: Status
    findings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the outcome as JSON values; ``fix`` only where something is to be fixed."""
        fix = {"fix": self.check.fix} if self.status in ("failed", "warning") else {}
        about = {"id": self.check.id, "level": self.check.level, "title": self.check.title}
        return {**about, "source": self.check.source, "status": self.status, "findings": list(self.findings), **fix}


@dataclass(frozen=True, slots=True)
class Check:
    """One rule. ``id`` is ``theme.name``; ``source`` cites the sections of docs/protocol.md, or the RFC, where the rule
    stands; ``fix`` tells the author of an app what to do."""

    id: str
    level: Level
    title: str
    source: str
    fix: str
    judge: Judge

    @property
    def theme(self) -> str:
        """The first part of the id: ``session``, ``binary``."""
        return self.id.partition(".")[0]

    def outcome(self, evidence: Evidence) -> Outcome:
        """Judge the evidence."""
        try:
            findings = tuple(dict.fromkeys(map(_one_line, islice(self.judge(evidence), 10 * _MAX_FINDINGS))))
        except NotApplicable as reason:
            return Outcome(self, "not-applicable", (str(reason),))
        if not findings:
            return Outcome(self, "passed")
        more = (f"… and {len(findings) - _MAX_FINDINGS} more",) if len(findings) > _MAX_FINDINGS else ()
        return Outcome(self, "failed" if self.level == "MUST" else "warning", (*findings[:_MAX_FINDINGS], *more))


class Rules(list[Check]):
    """The checks of one theme. Called, it is a decorator that adds a judge as a check."""

    def __call__(self, id: str, level: Level, title: str, *, source: str, fix: str) -> Callable[[Judge], Judge]:
        def add(judge: Judge) -> Judge:
            self.append(Check(id, level, title, source, fix, judge))
            return judge

        return add


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…"
