"""``docs/reliability.md``, written from one run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import fields

from tests.benchmarks.report import machine
from tests.soak.faults import NAMES
from tests.soak.record import RESULT
from tests.soak.resources import Resources
from tests.soak.run import Outcome

_INTRODUCTION = """\
# Reliability

This page shows what the kit does while its parts are killed: one run of
`python -m tests.soak --minutes N --report docs/reliability.md`. A run of a minute is one of the tests
(`tests/soak/test_soak.py::test_soak_loses_and_leaks_nothing`).

Two pages and an embedded app in one shared browser, two sockets, an MCP server, `abp serve`, `abp mcp` with a page, and
an app with a disk of 8 MB make calls side by side, while processes get SIGKILL and SIGSTOP and a proxy cuts
connections. The run checks:

- every call has exactly one outcome: a result, or an error with a code that the faults explain;
- every file of every answer has the expected SHA-256, also when it is read back from the store;
- at the end, artifacts, index, metadata files and contents agree, and `fsck` finds nothing;
- processes, descriptors, threads, temporary files and memory are within a tenth of what they were after the warm-up;
- nothing is left when everything is closed, or by a killed process;
- after the last fault, the next call of every kind has a result.
"""
_CODES = (
    "`TIMEOUT` is a deadline of 10 seconds (2 where a page spins); [Errors](reference/errors.md) has the other codes.\n"
)
_HELD = """\
Memory, descriptors and threads are those of the process that holds the sessions; processes are its children, files
those in its temporary folder, without the browsers' profiles.
"""


def report(outcome: Outcome) -> str:
    """Return the whole document."""
    record, plan = outcome.record, outcome.plan
    calls, results = sum(record.begun.values()), sum(n for (_, name), n in record.outcomes.items() if name == RESULT)
    lines = [
        _INTRODUCTION,
        "## The run\n",
        f"{_minutes(plan.warm_up + plan.seconds)} (of which {_minutes(plan.warm_up)} to warm up), seed {plan.seed}: "
        f"{calls:,} calls, {results:,} of them with a result, under {record.faults.total():,} faults. "
        f"{_verdict(outcome)}",
        "",
        f"On {_machine(outcome)}.\n",
    ]
    lines += ["## Calls\n", *_calls(outcome), "", _CODES]
    faults = "; ".join(f"{name}: {record.faults[name]}" for name in NAMES)
    lines += ["## Faults\n", f"{faults}. The number is the row of [faults.md](faults.md).\n"]
    lines += ["## Stores\n", *_stores(outcome), ""]
    lines += ["## Resources\n", *_resources(outcome), "", _HELD]
    return "\n".join(lines)


def _verdict(outcome: Outcome) -> str:
    many = len(outcome.problems)
    return "Nothing was lost, nothing was left." if not many else f"**{many} problems**, listed by the run."


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 120 else f"{seconds / 60:g} minutes"


def _machine(outcome: Outcome) -> str:
    names = machine(outcome.browser)
    names.pop("load before the run")
    cores = re.search(r"(\d+) cores", names["system"])
    load = sum(outcome.loads) / len(outcome.loads) if outcome.loads else 0.0
    busy = "; other programs were at work, so calls were slow" if cores and load > 2 * int(cores[1]) else ""
    where = ", ".join(f"{name} {value}" if name != "system" else value for name, value in names.items())
    return f"{where}; mean load during the run {load:.1f}{busy}"


def _table(head: Sequence[str], body: Sequence[Sequence[object]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'--:|' * (len(head) - 1)}"
    for row in body:
        yield f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else str(cell) for cell in row)} |"


def _calls(outcome: Outcome) -> Iterator[str]:
    record = outcome.record
    errors = sorted({name for _, name in record.outcomes if name != RESULT})
    body = [
        [way, record.begun[way], record.outcomes[way, RESULT], *(record.outcomes[way, name] for name in errors),
         f"{record.longest[way]:.1f} s"]
        for way in record.begun
    ]  # fmt: skip
    return _table(["way", "calls", "results", *(f"`{name}`" for name in errors), "longest"], body)


def _stores(outcome: Outcome) -> Iterator[str]:
    head = ["store", "puts", "deletes", "artifacts at the end"]
    return _table(head, [[ledger.name, ledger.puts, ledger.deletes, ledger.index] for ledger in outcome.ledgers])


def _resources(outcome: Outcome) -> Iterator[str]:
    head = ["", "before anything", "after the warm-up", "at the end", "growth", "all closed"]
    moments = (outcome.nothing, outcome.before, outcome.after, outcome.closed)
    body: list[list[object]] = []
    for name in (one.name for one in fields(Resources)):
        values = [getattr(moment, name) if moment else 0 for moment in moments]
        growth = f"{100 * (values[2] / values[1] - 1):+.1f} %" if values[1] else "–"
        shown = [f"{value / (1 << 20):.0f} MB" if name == "memory" else value for value in values]
        body.append([name, *shown[:3], growth, shown[3]])
    return _table(head, body)
