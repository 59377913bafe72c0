"""What was recorded, in the order in which it is to be played again. No I/O."""

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
from .entries import Abandoned, Answer, Ask, Failed, Happened, Leaf
from .file import Reader

__all__ = ["Action", "Score", "key_of"]

#: Lines of a difference that a message shows.
_SHOWN = 40


@dataclass(slots=True, eq=False)
class Action:
    """One thing that was asked, and what came of it. ``start`` and ``end`` are lines of the file. ``events`` belong to
    it: those before its end come before its answer, the others after it. ``outcome`` is ``None`` where the recording
    ends before."""

    ask: Ask
    start: int
    end: int | None = None
    outcome: Answer | Failed | Abandoned | None = None
    events: list[tuple[int, Happened]] = field(default_factory=list)

    @property
    def call(self) -> str | None:
        """The ``callId`` of a call."""
        return _call_of(self.ask.payload) if self.ask.type == "capabilities/call" else None


class Score:
    """The actions of one recording, to be taken out in any order, those that are alike in theirs."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.actions: list[Action] = []
        self._read()
        self._waiting: dict[str, deque[Action]] = {}
        for action in self.actions:
            try:
                key = key_of(action.ask)
            except KeyError as error:
                raise self._bad(action.start, str(error.args[0])) from None
            self._waiting.setdefault(key, deque()).append(action)
        self._at = {action.start: action for action in self.actions}
        self._lines = sorted(line for action in self.actions for line in (action.start, action.end) if line is not None)

    def _read(self) -> None:
        by_number: dict[int, Action] = {}
        calls: dict[str, Action] = {}
        under_way: dict[int, Action] = {}
        owner: Action | None = None
        for line, entry in self._reader.entries:
            if isinstance(entry, Ask):
                if entry.n in by_number:
                    raise self._bad(line, f"the number {entry.n} was used before")
                by_number[entry.n] = action = Action(entry, line)
                self.actions.append(action)
                if action.call is not None:
                    calls[action.call] = action
                if entry.kind in ("open", "request"):
                    owner = under_way[entry.n] = action
            elif isinstance(entry, Happened):
                latest = next(reversed(under_way.values()), owner)  # whose it is if it names nobody
                named = calls.get(_operation(entry.payload), latest)
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
        return self._reader.bad(line, what, "undo what was edited, or record again")

    def between(self, start: int, end: int) -> Sequence[int]:
        """The lines strictly between two on which something was asked or ended."""
        return self._lines[bisect.bisect_right(self._lines, start) : bisect.bisect_left(self._lines, end)]

    @property
    def end(self) -> int:
        """A line after the last one."""
        return len(self._reader.entries) + 2

    def pause(self, line: int) -> float:
        """Seconds between what was recorded on a line and what was recorded before."""
        entries = self._reader.entries
        return 0.0 if line >= self.end else max(entries[line - 2][1].at - entries[line - 3][1].at, 0.0)

    def question(self, line: int) -> str | None:
        """The id of the app's question that was answered on a line."""
        action = self._at.get(line)
        return action.ask.id if action is not None and _is_response(action.ask) else None

    def response(self, question: str | None) -> Action | None:
        """What was answered to a question of the app."""
        return next((action for action in self.actions if _is_response(action.ask) and action.ask.id == question), None)

    def take(self, ask: Ask) -> Action:
        """The next recorded action that is like ``ask``. Raises :class:`~transports.errors.NotRecorded`."""
        key = key_of(ask)
        if not self._waiting.get(key):
            raise self._not_recorded(ask, key)
        return self._waiting[key].popleft()

    def _not_recorded(self, ask: Ask, key: str) -> NotRecorded:
        what, path = _named(ask), self._reader.path
        alike = [action for action in self.actions if key_of(action.ask) == key]
        if alike:
            lines = ", ".join(str(action.start) for action in alike)
            message = f"{what} was recorded {len(alike)}× in {path} (line {lines}) and is asked for once more"
            return NotRecorded(f"{message}; record again", details={"lines": [action.start for action in alike]})
        nearest = self._nearest(ask)
        if nearest is None:
            known = ", ".join(sorted({_named(action.ask) for action in self.actions if action.ask.kind == ask.kind}))
            return NotRecorded(f"{what} is not in {path}, which has {known or 'nothing like it'}; record again")
        diff = _diff(nearest.ask, ask, nearest.start)
        return NotRecorded(
            f"{what} was not asked for like this in {path}; the nearest is line {nearest.start}; "
            f"record again if the difference is meant:\n{diff}",
            details={"diff": diff, "line": nearest.start},
        )

    def _nearest(self, ask: Ask) -> Action | None:
        """The recorded action of the same kind whose text is most like it; one of the same name, if there is one."""
        same = [action for action in self.actions if (action.ask.kind, action.ask.type) == (ask.kind, ask.type)]
        named = [action for action in same if _named(action.ask) == _named(ask)] or same
        wanted = _text(ask)
        ratios = [(difflib.SequenceMatcher(None, _text(action.ask), wanted).quick_ratio(), action) for action in named]
        return max(ratios, key=lambda item: item[0])[1] if ratios else None

    def different(self, recorded: Action, ask: Ask) -> NotRecorded:
        """The error for an answer to the app that is another one than was recorded."""
        diff = _diff(recorded.ask, ask, recorded.start)
        return NotRecorded(
            f"the app was answered otherwise in {self._reader.path} (line {recorded.start}), so what it does now is "
            f"not known; record again if the difference is meant:\n{diff}",
            details={"diff": diff, "line": recorded.start},
        )


def key_of(ask: Ask) -> str:
    """What makes two asks the same: for a call its capability and parameters (content by its SHA-256)."""
    return f"{ask.kind} {ask.type} {_named(ask)} {encode_json(_asked(ask)).decode()}"


def _asked(ask: Ask) -> object:
    """What counts of an ask: not ids, not timeouts, not what this library says of itself."""
    payload: Any = ask.payload
    match ask.kind, ask.type:
        case "request", "initialize":
            return payload.get("requestedCapabilities") if isinstance(payload, dict) else None
        case "request", "capabilities/call" if isinstance(payload, dict):
            content: dict[Place, object] = {tuple(leaf.path): _content(leaf) for leaf in ask.leaves}
            whole: Any = replace(payload, content)
            return _sorted({"capability": whole.get("capability"), "params": whole.get("params")})
        case "request", "capabilities/cancel" if isinstance(payload, dict):
            return payload.get("callId")
        case "notify", "shutdown":
            return None
        case _:
            return _sorted(payload)


def _is_response(ask: Ask) -> bool:
    return (ask.kind, ask.type) == ("notify", "elicitation/response")


def _content(leaf: Leaf) -> object:
    return {"sha256": leaf.sha256}


def _sorted(node: object) -> object:
    """The same with its keys in order: JSON objects have none."""
    match node:
        case dict():
            return {key: _sorted(node[key]) for key in sorted(node)}
        case list():
            return [_sorted(item) for item in node]
        case float() if node.is_integer():  # 1.0 and 1 are one number in JSON
            return int(node)
        case _:
            return node


def _named(ask: Ask) -> str:
    """A name for people: the capability of a call, or what was asked for."""
    payload: Any = ask.payload if isinstance(ask.payload, dict) else {}
    return str(payload.get("capability") or ask.type or payload.get("url") or payload.get("handle") or ask.kind)


def _text(ask: Ask) -> str:
    return json.dumps(_asked(ask), indent=2, ensure_ascii=False)


def _diff(recorded: Ask, asked: Ask, line: int) -> str:
    lines = difflib.unified_diff(
        _text(recorded).splitlines(), _text(asked).splitlines(), f"recorded (line {line})", "now", lineterm="", n=2
    )
    shown = [text if len(text) <= 200 else f"{text[:200]}…" for text in lines]
    return "\n".join(shown[:_SHOWN] + (["…"] if len(shown) > _SHOWN else []))


def _call_of(payload: object) -> str | None:
    options = payload.get("options") if isinstance(payload, Mapping) else None
    call = options.get("callId") if isinstance(options, Mapping) else None
    return call if isinstance(call, str) else None


def _operation(payload: object) -> str:
    """The call that an event names (PROTOCOL: ``operationId``), in itself or in its data."""
    if not isinstance(payload, Mapping):
        return ""
    data = payload.get("data")
    inner = data.get("operationId") if isinstance(data, Mapping) else None
    found = payload.get("operationId", inner)
    return found if isinstance(found, str) else ""
