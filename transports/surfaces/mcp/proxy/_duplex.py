"""Both directions between one client and one server that exchange their messages one by one, and the proxy over stdio,
for a client that starts it."""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping
from functools import partial
from typing import TypeAlias

from ...._internal.tasks import cancel_and_wait, start_task
from ....artifacts._files import write_all
from ....errors import ProtocolError, TooLarge
from ....mcp._stdio import LineSplitter, MessageEnds, Stdin, ends_of_message, exit_soon
from ....protocol._find_content import Place
from ._exchange import ClientMessage, Exchange, ProxyContext, error_answer, fail_connection
from ._messages import (
    INVALID_REQUEST,
    MAX_BYTES,
    Deliver,
    Key,
    Message,
    error_message,
    key_of,
    key_or_none,
    over_limit,
    read_message,
)
from ._upstream import Upstream

logger = logging.getLogger("transports")

#: Function that sends a message to the server.
ToServer: TypeAlias = Callable[[bytes], Awaitable[None]]
#: Function that sends a message to the client. A message without bytes only says that its request gets no answer.
ToClient: TypeAlias = Callable[[ClientMessage], Awaitable[None]]


class Duplex:
    """Passes messages between a client and a server, in both directions. They stay as they came, except for what
    ``exchange`` changes."""

    def __init__(self, exchange: Exchange, to_server: ToServer, to_client: ToClient) -> None:
        self._exchange = exchange
        self._to_server = to_server
        self._to_client = to_client
        #: Requests that the proxy works on: their own answers, and calls whose files are read.
        self._working: dict[Key, asyncio.Task[None]] = {}
        # The view of the keys always shows the current ones.
        exchange.unsent = self._working.keys()
        self._last_message = asyncio.get_running_loop().time()
        #: Gets the error of a write to the client if no other task waits for that write.
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def is_busy(self) -> bool:
        """True while the proxy or the server works on a request."""
        return bool(self._working) or self._exchange.owes_answers

    @property
    def is_preparing(self) -> bool:
        """True if the server does not have all requests yet."""
        return bool(self._working)

    @property
    def silent_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self._last_message

    async def handle_client_line(self, line: bytes | MessageEnds) -> None:
        """Handle a line of the client. Of a message that is over the limit, ``line`` is only the ends."""
        if isinstance(line, MessageEnds):
            await self._refuse_oversized(line, over_limit(MAX_BYTES, "bytes"))
            return
        try:
            message = await read_message(line)
        except TooLarge as error:
            await self._refuse_oversized(ends_of_message(line), error)
            return
        except ProtocolError:
            # The line is a batch, or not a message. The server reports what is wrong with such a line.
            await self._to_server(line)
            return
        await self.handle_client_message(message)

    async def handle_client_message(self, message: Message) -> None:
        if message.is_request:
            await self._pass_request(message)
            return
        if self._exchange.roots.consume(message):
            return
        if message.method == "notifications/cancelled" and await self._cancel_request(message):
            return
        await self._to_server(message.raw)

    async def read_server(self, run: Callable[[Deliver], Awaitable[None]]) -> None:
        """Pass the messages that ``run`` delivers on to the client, until ``run`` ends. Raises
        :class:`~transports.errors.ProtocolError` if an answer cannot be read and its request is unknown, and the error
        of a write to the client that fails."""
        reading = asyncio.ensure_future(run(self._handle_server_line))
        try:
            await asyncio.wait((reading, self._failed), return_when=asyncio.FIRST_COMPLETED)
            _raise_errors_of(reading, self._failed)
        finally:
            await cancel_and_wait((reading,))

    async def _handle_server_line(self, line: bytes | MessageEnds) -> None:
        self._last_message = asyncio.get_running_loop().time()
        message = await self._exchange.rewrite_for_client(line)
        if message is not None:
            await self._to_client(message)

    async def aclose(self) -> None:
        await cancel_and_wait(self._working.values())

    async def _pass_request(self, message: Message) -> None:
        """Handle a request: the proxy answers it, fills in its files, or passes it on to the server."""
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
        """Start ``work`` on a request in the background. If the work fails, the error is the answer to the request."""
        assert message.key is not None
        key = message.key

        async def work_or_refuse() -> None:
            try:
                await work(message)
            except Exception as error:  # noqa: BLE001 - a request has one answer
                answer = error_answer(bytes(message.envelope.id), error)
                await self._to_client(ClientMessage(answer, key, is_answer=True))

        def forget(task: asyncio.Task[None]) -> None:
            if self._working.get(key) is task:
                del self._working[key]

        task = self._working[key] = start_task(work_or_refuse(), partial(fail_connection, self._failed))
        task.add_done_callback(forget)

    async def _answer_request(self, message: Message) -> None:
        if await self._exchange.is_for_server(message):
            await self._send_after_work(message)
            return
        answer = await self._exchange.answer(message)
        await self._to_client(ClientMessage(answer, message.key, is_answer=True))

    async def _send_with_files(self, files: Mapping[Place, str], message: Message) -> None:
        async def ask(question: bytes) -> None:
            await self._to_client(ClientMessage(question, message.key))

        await self._send_after_work(await self._exchange.with_files(message, files, ask))

    async def _send_after_work(self, message: Message) -> None:
        assert message.key is not None
        # From here on, a cancellation of the request is for the server.
        self._working.pop(message.key, None)
        self._exchange.add_request(message)
        await self._to_server(message.raw)

    async def _cancel_request(self, message: Message) -> bool:
        """Cancel the proxy's work on a request. Return ``False`` if the server has the request and must be notified."""
        key = key_or_none(message.params.request_id)
        if key is None:
            return False
        self._exchange.cancel(key)
        task = self._working.pop(key, None)
        if task is None:
            return False
        task.cancel()
        await self._to_client(ClientMessage(b"", key, is_answer=True))
        return True

    async def _refuse_oversized(self, ends: MessageEnds, error: TooLarge) -> None:
        """Refuse a message of the client that is too large, of which only the ends are known."""
        refusal = error_message(ends.identity, INVALID_REQUEST, error.message, {"code": error.code})
        is_answer = ends.identity and not ends.has_method
        is_notification = ends.has_method and not ends.identity
        if is_answer:
            # The server has asked a question, and still waits for an answer.
            await self._to_server(refusal)
        elif is_notification:
            logger.warning("a message of the client is dropped: %s", error.message)
        else:
            key = key_of(ends.identity)
            await self._to_client(ClientMessage(refusal, key, is_answer=key is not None))


# --- over stdio -------------------------------------------------------------------------------------------------------


async def run_stdio(upstream: Upstream, context: ProxyContext) -> int:
    """Serve the client over stdin and stdout. Return the exit status of a server that has ended, otherwise 0."""
    stdin = Stdin()  # this must be made before _Stdout() redirects descriptor 1 to stderr
    stdout = _Stdout()
    try:
        return await relay(upstream, context, stdin, stdout.write)
    except BrokenPipeError:
        return 0  # the client has ended
    finally:
        exit_soon()


async def relay(
    upstream: Upstream,
    context: ProxyContext,
    chunks: AsyncIterable[bytes],
    write: Callable[[ClientMessage], Awaitable[None]],
) -> int:
    """Pass messages between a client and a server until one of them ends. ``chunks`` is the client's output, and
    ``write`` sends the client a message. When the client ends, the server's input is closed, and its answers still
    pass. Return the status of a server that has ended by itself, otherwise 0."""
    duplex = Duplex(Exchange(context), upstream.send, write)
    client = asyncio.ensure_future(_read_client(chunks, duplex))
    server = asyncio.ensure_future(duplex.read_server(upstream.run))
    try:
        await asyncio.wait((client, server), return_when=asyncio.FIRST_COMPLETED)
        if client.done() and not client.exception():
            await _let_server_finish(duplex, upstream, server)
        _raise_errors_of(client, server)
        return upstream.status if server.done() else 0
    finally:
        await cancel_and_wait((client, server))
        await duplex.aclose()
        context.stats.flush()


def _raise_errors_of(*futures: asyncio.Future[None]) -> None:
    for future in futures:
        if future.done():
            future.result()


async def _read_client(chunks: AsyncIterable[bytes], duplex: Duplex) -> None:
    reader = LineSplitter(MAX_BYTES)
    async for chunk in chunks:
        for line in reader.feed(chunk):
            await duplex.handle_client_line(line)
    for line in reader.flush():
        await duplex.handle_client_line(line)


async def _let_server_finish(duplex: Duplex, upstream: Upstream, server: asyncio.Future[None]) -> None:
    """After the end of the client, wait until the server has answered all requests and ended, or has been silent for a
    minute."""

    async def wait_while(is_expected: Callable[[], bool]) -> None:
        while is_expected() and not server.done():
            await asyncio.wait((server,), timeout=0.05)

    await wait_while(lambda: duplex.is_preparing)
    upstream.close_input()
    max_silence = 60
    await wait_while(lambda: duplex.is_busy and duplex.silent_seconds < max_silence)
    await asyncio.wait((server,), timeout=upstream.grace)


class _Stdout:
    """The stdout of this process for messages alone: all other output to stdout goes to stderr from now on."""

    def __init__(self) -> None:
        self._fd = os.dup(1)
        os.dup2(2, 1)
        self._writing = asyncio.Lock()

    async def write(self, message: ClientMessage) -> None:
        if not message.raw:
            return  # it only ends a request
        line = message.raw + b"\n"
        async with self._writing:
            if self._can_take(len(line)):
                os.write(self._fd, line)
            else:
                await asyncio.to_thread(write_all, self._fd, memoryview(line))

    def _can_take(self, size: int) -> bool:
        """Whether a write would not block, so that it needs no thread. A thread takes 70 µs, a third of a small
        call."""
        has_poll = hasattr(select, "poll")  # not on Windows
        if not has_poll or size > select.PIPE_BUF:
            return False
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return any(event & select.POLLOUT for _, event in poll.poll(0))
