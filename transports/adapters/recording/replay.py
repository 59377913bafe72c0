"""Replays an app that was recorded: ``replay:FILE``. No browser, no socket, no app; the same answers, events and files.

Calls are found by capability and parameters (content by its SHA-256, secrets removed), equal ones in the order in which
they were recorded. An answer comes once everything recorded before it has happened: its events, what the app asked
meanwhile, other calls that ended earlier. A program that behaves differently than it did is delayed by a second and no
more. Waiting times are not repeated: a call that timed out does so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import fields
from io import FileIO
from pathlib import Path
from typing import Any

from ...artifacts import Staged
from ...base import Features, Transport
from ...binary import BinaryData, Download, Handle
from ...errors import Disconnected, no_answer
from ...http import Discovery, Fetched
from ...protocol.messages import Effect, Message
from ...protocol.secrets import NO_SECRETS
from ...tasks import cancel_and_wait, spawn
from .content import ContentPacker, hash_content, unpack, unpack_content
from .discovery import unpack_discovery
from .entries import (
    STATE,
    Abandoned,
    Answer,
    EventEntry,
    Failed,
    Kind,
    Operation,
    RecordedEffect,
    restore_error,
)
from .file import Reader, Recording, read_header
from .replay_progress import ReplayProgress
from .script import Action, Script, match_key

__all__ = ["ReplayTransport"]

#: Seconds at most between the end of a call and the end of another one that outlasted it.
_MAX_PAUSE = 0.3
#: Seconds for the consumer of events to take them before the answer comes.
_LISTENER_TIMEOUT = 1.0
_CHUNK = 1 << 20


class ReplayTransport(Transport):
    """Plays a recording, once. ``patterns`` are those that it was recorded with: the file is not asked for any, since a
    stranger's could run for hours.

    Raises :class:`~transports.errors.NotRecorded` for operations that the recording does not hold, and
    :class:`~transports.errors.BadRecording` if it cannot be read, or its content is missing or was changed.
    """

    name = "replay"
    _reader: Reader
    _script: Script
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
    def url(self) -> str | None:
        """The recorded address of the app, as it was at this point of the conversation."""
        return self._url

    async def open(self) -> None:
        """Read the recording. Raises the recorded error if opening failed."""
        self._reader = reader = await asyncio.to_thread(Reader, self._path)
        self._packer = ContentPacker(
            hash_content, Recording(self._path, reader.header.fields, self._patterns).scrubber(NO_SECRETS)
        )
        self._script = Script(reader)
        self._progress = ReplayProgress(self._script)
        self._open.set()
        await self._play(Operation(n=0, kind="open"))

    async def aclose(self) -> None:
        """End every wait, and cancel events that are still to come."""
        if self._open.is_set():
            self._progress.close()
        await cancel_and_wait(self._tasks)
        self._events.put_nowait(None)

    async def request(self, message: Message, *, timeout: float) -> Message:
        """Return the recorded reply, or raise the recorded error."""
        if not self._open.is_set() or self._progress.closed.is_set():
            raise Disconnected("the transport is closed; connect again", details={"sent": False})
        payload: Any = message.payload
        if message.type == "capabilities/cancel":
            payload = {**payload, "callId": self._recorded_ids.get(payload["callId"], payload["callId"])}
        ask = await self._operation_for("request", payload, message)
        try:
            async with asyncio.timeout(timeout):
                action, answer = await self._play(ask)
        except TimeoutError:
            raise no_answer(message.type, timeout) from None
        has_content = answer.leaves or answer.outputs
        reply = await asyncio.to_thread(self._reply, action, answer) if has_content else self._reply(action, answer)
        reply.id = message.id
        return reply

    def _reply(self, action: Action, answer: Answer) -> Message:
        line = action.end or action.start
        outputs = [unpack_content(self._reader, line, leaf) for leaf in answer.outputs]
        return Message(
            answer.type,
            self._with_current_ids(unpack(self._reader, line, answer.payload, answer.leaves)),
            outputs=[output for output in outputs if isinstance(output, BinaryData)],
            effects=[self._effect(effect) for effect in answer.effects],
            warnings=answer.warnings,
        )

    async def notify(self, message: Message) -> None:
        """Compare a message with the recorded one; a different answer to a question of the app fails its call."""
        ask = await self._operation_for("notify", message.payload, message)
        if message.type == "shutdown":
            return
        if message.type != "elicitation/response":
            await self._play(ask)
        elif (recorded := self._script.response_to(message.id)) is not None:
            if match_key(recorded.ask) != match_key(ask):
                self._progress.reject(message.id, self._script.mismatch(recorded, ask))
            self._progress.mark_done(recorded.start, recorded.end)

    async def events(self) -> AsyncIterator[Message]:
        """Yield the recorded events, each when the conversation has come to it."""
        self._listening = True
        while (message := await self._events.get()) is not None:
            yield message
            self._events.task_done()

    def discovering(self) -> Callable[[], Awaitable[Discovery]] | None:
        """Return what reads the recorded manifest of the page, or ``None`` if none was recorded."""
        header = read_header(self._path)
        return self._discover if header is not None and header.discovers else None

    async def _discover(self) -> Discovery:
        await self._open.wait()
        action, answer = await self._play(Operation(n=0, kind="discover"))
        return unpack_discovery(self._object(action.end, answer.payload))

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        """Copy the recorded content to ``path``."""
        with await self._content(
            *await self._play(Operation(n=0, kind="save", payload={"handle": handle.id}))
        ) as source:
            await asyncio.to_thread(_copy, source, path)

    async def fetch_download(self, reference: Download, staged: Staged, fetch: object) -> Fetched:
        """Write the recorded download to ``staged`` (:class:`~transports.http.Downloads`); ``fetch`` is not used."""
        ask = await self._operation_for("download", {"url": reference.url})
        action, answer = await self._play(ask)
        with await self._content(action, answer) as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                await staged.write(chunk)
        found = {
            "content_type": None,
            "filename": None,
            "complete": False,
            **self._object(action.end, answer.payload),
        }
        return Fetched(**{field.name: found[field.name] for field in fields(Fetched) if field.name in found})

    def _object(self, line: int | None, payload: object) -> dict[str, Any]:
        if not isinstance(payload, dict):
            raise self._reader.error(line or 1, "its payload is no object", "undo what was edited, or record again")
        return payload

    async def _content(self, action: Action, answer: Answer) -> FileIO:
        line = action.end or action.start
        if not answer.leaves:
            raise self._reader.error(line, "the content is not there", "undo what was edited, or record again")
        return await asyncio.to_thread(self._reader.content, answer.leaves[0], line)

    # --- playing ------------------------------------------------------------------------------------------------------

    async def _operation_for(self, kind: Kind, payload: object, message: Message | None = None) -> Operation:
        """Return an operation as it would have been recorded."""
        plain, leaves = await self._packer.pack(payload, is_parameter=True)
        named = {} if message is None else {"type": message.type, "id": message.id}
        return Operation(n=0, kind=kind, payload=plain, leaves=leaves).model_copy(update=named)

    async def _play(self, ask: Operation) -> tuple[Action, Answer]:
        """Play the recorded operation that equals ``ask``: its events, then its answer or its error."""
        action = self._script.take(ask)
        current = Action(ask, 0).call
        if action.call is not None and current is not None:
            self._current_ids[action.call], self._recorded_ids[current] = current, action.call
        self._progress.mark_done(action.start)
        last = action.end or self._script.end
        earlier = deque(self._script.lines_between(action.start, last))
        try:
            for line, event in action.events:
                if line < last:
                    await self._progress.wait_until(line, earlier)
                    self._emit(line, event)
            if earlier:
                await self._progress.wait_until(last, earlier)
                if ask.kind == "request":
                    await asyncio.sleep(min(self._script.pause_before(last), _MAX_PAUSE))
            await self._wait_for_listener()
            return action, await self._outcome(action)
        finally:
            self._progress.mark_done(action.end)
            late = [(line, event) for line, event in action.events if line > last]
            if late and not self._progress.closed.is_set():
                spawn(self._play_late_events(last, late), self._tasks)

    async def _outcome(self, action: Action) -> Answer:
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

    async def _play_late_events(self, last: int, late: Sequence[tuple[int, EventEntry]]) -> None:
        """Emit the events that came after the answer."""
        earlier = deque(self._script.lines_between(last, late[-1][0]))
        for line, event in late:
            await self._progress.wait_until(line, earlier)
            self._emit(line, event)

    def _emit(self, line: int, event: EventEntry) -> None:
        payload: Any = self._with_current_ids(event.payload)
        if event.type == STATE:
            state = self._object(line, payload)
            self._url = state.get("url")
            self.features = Features(**{field.name: bool(state.get(field.name)) for field in fields(Features)})
            return
        if event.effect is not None:
            payload = self._effect(event.effect)
        if event.type == "elicitation/request":
            self._progress.mark_asked(event.id)
        self._events.put_nowait(Message(event.type, payload, id=event.id))

    async def _wait_for_listener(self) -> None:
        """Let the consumer take the events that are waiting, so that they arrive before the answer."""
        await asyncio.sleep(0)  # nothing has waited until here, so the consumer's task may not have started
        if self._listening and not self._events.empty():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._events.join(), _LISTENER_TIMEOUT)

    def _with_current_ids(self, node: Any) -> Any:
        """Return a tree with the recorded ids of calls replaced by their current ones."""
        match node:
            case str():
                return self._current_ids.get(node, node)
            case dict():
                return {key: self._with_current_ids(value) for key, value in node.items()}
            case list():
                return [self._with_current_ids(item) for item in node]
            case _:
                return node

    def _effect(self, effect: RecordedEffect) -> Effect:
        return Effect(effect.kind, self._with_current_ids(effect.call), self._with_current_ids(effect.detail))


def _copy(source: FileIO, path: Path) -> None:
    with path.open("wb") as file:
        shutil.copyfileobj(source, file, _CHUNK)
