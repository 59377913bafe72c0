"""Both directions between one client and one server that exchange their messages one by one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from ...._internal.tasks import begin, cancel_and_wait
from ....errors import ProtocolError, TooLarge
from ....mcp._stdio import Ends, ends_of
from ....protocol._find_content import Place
from ._exchange import Exchange, Passed, failure_of, refusal
from ._messages import (
    INVALID_REQUEST,
    MAX_BYTES,
    Key,
    Message,
    error_message,
    key_of,
    key_or_none,
    over_limit,
    read_message,
)

logger = logging.getLogger("transports")

#: Takes a message of the server.
Deliver: TypeAlias = "Callable[[bytes | Ends], Awaitable[None]]"
#: Sends a message to the server.
ToServer: TypeAlias = Callable[[bytes], Awaitable[None]]
#: Sends a message to the client. One without bytes says that its request gets no answer.
ToClient: TypeAlias = Callable[[Passed], Awaitable[None]]


class Duplex:
    """Messages between a client and a server, each passed on as it came except for what ``exchange`` changes."""

    def __init__(self, exchange: Exchange, to_server: ToServer, to_client: ToClient) -> None:
        self._exchange = exchange
        self._to_server = to_server
        self._to_client = to_client
        #: Requests that the proxy works on: their own answers, and calls whose files are read.
        self._working: dict[Key, asyncio.Task[None]] = {}
        exchange.unsent = self._working.keys()
        self._last_message = asyncio.get_running_loop().time()
        #: Gets the error of a write to the client that no other task waits for.
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_busy(self) -> bool:
        return bool(self._working) or self._exchange.owes_answers

    @property
    def is_preparing(self) -> bool:
        """True if the server does not have all requests yet."""
        return bool(self._working)

    @property
    def silence(self) -> float:
        return asyncio.get_running_loop().time() - self._last_message

    async def from_client(self, line: bytes | Ends) -> None:
        """Pass on a message of the client. ``line`` is its ends only if it is over the limit."""
        if isinstance(line, Ends):
            await self._refuse_oversized(line, over_limit(MAX_BYTES, "bytes"))
            return
        try:
            message = await read_message(line)
        except TooLarge as error:
            await self._refuse_oversized(ends_of(line), error)
            return
        except ProtocolError:
            # A batch, or no message at all: the server answers what is wrong with it.
            if line[:1] == b"[":
                await self._exchange.add_batch(line)
            await self._to_server(line)
            return
        await self.pass_on(message)

    async def pass_on(self, message: Message) -> None:
        """Pass on a message of the client, or answer it if it is for the proxy."""
        if message.is_request:
            await self._pass_request(message)
            return
        if message.is_answer and self._exchange.roots.take_answer(message):
            return
        if message.method == "notifications/roots/list_changed":
            self._exchange.roots.forget()
        if message.method == "notifications/cancelled" and await self._cancel(message):
            return
        await self._to_server(message.raw)

    async def read_server(self, run: Callable[[Deliver], Awaitable[None]]) -> None:
        """Pass on the messages of the server that ``run`` delivers, until it ends.

        Raises :class:`~transports.errors.ProtocolError` for an answer that cannot be read, if its request is unknown,
        and the error of a client that cannot be written to."""
        reading = asyncio.ensure_future(run(self._from_server))
        try:
            await asyncio.wait((reading, self._failed), return_when=asyncio.FIRST_COMPLETED)
            for ended in (reading, self._failed):
                if ended.done():
                    ended.result()
        finally:
            await cancel_and_wait((reading,))

    async def _from_server(self, line: bytes | Ends) -> None:
        self._last_message = asyncio.get_running_loop().time()
        passed = await self._exchange.to_client(line)
        if passed is not None:
            await self._to_client(passed)

    async def aclose(self) -> None:
        await cancel_and_wait(self._working.values())

    async def _pass_request(self, message: Message) -> None:
        if self._exchange.is_for_proxy(message):
            self._begin_work(message, self._answer_request)
            return
        files = self._exchange.files_in(message)
        if files:
            self._begin_work(message, partial(self._send_with_files, files))
            return
        self._exchange.add_request(message)
        await self._to_server(message.raw)

    def _begin_work(self, message: Message, work: Callable[[Message], Awaitable[None]]) -> None:
        """Run work on a request in a task. If the work fails, the request is answered with the error."""
        assert message.key is not None
        key = message.key

        async def work_or_refuse() -> None:
            try:
                await work(message)
            except Exception as error:  # noqa: BLE001 - a request has one answer
                answer = refusal(bytes(message.envelope.id), error)
                await self._to_client(Passed(answer, key, answers=True))

        def forget(task: asyncio.Task[None]) -> None:
            if self._working.get(key) is task:
                del self._working[key]

        task = self._working[key] = begin(work_or_refuse(), self._fail)
        task.add_done_callback(forget)

    def _fail(self, error: BaseException) -> None:
        """End the connection, since a request cannot get its answer."""
        if not self._failed.done():
            self._failed.set_exception(failure_of(error))

    async def _answer_request(self, message: Message) -> None:
        answer = await self._exchange.answer(message)
        await self._to_client(Passed(answer, message.key, answers=True))

    async def _send_with_files(self, files: Mapping[Place, str], message: Message) -> None:
        """Read the files that a call names, and send it with their content."""

        async def ask(question: bytes) -> None:
            await self._to_client(Passed(question, message.key))

        filled = await self._exchange.with_files(message, files, ask)
        assert message.key is not None
        # From here on, a cancellation of the call is for the server.
        self._working.pop(message.key, None)
        self._exchange.add_request(filled)
        await self._to_server(filled.raw)

    async def _cancel(self, message: Message) -> bool:
        """Cancel a request that the server does not have yet. Return ``False`` for any other request."""
        key = key_or_none(message.params.request_id)
        if key is None:
            return False
        self._exchange.cancel(key)
        task = self._working.pop(key, None)
        if task is None:
            return False
        task.cancel()
        await self._to_client(Passed(b"", key, answers=True))
        return True

    async def _refuse_oversized(self, ends: Ends, error: TooLarge) -> None:
        """Answer a message of the client that is over a limit, of which only the ends are known."""
        answer = error_message(ends.identity, INVALID_REQUEST, error.message, {"code": error.code})
        is_answer = ends.identity and not ends.has_method
        is_notification = ends.has_method and not ends.identity
        if is_answer:
            # The server has asked a question, and still waits for an answer.
            await self._to_server(answer)
        elif is_notification:
            logger.warning("a message of the client is dropped: %s", error.message)
        else:
            key = key_of(ends.identity)
            await self._to_client(Passed(answer, key, answers=key is not None))
