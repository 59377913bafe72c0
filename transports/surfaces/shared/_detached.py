"""Detached calls, independent of the requests that made them, and their ledger. The MCP bridge and the web server share
them.

:class:`DetachedCalls` runs the calls of one server. :class:`CallLedger` keeps calls, answers and connections in SQLite,
so that the next server with the same ``--state`` finds them by id.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import stat
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self, TypeVar, cast

from pydantic import TypeAdapter

from ..._internal.database import Cursor, Transactions, Value
from ..._internal.tasks import discard_unawaited, start_task, wait_despite_cancel
from ...artifacts._base import ArtifactStore
from ...artifacts._files import belongs_to_us, others_may_read
from ...artifacts._ref import Scope
from ...batch.ledger._schema import SqliteDatabase, decoded_object, encoded
from ...errors import ABPError, CapabilityError, LedgerError, UsageError
from ...protocol._payloads import ElicitationRequest
from ...protocol._strict_json import without_half_pairs
from ...routing._result import Result
from ...session._app_tables import AppEntry
from ...session._call import CallStatus
from ...session._events import CallFinished
from ...session._named_apps import app_entries
from ...session._settings import read_config
from ._activity import Activity, CallRecord, result_document
from ._apps import Connect, PendingCall, connect, pooled

logger = logging.getLogger("transports")

_RECORD = TypeAdapter(CallRecord)


def _encode_record(record: CallRecord) -> str:
    """Encode a record. Halves of surrogate pairs, which stand for bytes of a path, are replaced."""
    text = json.dumps(_RECORD.dump_python(record, mode="json"))
    return without_half_pairs(text.encode()).decode()


def make_private(folder: Path) -> None:
    """Create the folder of ``--state`` with mode 0700, or set the mode of an existing one."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or not belongs_to_us(status):
            raise LedgerError(f"{folder} is a symlink or belongs to another user; name another folder with --state")
        if others_may_read(status):
            folder.chmod(0o700)
    except OSError as error:
        raise LedgerError(f"{folder}: {error.strerror}; name another folder with --state") from error


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A detached call with its answer. ``answer`` is the document of ``abp call --json``, and ``content`` its
    representation by the surface, such as an MCP result, both as JSON. They are ``None`` while the call runs, and after
    they have expired."""

    record: CallRecord
    answer: bytes | None = None
    content: bytes | None = None

    @property
    def expired(self) -> bool:
        status = self.record.status
        return status.final and status is not CallStatus.UNKNOWN and self.answer is None

    @classmethod
    def of_row(cls, record: Value, status: Value, answer: Value, content: Value) -> Self:
        """Read a row. If the call was lost with its server, only ``status`` says so, and not ``record``."""
        kept_record = _RECORD.validate_json(str(record))
        is_lost = status == CallStatus.UNKNOWN.value and kept_record.duration_ms is None
        if is_lost:
            message = (
                "the server ended while the call ran, which may have done its work; look at the app before you call "
                "again"
            )
            kept_record = replace(
                kept_record, status=CallStatus.UNKNOWN, duration_ms=0.0, error=("OUTCOME_UNKNOWN", message)
            )
        return cls(kept_record, _as_bytes(answer), _as_bytes(content))


def _as_bytes(text: Value) -> bytes | None:
    if text is None:
        return None
    return str(text).encode()


T = TypeVar("T")

#: Seconds after the end of a call for which its answer is kept.
MAX_AGE = 86_400.0
#: Maximum number of connections that are kept for one owner.
MAX_CONNECTIONS = 32


@dataclass(frozen=True, slots=True)
class OwnerLimits:
    working: int = 100
    answers: int = 200
    #: Bytes of all answers.
    answer_bytes: int = 64 << 20
    #: Calls whose answer has expired stay, so that a reader learns of the expiry.
    calls: int = 1000


_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, owner TEXT NOT NULL, tenant TEXT, user TEXT,
    session TEXT NOT NULL, started REAL NOT NULL, finished REAL, status TEXT NOT NULL, record TEXT NOT NULL,
    worker TEXT NOT NULL, answer TEXT, content TEXT)""",
    "CREATE INDEX IF NOT EXISTS calls_owner ON calls (owner, started)",
    "CREATE INDEX IF NOT EXISTS calls_answers ON calls (finished) WHERE answer IS NOT NULL",
    """CREATE TABLE IF NOT EXISTS connections (owner TEXT NOT NULL, session TEXT NOT NULL, arguments TEXT NOT NULL,
    position INTEGER PRIMARY KEY AUTOINCREMENT, UNIQUE (owner, session))""",
)
#: Condition of SQL that a call has ended.
_ENDED = f"status NOT IN ({', '.join(repr(status.value) for status in CallStatus if not status.final)})"


class CallLedger:
    """Keeps detached calls and connections in a ``folder``, where the next server finds them again. Several servers may
    share a folder at a time. Without a folder the ledger is in memory. Each owner, a tenant and a user, has limits. All
    methods raise :class:`~transports.errors.LedgerError` if the file cannot be used."""

    def __init__(self, folder: Path | None = None, limits: OwnerLimits = OwnerLimits()) -> None:
        self._folder = folder
        self._limits = limits
        self._database = SqliteDatabase(folder, "calls.sqlite", option="--state")
        self._transactions = Transactions(self._database)
        self._is_prepared = False
        self._worker = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:12]}"

    async def __aenter__(self) -> Self:
        try:
            if self._folder is not None:
                await asyncio.to_thread(make_private, self._folder)
            await self._in_transaction(lambda _: None)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._transactions.aclose()

    # --- calls --------------------------------------------------------------------------------------------------------

    async def add(self, record: CallRecord) -> None:
        """Add a call, before it is sent. Raises ``LIMIT_REACHED`` if its owner has too many running calls."""
        owner = _owner(record.scope)
        scope = record.scope
        max_running = self._limits.working

        def insert_call(cursor: Cursor) -> None:
            self._mark_lost_calls(cursor)
            cursor.execute(f"SELECT count(*) FROM calls WHERE owner = ? AND NOT {_ENDED}", (owner,))
            ((running_calls,),) = cursor.fetchall()
            if cast(int, running_calls) >= max_running:
                message = f"{max_running} detached calls are under way, which is the limit; wait for one or cancel it"
                raise UsageError(message, code="LIMIT_REACHED", retryable=True)

            values = (record.id, owner, scope.tenant, scope.user, record.session, record.started, record.status.value)
            cursor.execute(
                "INSERT INTO calls (id, owner, tenant, user, session, started, status, record, worker) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values, _encode_record(record), self._worker),
            )

        await self._in_transaction(insert_call)

    async def finish(self, record: CallRecord, answer: bytes, content: bytes | None = None) -> None:
        """Save the outcome of a call. ``answer`` and ``content`` are as in :class:`KeptCall`."""

        def update_call(cursor: Cursor) -> None:
            outcome = (record.status.value, _encode_record(record), _text(answer), _text(content))
            cursor.execute(
                f"UPDATE calls SET finished = {self._database.now_sql}, status = ?, record = ?, "
                "answer = ?, content = ? WHERE id = ?",
                (*outcome, record.id),
            )
            self._expire_answers(cursor, _owner(record.scope))

        await self._in_transaction(update_call)

    def _expire_answers(self, cursor: Cursor, owner: str) -> None:
        """Remove the answers of all owners that are too old, and the oldest of ``owner`` that are over the limits."""
        self._expire_old_answers(cursor)

        cursor.execute(
            "SELECT id, length(answer) + coalesce(length(content), 0) FROM calls "
            "WHERE owner = ? AND answer IS NOT NULL ORDER BY finished DESC, rowid DESC",
            (owner,),
        )
        total_bytes = 0
        for count, (call, size) in enumerate(cursor.fetchall(), 1):
            total_bytes += cast(int, size)
            if count > self._limits.answers or total_bytes > self._limits.answer_bytes:
                cursor.execute("UPDATE calls SET answer = NULL, content = NULL WHERE id = ?", (call,))

        cursor.execute(
            f"DELETE FROM calls WHERE owner = ? AND {_ENDED} AND id NOT IN "
            "(SELECT id FROM calls WHERE owner = ? ORDER BY started DESC, rowid DESC LIMIT ?)",
            (owner, owner, self._limits.calls),
        )

    def _expire_old_answers(self, cursor: Cursor) -> None:
        cursor.execute(
            "UPDATE calls SET answer = NULL, content = NULL WHERE answer IS NOT NULL AND "
            f"finished < {self._database.now_sql} - ?",
            (MAX_AGE,),
        )

    async def get(self, call_id: str, scope: Scope) -> KeptCall | None:
        """Return a call, or ``None`` if ``scope`` does not cover it or no call has this id."""

        def read_call(cursor: Cursor) -> KeptCall | None:
            self._mark_lost_calls(cursor)
            cursor.execute("SELECT owner FROM calls WHERE id = ?", (call_id,))
            for (owner,) in cursor.fetchall():
                self._expire_answers(cursor, str(owner))

            cursor.execute("SELECT record, status, answer, content FROM calls WHERE id = ?", (call_id,))
            for cells in cursor.fetchall():
                kept_call = KeptCall.of_row(*cells)
                if scope.covers(kept_call.record.scope):
                    return kept_call
            return None

        return await self._in_transaction(read_call)

    async def calls(self, scope: Scope, limit: int) -> list[CallRecord]:
        """Return the newest calls that ``scope`` covers, oldest first."""

        def read_calls(cursor: Cursor) -> list[CallRecord]:
            self._mark_lost_calls(cursor)
            cursor.execute(
                "SELECT record, status, answer, content FROM calls WHERE (? IS NULL OR tenant = ?) "
                "AND (? IS NULL OR user = ?) AND (? IS NULL OR session = ?) "
                "ORDER BY started DESC, rowid DESC LIMIT ?",
                (scope.tenant, scope.tenant, scope.user, scope.user, scope.session, scope.session, limit),
            )
            newest_first = [KeptCall.of_row(*cells).record for cells in cursor.fetchall()]
            return newest_first[::-1]

        return await self._in_transaction(read_calls)

    def _mark_lost_calls(self, cursor: Cursor) -> None:
        """Make the running calls of servers that have ended ``unknown``."""
        cursor.execute(f"SELECT DISTINCT worker FROM calls WHERE NOT {_ENDED} AND worker <> ?", (self._worker,))
        other_workers = [str(worker) for (worker,) in cursor.fetchall()]
        for worker in self._database.lost_workers(other_workers):
            cursor.execute(
                f"UPDATE calls SET status = ?, finished = {self._database.now_sql} WHERE worker = ? AND NOT {_ENDED}",
                (CallStatus.UNKNOWN.value, worker),
            )

    # --- connections --------------------------------------------------------------------------------------------------

    async def keep_connection(self, scope: Scope, session: str, arguments: Mapping[str, object]) -> None:
        """Save a connection of an owner. It replaces one with the same session, and at the limit the oldest one."""
        owner = _owner(scope)

        def replace_connection(cursor: Cursor) -> None:
            cursor.execute("DELETE FROM connections WHERE owner = ? AND session = ?", (owner, session))
            cursor.execute(
                "INSERT INTO connections (owner, session, arguments) VALUES (?, ?, ?)",
                (owner, session, encoded(arguments)),
            )
            cursor.execute(
                "DELETE FROM connections WHERE owner = ? AND position NOT IN "
                "(SELECT position FROM connections WHERE owner = ? ORDER BY position DESC LIMIT ?)",
                (owner, owner, MAX_CONNECTIONS),
            )

        await self._in_transaction(replace_connection)

    async def forget_connection(self, scope: Scope, session: str) -> None:
        owner = _owner(scope)
        await self._in_transaction(
            lambda cursor: cursor.execute("DELETE FROM connections WHERE owner = ? AND session = ?", (owner, session))
        )

    async def connections(self, scope: Scope) -> dict[str, dict[str, object]]:
        """Return the arguments of the connections of an owner by session, oldest first."""

        def read_connections(cursor: Cursor) -> dict[str, dict[str, object]]:
            cursor.execute(
                "SELECT session, arguments FROM connections WHERE owner = ? ORDER BY position", (_owner(scope),)
            )
            return {str(session): dict(decoded_object(arguments)) for session, arguments in cursor.fetchall()}

        return await self._in_transaction(read_connections)

    # --- the file -----------------------------------------------------------------------------------------------------

    async def _in_transaction(self, work: Callable[[Cursor], T]) -> T:
        def prepare_and_work(cursor: Cursor) -> T:
            if not self._is_prepared:
                self._prepare_database(cursor)
            return work(cursor)

        result = await self._transactions.run(prepare_and_work)
        self._is_prepared = True
        return result

    def _prepare_database(self, cursor: Cursor) -> None:
        current_version = 2
        self._database.begin_work(self._worker)
        cursor.execute("PRAGMA user_version")
        version = cast(int, cursor.fetchall()[0][0])
        is_new = version == 0
        if not is_new and version != current_version:
            message = f"the ledger in {self._folder} has version {version} and not {current_version}"
            raise LedgerError(f"{message}; name another folder with --state")

        for statement in _SCHEMA:
            cursor.execute(statement)
        cursor.execute(f"PRAGMA user_version = {current_version}")
        self._expire_old_answers(cursor)


def _owner(scope: Scope) -> str:
    return encoded([scope.tenant, scope.user])


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


#: Function that returns the surface's representation of a finished call, as JSON.
MakeContent = Callable[[CallFinished], Awaitable[bytes]]
#: Seconds for cancelled calls to end.
_CLOSE_TIMEOUT = 5.0


@dataclass(eq=False)
class LiveCall:
    """Running detached call. ``pending`` answers the app's questions; ``task`` ends after the outcome is saved."""

    record: CallRecord
    pending: PendingCall
    task: asyncio.Task[None] = field(init=False)


class DetachedCalls:
    """The detached calls of a server, running and ended. Calls outside of the scope of a request do not exist for it.
    ``activity`` logs the calls."""

    def __init__(self, ledger: CallLedger | None = None, activity: Activity | None = None) -> None:
        self.ledger = ledger or CallLedger()
        self._activity = activity
        self._live: dict[str, LiveCall] = {}

    async def restore(self) -> None:
        """Show the last 200 calls of earlier servers in the log."""
        if self._activity is not None:
            records = await self.ledger.calls(Scope(), 200)
            self._activity.restore([record for record in records if record.status.final])

    async def aclose(self) -> None:
        await self.cancel_all()
        await self.ledger.aclose()

    async def cancel_all(self) -> None:
        tasks = [live.task for live in self._live.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_TIMEOUT)

    async def start(
        self, record: CallRecord, pending: PendingCall, work: Awaitable[Result], content: MakeContent | None = None
    ) -> LiveCall:
        """Start a call, whose ``work`` runs in a separate task. It is not started if the call cannot be saved.
        ``pending`` answers questions of the app. ``content`` makes the surface's representation of the outcome."""
        try:
            await self.ledger.add(record)
        except BaseException as error:
            discard_unawaited(work)
            if isinstance(error, asyncio.CancelledError):
                # The transaction goes on in its thread, so the record must get an end.
                event = CallFinished(record.id, record.capability, 0.0, None, _cancelled_error(record.capability))
                await wait_despite_cancel(asyncio.ensure_future(self._save_outcome(record, event)))
            raise

        live = self._live[record.id] = LiveCall(record, pending)
        if self._activity is not None:
            self._activity.call_started(record)
        live.task = start_task(self._run_call(live, work, content))
        return live

    async def _run_call(self, live: LiveCall, work: Awaitable[Result], content: MakeContent | None) -> None:
        """Await the call, and save its outcome even if the task is cancelled."""
        started = time.perf_counter()
        result = None
        error = None
        capability = live.record.capability
        try:
            result = await work
        except ABPError as raised:
            error = raised
        except asyncio.CancelledError:
            error = _cancelled_error(capability)
        except Exception as raised:
            logger.exception("the call of %s failed", capability)
            error = ABPError(f"this should not have happened ({type(raised).__name__}); the log has more")

        milliseconds = (time.perf_counter() - started) * 1000
        event = CallFinished(live.record.id, capability, milliseconds, result, error)
        await wait_despite_cancel(asyncio.ensure_future(self._end_call(live, event, content)))

    async def _end_call(self, live: LiveCall, event: CallFinished, content: MakeContent | None) -> None:
        try:
            surface_content = await _convert_answer(event, content)
            await self._save_outcome(live.record, event, surface_content)
        finally:
            del self._live[event.call]
            # The session reports the end as well, but not if it was closed before.
            if self._activity is not None:
                self._activity.call_finished(event)

    async def _save_outcome(self, record: CallRecord, event: CallFinished, content: bytes | None = None) -> None:
        try:
            await self.ledger.finish(record.with_outcome(event), result_document(event), content)
        except LedgerError as error:
            logger.warning("the outcome of call %s is not saved: %s", record.id, error.message)

    def question_changed(self, call_id: str, question: ElicitationRequest | None) -> None:
        live = self._live.get(call_id)
        if live is None:
            return
        live.record = live.record.with_question(question)
        if self._activity is not None:
            self._activity.question_changed(call_id, question)

    def find_live(self, call_id: str, scope: Scope) -> LiveCall | None:
        live = self._live.get(call_id)
        if live is None or not scope.covers(live.record.scope):
            return None
        return live

    async def get(self, call_id: str, scope: Scope, *, wait: float = 0.0) -> KeptCall:
        """Return a call as soon as it has ended, or its current state after ``wait`` seconds."""
        deadline = time.monotonic() + wait
        live = self.find_live(call_id, scope)
        if live is not None and wait > 0:
            await asyncio.wait((live.task,), timeout=wait)
            live = self.find_live(call_id, scope)
        if live is not None:
            return KeptCall(live.record)

        # The call has ended, or runs on another server with the same state folder.
        while True:
            kept_call = await self.ledger.get(call_id, scope)
            if kept_call is None:
                raise UsageError(f"no call has the id {call_id[:100]!r}; it may have expired", code="CALL_NOT_FOUND")
            seconds_left = deadline - time.monotonic()
            if kept_call.record.status.final or seconds_left <= 0:
                return kept_call
            await asyncio.sleep(min(seconds_left, 1.0))

    async def calls(self, scope: Scope, limit: int) -> list[CallRecord]:
        records = await self.ledger.calls(scope, limit)
        live = {call: running.record for call, running in self._live.items()}
        return [live.get(record.id, record) for record in records]

    async def cancel(self, call_id: str, scope: Scope) -> KeptCall:
        """Cancel a call that has not ended. Raises ``CALL_ELSEWHERE`` if another server runs it."""
        live = self.find_live(call_id, scope)
        if live is not None:
            live.task.cancel()
            await asyncio.wait((live.task,), timeout=_CLOSE_TIMEOUT)
        kept_call = await self.get(call_id, scope)
        if live is None and not kept_call.record.status.final:
            raise UsageError("another server runs this call; cancel it there", code="CALL_ELSEWHERE")
        return kept_call


async def _convert_answer(event: CallFinished, content: MakeContent | None) -> bytes | None:
    if content is None:
        return None
    try:
        return await content(event)
    except Exception:
        logger.exception("the answer of call %s cannot be converted", event.call)
        return None


def _cancelled_error(capability: str) -> CapabilityError:
    error = CapabilityError(f"{capability}: cancelled", code="CANCELLED")
    error.cancelled = True
    return error


class Host(NamedTuple):
    """What a server needs for its apps; ``named`` are those of the settings file."""

    ledger: CallLedger
    connect: Connect
    named: Mapping[str, AppEntry]


@asynccontextmanager
async def hosting(
    store: ArtifactStore, state: Path | None, *, config: Path | None, browsers: int | None, headless: bool | None = None
) -> AsyncIterator[Host]:
    """Open a host of calls. ``browsers`` are shared between the apps, as by :func:`~._apps.pooled`."""
    named = app_entries(read_config(config))
    async with (
        CallLedger(state) as ledger,
        pooled(partial(connect, config=config), browsers, store, config=config, headless=headless) as connect_app,
    ):
        yield Host(ledger, connect_app, named)
