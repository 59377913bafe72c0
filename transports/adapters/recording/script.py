"""The recorded operations, in the order in which they are played again. No I/O."""

from __future__ import annotations

import bisect
import difflib
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...binary.detect import Place, replace
from ...errors import BadRecording, NotRecorded
from ...protocol.strict_json import encode_json
from .entries import Abandoned, Answer, EventEntry, Failed, Operation
from .file import Reader

__all__ = ["Action", "Script", "match_key"]

#: Lines of a diff that a message shows.
_MAX_DIFF_LINES = 40


@dataclass(slots=True, eq=False)
class Action:
    """One operation and its outcome.

    ``start`` and ``end`` are lines of the file. ``events`` belong to the operation: those before ``end`` come before
    its answer, the others after it. ``outcome`` is ``None`` if the recording ends before.
    """

    ask: Operation
    start: int
    end: int | None = None
    outcome: Answer | Failed | Abandoned | None = None
    events: list[tuple[int, EventEntry]] = field(default_factory=list)

    @property
    def call(self) -> str | None:
        """The ``callId`` of a call; ``None`` for other operations."""
        return _call_id(self.ask.payload) if self.ask.type == "capabilities/call" else None


class Script:
    """The actions of one recording. Each is taken once; equal ones in the order in which they were recorded."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.actions: list[Action] = []
        self._read()
        self._unplayed: dict[str, deque[Action]] = {}
        for action in self.actions:
            try:
                key = match_key(action.ask)
            except KeyError as error:
                raise self._bad(action.start, str(error.args[0])) from None
            self._unplayed.setdefault(key, deque()).append(action)
        self._at = {action.start: action for action in self.actions}
        self._lines = sorted(line for action in self.actions for line in (action.start, action.end) if line is not None)

    def _read(self) -> None:
        by_number: dict[int, Action] = {}
        calls: dict[str, Action] = {}
        under_way: dict[int, Action] = {}
        owner: Action | None = None
        for line, entry in self._reader.entries:
            if isinstance(entry, Operation):
                if entry.n in by_number:
                    raise self._bad(line, f"the number {entry.n} was used before")
                by_number[entry.n] = action = Action(entry, line)
                self.actions.append(action)
                if action.call is not None:
                    calls[action.call] = action
                if entry.kind in ("open", "request"):
                    owner = under_way[entry.n] = action
            elif isinstance(entry, EventEntry):
                latest = next(reversed(under_way.values()), owner)  # the owner of an event that names no call
                named = calls.get(_operation_id(entry.payload), latest)
                if named is None:
                    raise self._bad(line, "an event stands before anything was asked")
                named.events.append((line, entry))
            else:
                answered = by_number.get(entry.n)
                if answered is None or answered.outcome is not None:
                    raise self._bad(line, f"there is no ask {entry.n} that waits for an answer")
                answered.outcome, answered.end = entry, line
                under_way.pop(entry.n, None)

    def _bad(self, line: int, what: str) -> BadRecording:
        return self._reader.error(line, what, "undo what was edited, or record again")

    def lines_between(self, start: int, end: int) -> Sequence[int]:
        """Return the lines strictly between two others on which an operation began or ended."""
        return self._lines[bisect.bisect_right(self._lines, start) : bisect.bisect_left(self._lines, end)]

    @property
    def end(self) -> int:
        """A line after the last one."""
        return len(self._reader.entries) + 2

    def pause_before(self, line: int) -> float:
        """Return the seconds between the line and the one before it."""
        entries = self._reader.entries
        return 0.0 if line >= self.end else max(entries[line - 2][1].at - entries[line - 3][1].at, 0.0)

    def question_answered_at(self, line: int) -> str | None:
        """Return the id of the app's question that was answered on a line, if any."""
        action = self._at.get(line)
        return action.ask.id if action is not None and _is_response(action.ask) else None

    def response_to(self, question: str | None) -> Action | None:
        """Return the recorded answer to a question of the app, if any."""
        return next((action for action in self.actions if _is_response(action.ask) and action.ask.id == question), None)

    def take(self, ask: Operation) -> Action:
        """Return the next recorded action that equals ``ask``. Raises :class:`~transports.errors.NotRecorded`."""
        key = match_key(ask)
        if not self._unplayed.get(key):
            raise self._not_recorded(ask, key)
        return self._unplayed[key].popleft()

    def _not_recorded(self, ask: Operation, key: str) -> NotRecorded:
        what, path = _label(ask), self._reader.path
        alike = [action for action in self.actions if match_key(action.ask) == key]
        if alike:
            lines = ", ".join(str(action.start) for action in alike)
            message = f"{what} was recorded {len(alike)}× in {path} (line {lines}) and is asked for once more"
            return NotRecorded(f"{message}; record again", details={"lines": [action.start for action in alike]})
        nearest = self._nearest(ask)
        if nearest is None:
            known = ", ".join(sorted({_label(action.ask) for action in self.actions if action.ask.kind == ask.kind}))
            return NotRecorded(f"{what} is not in {path}, which has {known or 'nothing like it'}; record again")
        diff = _diff(nearest.ask, ask, nearest.start)
        return NotRecorded(
            f"{what} was not asked for like this in {path}; the nearest is line {nearest.start}; "
            f"record again if the difference is meant:\n{diff}",
            details={"diff": diff, "line": nearest.start},
        )

    def _nearest(self, ask: Operation) -> Action | None:
        """Return the recorded action of the same kind whose text is most similar; one of the same name is preferred."""
        same = [action for action in self.actions if (action.ask.kind, action.ask.type) == (ask.kind, ask.type)]
        named = [action for action in same if _label(action.ask) == _label(ask)] or same
        wanted = _text(ask)

        def similarity(action: Action) -> float:
            return difflib.SequenceMatcher(None, _text(action.ask), wanted).quick_ratio()

        return max(named, key=similarity, default=None)

    def mismatch(self, recorded: Action, ask: Operation) -> NotRecorded:
        """Return the error for an answer to the app that differs from the recorded one."""
        diff = _diff(recorded.ask, ask, recorded.start)
        return NotRecorded(
            f"the app was answered otherwise in {self._reader.path} (line {recorded.start}), so what it does now is "
            f"not known; record again if the difference is meant:\n{diff}",
            details={"diff": diff, "line": recorded.start},
        )


def match_key(ask: Operation) -> str:
    """Return a text that is the same for equal operations: for a call its capability and parameters (content by
    SHA-256).
    """
    return f"{ask.kind} {ask.type} {_label(ask)} {encode_json(_comparable(ask)).decode()}"


def _comparable(ask: Operation) -> object:
    """Return the parts of an operation that must match: without ids, timeouts and the names of this library."""
    payload: Any = ask.payload
    match ask.kind, ask.type:
        case "request", "initialize":
            return payload.get("requestedCapabilities") if isinstance(payload, dict) else None
        case "request", "capabilities/call" if isinstance(payload, dict):
            content: dict[Place, object] = {tuple(leaf.path): {"sha256": leaf.sha256} for leaf in ask.leaves}
            whole: Any = replace(payload, content)
            return _sorted({"capability": whole.get("capability"), "params": whole.get("params")})
        case "request", "capabilities/cancel" if isinstance(payload, dict):
            return payload.get("callId")
        case "notify", "shutdown":
            return None
        case _:
            return _sorted(payload)


def _is_response(ask: Operation) -> bool:
    return (ask.kind, ask.type) == ("notify", "elicitation/response")


def _sorted(node: object) -> object:
    """Return the tree with the keys of its objects sorted, since JSON objects have no order."""
    match node:
        case dict():
            return {key: _sorted(node[key]) for key in sorted(node)}
        case list():
            return [_sorted(item) for item in node]
        case float() if node.is_integer():  # 1.0 and 1 are one number in JSON
            return int(node)
        case _:
            return node


def _label(ask: Operation) -> str:
    """Return a name for people: the capability of a call, or the kind of the operation."""
    payload: Any = ask.payload if isinstance(ask.payload, dict) else {}
    return str(payload.get("capability") or ask.type or payload.get("url") or payload.get("handle") or ask.kind)


def _text(ask: Operation) -> str:
    return json.dumps(_comparable(ask), indent=2, ensure_ascii=False)


def _diff(recorded: Operation, asked: Operation, line: int) -> str:
    lines = difflib.unified_diff(
        _text(recorded).splitlines(), _text(asked).splitlines(), f"recorded (line {line})", "now", lineterm="", n=2
    )
    diff = [text if len(text) <= 200 else f"{text[:200]}…" for text in lines]
    return "\n".join(diff[:_MAX_DIFF_LINES] + (["…"] if len(diff) > _MAX_DIFF_LINES else []))


def _call_id(payload: object) -> str | None:
    options = payload.get("options") if isinstance(payload, Mapping) else None
    call = options.get("callId") if isinstance(options, Mapping) else None
    return call if isinstance(call, str) else None


def _operation_id(payload: object) -> str:
    """Return the call that an event names (docs/protocol.md 4.4: ``operationId``), in itself or in its data."""
    if not isinstance(payload, Mapping):
        return ""
    data = payload.get("data")
    inner = data.get("operationId") if isinstance(data, Mapping) else None
    found = payload.get("operationId", inner)
    return found if isinstance(found, str) else ""
