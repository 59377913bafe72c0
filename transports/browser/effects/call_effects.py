"""Tracks side effects by call: which have happened, which content is on its way, what is about to begin."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...binary import BinaryData, Handle
from ...errors import ABPError, CallTimeout, TransportError, format_seconds
from ...protocol.messages import Effect, Message
from ...protocol.strict_json import JSONValue

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["BEGIN_TIMEOUT", "CallEffects", "Detail", "EffectTracker", "ExpectedEffect"]

#: Effects of one call that are recorded one by one; the rest is only counted.
_MAX_RECORDED = 100
#: Announced effects that one call waits for at a time; more are not waited for (docs/security.md).
_MAX_EXPECTED = 100
#: Outputs that may wait for the next call; the oldest is discarded when there are more.
_MAX_DEFERRED = 8
#: Seconds for an announced effect (a click on a download link, a window) to begin.
BEGIN_TIMEOUT = 2.0
_STEP_TIMEOUT = 2.0

Detail: TypeAlias = dict[str, JSONValue]


@dataclass(slots=True, eq=False)
class _Output:
    """Content on its way.

    A call fails without its ``required`` ones; others may come with a later call. ``on_discard`` ends work whose
    result nobody will take.
    """

    task: asyncio.Future[BinaryData]
    what: str
    required: bool
    on_discard: Callable[[], None]


@dataclass(slots=True, eq=False)
class CallEffects:
    """What one call has caused so far. ``id`` is ``None`` for effects that no call caused.

    ``effects`` holds the first 100 of them, ``overflow`` counts the rest. ``refused`` windows were closed at once.
    """

    id: str | None
    effects: list[tuple[str, Detail]] = field(default_factory=list)
    overflow: int = 0
    refused: int = 0
    outputs: list[_Output] = field(default_factory=list)
    expected: set[asyncio.Future[None]] = field(default_factory=set)
    windows: list[Page] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has happened, and nothing is announced."""
        return not (self.effects or self.overflow or self.refused or self.outputs or self.expected)

    def as_effects(self) -> tuple[Effect, ...]:
        """Return the effects as a result shows them; effects beyond the limit are one of the kind ``more``."""
        more = [Effect("more", self.id, {"count": self.overflow})] if self.overflow else []
        return (*(Effect(kind, self.id, detail) for kind, detail in self.effects), *more)


@dataclass(slots=True, eq=False)
class ExpectedEffect:
    """An effect that was announced and is about to begin.

    ``place`` is what will begin: a download link (``""``), a window (``"window"``), or the navigation of a frame (the
    frame's id). ``begun`` is done once it has begun, or nobody waits for it any more, at the latest with ``timer``.
    """

    call: CallEffects
    place: str
    detail: Detail
    begun: asyncio.Future[None]
    timer: asyncio.TimerHandle | None = None


class EffectTracker:
    """The side effects of one page, by call.

    ``lost`` is done once the app is gone. ``emit`` takes events, ``release`` content that nobody wants.
    """

    def __init__(
        self,
        lost: asyncio.Future[TransportError],
        emit: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
    ) -> None:
        self.unattributed = CallEffects(None)
        self._lost = lost
        self._emit = emit
        self._release = release
        self._calls: dict[str, CallEffects] = {}
        self._expected: deque[ExpectedEffect] = deque()
        self._discarded = 0
        self._tasks: set[asyncio.Future[Any]] = set()

    async def aclose(self) -> None:
        """Cancel all background work; waits two seconds at most."""
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STEP_TIMEOUT)

    # --- calls --------------------------------------------------------------------------------------------------------

    def current_call(self, call_id: str | None = None) -> CallEffects:
        """Return the call with this id if it is under way, else the one that began last, else :attr:`unattributed`."""
        if call_id is not None and call_id in self._calls:
            return self._calls[call_id]
        return next(reversed(self._calls.values()), self.unattributed)

    def call_of(self, call_id: str | None) -> CallEffects:
        """Return the call with this id if it is under way, else :attr:`unattributed`."""
        return self._calls.get(call_id or "", self.unattributed)

    def begin_call(self, call_id: str) -> CallEffects:
        """Track a call until :meth:`end_call`."""
        call = self._calls[call_id] = CallEffects(call_id)
        return call

    def end_call(self, call: CallEffects) -> None:
        """Track a call no longer. Outputs that its reply did not take wait for the next call."""
        self._calls.pop(call.id or "", None)
        for output in call.outputs:
            self._defer(output)
        self.unattributed.effects.clear()
        self.unattributed.overflow = 0

    async def settle(self, call: CallEffects, reply: Message, *, timeout: float) -> None:
        """Give ``reply`` the effects and outputs of its call.

        Waits ``timeout`` seconds at most for those that have begun. Raises :class:`~transports.errors.CallTimeout` if a
        printed page is not ready in time. A call that the app refused has no result: its effects are announced as
        events, and its outputs come with the next call.
        """
        if call.is_empty and not self.unattributed.outputs and not self._discarded:
            return
        now = asyncio.get_running_loop().time
        deadline, until = now() + timeout, now() + min(BEGIN_TIMEOUT, timeout)
        while call.expected and (left := until - now()) > 0 and not self._lost.done():
            waiting: list[asyncio.Future[Any]] = [*call.expected, self._lost]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if isinstance(reply.payload, dict) and reply.payload.get("success") is False:
            for effect in call.as_effects():
                self._emit(Message("effect", effect))
            return
        warnings = [f"{call.refused} windows were too many and were closed at once"] if call.refused else []
        outputs: list[BinaryData] = []
        late: list[_Output] = []
        for output in call.outputs:
            if await self._finished(output, deadline - now()):
                outputs += self._result(output, warnings)
            elif output.required:
                raise CallTimeout(f"{output.what} was not ready within {format_seconds(timeout)}")
            else:
                warnings.append(f"{output.what} was not finished in time; it comes with a later call")
                late.append(output)
        call.outputs = late
        outputs += self._take_deferred(warnings)
        reply.outputs = (*reply.outputs, *outputs)
        reply.warnings = (*reply.warnings, *warnings)
        reply.effects = call.as_effects()

    async def _finished(self, output: _Output, timeout: float) -> bool:
        waiting: list[asyncio.Future[Any]] = [output.task]
        if not output.required:  # a download gives no event when its page is lost
            waiting.append(self._lost)
        await asyncio.wait(waiting, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        return output.task.done()

    def _result(self, output: _Output, warnings: list[str]) -> list[BinaryData]:
        try:
            return [output.task.result()]
        except ABPError as error:
            if output.required:
                raise
            warnings.append(f"{output.what}: {error.message}")
            return []

    def _take_deferred(self, warnings: list[str]) -> list[BinaryData]:
        """Return the finished outputs that began before this call, and warn of each."""
        waited, self.unattributed.outputs = self.unattributed.outputs, []
        found: list[BinaryData] = []
        for output in waited:
            if not output.task.done():
                self.unattributed.outputs.append(output)
            elif content := self._result(output, warnings):
                warnings.append(f"{output.what} began before this call")
                found += content
        if self._discarded:
            warnings.append(f"{self._discarded} outputs that began before this call were too many and are lost")
            self._discarded = 0
        return found

    # --- records and outputs ------------------------------------------------------------------------------------------

    def record(self, call: CallEffects, kind: str, detail: Detail) -> bool:
        """Record an effect of the call. Returns false if the call has 100 already: then it is only counted."""
        if len(call.effects) >= _MAX_RECORDED:
            call.overflow += 1
            return False
        call.effects.append((kind, detail))
        if call is self.unattributed:
            self.announce(kind, None, dict(detail))
        return True

    def announce(self, kind: str, call_id: str | None, detail: Detail) -> None:
        """Emit an ``effect`` event, for an effect that no result will hold."""
        self._emit(Message("effect", Effect(kind, call_id, detail)))

    def add_output(
        self,
        call: CallEffects,
        work: Coroutine[Any, Any, BinaryData],
        what: str,
        *,
        required: bool = False,
        on_discard: Callable[[], None] = lambda: None,
    ) -> None:
        """Add content to the call, ready once ``work`` is done. ``what`` names it in warnings."""
        output = _Output(self.spawn(work), what, required, on_discard)
        if call.id in self._calls:
            call.outputs.append(output)
        else:
            self._defer(output)

    def add_content(self, call: CallEffects, content: BinaryData, what: str) -> None:
        """Add content to the call that is there already."""
        self.add_output(call, _ready(content), what)

    def _defer(self, output: _Output) -> None:
        output.required = False
        self.unattributed.outputs.append(output)
        if len(self.unattributed.outputs) > _MAX_DEFERRED:
            self._discarded += 1
            self._discard(self.unattributed.outputs.pop(0))

    def _discard(self, output: _Output) -> None:
        if not output.task.done():
            output.task.cancel()
            output.on_discard()
        elif not output.task.cancelled() and not output.task.exception():
            content = output.task.result().content
            if isinstance(content, Handle):
                self.spawn(self._release(content))

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Run work in the background; :meth:`aclose` cancels it. Its errors are never reported by asyncio."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved: who needs the outcome reads it from the task

    # --- effects that are announced before they begin -----------------------------------------------------------------

    def expect(self, call: CallEffects, place: str, detail: Detail) -> None:
        """Let the call's reply wait for this effect to begin, for two seconds at most, unless it waits for a hundred
        others."""
        if len(call.expected) >= _MAX_EXPECTED:
            return
        loop = asyncio.get_running_loop()
        expected = ExpectedEffect(call, place, detail, loop.create_future())
        expected.timer = loop.call_later(2 * BEGIN_TIMEOUT, self.mark_begun, expected)
        self._expected.append(expected)
        call.expected.add(expected.begun)

    def take_expected(self, *places: str) -> ExpectedEffect | None:
        """Return the first effect expected at the first of these places that has one, and remove it from the list."""
        found = next((item for place in places if (item := self.find_expected(place))), None)
        if found is not None:
            self._expected.remove(found)
        return found

    def find_expected(self, place: str) -> ExpectedEffect | None:
        """Return the first effect expected at this place, or ``None``."""
        return next((item for item in self._expected if item.place == place), None)

    def mark_begun(self, expected: ExpectedEffect) -> None:
        """Stop waiting for an expected effect, since it has begun or never will."""
        if expected in self._expected:
            self._expected.remove(expected)
        expected.call.expected.discard(expected.begun)
        if expected.timer is not None:
            expected.timer.cancel()
        if not expected.begun.done():
            expected.begun.set_result(None)


async def _ready(content: BinaryData) -> BinaryData:
    return content
