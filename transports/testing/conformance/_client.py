"""Client of the conformance check, and measuring of the binaries in answers.

The client sends one request at a time and reconnects after a break, so that one fault does not end the check.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from ..._internal.tasks import cancel_and_wait, start_task
from ...artifacts._memory import NoneStore
from ...base import Transport
from ...errors import ABPError, BinaryError, ContextLost, ProtocolError, TransportError, UnsupportedBinary
from ...protocol._declarations import parse
from ...protocol._elicitation import default_answer
from ...protocol._find_content import Found, find
from ...protocol._params import prepare_params
from ...protocol._payloads import ElicitationRequest
from ...protocol._strict_json import members_of
from ...protocol.binary import BinaryData, Download, Handle, verify_size
from ...protocol.messages import Effect, Message, Sender, initialize_params, new_id
from ...routing.http._downloads import download
from ...routing.http._request import DownloadRequest, cookies_of
from ._evidence import ContentItem, Exchange

#: Seconds beyond a call's timeout that the client still waits for the answer.
GRACE = 1.0
#: Seconds for reading each content of an answer.
_CONTENT_TIMEOUT = 20.0
#: Bytes of a file that are kept, enough to recognise its type.
_HEAD = 4096


class Client:
    """Client of the app under test. ``make_transport`` returns an unopened transport. Requests never raise: a failure
    is the ``error`` of the :class:`~._evidence.Exchange`. After a break the next request opens a new connection and
    initializes the app again. Questions of the app (elicitation) are answered with the app's default, or declined.
    ``timeout`` in seconds is for every request but calls."""

    def __init__(self, make_transport: Callable[[], Transport], *, timeout: float) -> None:
        self._make_transport = make_transport
        self._timeout = timeout
        self._transport: Transport | None = None
        self._listener: asyncio.Task[None] | None = None
        #: True if every new connection begins with ``initialize``.
        self._initialize_again = False
        #: Set when the transport has opened a page again, and the number of times that it was waited for.
        self._restored = asyncio.Event()
        self._restorations = 0
        self._progress: list[object] = []
        self._effects: list[Effect] = []
        #: Side effects outside of calls.
        self.effects_outside_calls: list[Effect] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    @property
    def transport(self) -> Transport:
        assert self._transport is not None
        return self._transport

    async def connect(self) -> None:
        """The current connection is closed first."""
        await self.disconnect()
        transport = self._make_transport()
        await transport.__aenter__()
        self._transport = transport
        self._restored.clear()
        self._restorations = 0
        self._listener = start_task(self._listen(transport))

    async def disconnect(self) -> None:
        if self._listener is not None:
            await cancel_and_wait((self._listener,))
        if self._transport is not None:
            await self._transport.aclose()
        self._transport = self._listener = None

    async def initialize(self) -> Exchange:
        self._initialize_again = False
        broken = await self._reconnect()
        if broken is not None:
            return broken
        self._initialize_again = True
        return await self._exchange(Message("initialize", initialize_params("abp-conformance")), self._timeout)

    async def request(self, kind: str, payload: object = None) -> Exchange:
        return await self._send_request(Message(kind, payload), self._timeout)

    async def call(
        self, capability: str, params: Mapping[str, object], timeout: float, call_id: str | None = None
    ) -> Exchange:
        """The app should answer within ``timeout`` seconds. The connection is closed if there is no answer
        :data:`GRACE` seconds later. ``call_id`` is random by default."""
        call_id = call_id or new_id()
        options = {"timeout": round(timeout * 1000), "progressToken": call_id, "callId": call_id}
        prepared, content = prepare_params(dict(params))
        payload = {"capability": capability, "params": prepared, "options": options}
        message = Message("capabilities/call", payload, id=call_id, content=content, opens_view=True)
        return await self._send_request(message, timeout + GRACE)

    async def notify(self, kind: str, payload: object) -> Exchange:
        exchange = Exchange()
        try:
            await self.transport.notify(Message(kind, payload))
        except ABPError as error:
            exchange.error = error
        return exchange

    async def _send_request(self, message: Message, timeout: float) -> Exchange:
        return await self._reconnect() or await self._exchange(message, timeout)

    async def _reconnect(self) -> Exchange | None:
        """Return the failed exchange, or ``None`` if there is a connection."""
        if self._transport is not None:
            return None
        try:
            await self.connect()
        except ABPError as error:
            return Exchange(error=error)
        if not self._initialize_again:
            return None
        initialized = await self.initialize()
        if initialized.error is None:
            return None
        return initialized

    async def _exchange(self, message: Message, timeout: float) -> Exchange:
        """After a failure of the connection, close it."""
        exchange = Exchange()
        # _listen() adds what arrives meanwhile to these lists.
        self._progress = exchange.progress
        self._effects = exchange.effects
        transport = self.transport
        started = time.perf_counter()
        try:
            reply = await transport.request(message, timeout=timeout)
            exchange.answer = reply.payload
            exchange.outputs = len(reply.outputs)
            exchange.effects += reply.effects
            exchange.sender = reply.sender
            exchange.server_call = reply.server_call
        except ABPError as error:
            exchange.error = error
            if message.type == "initialize" and isinstance(error, ContextLost) and await self._is_restored():
                return await self._exchange(message, timeout)
            # A late answer, or a broken connection, must not affect the next exchange.
            is_lost = isinstance(error, TransportError | BinaryError) and not isinstance(error, ProtocolError)
            if is_lost:
                with contextlib.suppress(ABPError):
                    await self.disconnect()
        exchange.seconds = time.perf_counter() - started
        return exchange

    async def _is_restored(self) -> bool:
        """Wait for a page that reloads while its app begins, as many do once they have installed their service
        worker."""
        max_reloads = 3
        if not self.transport.features.reconnects or self._restorations >= max_reloads:
            return False
        self._restorations += 1
        try:
            async with asyncio.timeout(self._timeout):
                await self._restored.wait()
        except TimeoutError:
            return False
        self._restored.clear()
        return True

    async def _listen(self, transport: Transport) -> None:
        """Progress belongs to the current exchange: there is only one."""
        async for message in transport.events():
            match message.type:
                case "connection/restored":
                    self._restored.set()
                case "progress":
                    self._progress.append(message.payload)
                case "effect" if isinstance(message.payload, Effect):
                    if message.payload.call is None:
                        self.effects_outside_calls.append(message.payload)
                    else:
                        self._effects.append(message.payload)
                case "elicitation/request":
                    with contextlib.suppress(ABPError):
                        request = parse(ElicitationRequest, message.payload, "an elicitation request")
                        answer = Message("elicitation/response", default_answer(request), id=message.id)
                        await transport.notify(answer)


@dataclass(frozen=True, slots=True)
class ContentMeter:
    """Reads and measures the content of an answer. ``transport`` is that of the answer, ``None`` if it broke, and
    ``sender`` the document that answered, if known. Each binary may take 20 seconds."""

    transport: Transport | None
    sender: Sender | None
    allow_private: bool

    async def measure(self, data: object) -> list[ContentItem]:
        """Unreadable content is an item with an ``error``. Raises :class:`~transports.errors.ProtocolError` for data
        that is nested deeper than docs/protocol.md 1.3 allows."""
        return [await self._measure(found, _descriptor(data, found)) for found in find(data)]

    async def _measure(self, content: Found, node: Mapping[str, object]) -> ContentItem:
        binary = content.binary
        if isinstance(binary, ABPError):
            return ContentItem(content.field, node, None, binary)
        item = ContentItem(content.field, node, binary)
        try:
            await self._measure_content(item, binary)
            verify_size(binary.size, item.size)
        except ABPError as error:
            item.error = error
        return item

    async def _measure_content(self, item: ContentItem, binary: BinaryData) -> None:
        content = binary.content
        if isinstance(content, Download) and not content.url.lower().startswith("blob:"):
            await self._measure_download(item, binary, content)
        elif isinstance(content, Download):
            await self._measure_saved(item, Handle(content.url))
        elif isinstance(content, Handle):
            await self._measure_saved(item, content)
        else:
            chunks = await asyncio.to_thread(lambda: list(binary.chunks()))
            item.size = sum(map(len, chunks))
            if chunks:
                item.head = chunks[0][:_HEAD]

    async def _measure_saved(self, item: ContentItem, handle: Handle) -> None:
        """Save content that is still in the app to a temporary file, and measure it there."""
        if self.transport is None:
            raise UnsupportedBinary("the connection to the app was lost, and the content with it")
        with tempfile.TemporaryDirectory(prefix="abp-conformance-") as folder:
            path = Path(folder) / "content"
            try:
                await self.transport.save(handle, path, timeout=_CONTENT_TIMEOUT)
            finally:
                await self.transport.release(handle)
            item.size = path.stat().st_size
            with path.open("rb") as file:
                item.head = file.read(_HEAD)

    async def _measure_download(self, item: ContentItem, binary: BinaryData, reference: Download) -> None:
        if reference.expires_at is not None:
            item.expires_in = reference.expires_at / 1000 - time.time()

        app = self.transport
        request = DownloadRequest(
            reference=reference,
            size=binary.size,
            limit=1 << 30,
            base_url=app.url if app is not None else None,
            server_address=app.server_address if app is not None else None,
            sender=self.sender,
            cookies=cookies_of(app, self.sender),
            allow_private=self.allow_private,
        )
        async with NoneStore().stage() as staged:
            fetched = await download(request, staged, timeout=_CONTENT_TIMEOUT)
            item.size = staged.size
            item.attempts = fetched.attempts
            item.left_origin = fetched.left_origin and bool(reference.headers or reference.query)


def _descriptor(data: object, content: Found) -> Mapping[str, object]:
    node = data
    for step in content.path:
        node = node[step]  # type: ignore[index]
    return members_of(node)
