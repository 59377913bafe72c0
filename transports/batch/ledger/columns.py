"""A job as a row of the table: what is written when it is added, and what is read of it."""

from __future__ import annotations

from typing import cast
from urllib.parse import urlsplit

from ...database import Value, without_nul
from ..job_format import job_document, parse_job
from ..jobs import Job, State
from .entries import Row
from .texts import decoded_list, decoded_object, encoded

__all__ = ["COLUMNS", "COPY_COLUMNS", "host_of", "new_row", "row_from"]

#: What a row is read from.
COLUMNS = "position, key, job, state, attempts, worker, started, finished, milliseconds, error_code, error, artifacts"
#: The same of a copy ``c`` and its job ``j``.
COPY_COLUMNS = ", ".join(f"{'c' if name in ('position', 'key', 'job') else 'j'}.{name}" for name in COLUMNS.split(", "))


def new_row(job: Job, line: int) -> tuple[Value, ...]:
    """Return the key, line, host, id, text, idempotence and state of a job that is added, queued. Reads its files."""
    text = encoded(job_document(job))
    return job.key, line, host_of(job), without_nul(job.id), text, int(job.idempotent), State.QUEUED.value


def row_from(*cells: object, copy: bool = False) -> Row:
    """Return the row that the cells of :data:`COLUMNS` make, with those of a ``copy`` in their places."""
    position, key, job, state, attempts, worker, started, finished, milliseconds, code, error, artifacts = cells
    return Row(
        cast(int, position),
        str(key),
        parse_job(decoded_object(str(job))),
        State(str(state)),
        cast(int, attempts),
        cast("str | None", worker),
        cast("float | None", started),
        cast("float | None", finished),
        cast(float, milliseconds),
        cast("str | None", code),
        cast("str | None", error),
        tuple(decoded_list(str(artifacts))),
        copy,
    )


def host_of(job: Job) -> str:
    """Return what limits per host count: the host and the port of the target, else the target itself."""
    target = (job.target or "").replace("\0", "")
    try:
        return urlsplit(target).netloc.rpartition("@")[2].lower() or target[:200] or "-"
    except ValueError:
        return target[:200] or "-"
