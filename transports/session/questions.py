"""The user's handler of questions, with a limit of how many it answers at once."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from ..protocol.elicitation import DECLINED, answer_fault, default_answer, refused_answer
from .callbacks import invoke

if TYPE_CHECKING:
    from ..protocol.payloads import ElicitationRequest

__all__ = ["OnElicitation", "Questions"]

logger = logging.getLogger("transports")

OnElicitation: TypeAlias = Callable[["ElicitationRequest"], "Mapping[str, object] | Awaitable[Mapping[str, object]]"]

#: Questions that a handler answers at the same time: a plain function needs a thread for each.
_MAX_AT_ONCE = 32
#: Questions that wait for the handler. Those above are declined.
_MAX_WAITING = 256


class Questions:
    """Answers questions with the user's handler, or by default without one.

    32 are answered at once and 256 wait for that; more are declined at once. The time that a question allows includes
    its waiting. A plain function that is too late goes on in its thread, and counts until it has returned.
    ``on_refused`` gets the reason, in words, when an answer of the handler does not fit its question, and says whether
    a call is told; otherwise it is logged. ``on_unanswered`` gets a question that was declined as there is no handler.
    """

    def __init__(
        self,
        handler: OnElicitation | None,
        on_refused: Callable[[str], bool],
        on_unanswered: Callable[[ElicitationRequest], None],
    ) -> None:
        self._handler = handler
        self._on_refused = on_refused
        self._on_unanswered = on_unanswered
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)
        self._waiting = 0

    async def answer(self, request: ElicitationRequest) -> Mapping[str, object]:
        """Return the answer for the app. What the handler raises declines. An answer that does not fit the question
        (:func:`~transports.protocol.elicitation.answer_fault`) is an error for the app, and for its caller."""
        if self._handler is None:
            answer = default_answer(request)
            if answer.get("success") is not True:
                self._on_unanswered(request)
            return answer
        if self._waiting >= _MAX_WAITING:
            logger.warning("declined %s: %d questions wait already", request.method, _MAX_WAITING)
            return DECLINED
        try:
            async with asyncio.timeout(request.timeout / 1000 if request.timeout else None):
                await self._wait_for_slot()
                returned = await self._ask(self._handler, request)
            fault = answer_fault(request, returned)
        except Exception as error:  # noqa: BLE001 - raising is how a handler declines
            reason = "too late" if isinstance(error, TimeoutError) else repr(error)
            logger.warning("the elicitation handler declined %s: %s", request.method, reason)
            return DECLINED
        if not fault and isinstance(returned, Mapping):
            return returned
        reason = f"the elicitation handler's answer to {request.method} is refused: {fault}"
        if not self._on_refused(reason):
            logger.warning("%s", reason)
        return refused_answer(reason)

    async def _wait_for_slot(self) -> None:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1

    async def _ask(self, handler: OnElicitation, request: ElicitationRequest) -> object:
        """Run the handler in a slot that is taken already, and free it when the handler has returned."""
        if inspect.iscoroutinefunction(handler):
            try:
                return await invoke(handler, request)
            finally:
                self._slots.release()
        loop = asyncio.get_running_loop()

        def ask(request: ElicitationRequest) -> object:
            try:
                return handler(request)
            finally:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(self._slots.release)

        return await invoke(ask, request)
