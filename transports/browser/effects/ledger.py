"""What an app does beside answering, call by call: what was done, which content is on its way, what begins soon."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ...binary import BinaryData, Handle
from ...errors import ABPError, CallTimeout, TransportError
from ...protocol.messages import Effect, Message
from ...protocol.strict_json import JSONValue

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["ANNOUNCED", "Announced", "Caused", "Detail", "Ledger"]

#: Effects of one call that are recorded one by one; the rest is counted.
_MOST = 100
#: Outputs that began outside any call and wait for the next one.
_WAITING = 8
#: Seconds for what was announced (a click on a download link, a window) to begin.
ANNOUNCED = 2.0
_STEP = 2.0

Detail: TypeAlias = dict[str, JSONValue]


@dataclass(slots=True, eq=False)
class _Output:
    """Content on its way. A call fails without its ``needed`` ones; others come later if they are late.
    ``forget`` ends work that nobody waits for any more."""

    task: asyncio.Future[BinaryData]
    what: str
    needed: bool
    forget: Callable[[], None]


@dataclass(slots=True, eq=False)
class Caused:
    """What one call has caused so far; ``id`` is ``None`` for what no call has caused."""

    id: str | None
    effects: list[tuple[str, Detail]] = field(default_factory=list)
    more: int = 0
    outputs: list[_Output] = field(default_factory=list)
    announced: set[asyncio.Future[None]] = field(default_factory=set)
    windows: list[Page] = field(default_factory=list)

    def as_effects(self) -> tuple[Effect, ...]:
        more = [Effect("more", self.id, {"count": self.more})] if self.more else []
        return (*(Effect(kind, self.id, detail) for kind, detail in self.effects), *more)


@dataclass(slots=True, eq=False)
class Announced:
    """Something about to begin: a download link (``""``), a window (``"window"``), a navigation of a frame, its id."""

    call: Caused
    where: str
    detail: Detail
    begun: asyncio.Future[None]


class Ledger:
    """``lost`` is done once the app is gone; ``announce`` takes events, ``release`` content that nobody wants."""

    def __init__(
        self,
        lost: asyncio.Future[TransportError],
        announce: Callable[[Message], None],
        release: Callable[[Handle], Awaitable[None]],
    ) -> None:
        self.outside = Caused(None)
        self._lost = lost
        self._announce = announce
        self._release = release
        self._calls: dict[str, Caused] = {}
        self._expected: deque[Announced] = deque(maxlen=_MOST)
        self._dropped = 0
        self._tasks: set[asyncio.Future[Any]] = set()

    async def aclose(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_STEP)

    # --- calls --------------------------------------------------------------------------------------------------------

    def running(self, call_id: str | None = None) -> Caused:
        """The call that the page named, else the one that began last."""
        if call_id is not None and call_id in self._calls:
            return self._calls[call_id]
        return next(reversed(self._calls.values()), self.outside)

    @contextlib.contextmanager
    def during(self, call_id: str) -> Iterator[Caused]:
        """A call is under way. Outputs that it has not taken when it ends wait for the next one."""
        call = self._calls[call_id] = Caused(call_id)
        try:
            yield call
        finally:
            del self._calls[call_id]
            for output in call.outputs:
                self._keep(output)
            self.outside.effects.clear()
            self.outside.more = 0

    async def settle(self, call: Caused, reply: Message, *, timeout: float) -> None:
        """Give ``reply`` the effects and outputs of its call, waiting ``timeout`` seconds at most for those that have
        begun. Raises :class:`~transports.errors.CallTimeout` if a printed page is not ready in time.

        A call that the app refused has no result: its effects are announced, its outputs come with the next one.
        """
        now = asyncio.get_running_loop().time
        deadline, until = now() + timeout, now() + min(ANNOUNCED, timeout)
        while call.announced and (left := until - now()) > 0 and not self._lost.done():
            waiting: list[asyncio.Future[Any]] = [*call.announced, self._lost]
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if isinstance(reply.payload, dict) and reply.payload.get("success") is False:
            for effect in call.as_effects():
                self._announce(Message("effect", effect))
            return
        warnings: list[str] = []
        outputs: list[BinaryData] = []
        late: list[_Output] = []
        for output in call.outputs:
            if await self._ended(output, deadline - now()):
                outputs += self._content(output, warnings)
            elif output.needed:
                raise CallTimeout(f"{output.what} was not ready within {timeout:g} s")
            else:
                warnings.append(f"{output.what} was not finished in time; it comes with a later call")
                late.append(output)
        call.outputs = late
        outputs += self._earlier(warnings)
        reply.outputs = (*reply.outputs, *outputs)
        reply.warnings = (*reply.warnings, *warnings)
        reply.effects = call.as_effects()

    async def _ended(self, output: _Output, timeout: float) -> bool:
        waiting: list[asyncio.Future[Any]] = [output.task]
        if not output.needed:  # a download tells nothing when its page is lost
            waiting.append(self._lost)
        await asyncio.wait(waiting, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED)
        return output.task.done()

    def _content(self, output: _Output, warnings: list[str]) -> list[BinaryData]:
        try:
            return [output.task.result()]
        except ABPError as error:
            if output.needed:
                raise
            warnings.append(f"{output.what}: {error.message}")
            return []

    def _earlier(self, warnings: list[str]) -> list[BinaryData]:
        """What has waited for a call to come."""
        waited, self.outside.outputs = self.outside.outputs, []
        found: list[BinaryData] = []
        for output in waited:
            if not output.task.done():
                self.outside.outputs.append(output)
            elif content := self._content(output, warnings):
                warnings.append(f"{output.what} began before this call")
                found += content
        if self._dropped:
            warnings.append(f"{self._dropped} outputs that began before this call were too many and are lost")
            self._dropped = 0
        return found

    # --- records and outputs ------------------------------------------------------------------------------------------

    def record(self, call: Caused, kind: str, detail: Detail) -> bool:
        """Note an effect; false if there were too many already."""
        if len(call.effects) >= _MOST:
            call.more += 1
            return False
        call.effects.append((kind, detail))
        if call is self.outside:
            self.tell(kind, None, dict(detail))
        return True

    def tell(self, kind: str, call_id: str | None, detail: Detail) -> None:
        """Announce an effect that no result will hold."""
        self._announce(Message("effect", Effect(kind, call_id, detail)))

    def output(
        self,
        call: Caused,
        work: Coroutine[Any, Any, BinaryData],
        what: str,
        *,
        needed: bool = False,
        forget: Callable[[], None] = lambda: None,
    ) -> None:
        """Content of the call, ready once ``work`` is done."""
        output = _Output(self.spawn(work), what, needed, forget)
        if call.id in self._calls:
            call.outputs.append(output)
        else:
            self._keep(output)

    def ready(self, call: Caused, content: BinaryData, what: str) -> None:
        """Content of the call that is there already."""
        self.output(call, _ready(content), what)

    def _keep(self, output: _Output) -> None:
        output.needed = False
        self.outside.outputs.append(output)
        if len(self.outside.outputs) > _WAITING:
            self._dropped += 1
            self._drop(self.outside.outputs.pop(0))

    def _drop(self, output: _Output) -> None:
        if not output.task.done():
            output.task.cancel()
            output.forget()
        elif not output.task.cancelled() and not output.task.exception():
            content = output.task.result().content
            if isinstance(content, Handle):
                self.spawn(self._release(content))

    def spawn(self, work: Awaitable[Any]) -> asyncio.Future[Any]:
        """Work in the background, ended with the ledger."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # looked at where it matters, and never reported by asyncio

    # --- what is announced before it begins ---------------------------------------------------------------------------

    def expect(self, call: Caused, where: str, detail: Detail) -> None:
        """The call's answer waits for this to begin, a moment."""
        begun = asyncio.get_running_loop().create_future()
        announced = Announced(call, where, detail, begun)
        self._expected.append(announced)
        call.announced.add(begun)
        begun.add_done_callback(call.announced.discard)
        asyncio.get_running_loop().call_later(2 * ANNOUNCED, self.begun, announced)

    def take(self, *places: str) -> Announced | None:
        """The first that was announced for the first of these places, and is taken off the list."""
        found = next((item for where in places if (item := self.peek(where))), None)
        if found is not None:
            self._expected.remove(found)
        return found

    def peek(self, where: str) -> Announced | None:
        """The first that was announced for this place."""
        return next((item for item in self._expected if item.where == where), None)

    def begun(self, announced: Announced) -> None:
        """Nobody waits for it any more."""
        if announced in self._expected:
            self._expected.remove(announced)
        if not announced.begun.done():
            announced.begun.set_result(None)


async def _ready(content: BinaryData) -> BinaryData:
    return content
