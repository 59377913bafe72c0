"""What happens in a server, as one bounded log: apps come and go, calls run, artifacts are stored and removed.

The log is a ring: each entry is kept once, however many listen, and a listener is only a place in it. One that falls
behind the oldest entry is told so and ends; it has to load everything again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, TypeAlias

from ...artifacts import ArtifactRef, Scope
from ...errors import ABPError
from ...protocol.capabilities import CapabilitiesChanged
from ...protocol.payloads import ElicitationRequest, Progress
from ...protocol.strict_json import encode_json
from ...protocol.timestamps import iso_utc
from ...session.events import CallFinished, CallStarted, Event
from .apps import App, Apps

__all__ = ["Activity", "Behind", "CallRecord", "Connected", "Entry"]

#: Entries of the log, and calls, that are remembered.
_ENTRIES, _CALLS = 2000, 1000
#: Results that are remembered, of calls that were over last; of one with more bytes of JSON its data is left out.
_RESULTS, _RESULT_BYTES = 50, 1 << 20
#: Entries that a listener takes at a time.
_STEP = 100
#: Characters of an app's words, and bytes of its question, that are remembered.
_WORDS, _QUESTION_BYTES = 500, 16 << 10
#: Seconds between two entries for the progress of one call; what comes in between is only its state.
_PROGRESS = 0.1

Status: TypeAlias = Literal["running", "asking", "succeeded", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call as it stands. ``started`` is seconds since 1970; ``duration_ms`` is ``None`` until it is over; ``error``
    is a code and a message."""

    id: str
    session: str
    app: str
    capability: str
    transport: str
    scope: Scope
    started: float
    status: Status = "running"
    duration_ms: float | None = None
    progress: Progress | None = None
    artifacts: tuple[str, ...] = ()
    error: tuple[str, str] | None = None
    question: Mapping[str, object] | None = None

    def as_dict(self) -> dict[str, object]:
        """As JSON, without its result."""
        return {
            "id": self.id,
            "session": self.session,
            "app": self.app,
            "capability": self.capability,
            "transport": self.transport,
            "started": iso_utc(self.started),
            "duration_ms": None if self.duration_ms is None else round(self.duration_ms, 1),
            "status": self.status,
            "progress": _progress(self.progress) if self.progress else None,
            "artifacts": list(self.artifacts),
            "error": {"code": self.error[0], "message": self.error[1]} if self.error else None,
            "question": self.question,
        }


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened; ``id`` grows by one. ``about`` is what it happened to; ``scope`` is whose that is."""

    id: int
    kind: str
    about: ArtifactRef | CallRecord | Mapping[str, object]
    scope: Scope


@dataclass(frozen=True, slots=True)
class Connected:
    """A connected app, and those among which it is."""

    app: App
    apps: Apps

    @property
    def scope(self) -> Scope:
        """Whose it is."""
        return self.app.session.store.scope


class Behind(Exception):
    """What a listener asks for is no longer in the log."""


class Activity:
    """The log, the calls that were made, and the apps that are connected, of one server. A
    :class:`~.apps.Watcher` of apps tells it what they do; :meth:`stored` and :meth:`removed` are for whoever
    watches the store. For one event loop."""

    def __init__(self) -> None:
        #: Connected apps by key, oldest first.
        self.apps: dict[str, Connected] = {}
        #: Calls by id, oldest first.
        self.calls: OrderedDict[str, CallRecord] = OrderedDict()
        #: Called when a call is over that stored something.
        self.on_artifacts: Callable[[], object] = lambda: None
        self._log: deque[Entry] = deque(maxlen=_ENTRIES)
        # ids grow from one server to the next, so that a listener of an earlier one is told that it missed something
        self._last = int(time.time() * 1000)
        self._news = asyncio.Event()
        self._results: OrderedDict[str, bytes] = OrderedDict()
        self._told: dict[str, float] = {}

    # --- apps ---------------------------------------------------------------------------------------------------------

    def connected(self, app: App, apps: Apps) -> None:
        self.apps[app.key] = Connected(app, apps)
        session = app.session
        about = {"session": app.key, "name": session.info.name, "transport": session.transport.name}
        self._add("app_connected", about, session.store.scope)

    def disconnected(self, app: App) -> None:
        """Its calls under way are over with it."""
        self.apps.pop(app.key, None)
        for record in [one for one in self.calls.values() if one.session == app.key and one.duration_ms is None]:
            self._over(record, "cancelled", (time.time() - record.started) * 1000, None)
        self._add("app_disconnected", {"session": app.key}, app.session.store.scope)

    def heard(self, app: App, event: Event) -> None:
        """An event of an app's session."""
        match event:
            case CallStarted():
                self.call_started(app, event.call, event.capability)
            case CallFinished():
                self.call_finished(event)
            case Progress() if event.call in self.calls:
                self._progressed(replace(self.calls[event.call], progress=event))
            case CapabilitiesChanged():
                self._add("capabilities_changed", {"session": app.key}, app.session.store.scope)

    # --- calls --------------------------------------------------------------------------------------------------------

    def call_started(self, app: App, call: str, capability: str) -> CallRecord:
        """A call begins, or has begun already."""
        if call not in self.calls:
            session = app.session
            record = CallRecord(
                id=call,
                session=app.key,
                app=session.info.name,
                capability=capability,
                transport=session.transport.name,
                scope=session.store.scope,
                started=time.time(),
            )
            self._record("call_started", record)
            while len(self.calls) > _CALLS:
                gone, _ = self.calls.popitem(last=False)
                self._results.pop(gone, None)
                self._told.pop(gone, None)
        return self.calls[call]

    def asked(self, call: str, question: ElicitationRequest | None) -> None:
        """The app asks somebody (``question``), or has its answer (``None``)."""
        record = self.calls.get(call)
        if record and record.duration_ms is None:
            status: Status = "asking" if question else "running"
            kind = "call_asked" if question else "call_progress"
            self._record(kind, replace(record, status=status, question=_question(question) if question else None))

    def result(self, call: str) -> bytes | None:
        """What a call gave, as the document of ``abp call --json``, if it is over and not too long ago."""
        return self._results.get(call)

    def _progressed(self, record: CallRecord) -> None:
        if record.duration_ms is not None:
            return
        now = time.monotonic()
        if now - self._told.get(record.id, -1.0) >= _PROGRESS:
            self._told[record.id] = now
            self._record("call_progress", record)
        else:
            self.calls[record.id] = record

    def call_finished(self, event: CallFinished) -> None:
        """A call is over. Who made it may say so too: only the first word counts."""
        record = self.calls.get(event.call)
        if record is None or record.duration_ms is not None:
            return
        self._results[event.call] = _document(event)
        if len(self._results) > _RESULTS:
            self._results.popitem(last=False)
        artifacts = tuple(ref.id for ref in event.artifacts)
        if artifacts:
            self.on_artifacts()
        cancelled = event.error is not None and event.error.code == "CANCELLED"
        status: Status = "cancelled" if cancelled else "failed" if event.error else "succeeded"
        self._over(replace(record, artifacts=artifacts), status, event.duration_ms, event.error)

    def _over(self, record: CallRecord, status: Status, duration_ms: float, error: ABPError | None) -> None:
        self._told.pop(record.id, None)
        told = (error.code, error.message[:_WORDS]) if error else None
        over = replace(record, status=status, duration_ms=duration_ms, error=told, question=None)
        self._record("call_finished", over)

    def _record(self, kind: str, record: CallRecord) -> None:
        self.calls[record.id] = record
        self._add(kind, record, record.scope)

    # --- artifacts ----------------------------------------------------------------------------------------------------

    def stored(self, ref: ArtifactRef) -> None:
        self._add("artifact_stored", ref, ref.scope)

    def updated(self, ref: ArtifactRef) -> None:
        self._add("resource_updated", {"uri": ref.uri}, ref.scope)

    def removed(self, artifact_id: str, scope: Scope) -> None:
        self._add("artifact_removed", {"id": artifact_id}, scope)

    # --- listening ----------------------------------------------------------------------------------------------------

    @property
    def last(self) -> int:
        """The id of the newest entry. All ids are positive."""
        return self._last

    def holds(self, place: int) -> bool:
        """Whether everything after that id is still in the log."""
        return self._last - len(self._log) <= place <= self._last

    async def after(self, place: int, timeout: float) -> list[Entry]:
        """The next entries with a higher id than ``place``, some at a time and in order; none if nothing happens within
        ``timeout`` seconds. Raises :class:`Behind` if some are no longer there, or if ``place`` is none of ours."""
        if place == self._last:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), timeout)
        if not self.holds(place):
            raise Behind
        start = len(self._log) - (self._last - place)
        return list(islice(self._log, start, start + _STEP))

    def _add(self, kind: str, about: ArtifactRef | CallRecord | Mapping[str, object], scope: Scope) -> None:
        self._last += 1
        self._log.append(Entry(self._last, kind, about, scope))
        self._news.set()
        self._news = asyncio.Event()


def _progress(progress: Progress) -> dict[str, object]:
    value, total = progress.steps
    return {"value": value, "total": total, "text": progress.text[:_WORDS] or None}


def _question(question: ElicitationRequest) -> dict[str, object]:
    params: Mapping[str, object] = question.params
    if len(encode_json(params)) > _QUESTION_BYTES:
        params = {"message": "the question is too long to be shown"}
    return {"method": question.method, "params": params}


def _document(event: CallFinished) -> bytes:
    if event.result is None:
        error = event.error or ABPError("the call gave nothing")
        cancelled = error.code == "CANCELLED"
        return encode_json({"success": False, "error": error.as_dict(), "cancelled": cancelled})
    document = event.result.as_dict()
    try:
        encoded = encode_json(document)
    except UnicodeEncodeError:  # a path may hold bytes that are no text
        encoded = json.dumps(document).encode()
    if len(encoded) > _RESULT_BYTES:
        encoded = encode_json({**document, "data": {"omitted": f"{len(encoded)} bytes; the artifacts have it"}})
    return encoded
