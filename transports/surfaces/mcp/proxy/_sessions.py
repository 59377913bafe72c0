"""Server of one session over HTTP, and the responses to which its messages go."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress

import msgspec

from ...._internal.tasks import begin, cancel_and_wait
from ....errors import ProtocolError
from ....mcp._servers import StdioServer
from ....protocol._strict_json import encode_json
from ._duplex import Duplex
from ._exchange import Exchange, Passed
from ._messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    SUBSCRIPTION_ID,
    UNAVAILABLE,
    Key,
    Message,
    error_message,
    key_of,
    read_message,
)
from ._rewriting import FIELDS, fields_of
from ._upstream import ProcessServer

logger = logging.getLogger("transports")


class _Stream:
    """Messages for one response. A client that takes none for a minute is cut off."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._ended = False

    async def write(self, raw: bytes) -> None:
        """Add a message, once there is room for it. Nothing happens if the client has gone."""
        try:
            async with asyncio.timeout(60):
                await self._has_room.wait()
        except TimeoutError:
            self.end()
        if self._ended:
            return
        self._messages.put_nowait(raw)
        if self._messages.qsize() >= 4:
            self._has_room.clear()

    def end(self) -> None:
        """End the response after the messages that wait."""
        self._ended = True
        self._has_room.set()
        self._messages.put_nowait(None)

    async def messages(self) -> AsyncGenerator[bytes, None]:
        try:
            while (raw := await self._messages.get()) is not None:
                self._has_room.set()
                yield raw
        finally:
            self._ended = True
            self._has_room.set()


class Session:
    """A server with its client, or with the clients of one user that have no session (``is_shared``).

    If clients share it, a message that belongs to no request reaches none of them: it may be about the call of any."""

    def __init__(self, process: ProcessServer, exchange: Exchange, *, is_shared: bool = False) -> None:
        self.used = time.monotonic()
        self._process = process
        self._is_shared = is_shared
        self._streams: dict[Key, _Stream] = {}
        self._listener: _Stream | None = None
        #: Messages that wait for a client to listen, at most 1 MiB together.
        self._unheard: deque[bytes] = deque()
        self._identities = itertools.count(1)
        self._duplex = Duplex(exchange, process.send, self._write_message)
        self._exchange = exchange
        self._running = begin(self._relay())

    @classmethod
    async def start(cls, server: StdioServer, exchange: Exchange, *, is_shared: bool = False) -> Session:
        """Start a server. Raises :class:`~transports.errors.ConnectFailed`."""
        return cls(await ProcessServer.start(server), exchange, is_shared=is_shared)

    @property
    def is_alive(self) -> bool:
        """True until the server has ended."""
        return not self._running.done()

    @property
    def is_idle(self) -> bool:
        """True if no response is open."""
        return not self._streams and self._listener is None

    async def send(self, message: Message) -> None:
        """Send a notification or an answer to the server."""
        self.used = time.monotonic()
        await self._duplex.pass_on(message)

    async def request(self, message: Message) -> AsyncGenerator[bytes, None]:
        """Send a request, and yield the messages that belong to it and its answer.

        Without a session, it is sent with an id and a token for progress that no other client has."""
        restored: Mapping[Key, msgspec.Raw] = {}
        if self._is_shared:
            message, restored = await self._with_own_ids(message)
        assert message.key is not None
        if message.key in self._streams:
            reason = "a request with this id waits for its answer; use another id"
            yield error_message(bytes(message.envelope.id), INVALID_REQUEST, reason)
            return
        stream = self._streams[message.key] = _Stream()
        answered = False
        try:
            if not self.is_alive:
                stream.end()
            await self._duplex.pass_on(message)
            async with aclosing(stream.messages()) as messages:
                async for raw in messages:
                    answered = message.key not in self._streams
                    if restored:
                        raw = _with_ids(raw, restored)
                    yield raw
            if not answered and not self.is_alive:
                identity = restored.get(message.key, message.envelope.id)
                yield error_message(bytes(identity), UNAVAILABLE, self._process.reason())
                answered = True
        finally:
            if self._streams.get(message.key) is stream:
                del self._streams[message.key]
                if self._is_shared and not answered:  # the client has gone, which is how it cancels
                    self._exchange.answered(message.key)
                    cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}'
                    await self._duplex.from_client(cancelled % bytes(message.envelope.id))
            self.used = time.monotonic()

    async def listen(self) -> AsyncGenerator[bytes, None]:
        """Yield the messages that belong to no request."""
        if self._listener is not None:
            self._listener.end()
        stream = self._listener = _Stream()
        try:
            while self._unheard:
                yield self._unheard.popleft()
            async with aclosing(stream.messages()) as messages:
                async for raw in messages:
                    yield raw
        finally:
            if self._listener is stream:
                self._listener = None
            self.used = time.monotonic()

    async def aclose(self) -> None:
        """End the server and all responses."""
        await cancel_and_wait((self._running,))
        await self._duplex.aclose()
        await self._process.aclose()

    async def _relay(self) -> None:
        reading = asyncio.ensure_future(self._process.run(self._duplex.from_server))
        try:
            await asyncio.wait((reading, self._duplex.failed), return_when=asyncio.FIRST_COMPLETED)
            for ended in (reading, self._duplex.failed):
                if ended.done():
                    ended.result()
        except ProtocolError as error:
            logger.warning("%s", error.message)
        except Exception:
            logger.exception("a session has ended")
        finally:
            await cancel_and_wait((reading,))
            asyncio.get_running_loop().call_soon(self._end_streams)  # when `is_alive` is false

    def _end_streams(self) -> None:
        for stream in (*self._streams.values(), *filter(None, [self._listener])):
            stream.end()

    async def _write_message(self, message: Passed) -> None:
        """Pass on a message: to the response of its request, else to the stream of all others, else to any response of
        the same client."""
        if message.request is not None and message.request in self._streams:
            stream = self._streams[message.request]
            if message.answers:
                del self._streams[message.request]
            if message.raw:
                await stream.write(message.raw)
            if message.answers:
                stream.end()
            return
        if message.answers or self._is_shared:  # of a request whose client has gone, or of no client that is known
            return
        listener = self._listener or next(iter(self._streams.values()), None)
        if listener is not None:
            await listener.write(message.raw)
        elif sum(map(len, self._unheard)) + len(message.raw) <= 1 << 20:
            self._unheard.append(message.raw)

    async def _with_own_ids(self, message: Message) -> tuple[Message, Mapping[Key, msgspec.Raw]]:
        """Return a request with an id and a token of progress of the proxy, and the client's by the proxy's."""
        fields = fields_of(message.raw)
        identity = next(self._identities)
        restored: dict[Key, msgspec.Raw] = {identity: fields["id"]}
        fields["id"] = msgspec.Raw(b"%d" % identity)
        with suppress(ValueError, KeyError):
            params = FIELDS.decode(fields["params"])
            meta = FIELDS.decode(params["_meta"])
            token = next(self._identities)
            restored[token] = meta["progressToken"]
            meta["progressToken"] = msgspec.Raw(b"%d" % token)
            params["_meta"] = msgspec.Raw(encode_json(meta))
            fields["params"] = msgspec.Raw(encode_json(params))
        return await read_message(encode_json(fields)), restored


def _with_ids(raw: bytes, restored: Mapping[Key, msgspec.Raw]) -> bytes:
    """Return a message with the client's ids in the place of the proxy's. The first of these is that of the request,
    which gets an error if its answer cannot be read: the client would not know the answer."""
    try:
        fields = fields_of(raw)
        _restore(fields, ("id",), restored)
        for name in ("params", "result"):
            if name in fields:
                fields[name] = _with_ids_inside(fields[name], restored)
        return encode_json(fields)
    except (ValueError, RecursionError):
        identity = bytes(next(iter(restored.values())))
        return error_message(identity, INTERNAL_ERROR, "the server's answer is not valid JSON")


def _with_ids_inside(value: msgspec.Raw, restored: Mapping[Key, msgspec.Raw]) -> msgspec.Raw:
    try:
        fields = FIELDS.decode(value)
        _restore(fields, ("progressToken", "requestId"), restored)
        if "_meta" in fields:
            meta = FIELDS.decode(fields["_meta"])
            _restore(meta, (SUBSCRIPTION_ID,), restored)
            fields["_meta"] = msgspec.Raw(encode_json(meta))
        return msgspec.Raw(encode_json(fields))
    except ValueError:  # parameters or a result of another form
        return value


def _restore(fields: dict[str, msgspec.Raw], names: Sequence[str], restored: Mapping[Key, msgspec.Raw]) -> None:
    for name in names:
        if name in fields:
            key = key_of(fields[name])
            if key is not None and key in restored:
                fields[name] = restored[key]
