"""``docs/reliability.md``, written from one run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields

from tests.benchmarks.machine import machine
from tests.soak.faults import NAMES
from tests.soak.record import RESULT
from tests.soak.resources import Resources
from tests.soak.run import Outcome

__all__ = ["report"]

_INTRODUCTION = """\
# Reliability

Written by `python -m tests.soak --minutes N --report docs/reliability.md` from one run; a run of a minute is one
of the tests (`tests/soak/test_soak.py::test_nothing_is_lost_and_nothing_is_left`).

Two pages and an embedded app in one shared browser, two sockets, an MCP server, `abp serve` with an app, `abp mcp` with
a page in a browser of its own, and an app whose files go to a small disk make calls side by side. A schedule made from
a seed breaks one part after the other, so that faults also meet. Nothing is simulated: processes get SIGKILL and
SIGSTOP, a TCP proxy cuts connections, the disk is 8 MB large. The callers are as simple as can be: they call, and call
again whatever came of it; no session is ever opened again by them (the agent at the bridge connects its app again when
the bridge says that there is none).

What is asserted:

- every call has exactly one outcome: a result, or an error of the kit with a code that the faults explain;
- every file of every answer is the file that the app must have made (its SHA-256 is known before the call), and so it
  is when it is read back from the store;
- at the end, puts less deletes = artifacts in the index = metadata files = contents, `fsck` finds nothing, and each
  content has its hash;
- what a killed bridge left half-written goes by its age;
- processes, descriptors, threads, temporary files and memory are at the end what they were after the warm-up, within a
  tenth (or a handful, for small numbers); when everything is closed, no process and no temporary file is left;
- a process that is killed leaves none of those that it had started;
- when nothing is broken any more, the next call over every way has a result.
"""
_CODES = """\
`DISCONNECTED`: what the call ran in was killed or cut. `TIMEOUT`: the deadline of 10 seconds (2 where a page was made
to spin). `TRANSPORT_ERROR`, `BROWSER_ERROR`: nothing to connect to yet. `NOT_SUPPORTED`: a page whose scripts were lost
with its server. `DOWNLOAD_FAILED`: the server of a download was gone. `STORE_FULL`: the disk was. `NOT_INITIALIZED`,
`SESSION_INVALID`: the bridge was new and had no app.
"""

_LEFT = """\
What was deleted had been read and compared before. `left` is what killed writers had left half-written, which went by
its age.
"""

_HELD = """\
Memory is what the process that holds the sessions has resident; descriptors and threads are its own; processes are all
those below it, files those in its temporary folder, without the browsers' profiles. The session at the bridge keeps the
answers of the last thousand resources that it read, about 4 MB.
"""


def report(outcome: Outcome, *, picture: str | None) -> str:
    """The whole document; ``picture`` is the name of the file with the picture."""
    record, plan = outcome.record, outcome.plan
    calls, results = sum(record.begun.values()), sum(n for (_, name), n in record.outcomes.items() if name == RESULT)
    lines = [
        _INTRODUCTION,
        "## The run\n",
        f"{_minutes(plan.warm_up + plan.seconds)} (of which {_minutes(plan.warm_up)} to warm up), seed {plan.seed}: "
        f"{calls:,} calls, {results:,} of them with a result, under {len(record.faults):,} faults. {_verdict(outcome)}",
        "",
        f"On {_machine(outcome)}.\n",
    ]
    if picture:
        lines += [f"![Calls, faults and resources over time]({picture})\n"]
    lines += ["## Calls\n", *_calls(outcome), "", _CODES]
    lines += ["## Faults\n", *_faults(outcome), "", "The number is the row of [faults.md](faults.md).\n"]
    lines += ["## Stores\n", *_stores(outcome), ""]
    lines += [_LEFT]
    lines += ["## Resources\n", *_resources(outcome), ""]
    lines += [_HELD]
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


def _faults(outcome: Outcome) -> Iterator[str]:
    times = Counter(name for _, name in outcome.record.faults)
    return _table(["fault", "times"], [[name, times[name]] for name in NAMES])


def _stores(outcome: Outcome) -> Iterator[str]:
    head = ["store", "puts", "deletes", "index", "metadata", "contents", "hashes compared", "left"]
    body = [
        [one.name, one.puts, one.deletes, one.index, one.metadata, one.content, one.compared, one.left]
        for one in outcome.ledgers
    ]
    return _table(head, body)


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
