"""Recording of evidence around the calls of one session: begun before a call, stored before its result is returned."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from .. import protocol
from .._internal.masking import KnownSecrets, known_to
from .._internal.redaction import EvidenceRedactor
from .._internal.tasks import in_thread, spawn, wait_despite_cancel
from ..artifacts._base import ArtifactStore
from ..artifacts._memory import NoneStore
from ..artifacts._ref import ArtifactRef, Scope
from ..artifacts._retention import Retention
from ..base import Transport
from ..errors import ABPError, UsageError, first_line, spelled
from ..playwright._evidence import CallEvidence, PageEvidence, page_of
from ..playwright._evidence_kinds import MAX_CHARS, EvidenceFile, EvidenceKind, TimedLines
from ._call import Call
from ._events import ConnectionChanged, Retrying
from ._evidence import Evidence
from ._results import Results

if TYPE_CHECKING:
    from ._events import Event, EventStreams

logger = logging.getLogger("transports")


class EventLog:
    """Log of a session's events during one call, for apps without a page. It collects from its creation until
    :meth:`end`. Secrets in ``params``, the parameters of the call, are masked."""

    def __init__(self, streams: EventStreams, params: object, secrets: KnownSecrets) -> None:
        self._known = secrets
        self.notes: list[str] = []
        self._streams = streams
        self._params = params
        self._lines = TimedLines("the app said nothing")
        self._folder: Path | None = None
        streams.open.append(self)

    def add(self, event: Event) -> None:
        self._lines.add(partial(_format_event, event))

    def wake(self) -> None:
        """Do nothing: no reader waits for these events."""

    async def end(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        """Stop collecting. Return the log as a file if ``keep`` contains ``console``."""
        await asyncio.sleep(0)  # for events that arrived in this turn of the loop
        if self in self._streams.open:
            self._streams.open.remove(self)
        if "console" not in keep:
            return []
        self._folder = Path(tempfile.mkdtemp(prefix="abp-evidence-"))
        path = self._folder / "console.txt"
        await in_thread(self._write, path)
        return [EvidenceFile("console", path, "text/plain", "console.txt")]

    def _write(self, path: Path) -> None:
        """Write the lines without secrets; many lines take seconds, so this runs in a thread."""
        redactor = EvidenceRedactor(self._known)
        redactor.redact_tree(self._params)
        path.write_text(self._lines.text(redactor.with_values()), encoding="utf-8", errors="replace")

    def discard(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _format_event(event: Event) -> str:
    match event:
        case protocol.Notification():
            return f"{event.event}: {_encode_beginning(event.data)}"
        case protocol.Progress():
            return f"progress: {event.text}"
        case ConnectionChanged():
            if event.connected:
                return f"connection restored: {event.reason}"
            return f"connection lost: {event.reason}"
        case Retrying():
            return f"sent again in {event.delay:.1f} s: {event.error.message}"
    return ""


def _encode_beginning(data: object) -> str:
    """Return the beginning of ``data`` as JSON, slightly longer than a line of the log. The rest is not encoded."""
    pieces: list[str] = []
    # One character more than fits, so that the line is recognised as cut.
    room = MAX_CHARS + 1
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(data):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(pieces)


class EvidenceOfCalls:
    """Recorder of the chosen ``evidence`` around each call of a session; it stores beside the session's ``results``."""

    def __init__(self, evidence: Evidence, transport: Transport, results: Results, streams: EventStreams) -> None:
        store = results.store
        if isinstance(store, NoneStore):
            raise UsageError(f"{spelled('evidence=')} needs a store that keeps files, not none:")

        self._evidence = evidence
        self._transport = transport
        self._streams = streams
        self._results = results
        # Mask the values that this user was given (for the operator: all). Masking others would reveal them as secrets.
        self._known = known_to(store.scope.holder)
        self._page: PageEvidence | None = None
        #: Tasks that end the recordings of cancelled calls.
        self._ending: set[asyncio.Task[None]] = set()

        self._store = store
        #: View of the store that enforces the limits of the evidence.
        self._limits: ArtifactStore | None = None
        # On a trace that the store's owner chose, limits would count the owner's files, too.
        if not store.scope.trace:
            self._store = store.scoped(Scope(trace="evidence"))
            if evidence.max_files is not None or evidence.max_age is not None:
                self._limits = store.scoped(Scope(trace="evidence"))
                self._limits.retention = Retention.only(
                    max_artifacts_per_trace=evidence.max_files,
                    ttl_seconds=evidence.max_age,
                    cleanup_strategy="fifo",
                )

    async def __aenter__(self) -> Self:
        """Check that every chosen kind of evidence can be recorded."""
        kinds = self._evidence.kinds()
        source = page_of(self._transport)
        if source is None:
            unavailable = sorted(kinds - {"console"})
            if unavailable:
                raise UsageError(
                    f"evidence: {', '.join(unavailable)} need an app in a page; this one is reached by "
                    f"{self._transport.name}, for which there is only the console: the app's events during a call"
                )
            return self

        try:
            self._page = PageEvidence(source, self._known)
        except OSError as error:
            raise UsageError(f"evidence: nothing can be recorded: {first_line(error)}") from error

        # Begin and end a recording now, so that a browser that cannot record is noticed before the first call.
        trial = await self._page.begin(kinds, "trial", {})
        await trial.end(())
        trial.discard()
        if trial.notes:
            self._page.close()
            raise UsageError(f"evidence: {trial.notes[0]}")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ending:
            await asyncio.wait(self._ending)
        if self._page is not None:
            self._page.close()

    @contextlib.asynccontextmanager
    async def recording_call(self, call: Call, params: object) -> AsyncIterator[None]:
        """Record evidence in the block, and add it to the result of the call or to its :class:`ABPError`."""
        beginning = asyncio.ensure_future(self._begin_recording(call.capability, params))
        try:
            recording = await wait_despite_cancel(beginning)
            try:
                yield
            except ABPError as error:
                error.evidence, notes = await self._store_evidence(recording, call, failed=True)
                if notes:
                    error.details.setdefault("evidence", notes)
                raise

            files, notes = await self._store_evidence(recording, call, failed=False)
        except ABPError:
            raise  # with its evidence, which is stored
        except BaseException:
            # A cancelled caller must not wait for the recording to end.
            spawn(self._drop_recording(beginning), self._ending)
            raise

        result = call.finished_result
        if files and self._results.store.retention:
            result = await self._results.with_evictions(result)
        warnings = (*result.warnings, *(f"evidence: {note}" for note in notes))
        call.result = replace(result, evidence=files, warnings=warnings)

    async def _begin_recording(self, capability: str, params: object) -> CallEvidence | EventLog:
        if self._page is None:
            return EventLog(self._streams, params, self._known)
        if self._ending:
            await asyncio.wait(self._ending)
        return await self._page.begin(self._evidence.kinds(), capability, params)

    async def _store_evidence(
        self, recording: CallEvidence | EventLog, call: Call, *, failed: bool
    ) -> tuple[Mapping[str, ArtifactRef], list[str]]:
        """End a recording and store its files. Return them by kind, and a note on each problem: evidence never makes a
        call fail."""
        files: dict[str, ArtifactRef] = {}
        try:
            for file in await recording.end(self._evidence.kinds(failed=failed)):
                try:
                    files[file.kind] = await self._put_evidence_file(file, call)
                except ABPError as error:
                    # The other files are still stored.
                    recording.notes.append(f"{file.kind}: {error.message}")

            if files and self._limits is not None:
                # Listing makes the store notice the new files now; without a retention it looks only once a minute.
                await self._limits.list()
                await self._limits.enforce_retention()
        except (ABPError, OSError) as error:
            recording.notes.append(first_line(error))
        finally:
            recording.discard()

        for note in recording.notes:
            logger.warning("%s: evidence: %s", call.capability, note)
        return files, recording.notes

    async def _put_evidence_file(self, file: EvidenceFile, call: Call) -> ArtifactRef:
        source = {**self._results.source(call.id), "capability": call.capability, "evidence": file.kind}
        name = f"{call.capability}-{call.id[:8]}.{file.ending}"
        return await self._store.put_file(
            file.path, filename=name, mime_type=file.mime_type, namespace=f"evidence_{file.kind}", meta=source
        )

    async def _drop_recording(self, beginning: asyncio.Future[CallEvidence | EventLog]) -> None:
        """End the recording of a cancelled call, and keep nothing of it."""
        with contextlib.suppress(Exception, asyncio.CancelledError):
            recording = await beginning
            try:
                await recording.end(())
            finally:
                recording.discard()
