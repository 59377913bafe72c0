"""Activity log of a server: connected apps, calls with their state and results, stored and removed artifacts. A watcher
of the store reports changes of artifacts, also those that other processes make.

The log is a ring buffer. Each entry is kept once for all clients; a client only holds the id of its last entry. A
client behind the oldest entry gets :class:`LogGap` and must load everything again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from ..._internal.recent import Recent
from ..._internal.tasks import cancel_and_wait, start_task
from ...artifacts._base import ArtifactStore
from ...artifacts._ref import ArtifactRef, Scope
from ...errors import ABPError
from ...protocol._capabilities import CapabilitiesChanged
from ...protocol._payloads import ElicitationRequest, Notification, Progress
from ...protocol._plain_text import plain_line
from ...protocol._strict_json import encode_json
from ...protocol._times import iso_utc
from ...session._call import CallStatus
from ...session._events import CallFinished, CallStarted, Event
from ._apps import App

logger = logging.getLogger("transports")

#: Maximum number of characters of a text from an app.
MAX_TEXT = 500


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A call for people to see. ``started`` is in seconds since 1970. ``duration_ms`` is ``None`` until the call has
    ended. ``error`` is a code and a message. ``artifacts`` are ids, and ``evidence`` has the ids of recordings by kind.
    ``question`` is set while the app waits for an answer. ``view`` is the address of the view that is kept for the
    call. A ``detached`` call goes on without the request that made it."""

    id: str
    session: str
    app: str
    capability: str
    transport: str
    scope: Scope
    started: float
    status: CallStatus = CallStatus.WORKING
    duration_ms: float | None = None
    progress: Progress | None = None
    artifacts: tuple[str, ...] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    error: tuple[str, str] | None = None
    question: Mapping[str, object] | None = None
    detached: bool = False
    view: str | None = None

    def with_outcome(self, event: CallFinished) -> CallRecord:
        record = replace(
            self,
            status=CallStatus.COMPLETED,
            duration_ms=event.duration_ms,
            artifacts=tuple(ref.id for ref in event.artifacts),
            evidence={kind: file.id for kind, file in event.evidence.items()},
            question=None,
        )
        if event.error is None:
            return record
        error = (event.error.code, event.error.message[:MAX_TEXT])
        return replace(record, status=CallStatus.of_error(event.error), error=error)

    def with_question(self, question: ElicitationRequest | None) -> CallRecord:
        if question is None:
            return replace(self, status=CallStatus.WORKING, question=None)
        return replace(self, status=CallStatus.INPUT_REQUIRED, question=question_document(question))

    def as_dict(self) -> dict[str, object]:
        document: dict[str, object] = {
            "id": self.id,
            "session": self.session,
            "app": plain_line(self.app),
            "capability": self.capability,
            "transport": self.transport,
            "started": iso_utc(self.started),
            "duration_ms": None,
            "status": self.status.value,
            "detached": self.detached,
            "progress": None,
            "artifacts": list(self.artifacts),
            "evidence": dict(self.evidence),
            "error": None,
            "question": self.question,
        }
        if self.duration_ms is not None:
            document["duration_ms"] = round(self.duration_ms, 1)
        if self.progress:
            value, total = self.progress.steps
            document["progress"] = {"value": value, "total": total, "text": self.progress.text[:MAX_TEXT] or None}
        if self.error:
            code, message = self.error
            document["error"] = {"code": code, "message": message}
        if self.view:
            document["view"] = self.view
        return document


def question_document(question: ElicitationRequest) -> dict[str, object]:
    """Return a question as ``{"method": …, "params": …}``, without its params if they are over 16 KiB of JSON."""
    max_bytes = 16 << 10
    params: Mapping[str, object] = question.params
    if len(encode_json(params)) > max_bytes:
        params = {"message": "the question is too long to be shown"}
    return {"method": question.method, "params": params}


def result_document(event: CallFinished) -> bytes:
    """Return the outcome of a call as the JSON of ``abp call --json``, without its data if they exceed 1 MiB."""
    if event.result is None:
        error = event.error or ABPError("the call ended without a result")
        cancelled = error.code == "CANCELLED"
        return _encode_outcome({"success": False, "error": error.as_dict(), "cancelled": cancelled})

    max_bytes = 1 << 20
    document = event.result.as_dict()
    json_bytes = _encode_outcome(document)
    if len(json_bytes) > max_bytes:
        omitted = {"omitted": f"{len(json_bytes)} bytes; the artifacts have it"}
        json_bytes = _encode_outcome({**document, "data": omitted})
    return json_bytes


def _encode_outcome(document: object) -> bytes:
    """Encode the outcome of a call. An outcome that cannot be encoded becomes an error, since the end of a call must be
    reported in any case."""
    try:
        return encode_json(document)
    except UnicodeEncodeError:
        # A path may hold bytes that are not UTF-8.
        return json.dumps(document).encode()
    except Exception as error:
        logger.exception("the outcome of a call cannot be shown")
        shown_error = ABPError(f"the outcome cannot be shown ({type(error).__name__}); the log has more")
        return encode_json({"success": False, "error": shown_error.as_dict(), "cancelled": False})


#: Subject of an entry: an artifact, a call, or a small JSON object.
Subject: TypeAlias = ArtifactRef | CallRecord | Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """Event in the log. Ids are consecutive; ``kind`` is the name of the event; ``scope`` is its owner."""

    id: int
    kind: str
    subject: Subject
    scope: Scope


def call_record(app: App, call_id: str, capability: str, *, detached: bool = False) -> CallRecord:
    session = app.session
    return CallRecord(
        id=call_id,
        session=app.key,
        app=session.info.name,
        capability=capability,
        transport=session.transport.name,
        scope=app.scope,
        started=time.time(),
        detached=detached,
    )


class LogGap(Exception):
    """Raised when the log no longer has some entries that a client has not seen."""


class Activity:
    """Log of a server's apps and calls, for one event loop. :meth:`store_changed` is for a :class:`StoreWatcher`."""

    def __init__(self) -> None:
        #: Connected apps by key, oldest first.
        self.apps: dict[str, App] = {}
        #: Calls by id, oldest first.
        self.calls: OrderedDict[str, CallRecord] = OrderedDict()
        #: Called after the end of a call that has stored artifacts.
        self.on_artifacts: Callable[[], object] = lambda: None
        max_entries = 2000
        self._log: deque[Entry] = deque(maxlen=max_entries)
        # Ids also grow from one server to the next, so that a client of an earlier server gets a LogGap.
        self._last_id = int(time.time() * 1000)
        self._changed = asyncio.Event()
        #: Outcomes of the calls that ended last, as JSON.
        self._results: Recent[str, bytes] = Recent(50)
        #: Time of the last log entry about the progress of each call.
        self._progress_logged: dict[str, float] = {}

    # --- apps ---------------------------------------------------------------------------------------------------------

    def on_connected(self, app: App) -> None:
        self.apps[app.key] = app
        name = plain_line(app.session.info.name)
        subject = {"session": app.key, "name": name, "transport": app.session.transport.name}
        self._log_entry("app_connected", subject, app.scope)

    def on_disconnected(self, app: App) -> None:
        self.apps.pop(app.key, None)
        running = [call for call in self.calls.values() if call.session == app.key and call.duration_ms is None]
        for record in running:
            milliseconds = (time.time() - record.started) * 1000
            cancelled = replace(record, status=CallStatus.CANCELLED, duration_ms=milliseconds, question=None)
            self._end_call(cancelled)
        self._log_entry("app_disconnected", {"session": app.key}, app.scope)

    def on_event(self, app: App, event: Event) -> None:
        match event:
            case CallStarted():
                self.call_started(call_record(app, event.call, event.capability))
            case CallFinished():
                self.call_finished(event)
            case Progress() if event.call in self.calls:
                self._call_progressed(replace(self.calls[event.call], progress=event))
            case CapabilitiesChanged():
                self._log_entry("capabilities_changed", {"session": app.key}, app.scope)
            case Notification(event="notifications/resources/updated", data={"uri": str(uri)}):
                self._log_entry("resource_updated", {"session": app.key, "uri": uri[:MAX_TEXT]}, app.scope)
            case Notification(event="notifications/resources/list_changed"):
                self._log_entry("resources_changed", {"session": app.key}, app.scope)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call_started(self, record: CallRecord) -> None:
        """Add a call. Its session and its caller may both report it; the second report may mark the call as
        detached."""
        earlier = self.calls.get(record.id)
        if earlier is None:
            self._log_call("call_started", record)
            self._forget_oldest()
        elif record.detached and not earlier.detached:
            self._log_call("call_progress", replace(earlier, detached=True))

    def restore(self, records: Sequence[CallRecord]) -> None:
        """Add calls of an earlier server, oldest first, without events."""
        for record in records:
            self.calls.setdefault(record.id, record)
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        max_calls = 1000
        while len(self.calls) > max_calls:
            oldest, _ = self.calls.popitem(last=False)
            self._results.pop(oldest, None)
            self._progress_logged.pop(oldest, None)

    def question_changed(self, call_id: str, question: ElicitationRequest | None) -> None:
        """Log a question of the app, or with ``None`` the end of a question. Do nothing if the call has ended."""
        record = self.calls.get(call_id)
        if record is None or record.duration_ms is not None:
            return
        if question is None:
            self._log_call("call_progress", record.with_question(None))
        else:
            self._log_call("call_asked", record.with_question(question))

    def result(self, call_id: str) -> bytes | None:
        """Return the outcome of a call as the JSON of ``abp call --json``; ``None`` if 50 other calls ended since."""
        return self._results.get(call_id)

    def _call_progressed(self, record: CallRecord) -> None:
        if record.duration_ms is not None:
            return
        seconds_between_entries = 0.1
        now = time.monotonic()
        last_logged = self._progress_logged.get(record.id, -1.0)
        if now - last_logged >= seconds_between_entries:
            self._progress_logged[record.id] = now
            self._log_call("call_progress", record)
        else:
            self.calls[record.id] = record

    def call_finished(self, event: CallFinished) -> None:
        """Log ``call_finished``. The session and the caller both report the end of a call; the first report counts."""
        record = self.calls.get(event.call)
        if record is None or record.duration_ms is not None:
            return

        self._results[event.call] = result_document(event)
        if event.artifacts or event.evidence:
            self.on_artifacts()
        self._end_call(record.with_outcome(event))

    def _end_call(self, record: CallRecord) -> None:
        self._progress_logged.pop(record.id, None)
        self._log_call("call_finished", record)

    def _log_call(self, kind: str, record: CallRecord) -> None:
        self.calls[record.id] = record
        self._log_entry(kind, record, record.scope)

    # --- artifacts ----------------------------------------------------------------------------------------------------

    def store_changed(self, change: StoreChange) -> None:
        for ref in change.stored:
            self._log_entry("artifact_stored", ref, ref.scope)
        for ref in change.updated:
            self._log_entry("artifact_updated", ref, ref.scope)
        for artifact_id, scope in change.removed:
            self._log_entry("artifact_removed", {"id": artifact_id}, scope)

    # --- batch runs ---------------------------------------------------------------------------------------------------

    def run_changed(self, subject: Mapping[str, object]) -> None:
        """Log ``run_changed``. It has an empty scope, so that only the operator sees it."""
        self._log_entry("run_changed", subject, Scope())

    # --- following the log --------------------------------------------------------------------------------------------

    @property
    def last_id(self) -> int:
        """Id of the newest entry; positive, also while the log is empty."""
        return self._last_id

    def has_all_entries_after(self, entry_id: int) -> bool:
        """Whether the log still has each entry after this one."""
        return self._last_id - len(self._log) <= entry_id <= self._last_id

    async def entries_after(self, entry_id: int, timeout: float) -> list[Entry]:
        """Wait for entries after this one, and return up to 100 of them, or none after ``timeout`` seconds. Raises
        :class:`LogGap` if the log no longer has all of them."""
        if entry_id == self._last_id:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
        if not self.has_all_entries_after(entry_id):
            raise LogGap

        unseen = self._last_id - entry_id
        start = len(self._log) - unseen
        max_entries = 100
        return list(islice(self._log, start, start + max_entries))

    def _log_entry(self, kind: str, subject: Subject, scope: Scope) -> None:
        self._last_id += 1
        self._log.append(Entry(self._last_id, kind, subject, scope))
        # Wake all who wait now. The new event is for those who wait for the next entry.
        self._changed.set()
        self._changed = asyncio.Event()


# --- watching the store -----------------------------------------------------------------------------------------------

#: Seconds between two checks of a store with a change token, and of a store that has to be listed.
_INTERVAL = 0.5
_LISTING_INTERVAL = 1.0


@dataclass(frozen=True, slots=True)
class StoreChange:
    """What has changed in a store. ``updated`` have another file name, MIME type or scope than before. ``removed`` are
    ids with their scopes."""

    stored: tuple[ArtifactRef, ...]
    updated: tuple[ArtifactRef, ...]
    removed: tuple[tuple[str, Scope], ...]


class StoreWatcher:
    """Calls ``on_change``, which may not block, at most about a second after a change of the store, also by another
    process. A store with a change token, which is cheap to read, is listed only when the token differs; a store without
    a token is listed every second. An artifact that is stored and removed between two checks goes unnoticed."""

    def __init__(self, store: ArtifactStore, on_change: Callable[[StoreChange], object]) -> None:
        self._store = store
        self._on_change = on_change
        self._check_wanted = asyncio.Event()
        #: Change token from before the last listing, and what may change of each artifact in that listing, by id.
        self._change_token: object = None
        self._last_listing: dict[str, tuple[Scope, str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """List the store, and report every change from now on. Do nothing while the watcher runs."""
        if self._task is None:
            self._change_token = await self._read_token()
            self._last_listing = _changeable_parts(await self._store.list())
            self._task = start_task(self._watch())

    async def aclose(self) -> None:
        """Stop watching. Idempotent; :meth:`start` may be called again."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait((task,))

    def check_now(self) -> None:
        self._check_wanted.set()

    async def _watch(self) -> None:
        seconds_after_failure = 5.0
        pause = _INTERVAL
        last_check_failed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._check_wanted.wait()
            self._check_wanted.clear()

            try:
                pause = await self._check_store()
                last_check_failed = False
            except Exception as error:
                # Of several failures in a row only the first is logged.
                if not last_check_failed:
                    logger.warning("cannot watch the store: %s", error, exc_info=not isinstance(error, ABPError))
                pause = seconds_after_failure
                last_check_failed = True

    async def _check_store(self) -> float:
        """Check for changes, and return the seconds until the next check."""
        token = await self._read_token()
        if token is not None and token == self._change_token:
            return _INTERVAL

        started = time.monotonic()
        self._report_changes(await self._store.list())
        self._change_token = token
        elapsed = time.monotonic() - started

        # The pause is ten times as long as the listing, so that a large store is not listed all the time.
        interval = _LISTING_INTERVAL if token is None else _INTERVAL
        return max(interval, 10 * elapsed)

    async def _read_token(self) -> object:
        """Return the store's change token. Return ``None`` if artifacts may expire, which does not change the token."""
        if self._store.retention:
            return None
        return await self._store.change_token()

    def _report_changes(self, refs: list[ArtifactRef]) -> None:
        previous = self._last_listing
        self._last_listing = current = _changeable_parts(refs)

        stored = tuple(ref for ref in refs if ref.id not in previous)
        updated = tuple(ref for ref in refs if ref.id in previous and previous[ref.id] != current[ref.id])
        removed = tuple((key, scope) for key, (scope, *_) in previous.items() if key not in current)
        if stored or updated or removed:
            self._on_change(StoreChange(stored, updated, removed))


def _changeable_parts(refs: Iterable[ArtifactRef]) -> dict[str, tuple[Scope, str, str]]:
    """Return by id what may change of each artifact."""
    return {ref.id: (ref.scope, ref.filename, ref.mime_type) for ref in refs}
