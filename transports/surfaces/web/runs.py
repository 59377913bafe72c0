"""``/runs``: batch runs as they stand, and their jobs. All of it is read only, and for the operator alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
from aiohttp import web

from ...batch import State
from ...batch.ledger import FINAL, JobQuery, Overview, Row
from ...errors import ABPError
from ...files import read_regular
from ...protocol.plain_text import plain_line, plain_text
from ...protocol.redaction import Redactor
from ...protocol.strict_json import decode_json, encode_json
from ...protocol.timestamps import iso_utc
from ...protocol.urls import redact_url
from ...tasks import in_thread
from .access import Visitor
from .responses import RequestRefused, json_response
from .served_runs import ServedRun, ServedRuns

__all__ = ["RunRoutes", "states_document"]

#: Jobs in one page by default and at most, and files of a job in a list and in its own document.
_PAGE, _MAX_PAGE = 50, 200
_LISTED_FILES, _MAX_FILES = 4, 500
#: Characters of a name, of an error, and of parameters.
_NAME, _ERROR, _PARAMS = 200, 2000, 20_000
#: Bytes of a report that is read.
_MAX_REPORT = 1 << 20


class RunRoutes:
    """Handlers for the runs of one server."""

    def __init__(self, runs: ServedRuns) -> None:
        self._runs = runs

    async def list(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /runs``, the newest first. ``served`` says whether there may be any, for this visitor."""
        served = self._runs.configured and visitor.operator
        places = await self._runs.places() if served else []
        found = [{"id": one.id, "name": plain_line(one.name, _NAME), "changed": _time(one.changed)} for one in places]
        return json_response({"served": served, "runs": found})

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /runs/{run}``: states, codes of errors, throughput, and what its last report tells. For a minute
        from then on, ``run_changed`` events say when the states change."""
        run = await self._run(request, visitor)
        overview = await run.overview()
        folder = run.place.folder
        report = await in_thread(_read_report, folder) if folder else None
        return json_response({"id": run.place.id, "name": plain_line(run.place.name, _NAME), **_document(overview),
                              "report": report})  # fmt: skip

    async def jobs(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /runs/{run}/jobs``: those of ``state`` (by default all that have ended), with the error ``code``
        and the text ``q``, which may be the id of a ``copy``; at most ``limit``, after ``after``."""
        run, query = await self._run(request, visitor), request.query
        try:
            states = (State(query["state"]),) if query.get("state") else FINAL
        except ValueError:
            raise RequestRefused(400, "INVALID_PARAMS", f"state is one of {', '.join(State)}") from None
        limit = query.get("limit", str(_PAGE))
        if not (limit.isascii() and limit.isdigit() and len(limit) <= 9 and 0 < int(limit) <= _MAX_PAGE):
            raise RequestRefused(400, "INVALID_PARAMS", f"limit is a whole number up to {_MAX_PAGE}")
        text, code = query.get("q", "").strip()[:_NAME], query.get("code")
        page = await run.view.jobs(JobQuery(states, code, text or None, query.get("after"), int(limit)))
        found = [
            {**_listed(row), "copy": plain_line(text, _NAME) if row.key in page.copies else None} for row in page.rows
        ]
        return json_response({"jobs": found, "next": page.next})

    async def job(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Answer ``GET /runs/{run}/jobs/{key}`` with one job, its parameters without secrets, its files, and the
        ids of the first 20 ``copies``: lines that share it with an earlier one."""
        run = await self._run(request, visitor)
        row = await run.view.job(request.match_info["key"])
        if row is None:
            raise RequestRefused(404, "NOT_FOUND", "the run has no such job")
        copies = [plain_line(name or f"position {place}", _NAME) for place, name in await run.view.copies(row.key)]
        return json_response({**await in_thread(_whole, row), "copies": copies})

    async def _run(self, request: web.Request, visitor: Visitor) -> ServedRun:
        visitor.require_operator()
        run = await self._runs.get(request.match_info["run"])
        if run is None:
            raise RequestRefused(404, "NOT_FOUND", "there is no such run (any more)")
        return run


def states_document(run_id: str, overview: Overview) -> dict[str, object]:
    """Return what a ``run_changed`` event says."""
    states = {state.value: overview.states[state] for state in State}
    return {"id": run_id, "states": states, "cancelled": overview.cancelled}


def _document(overview: Overview) -> dict[str, object]:
    codes = [{"code": code, "name": plain_line(code) or "no code", "jobs": n} for code, n in overview.codes.items()]
    return {
        "states": {state.value: overview.states[state] for state in State},
        "cancelled": overview.cancelled,
        "codes": codes,
        "throughput": {
            "began": _time(overview.began),
            "step_seconds": overview.step,
            "succeeded": overview.succeeded,
            "others": overview.others,
        },
        "recent_per_second": overview.recent / 10,
        "now": _time(overview.now),
    }


def _listed(row: Row, files: int = _LISTED_FILES) -> dict[str, object]:
    job = row.job
    return {
        "key": row.key,
        "id": None if job.id is None else plain_line(job.id, _NAME),
        "capability": plain_line(job.capability, _NAME),
        "target": plain_line(redact_url(job.target or ""), _NAME),
        "state": row.state.value,
        "attempts": row.attempts,
        "started": _time(row.started),
        "finished": _time(row.finished),
        "duration_ms": round(row.milliseconds, 1),
        "code": None if row.error_code is None else plain_line(row.error_code, _NAME),
        "error": None if row.error is None else plain_text(row.error[:_ERROR]),
        "files": [_file(one) for one in row.artifacts[:files]],
        "file_count": len(row.artifacts),
    }


def _whole(row: Row) -> dict[str, object]:
    job, redactor = row.job, Redactor()
    asked = {"params": redactor.tree(dict(job.params)), "carried": redactor.tree(dict(job.carried))}
    texts = {name: msgspec.json.format(encode_json(value), indent=2).decode() for name, value in asked.items() if value}
    return {
        **_listed(row, _MAX_FILES),
        **{name: plain_text(text[:_PARAMS]) + "…" * (len(text) > _PARAMS) for name, text in texts.items()},
        "inputs": {plain_line(place, _NAME): plain_line(str(path), 4 * _NAME) for place, path in job.files.items()},
        "worker": row.worker,
        "timeout": job.timeout,
        "idempotent": job.idempotent,
    }


def _file(ref: Mapping[str, object]) -> dict[str, object]:
    return {
        "id": ref.get("id"),
        "filename": plain_line(str(ref.get("filename", "")), _NAME),
        "mime_type": plain_line(str(ref.get("mime_type", "")), _NAME),
        "size_bytes": ref.get("size_bytes"),
    }


def _read_report(folder: Path) -> dict[str, object] | None:
    """What ``report.json`` says beyond the ledger; ``None`` without one that can be read."""
    try:
        report = folder / "report.json"
        changed, document = report.stat().st_mtime, decode_json(read_regular(report, _MAX_REPORT))
    except (OSError, ABPError):
        return None
    if not isinstance(document, dict):
        return None
    browsers = document.get("browsers")
    recycled = _numbers(browsers.get("recycled")) if isinstance(browsers, dict) else None
    return {"milliseconds": _numbers(document.get("milliseconds")), "recycled": recycled, "written": _time(changed)}


def _numbers(value: object) -> dict[str, float]:
    items = value.items() if isinstance(value, dict) else ()
    return {plain_line(str(name), 40): one for name, one in [*items][:20] if isinstance(one, int | float)}


def _time(seconds: float | None) -> str | None:
    try:
        return None if seconds is None else iso_utc(seconds, timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # no time that there is
        return None
