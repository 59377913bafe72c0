"""Report of a conformance check as text, JSON, JUnit XML and a badge."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from xml.etree import ElementTree

from ...protocol.messages import PROTOCOL_VERSION
from ._evidence import Kind, Outcome, Status

_MARKS: Mapping[Status, str] = {"passed": "ok  ", "failed": "FAIL", "warning": "warn", "not-applicable": "-   "}
_MAX_SKIPPED_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Report:
    """Outcomes of all checks of one app.

    ``target`` holds no credentials. ``app`` is the app's name and version. ``left_out`` are the ids of the checks of
    what this kit itself answers for an adapter. ``called`` are the capabilities that were called, ``skipped`` the
    others, each with the reason. ``seconds`` is the duration of the whole check.
    """

    target: str
    kind: Kind
    app: str
    outcomes: tuple[Outcome, ...]
    left_out: tuple[str, ...]
    called: tuple[str, ...]
    skipped: Mapping[str, str]
    seconds: float

    @property
    def why_unchecked(self) -> str | None:
        """Reason why no rule applies to the app, so that nothing was checked; ``None`` if something was."""
        if any(outcome.status != "not-applicable" for outcome in self.outcomes):
            return None
        return self.outcomes[0].findings[0]

    @property
    def conformant(self) -> bool:
        """True if something was checked, and no MUST is broken."""
        return self.why_unchecked is None and not self.with_status("failed")

    def with_status(self, status: Status) -> list[Outcome]:
        """Return the outcomes of one status, in the order of the checks."""
        return [outcome for outcome in self.outcomes if outcome.status == status]

    @property
    def counts(self) -> Mapping[Status, int]:
        """Number of checks by status, including statuses without checks."""
        numbers = Counter(outcome.status for outcome in self.outcomes)
        return {status: numbers[status] for status in _MARKS}

    def as_dict(self) -> dict[str, object]:
        """Return the report as JSON values, with ``success`` true if the app conforms."""
        return {
            "success": self.conformant,
            "target": self.target,
            "kind": self.kind,
            "why_unchecked": self.why_unchecked,
            "app": self.app,
            "abp": PROTOCOL_VERSION,
            "counts": dict(self.counts),
            "checks": [outcome.as_dict() for outcome in self.outcomes],
            "left_out": list(self.left_out),
            "called": list(self.called),
            "skipped": dict(self.skipped),
            "seconds": round(self.seconds, 2),
        }

    def lines(self) -> Iterator[tuple[str, Status | None]]:
        """Yield the lines of the readable report, by theme, each with the status for its colour."""
        yield f"{self.app or self.target} ({self.kind})", None
        for theme, group in groupby(self.outcomes, key=lambda outcome: outcome.check.theme):
            yield f"\n{theme}", None
            for outcome in group:
                yield from _outcome_lines(outcome)

        if self.left_out:
            names = ", ".join(self._left_out_names())
            yield f"\nleft out, as the author of an adapter cannot change them: {names}", None

        skipped = [f"{name} ({reason})" for name, reason in self.skipped.items()]
        if skipped:
            more = " …" if len(skipped) > _MAX_SKIPPED_SHOWN else ""
            yield f"\nnot called: {', '.join(skipped[:_MAX_SKIPPED_SHOWN])}{more}", None
        else:
            yield "", None

        numbers = ", ".join(_counted(status, number) for status, number in self.counts.items())
        totals = f"{numbers}, in {self.seconds:.1f} s"
        if self.why_unchecked is not None:
            yield f"NOTHING WAS CHECKED: {self.why_unchecked}; {totals}", "failed"
        elif self.conformant:
            yield f"conformant: {totals}", "passed"
        else:
            yield f"NOT CONFORMANT: {totals}", "failed"

    def _left_out_names(self) -> Iterable[str]:
        """Return the ids of checks that are left out, with ``theme.*`` for a whole theme."""
        judged_themes = {outcome.check.theme for outcome in self.outcomes}
        names: dict[str, None] = {}
        for check_id in self.left_out:
            theme = check_id.partition(".")[0]
            name = check_id if theme in judged_themes else f"{theme}.*"
            names[name] = None
        return names

    def junit(self) -> bytes:
        """Return the report as JUnit XML. A warning is a passed test with output; a rule not applicable is skipped."""
        counts = self.counts
        why_unchecked = self.why_unchecked
        errors = int(why_unchecked is not None)
        suite = ElementTree.Element(
            "testsuite",
            name=f"abp conformance {self.target}",
            tests=str(len(self.outcomes) + errors),
            failures=str(counts["failed"]),
            skipped=str(counts["not-applicable"]),
            errors=str(errors),
            time=f"{self.seconds:.2f}",
        )
        for outcome in self.outcomes:
            _add_case(suite, outcome)
        # Skipped tests alone would pass in a CI.
        if why_unchecked is not None:
            case = ElementTree.SubElement(suite, "testcase", classname="abp", name="conformance", time="0")
            ElementTree.SubElement(case, "error", message=_printable(f"nothing was checked: {why_unchecked}"))

        root = ElementTree.Element("testsuites")
        root.append(suite)
        return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))

    def badge(self) -> dict[str, object]:
        """Return the JSON for badge services (``schemaVersion`` 1)."""
        warnings = self.counts["warning"]
        if self.why_unchecked is not None:
            message, colour = "nothing was checked", "lightgrey"
        elif not self.conformant:
            message, colour = "not conformant", "red"
        elif warnings:
            message, colour = f"conformant ({_counted('warning', warnings)})", "yellowgreen"
        else:
            message, colour = "conformant", "brightgreen"
        return {"schemaVersion": 1, "label": f"ABP {PROTOCOL_VERSION}", "message": message, "color": colour}


def _outcome_lines(outcome: Outcome) -> Iterator[tuple[str, Status | None]]:
    """Yield the lines about one check: its result, and for a broken rule the findings and what to do."""
    check = outcome.check
    yield f"  {_MARKS[outcome.status]}  {check.id:<18} {check.level:<6} {check.title}", outcome.status
    if outcome.status not in ("failed", "warning"):
        return
    details = [*outcome.findings, *(f"how to fix it: {fix}" for fix in outcome.fixes), f"source: {check.source}"]
    for detail in details:
        yield f"          {detail}", None


def _add_case(suite: ElementTree.Element, outcome: Outcome) -> None:
    """Add one check to the suite of a JUnit report."""
    check = outcome.check
    case = ElementTree.SubElement(suite, "testcase", classname=f"abp.{check.theme}", name=check.id, time="0")
    fixes = [f"how to fix it: {fix}" for fix in outcome.fixes]
    text = _printable("\n".join((*outcome.findings, *fixes, f"source: {check.source}")))

    if outcome.status == "failed":
        ElementTree.SubElement(case, "failure", message=f"{check.level}: {check.title}").text = text
    elif outcome.status == "not-applicable":
        ElementTree.SubElement(case, "skipped", message=_printable("; ".join(outcome.findings)))
    elif outcome.status == "warning":
        ElementTree.SubElement(case, "system-out").text = f"warning: {check.title}\n{text}"


def _counted(status: Status, number: int) -> str:
    text = f"{number} {status.replace('-', ' ')}"
    if status == "warning" and number != 1:
        text += "s"
    return text


def _printable(text: str) -> str:
    """Replace the characters that XML 1.0 cannot hold."""
    return re.sub("[^\t\n\r -\ud7ff\ue000-\U0010ffff]", "\ufffd", text)
