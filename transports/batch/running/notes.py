"""What is said of an input whose parameters are not where they belong, and of lines that ask for the same."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...errors import ABPError
from ..jobs import Job
from ..ledger import Added, Row
from .reading import first_jobs

__all__ = ["CarriedParameters", "input_notes"]

#: Names that are told.
_MOST = 10
#: Codes of apps for parameters that are missing.
_MISSING = ("INVALID_PARAMS", "MISSING_PARAM")


def input_notes(added: Added, path: Path) -> list[str]:
    """Return what is to be said of an input that was added: lines that bring no job, and, where most are the same or
    none of the first has parameters, columns or fields that may be meant as such. An input that cannot be read any more
    is not spoken of: its jobs are in the run."""
    before = added.lines - added.jobs - added.copies
    said = []
    if added.copies:
        are = "is the same job as an earlier line" if added.copies == 1 else "are the same jobs as earlier lines"
        said.append(f"{added.copies} of {added.lines} lines {are}; each job runs once")
    if before:
        are = "is a job" if before == 1 else "are jobs"
        said.append(f"{before} of {added.lines} lines {are} that the run has already")
    if added.replaced:
        was = "1 failed line is" if added.replaced == 1 else f"{added.replaced} failed lines are"
        said.append(f"{was} replaced by one of the same id")
    if not added.known:
        first: list[Job] = []
        with suppress(ABPError):
            first = first_jobs(path)
        if added.copies * 2 > added.lines or not any(job.params or job.files for job in first):
            said += _hints(name for job in first for name in job.carried)
    return said


class CarriedParameters:
    """Collects names that apps miss among the parameters of jobs and that these jobs carry along."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def look(self, row: Row) -> None:
        """Look at one job."""
        if row.error_code in _MISSING and len(self._names) < _MOST:
            words = set(re.findall(r"\w+", row.error or ""))
            self._names |= {name for name in row.job.carried if _place(name) in words - row.job.params.keys()}

    def hints(self) -> list[str]:
        """Return a sentence for each name."""
        return _hints(self._names)


def _hints(names: Iterable[str]) -> list[str]:
    some = sorted(set(names))[:_MOST]
    return [f"{name} is carried along, no parameter; name it params.{_place(name)} if it is one" for name in some]


def _place(name: str) -> str:
    """The name without what is left of a ``params.`` that was written in another way."""
    return re.sub(r"^\s*params\s*\.", "", name, flags=re.IGNORECASE).strip()
