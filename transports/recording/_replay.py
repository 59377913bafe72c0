"""Replay of a recorded app, ``replay:FILE``: the same answers, events and files without a browser, a socket or the app.

Calls match by capability and parameters (content by its SHA-256, secrets removed), equal calls in recorded order.
A view may send its server the same request more often than recorded.

An answer comes once everything recorded before it has happened: its events, questions of the app, the ends of other
calls. A program that behaves differently than recorded is delayed by a second at most. Waiting times are not repeated:
a call that timed out does so at once.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import difflib
import json
import shutil
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._internal.masking import NO_SECRETS, map_texts
from .._internal.tasks import cancel_and_wait, spawn
from ..artifacts._base import Staged
from ..base import Features, Fetched, Transport
from ..errors import CallTimeout, Disconnected, NotRecorded, no_answer
from ..protocol._capabilities import Discovery
from ..protocol._find_content import Place, replace_values
from ..protocol._strict_json import encode_json, members_of
from ..protocol._times import TIMER_TOLERANCE
from ..protocol.binary import BinaryData, Download, Handle
from ..protocol.messages import Effect, Message, ServerCall
from ._file import (
    STATE,
    Abandoned,
    Answer,
    ContentPacker,
    EventEntry,
    Failed,
    Kind,
    Operation,
    Reader,
    RecordedEffect,
    Recording,
    hash_content,
    read_header,
    restore_error,
    unpack,
    unpack_content,
    unpack_discovery,
)

if TYPE_CHECKING:
    from ..playwright._source import PageSource

_CHUNK = 1 << 20


@dataclass(slots=True, eq=False)
class Action:
    """A recorded operation with its events. ``start`` and ``end`` are the lines of the file at which the operation
    began and ended. Events before ``end`` come before the answer, the others after it. ``outcome`` is ``None`` if the
    recording ends before the answer."""

    operation: Operation
    start: int
    end: int | None = None
    outcome: Answer | Failed | Abandoned | None = None
    events: list[tuple[int, EventEntry]] = field(default_factory=list)

    @property
    def call(self) -> str | None:
        """The recorded ``callId`` of a call; ``None`` for any other operation."""
        if self.operation.type != "capabilities/call":
            return None
        call_id = members_of(members_of(self.operation.payload).get("options")).get("callId")
        return call_id if isinstance(call_id, str) else None


class _Grouping:
    """The entries of a recording, grouped into actions: operations, each with its events and its outcome."""

    def __init__(self, reader: Reader) -> None:
        #: Actions by the numbers of their operations.
        self.actions: dict[int, Action] = {}
        self._reader = reader
        self._calls: dict[str, Action] = {}
        self._running: dict[int, Action] = {}
        self._latest_request: Action | None = None
        for line, entry in reader.entries:
            if isinstance(entry, Operation):
                self._add_operation(line, entry)
            elif isinstance(entry, EventEntry):
                self._add_event(line, entry)
            else:
                self._add_outcome(line, entry)

    def _add_operation(self, line: int, operation: Operation) -> None:
        number = operation.n
        if number in self.actions:
            raise self._reader.error(line, f"the number {number} was used before")

        action = Action(operation, line)
        self.actions[number] = action
        if action.call is not None:
            self._calls[action.call] = action
        if operation.kind in ("open", "request"):
            self._running[number] = action
            self._latest_request = action

    def _add_event(self, line: int, event: EventEntry) -> None:
        owner = self._calls.get(_operation_id(event.payload))
        # An event that names no call belongs to the latest request that still runs, else to the latest request.
        if owner is None:
            owner = next(reversed(self._running.values()), self._latest_request)
        if owner is None:
            raise self._reader.error(line, "an event comes before the first request")
        owner.events.append((line, event))

    def _add_outcome(self, line: int, outcome: Answer | Failed | Abandoned) -> None:
        action = self.actions.get(outcome.n)
        if action is None or action.outcome is not None:
            raise self._reader.error(line, f"no operation {outcome.n} is waiting for an answer")
        action.outcome = outcome
        action.end = line
        self._running.pop(outcome.n, None)


class RecordedActions:
    """The actions that a replay has still to play. Each action is taken once, equal actions in recorded order."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.actions = list(_Grouping(reader).actions.values())
        self._unplayed: dict[str, deque[Action]] = {}
        for action in self.actions:
            try:
                key = match_key(action.operation)
            except KeyError as error:
                raise reader.error(action.start, str(error.args[0])) from None
            self._unplayed.setdefault(key, deque()).append(action)
        self.responses = [action for action in self.actions if action.operation.type == "elicitation/response"]
        #: Ids of the app's questions, by the lines at which they were answered.
        self.questions_answered_at = {action.start: action.operation.id for action in self.responses}
        starts = [action.start for action in self.actions]
        ends = [action.end for action in self.actions if action.end is not None]
        self._lines = sorted(starts + ends)

    def lines_between(self, start: int, end: int) -> Sequence[int]:
        """Return the lines after ``start`` and before ``end`` at which actions start or end."""
        first = bisect.bisect_right(self._lines, start)
        after_last = bisect.bisect_left(self._lines, end)
        return self._lines[first:after_last]

    @property
    def end(self) -> int:
        """The number after the last line: the header is line 1."""
        return len(self._reader.entries) + 2

    def pause_before(self, line: int) -> float:
        """Return the seconds between a line and the line before it."""
        if line >= self.end:
            return 0.0
        # The first entry is on line 2, after the header.
        _, entry = self._reader.entries[line - 2]
        _, previous_entry = self._reader.entries[line - 3]
        return max(entry.at - previous_entry.at, 0.0)

    def take_next(self, operation: Operation) -> Action:
        """Return the next action that matches an operation. Raises :class:`~transports.errors.NotRecorded`."""
        key = match_key(operation)
        unplayed = self._unplayed.get(key)
        if not unplayed:
            raise self._not_recorded(operation, key)

        # Play the last request of a view any number of times: a view asks as often as its timers say.
        if operation.type == "view/request" and len(unplayed) == 1:
            return unplayed[0]
        return unplayed.popleft()

    def _not_recorded(self, operation: Operation, key: str) -> NotRecorded:
        """Return the error for an operation that has no action left. It shows what the recording has instead."""
        name = _label(operation)
        path = self._reader.path

        played = [action.start for action in self.actions if match_key(action.operation) == key]
        if played:
            lines = ", ".join(map(str, played))
            message = f"{name} was recorded {len(played)}× in {path} (line {lines}) and is requested once more"
            return NotRecorded(f"{message}; record again", details={"lines": played})

        nearest = self._nearest_action(operation)
        if nearest is None:
            labels = {_label(action.operation) for action in self.actions if action.operation.kind == operation.kind}
            listed = ", ".join(sorted(labels)) or "nothing like it"
            return NotRecorded(f"{name} is not in {path}, which has {listed}; record again")

        diff = _operation_diff(nearest.operation, operation, nearest.start)
        return NotRecorded(
            f"{name} is not in {path} with these parameters; the nearest is line {nearest.start}; "
            f"record again if the difference is intended:\n{diff}",
            details={"diff": diff, "line": nearest.start},
        )

    def _nearest_action(self, operation: Operation) -> Action | None:
        kind = (operation.kind, operation.type)
        same_kind = [action for action in self.actions if (action.operation.kind, action.operation.type) == kind]
        same_name = [action for action in same_kind if _label(action.operation) == _label(operation)]
        text = _comparable_text(operation)

        def similarity(action: Action) -> float:
            return difflib.SequenceMatcher(None, _comparable_text(action.operation), text).quick_ratio()

        return max(same_name or same_kind, key=similarity, default=None)

    def mismatch(self, recorded: Action, operation: Operation) -> NotRecorded:
        """Return the error for another answer to a question of the app than the recorded one."""
        diff = _operation_diff(recorded.operation, operation, recorded.start)
        return NotRecorded(
            f"the app got a different answer in {self._reader.path} (line {recorded.start}), so its reaction is "
            f"not known; record again if the difference is intended:\n{diff}",
            details={"diff": diff, "line": recorded.start},
        )


def match_key(operation: Operation) -> str:
    """Return a text that is equal for operations which match."""
    parts = encode_json(_comparable_parts(operation)).decode()
    return f"{operation.kind} {operation.type} {_label(operation)} {parts}"


def _comparable_parts(operation: Operation) -> object:
    """Return the parts of an operation that must be equal in a replay. Ids, timeouts, and the name and version of this
    library are left out: they differ between runs."""
    kind_and_type = (operation.kind, operation.type)
    if kind_and_type == ("notify", "shutdown"):
        return None
    if kind_and_type == ("request", "initialize"):
        return members_of(operation.payload).get("requestedCapabilities")
    if operation.kind == "request" and isinstance(operation.payload, dict):
        return _comparable_request(operation, operation.payload)
    return _canonical(operation.payload)


def _comparable_request(operation: Operation, payload: dict[str, Any]) -> object:
    match operation.type:
        case "capabilities/call":
            return _comparable_call(operation, payload)
        case "capabilities/cancel":
            return payload.get("callId")
        case "view/request":
            # _meta holds a token that differs on each connection.
            params = {name: value for name, value in payload["params"].items() if name != "_meta"}
            return _canonical({"method": payload["method"], "params": params})
        case "view/listed":
            return payload.get("uri")
        case _:
            return _canonical(payload)


def _comparable_call(operation: Operation, payload: dict[str, Any]) -> object:
    hashes: dict[Place, object] = {tuple(entry.path): {"sha256": entry.sha256} for entry in operation.leaves}
    hashed_payload: Any = replace_values(payload, hashes)
    return _canonical({"capability": hashed_payload.get("capability"), "params": hashed_payload.get("params")})


def _canonical(node: object) -> object:
    """Return JSON in a form of which equal values have the same text: sorted keys, and integers for whole numbers."""
    match node:
        case dict():
            return {key: _canonical(node[key]) for key in sorted(node)}
        case list():
            return [_canonical(item) for item in node]
        case float() if node.is_integer():  # JSON does not distinguish 1.0 and 1
            return int(node)
        case _:
            return node


def _label(operation: Operation) -> str:
    """Return a name of an operation for messages: the capability of a call, else what names the operation best."""
    payload = members_of(operation.payload)
    name = payload.get("capability")
    if not name and operation.type == "view/request":
        name = payload.get("method")
    return str(name or operation.type or payload.get("url") or payload.get("handle") or operation.kind)


def _comparable_text(operation: Operation) -> str:
    return json.dumps(_comparable_parts(operation), indent=2, ensure_ascii=False)


def _operation_diff(recorded: Operation, operation: Operation, line: int) -> str:
    lines = difflib.unified_diff(
        _comparable_text(recorded).splitlines(),
        _comparable_text(operation).splitlines(),
        f"recorded (line {line})",
        "now",
        lineterm="",
        n=2,
    )
    max_lines = 40
    max_width = 200
    diff: list[str] = []
    for text in lines:
        if len(diff) == max_lines:
            diff.append("…")
            break
        if len(text) > max_width:
            text = f"{text[:max_width]}…"
        diff.append(text)
    return "\n".join(diff)


def _gave_up_at_deadline(action: Action, answer: Answer) -> bool:
    """Return whether the app answered ``TIMEOUT`` at the deadline of the call, which counts as a timeout of the call
    (docs/protocol.md 3.4)."""
    error = members_of(members_of(answer.payload).get("error"))
    limit = members_of(members_of(action.operation.payload).get("options")).get("timeout")
    if error.get("code") != CallTimeout.code or not isinstance(limit, int):
        return False
    return answer.at - action.operation.at >= limit / 1000 - TIMER_TOLERANCE


def _operation_id(payload: object) -> str:
    """Return the ``operationId`` of an event (docs/protocol.md 4.4), in its payload or its data; empty if missing."""
    event = members_of(payload)
    operation_id = event.get("operationId", members_of(event.get("data")).get("operationId"))
    return operation_id if isinstance(operation_id, str) else ""


class ReplayProgress:
    """Lines of a recording that have happened again. ``closed`` ends every wait."""

    def __init__(self, actions: RecordedActions) -> None:
        self._actions = actions
        self._done: set[int] = set()
        self._changed = asyncio.Event()
        #: Questions that the app has asked again.
        self.asked: set[str | None] = set()
        #: Errors of questions with a different answer, which everything recorded after the answer raises.
        self.mismatches: dict[str | None, NotRecorded] = {}
        self.closed = asyncio.Event()

    def mark_done(self, *lines: int | None) -> None:
        self._done.update(line for line in lines if line is not None)
        self._changed.set()
        self._changed = asyncio.Event()  # for the next waits

    def close(self) -> None:
        self.closed.set()
        self.mark_done()

    async def wait_until(self, line: int, before: deque[int]) -> None:
        """Wait until the lines in ``before`` that precede ``line`` have happened again. They are removed there.

        The limit for each line is a second without progress, since a program that behaves differently may never reach
        it. The answer to a question of the app has no limit, since a person may have to give it."""
        patience = 1.0
        while before and before[0] < line:
            awaited = before.popleft()
            question = self._actions.questions_answered_at.get(awaited)
            is_question = question in self.asked
            await self._wait_for_line(awaited, None if is_question else patience)
            if is_question and question in self.mismatches:
                raise self.mismatches[question]

    async def _wait_for_line(self, line: int, timeout: float | None) -> None:
        """Wait until a line has happened again. After ``timeout`` seconds without progress it counts as done, for later
        waits, too."""
        while line not in self._done and not self.closed.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                self._done.add(line)


class ReplayTransport(Transport):
    """Transport that answers from a recording. ``patterns`` are those of the :class:`Recording`. They are not read from
    the file, since a pattern in an untrusted file could run for hours. Raises :class:`~transports.errors.NotRecorded`
    for operations that the recording does not hold, and :class:`~transports.errors.BadRecording` if it cannot be read,
    or its content is missing or was changed."""

    name = "replay"
    views: PageSource | None = None
    _reader: Reader
    _actions: RecordedActions
    _packer: ContentPacker
    _progress: ReplayProgress

    def __init__(self, path: str | Path, *, patterns: Sequence[str] = ()) -> None:
        self._path = Path(path)
        self._patterns = patterns
        self._url: str | None = None
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._listening = False
        self._open = asyncio.Event()
        #: Recorded ids of calls → current ones, and back.
        self._current_ids: dict[str, str] = {}
        self._recorded_ids: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def has_views(self) -> bool:
        """Views need a browser here, too."""
        header = read_header(self._path)
        return header is not None and header.server

    @property
    def url(self) -> str | None:
        """Recorded address of the app at this point of the conversation."""
        return self._url

    async def open(self) -> None:
        """Read the recording, and open the app again. Raises the recorded error if opening failed."""
        self._reader = reader = await asyncio.to_thread(Reader, self._path)
        scrubber = Recording(self._path, reader.header.fields, self._patterns).scrubber(NO_SECRETS)
        self._packer = ContentPacker(hash_content, scrubber)
        self._actions = RecordedActions(reader)
        self._progress = ReplayProgress(self._actions)
        self._open.set()
        await self._play_operation(Operation(n=0, kind="open"))

    async def aclose(self) -> None:
        if self._open.is_set():
            self._progress.close()
        await cancel_and_wait(self._tasks)
        self._events.put_nowait(None)

    async def request(self, message: Message, *, timeout: float) -> Message:
        if not self._open.is_set() or self._progress.closed.is_set():
            raise Disconnected("the transport is closed; connect again", sent=False)
        payload: Any = message.payload
        if message.type == "capabilities/cancel":
            payload = {**payload, "callId": self._recorded_ids.get(payload["callId"], payload["callId"])}
        operation = await self._operation_for("request", payload, message)
        try:
            async with asyncio.timeout(timeout):
                action, answer = await self._play_operation(operation)
        except TimeoutError:
            raise no_answer(message.type, timeout) from None
        if _gave_up_at_deadline(action, answer):
            raise no_answer(message.type, timeout)

        has_files = bool(answer.leaves or answer.outputs)
        if has_files:
            reply = await asyncio.to_thread(self._restore_reply, action, answer)
        else:
            reply = self._restore_reply(action, answer)
        if message.opens_view and answer.shown is not None:
            reply.server_call = await asyncio.to_thread(self._restore_server_call, action, answer)
        reply.id = message.id
        return reply

    def _restore_server_call(self, action: Action, answer: Answer) -> ServerCall:
        """Return the recorded call of an MCP server's tool. This blocks while content is read."""
        line = action.end or action.start
        recorded = self._require_object(line, unpack(self._reader, line, answer.shown, answer.shown_leaves))
        values = {field.name: self._require_object(line, recorded.get(field.name)) for field in fields(ServerCall)}
        return ServerCall(**values)

    def _restore_reply(self, action: Action, answer: Answer) -> Message:
        """Return the recorded reply to an action. This blocks while content is read."""
        line = action.end or action.start
        payload = unpack(self._reader, line, answer.payload, answer.leaves)
        outputs = [unpack_content(self._reader, line, entry) for entry in answer.outputs]
        return Message(
            answer.type,
            self._with_current_ids(payload),
            outputs=[output for output in outputs if isinstance(output, BinaryData)],
            effects=[self._restore_effect(effect) for effect in answer.effects],
            warnings=answer.warnings,
        )

    async def notify(self, message: Message) -> None:
        """Note that the client answered a question of the app. If the answer differs from the recorded one, what was
        recorded after it fails."""
        if message.type == "shutdown":
            return
        operation = await self._operation_for("notify", message.payload, message)
        responses = (action for action in self._actions.responses if action.operation.id == message.id)
        recorded = next(responses, None)
        if recorded is not None:
            if match_key(recorded.operation) != match_key(operation):
                self._progress.mismatches[message.id] = self._actions.mismatch(recorded, operation)
            self._progress.mark_done(recorded.start, recorded.end)

    async def events(self) -> AsyncIterator[Message]:
        self._listening = True
        while (message := await self._events.get()) is not None:
            yield message
            self._events.task_done()

    def discovering(self) -> Callable[[], Awaitable[Discovery]] | None:
        header = read_header(self._path)
        if header is None or not header.discovers:
            return None
        return self._discover

    async def _discover(self) -> Discovery:
        await self._open.wait()
        action, answer = await self._play_operation(Operation(n=0, kind="discover"))
        return unpack_discovery(self._require_object(action.end, answer.payload))

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        action, answer = await self._play_operation(Operation(n=0, kind="save", payload={"handle": handle.id}))
        with await self._open_content(action, answer) as source, path.open("wb") as file:
            await asyncio.to_thread(shutil.copyfileobj, source, file, _CHUNK)

    async def fetch_download(self, reference: Download, staged: Staged, fetch: object) -> Fetched:
        operation = await self._operation_for("download", {"url": reference.url})
        action, answer = await self._play_operation(operation)
        with await self._open_content(action, answer) as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                await staged.write(chunk)

        recorded = self._require_object(action.end, answer.payload)
        return Fetched(**{field.name: recorded[field.name] for field in fields(Fetched) if field.name in recorded})

    def _require_object(self, line: int | None, payload: object) -> dict[str, Any]:
        if not isinstance(payload, dict):
            raise self._reader.error(line or 1, "its payload is not an object")
        return payload

    async def _open_content(self, action: Action, answer: Answer) -> FileIO:
        line = action.end or action.start
        if not answer.leaves:
            raise self._reader.error(line, "the content is missing")
        return await asyncio.to_thread(self._reader.open_content, answer.leaves[0], line)

    # --- playing ------------------------------------------------------------------------------------------------------

    async def _operation_for(self, kind: Kind, payload: object, message: Message | None = None) -> Operation:
        packed_payload, leaves = await self._packer.pack(payload, is_parameter=True)
        operation = Operation(n=0, kind=kind, payload=packed_payload, leaves=leaves)
        if message is None:
            return operation
        return operation.model_copy(update={"type": message.type, "id": message.id})

    async def _play_operation(self, operation: Operation) -> tuple[Action, Answer]:
        """Play the action that matches an operation: its events, then its outcome. An error is raised."""
        action = self._actions.take_next(operation)
        self._note_call_ids(action, operation)
        self._progress.mark_done(action.start)
        end = action.end or self._actions.end
        try:
            await self._play_until_answer(action, end)
            await self._wait_for_listener()
            return action, await self._outcome_of(action)
        finally:
            self._progress.mark_done(action.end)
            late_events = [(line, event) for line, event in action.events if line > end]
            if late_events and not self._progress.closed.is_set():
                spawn(self._play_late_events(end, late_events), self._tasks)

    def _note_call_ids(self, action: Action, operation: Operation) -> None:
        # Action.call reads the id of any operation.
        current_id = Action(operation, 0).call
        if action.call is not None and current_id is not None:
            self._current_ids[action.call] = current_id
            self._recorded_ids[current_id] = action.call

    async def _play_until_answer(self, action: Action, end: int) -> None:
        """Play the events before the answer, and wait for what was recorded before it. ``end`` is the answer's line."""
        lines_before = deque(self._actions.lines_between(action.start, end))  # wait_until() takes lines from it
        for line, event in action.events:
            if line < end:
                await self._progress.wait_until(line, lines_before)
                self._emit(line, event)

        if lines_before:
            await self._progress.wait_until(end, lines_before)
            if action.operation.kind == "request":
                # The request outlasted another call when it was recorded, so it must end after that call again.
                max_pause = 0.3
                await asyncio.sleep(min(self._actions.pause_before(end), max_pause))

    async def _outcome_of(self, action: Action) -> Answer:
        match action.outcome:
            case Answer() as answer:
                return answer
            case Failed(error=problem):
                raise restore_error(problem)
            case Abandoned():
                await self._progress.closed.wait()
                raise Disconnected("the transport was closed during the call")
        raise self._reader.error(
            action.start, "the recording ends before the answer", "record again, and let the program end"
        )

    async def _play_late_events(self, end: int, late_events: Sequence[tuple[int, EventEntry]]) -> None:
        """Play the events after the answer, whose line is ``end``."""
        last_line, _ = late_events[-1]
        lines_before = deque(self._actions.lines_between(end, last_line))
        for line, event in late_events:
            await self._progress.wait_until(line, lines_before)
            self._emit(line, event)

    def _emit(self, line: int, event: EventEntry) -> None:
        """Emit a recorded event. A change of the transport's state is not emitted, but applied here."""
        payload: Any = self._with_current_ids(event.payload)
        if event.type == STATE:
            state = self._require_object(line, payload)
            self._url = state.get("url")
            self.features = Features(**{field.name: bool(state.get(field.name)) for field in fields(Features)})
            return
        if event.effect is not None:
            payload = self._restore_effect(event.effect)
        if event.type == "elicitation/request":
            self._progress.asked.add(event.id)
        self._events.put_nowait(Message(event.type, payload, id=event.id))

    async def _wait_for_listener(self) -> None:
        """Let the consumer receive the queued events, within a second, so that they arrive before the answer."""
        # The consumer's task may not have started yet, if nothing was awaited so far.
        await asyncio.sleep(0)
        if self._listening and not self._events.empty():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._events.join()

    def _with_current_ids(self, node: Any) -> Any:
        return map_texts(node, lambda text: self._current_ids.get(text, text))

    def _restore_effect(self, effect: RecordedEffect) -> Effect:
        return Effect(effect.kind, self._with_current_ids(effect.call), self._with_current_ids(effect.detail))
