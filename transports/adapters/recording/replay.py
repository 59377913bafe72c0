"""An app that was recorded: ``replay:FILE``. No browser, no socket, no app; the same answers, events, files and errors.

Calls are found by capability and parameters (content by its SHA-256, secrets scrubbed), those that are alike in the
order in which they were recorded. An answer comes when what was recorded before it has happened: its events, what the
app asked meanwhile, other calls that ended earlier. What a program does otherwise than it did costs a second and no
more. What took time is not waited for: a call that timed out does so at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...artifacts import Staged
from ...base import Features, Transport
from ...binary import BinaryData, Download, Handle
from ...errors import CallTimeout, Disconnected, DiscoveryFailed
from ...http import Discovery, Fetched
from ...protocol.declarations import Manifest, parse
from ...protocol.messages import Effect, Message
from ...protocol.redaction import Redactor
from ...tasks import cancel_and_wait, spawn
from .content import Packer, hashed, unpacked, unpacked_leaf
from .entries import STATE, Abandoned, Answer, Ask, Effected, Failed, Happened, Kind, Problem, error_of
from .file import Reader, header_of
from .replay_progress import Course
from .script import Action, Score, key_of

__all__ = ["ReplayTransport", "replay_of"]

#: The longest pause between the end of one call and that of another which outlasted it, in seconds.
_PAUSE = 0.3
#: Seconds for whoever takes events to take them before the answer comes.
_HEARD = 1.0
_CHUNK = 1 << 20


def replay_of(path: str | Path) -> ReplayTransport:
    """A transport that plays the recording ``path``, with a page's tools if what was recorded had them."""
    header = header_of(Path(path))
    return (PageReplay if header is not None and header.tools else ReplayTransport)(path)


class ReplayTransport(Transport):
    """Plays a recording, once. Raises :class:`~transports.errors.NotRecorded` for what the recording does not hold, and
    :class:`~transports.errors.BadRecording` where it cannot be read, or its content is gone or was changed."""

    name = "replay"
    _reader: Reader
    _score: Score
    _packer: Packer
    _course: Course

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._url: str | None = None
        self._events: asyncio.Queue[Message | None] = asyncio.Queue()
        self._listening = False
        self._open = asyncio.Event()
        #: Ids of calls as they were recorded → as they are now, and back.
        self._now: dict[str, str] = {}
        self._then: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str | None:
        return self._url

    async def open(self) -> None:
        self._reader = reader = await asyncio.to_thread(Reader, self._path)
        self._packer = Packer(hashed, Redactor(reader.header.fields, reader.header.patterns))
        self._score = Score(reader)
        self._course = Course(self._score)
        self._open.set()
        await self._played(Ask(n=0, kind="open"))

    async def aclose(self) -> None:
        if self._open.is_set():
            self._course.close()
        await cancel_and_wait(self._tasks)
        self._events.put_nowait(None)

    async def request(self, message: Message, *, timeout: float) -> Message:
        if not self._open.is_set() or self._course.closed.is_set():
            raise Disconnected("the transport is closed; connect again")
        payload: Any = message.payload
        if message.type == "capabilities/cancel":
            payload = {**payload, "callId": self._then.get(payload["callId"], payload["callId"])}
        ask = await self._ask("request", payload, message)
        try:
            async with asyncio.timeout(timeout):
                action, answer = await self._played(ask)
        except TimeoutError:
            raise CallTimeout(f"no answer within {timeout:g} s") from None
        held = answer.leaves or answer.outputs
        reply = await asyncio.to_thread(self._reply, action, answer) if held else self._reply(action, answer)
        reply.id = message.id
        return reply

    def _reply(self, action: Action, answer: Answer) -> Message:
        line = action.end or action.start
        outputs = [unpacked_leaf(self._reader, line, leaf) for leaf in answer.outputs]
        return Message(
            answer.type,
            self._renamed(unpacked(self._reader, line, answer.payload, answer.leaves)),
            outputs=[output for output in outputs if isinstance(output, BinaryData)],
            effects=[self._effect(effect) for effect in answer.effects],
            warnings=answer.warnings,
        )

    async def notify(self, message: Message) -> None:
        ask = await self._ask("notify", message.payload, message)
        if message.type == "shutdown":
            return
        if message.type != "elicitation/response":
            await self._played(ask)
        elif (recorded := self._score.response(message.id)) is not None:
            if key_of(recorded.ask) != key_of(ask):
                self._course.refuse(message.id, self._score.different(recorded, ask))
            self._course.done(recorded.start, recorded.end)

    async def events(self) -> AsyncIterator[Message]:
        self._listening = True
        while (message := await self._events.get()) is not None:
            yield message
            self._events.task_done()

    def discovering(self) -> Callable[[], Awaitable[Discovery]] | None:
        """What finds out what was read of the page's manifest when this was recorded, if it was."""
        header = header_of(self._path)
        return self._discover if header is not None and header.discovers else None

    async def _discover(self) -> Discovery:
        await self._open.wait()
        action, answer = await self._played(Ask(n=0, kind="discover"))
        found = self._object(action.end, answer.payload)
        manifest, reason = found.get("manifest"), found.get("reason")
        return Discovery(
            page_url=str(found.get("page_url")),
            manifest_url=found.get("manifest_url"),
            title=str(found.get("title")),
            manifest=None if manifest is None else parse(Manifest, manifest, "the recorded manifest"),
            warnings=tuple(found.get("warnings", ())),
            reason=None if reason is None else _failure(parse(Problem, reason, "the recorded reason")),
        )

    # --- content ------------------------------------------------------------------------------------------------------

    async def save(self, handle: Handle, path: Path, *, timeout: float) -> None:
        source = await self._file(Ask(n=0, kind="save", payload={"handle": handle.id}))
        await asyncio.to_thread(shutil.copyfile, source, path)

    async def fetch_download(self, reference: Download, staged: Staged, fetch: object) -> Fetched:
        """What was downloaded when this was recorded (:class:`~transports.http.Downloads`)."""
        ask = await self._ask("download", {"url": reference.url})
        action, answer = await self._played(ask)
        source = await self._content(action, answer)
        with source.open("rb") as file:
            while chunk := await asyncio.to_thread(file.read, _CHUNK):
                await staged.write(chunk)
        said = {"content_type": None, "filename": None, "complete": False, **self._object(action.end, answer.payload)}
        return Fetched(**{field.name: said[field.name] for field in fields(Fetched) if field.name in said})

    async def _file(self, ask: Ask) -> Path:
        return await self._content(*await self._played(ask))

    def _object(self, line: int | None, payload: object) -> dict[str, Any]:
        if not isinstance(payload, dict):
            raise self._reader.bad(line or 1, "its payload is no object", "undo what was edited, or record again")
        return payload

    async def _content(self, action: Action, answer: Answer) -> Path:
        line = action.end or action.start
        if not answer.leaves:
            raise self._reader.bad(line, "the content is not there", "undo what was edited, or record again")
        return await asyncio.to_thread(self._reader.content, answer.leaves[0], line)

    # --- playing ------------------------------------------------------------------------------------------------------

    async def _ask(self, kind: Kind, payload: object, message: Message | None = None) -> Ask:
        """What is asked now, as it would have been recorded."""
        plain, leaves = await self._packer.packed(payload, given=True)
        named = {} if message is None else {"type": message.type, "id": message.id}
        return Ask(n=0, kind=kind, payload=plain, leaves=leaves).model_copy(update=named)

    async def _played(self, ask: Ask) -> tuple[Action, Answer]:
        """Everything that came of the like of ``ask``: its events, then its answer or its error."""
        action = self._score.take(ask)
        current = Action(ask, 0).call
        if action.call is not None and current is not None:
            self._now[action.call], self._then[current] = current, action.call
        self._course.done(action.start)
        last = action.end or self._score.end
        before = deque(self._score.between(action.start, last))
        try:
            for line, event in action.events:
                if line < last:
                    await self._course.reached(line, before)
                    self._emit(line, event)
            if before:
                await self._course.reached(last, before)
                if ask.kind == "request":
                    await asyncio.sleep(min(self._score.pause(last), _PAUSE))
            await self._heard()
            return action, await self._outcome(action)
        finally:
            self._course.done(action.end)
            late = [(line, event) for line, event in action.events if line > last]
            if late and not self._course.closed.is_set():
                spawn(self._follow(last, late), self._tasks)

    async def _outcome(self, action: Action) -> Answer:
        match action.outcome:
            case Answer() as answer:
                return answer
            case Failed(error=problem):
                raise error_of(problem)
            case Abandoned():
                await self._course.closed.wait()
                raise Disconnected("the transport was closed during the call")
        raise self._reader.bad(
            action.start, "the recording ends before the answer", "record again, and let the program end"
        )

    async def _follow(self, last: int, late: Sequence[tuple[int, Happened]]) -> None:
        """Events that came after the answer."""
        before = deque(self._score.between(last, late[-1][0]))
        for line, event in late:
            await self._course.reached(line, before)
            self._emit(line, event)

    def _emit(self, line: int, event: Happened) -> None:
        payload: Any = self._renamed(event.payload)
        if event.type == STATE:
            state = self._object(line, payload)
            self._url = state.get("url")
            self.features = Features(**{field.name: bool(state.get(field.name)) for field in fields(Features)})
            return
        if event.effect is not None:
            payload = self._effect(event.effect)
        if event.type == "elicitation/request":
            self._course.asked(event.id)
        self._events.put_nowait(Message(event.type, payload, id=event.id))

    async def _heard(self) -> None:
        """Let whoever takes the events take them, so that they come before the answer."""
        await asyncio.sleep(0)  # whoever is to listen may not have begun: nothing before has waited for anything
        if self._listening and not self._events.empty():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._events.join(), _HEARD)

    def _renamed(self, node: Any) -> Any:
        """With the ids that calls have now."""
        match node:
            case str():
                return self._now.get(node, node)
            case dict():
                return {key: self._renamed(value) for key, value in node.items()}
            case list():
                return [self._renamed(item) for item in node]
            case _:
                return node

    def _effect(self, effect: Effected) -> Effect:
        return Effect(effect.kind, self._renamed(effect.call), self._renamed(effect.detail))


class PageReplay(ReplayTransport):
    """A replay of a transport with a page's tools."""

    async def render_to_pdf(self, html: str, options: Mapping[str, object], *, timeout: float) -> BinaryData:
        return await self._made("render_to_pdf", {"html": html, "options": dict(options)})

    async def screenshot(self, options: Mapping[str, object], *, timeout: float) -> BinaryData:
        return await self._made("screenshot", {"options": dict(options)})

    async def _made(self, kind: Kind, asked: Mapping[str, object]) -> BinaryData:
        action, answer = await self._played(await self._ask(kind, asked))
        line = action.end or action.start
        for leaf in answer.leaves:
            if isinstance(made := unpacked_leaf(self._reader, line, leaf), BinaryData):
                return made
        raise self._reader.bad(line, "the content is not there", "undo what was edited, or record again")


def _failure(problem: Problem) -> DiscoveryFailed:
    error = error_of(problem)
    return error if isinstance(error, DiscoveryFailed) else DiscoveryFailed(error.message, code=error.code)
