"""Routes of ``/runs``: statistics of batch runs and lists of their jobs, read-only and for the operator only."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
from aiohttp import web

from ..._internal.files import read_regular
from ..._internal.redaction import Redactor
from ..._internal.tasks import cancel_and_wait, in_thread, start_task
from ...artifacts._base import ArtifactStore
from ...artifacts._opening import open_store
from ...batch._jobs import State
from ...batch.ledger._ledger import open_view
from ...batch.ledger._reads import FINAL, JobQuery, LedgerView, Overview
from ...batch.ledger._schema import Row
from ...errors import ABPError, ArtifactNotFound, UsageError
from ...protocol._plain_text import plain_line, plain_text, redact_url
from ...protocol._strict_json import decode_json, encode_json
from ...protocol._times import iso_utc
from ._access import LIMITS, Limits, Visitor
from ._responses import RequestRefused, StoredArtifact, json_response, whole_number

logger = logging.getLogger("transports")

#: Maximum number of characters of a name.
_MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch run is kept. ``where`` is the address of a ledger or the path of its ``folder``. ``changed`` is in
    seconds since 1970."""

    where: str
    name: str
    folder: Path | None = None
    changed: float | None = None

    @property
    def id(self) -> str:
        digest = hashlib.sha256(self.where.encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:16]


@dataclass(slots=True)
class ServedRun:
    """A run that someone looks at. ``reported`` are the states that were last reported as a change."""

    place: Place
    view: LedgerView
    reported: dict[str, object] | None = None
    last_used: float = field(default_factory=time.monotonic)


class ServedRuns:
    """Batch runs in ``places``, each a run's folder, a folder with any number of runs, or a ``postgresql://`` address.
    ``on_change`` is called with the id and the states of a watched run after they have changed; it may not block."""

    def __init__(
        self, places: Sequence[str], on_change: Callable[[Mapping[str, object]], object], limits: Limits = LIMITS
    ) -> None:
        for place in places:
            if "://" in place:
                open_view(place)  # it raises if this is not the address of a ledger
            elif not Path(place).is_dir():
                raise UsageError(f"folder {place} does not exist: give the folder of a run, or a folder of runs")
        self._configured = tuple(place if "://" in place else str(Path(place).absolute()) for place in places)
        self._on_change = on_change
        self._limits = limits
        self._open: dict[str, ServedRun] = {}
        self._stores: dict[str, ArtifactStore] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def configured(self) -> bool:
        return bool(self._configured)

    async def places(self) -> list[Place]:
        return await in_thread(_find_places, self._configured)

    async def get(self, run_id: str) -> ServedRun | None:
        """Return a run, opened and watched for the next minute; ``None`` if no run has this id."""
        if run_id not in self._open:
            places = {place.id: place for place in await self.places()}
            if run_id not in places:
                return None
            # Another request may have opened the run meanwhile.
            if run_id not in self._open:
                place = places[run_id]
                self._open[run_id] = ServedRun(place, open_view(place.where))
        run = self._open[run_id]
        run.last_used = time.monotonic()
        if self._watching is None:
            self._watching = start_task(self._watch_runs())
        return run

    async def artifact(self, artifact_id: str) -> StoredArtifact | None:
        """Find an artifact in the runs that have their files beside the ledger."""
        if not self._configured:
            return None
        places = await self.places()
        await self._close_stores_except({place.id for place in places})

        for place in places:
            if place.folder is None:
                continue
            if place.id not in self._stores:
                self._stores[place.id] = open_store(place.folder / "files")
            store = self._stores[place.id]
            with suppress(ArtifactNotFound):
                return StoredArtifact(store, await store.stat(artifact_id), place.id)
        return None

    async def _close_stores_except(self, run_ids: Set[str]) -> None:
        for run_id in self._stores.keys() - run_ids:
            # Another request may have closed the store meanwhile.
            store = self._stores.pop(run_id, None)
            if store is not None:
                await store.aclose()

    async def aclose(self) -> None:
        if self._watching is not None:
            await cancel_and_wait((self._watching,))
        for run_id in tuple(self._open):
            await self._close_run(run_id)
        await self._close_stores_except(set())

    async def _close_run(self, run_id: str) -> None:
        run = self._open.pop(run_id)
        await run.view.aclose()

    async def _watch_runs(self) -> None:
        while True:
            await asyncio.sleep(self._limits.run_interval)
            for run_id, run in tuple(self._open.items()):
                try:
                    await self._check_run(run_id, run)
                except ABPError as error:  # a request for the run gets the error
                    logger.debug("the run %s cannot be read: %s", run.place.name, error.message)
                except Exception:  # the other runs are still watched
                    logger.exception("the run %s cannot be watched", run.place.name)

    async def _check_run(self, run_id: str, run: ServedRun) -> None:
        if time.monotonic() - run.last_used > self._limits.run_idle:
            await self._close_run(run_id)
            return

        states = _states(await run.view.overview())
        if states != run.reported:
            run.reported = states
            self._on_change({"id": run_id, **states})


def _find_places(configured: Sequence[str]) -> list[Place]:
    places: dict[str, Place] = {}
    for where in configured:
        runs = [_run_at_address(where)] if "://" in where else _find_runs(Path(where))
        for place in runs:
            places.setdefault(place.where, place)

    # The time of the last change of a run at an address is unknown. Such runs come first.
    newest_first = sorted(places.values(), key=lambda place: place.changed or time.time(), reverse=True)
    return newest_first[:100]


def _run_at_address(url: str) -> Place:
    """Return the run at an address. Its name is the last parameter ``run`` in the query."""
    base, _, query = url.partition("#")[0].partition("?")
    run = parse_qs(query).get("run", ["default"])[-1]
    return Place(url, f"{run} · {redact_url(base)}")


def _find_runs(folder: Path) -> list[Place]:
    """Return the run of the folder, or the runs of at most 10,000 subfolders if it has none."""
    run = _run_in_folder(folder)
    if run is not None:
        return [run]

    runs: list[Place] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, 10_000):
            if not entry.is_dir(follow_symlinks=False):
                continue
            run = _run_in_folder(Path(entry.path))
            if run is not None:
                runs.append(run)
    return runs


def _run_in_folder(folder: Path) -> Place | None:
    """Return the run in a folder, with the time of its last change; ``None`` for a folder without a ledger."""
    times = []
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    if not times:
        return None
    return Place(str(folder), folder.name, folder, max(times))


class RunRoutes:
    def __init__(self, runs: ServedRuns) -> None:
        self._runs = runs

    async def list(self, _: web.Request, visitor: Visitor) -> web.StreamResponse:
        """List the runs, newest first. ``served`` is true if runs are served to this visitor."""
        if not self._runs.configured or not visitor.operator:
            return json_response({"served": False, "runs": []})
        runs = [
            {"id": place.id, "name": _shown_name(place.name), "changed": _iso_time(place.changed)}
            for place in await self._runs.places()
        ]
        return json_response({"served": True, "runs": runs})

    async def show(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """Describe a run. For a minute from then on, changes of its states are ``run_changed`` events."""
        run = await self._find_run(request, visitor)
        overview = await run.view.overview()
        report = None
        if run.place.folder is not None:
            report = await in_thread(_read_report, run.place.folder)

        document = _overview_document(overview)
        document["id"] = run.place.id
        document["name"] = _shown_name(run.place.name)
        document["report"] = report
        return json_response(document)

    async def jobs(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        """List jobs. If ``q`` is the id of a copy, its job is listed, with ``q`` as the job's ``copy``."""
        run = await self._find_run(request, visitor)
        query = _read_job_query(request.query)
        page = await run.view.jobs(query)
        name_of_copy = _shown_name(query.text or "")
        jobs = []
        for row in page.rows:
            job = _row_document(row, max_files=4)
            job["copy"] = name_of_copy if row.key in page.copies else None
            jobs.append(job)
        return json_response({"jobs": jobs, "next": page.next})

    async def job(self, request: web.Request, visitor: Visitor) -> web.StreamResponse:
        run = await self._find_run(request, visitor)
        row = await run.view.job(request.match_info["key"])
        if row is None:
            raise RequestRefused(404, "NOT_FOUND", "the run has no such job")

        copies = await run.view.copies(row.key)
        document = await in_thread(_job_document, row)
        document["copies"] = [_shown_name(name or f"position {position}") for position, name in copies]
        return json_response(document)

    async def _find_run(self, request: web.Request, visitor: Visitor) -> ServedRun:
        visitor.require_operator()
        run = await self._runs.get(request.match_info["run"])
        if run is None:
            raise RequestRefused(404, "NOT_FOUND", "no run has this id; it may have been removed")
        return run


def _read_job_query(query: Mapping[str, str]) -> JobQuery:
    states = FINAL
    if query.get("state"):
        try:
            states = (State(query["state"]),)
        except ValueError:
            raise RequestRefused(400, "INVALID_PARAMS", f"state must be one of {', '.join(State)}") from None
    limit = whole_number(query.get("limit", "50"))
    if not limit or limit > 200:
        raise RequestRefused(400, "INVALID_PARAMS", "limit must be a whole number from 1 to 200")
    text = query.get("q", "").strip()[:_MAX_NAME]
    return JobQuery(states=states, code=query.get("code"), text=text or None, after=query.get("after"), limit=limit)


def _states(overview: Overview) -> dict[str, object]:
    return {"states": {state.value: overview.states[state] for state in State}, "cancelled": overview.cancelled}


def _overview_document(overview: Overview) -> dict[str, object]:
    """Describe the state of a run. Its ``throughput`` has a number for each step since ``began``."""
    return {
        **_states(overview),
        "codes": [
            {"code": code, "name": plain_line(code) or "no code", "jobs": jobs} for code, jobs in overview.codes.items()
        ],
        "throughput": {
            "began": _iso_time(overview.began),
            "step_seconds": overview.step,
            "succeeded": overview.succeeded,
            "others": overview.others,
        },
        "recent_per_second": overview.recent / 10,  # it counts the last ten seconds
        "now": _iso_time(overview.now),
    }


def _row_document(row: Row, max_files: int) -> dict[str, object]:
    job = row.job
    max_error_chars = 2000
    return {
        "key": row.key,
        "id": _shown_name_or_none(job.id),
        "capability": _shown_name(job.capability),
        "target": _shown_name(redact_url(job.target or "")),
        "state": row.state.value,
        "attempts": row.attempts,
        "started": _iso_time(row.started),
        "finished": _iso_time(row.finished),
        "duration_ms": round(row.milliseconds, 1),
        "code": _shown_name_or_none(row.error_code),
        "error": None if row.error is None else plain_text(row.error[:max_error_chars]),
        "files": [
            {
                "id": artifact.get("id"),
                "filename": _shown_name(str(artifact.get("filename", ""))),
                "mime_type": _shown_name(str(artifact.get("mime_type", ""))),
                "size_bytes": artifact.get("size_bytes"),
            }
            for artifact in row.artifacts[:max_files]
        ],
        "file_count": len(row.artifacts),
    }


def _job_document(row: Row) -> dict[str, object]:
    job = row.job
    document = _row_document(row, max_files=500)
    if job.params:
        document["params"] = _shown_values(job.params)
    if job.carried:
        document["carried"] = _shown_values(job.carried)
    document["inputs"] = {_shown_name(place): plain_line(str(path), 800) for place, path in job.files.items()}
    document["worker"] = row.worker
    document["timeout"] = job.timeout
    document["idempotent"] = job.idempotent
    return document


def _shown_values(values: Mapping[str, object]) -> str:
    """Return indented JSON without secrets, cut after 20,000 characters."""
    redacted_values = Redactor().redact_tree(dict(values))
    text = msgspec.json.format(encode_json(redacted_values), indent=2).decode()
    max_chars = 20_000
    if len(text) <= max_chars:
        return plain_text(text)
    return plain_text(text[:max_chars]) + "…"


def _shown_name(text: str) -> str:
    return plain_line(text, _MAX_NAME)


def _shown_name_or_none(text: str | None) -> str | None:
    if text is None:
        return None
    return _shown_name(text)


def _read_report(folder: Path) -> dict[str, object] | None:
    try:
        report = folder / "report.json"
        changed = report.stat().st_mtime
        document = decode_json(read_regular(report, 1 << 20))
    except (OSError, ABPError):
        return None
    if not isinstance(document, dict):
        return None

    browsers = document.get("browsers")
    return {
        "milliseconds": _numbers_in(document.get("milliseconds")),
        "recycled": _numbers_in(browsers.get("recycled")) if isinstance(browsers, dict) else None,
        "written": _iso_time(changed),
    }


def _numbers_in(value: object) -> dict[str, float]:
    if not isinstance(value, dict):
        return {}
    return {
        plain_line(str(name), 40): number
        for name, number in islice(value.items(), 20)
        if isinstance(number, int | float)
    }


def _iso_time(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return iso_utc(seconds, timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
