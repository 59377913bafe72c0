"""Messages of a transport (requests, replies, events), and pending requests with their replies. No I/O."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..binary import BinaryData
from ..binary.detect import Found
from ..errors import ABPError, UsageError, no_answer
from ..tasks import Deadlines
from .plain_text import redact_url
from .strict_json import JSONValue

__all__ = [
    "PROTOCOL_VERSION",
    "Effect",
    "Message",
    "Outcome",
    "PendingReplies",
    "Sender",
    "initialize_params",
    "misdirected",
    "new_id",
    "package_version",
]

#: Version of ABP that this library speaks (docs/protocol.md 1.4).
PROTOCOL_VERSION = "0.1"


@dataclass(frozen=True, slots=True)
class Effect:
    """Side effect of an app (``docs/side-effects.md``).

    ``kind`` is ``dialog``, ``print``, ``download``, ``popup``, ``filechooser``, ``clipboard``, …, or ``more`` if
    further effects were dropped, with their number in ``detail["count"]``. ``call`` is the id of the running call, or
    ``None``. ``detail`` is small and holds no content.
    """

    kind: str
    call: str | None = None
    detail: Mapping[str, JSONValue] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return the effect as JSON values."""
        return {"kind": self.kind, "call": self.call, "detail": dict(self.detail)}


@dataclass(frozen=True, slots=True)
class Sender:
    """Document that a message came from, according to the browser. Downloads are made in the name of this document.

    ``url`` is the base of relative addresses. ``origin`` is in the browser's notation, ``"null"`` for a document
    without an origin (a sandbox). ``domain`` is the registrable domain (``app.example`` for ``a.app.example``), empty
    if unknown: the host is used then. ``page`` is the site of the embedding page, with the scheme. ``third_party`` is
    true if a document of another site embeds this one, so that its ``SameSite`` cookies are not sent.
    ``server_address`` is as that of a transport.
    """

    url: str
    origin: str
    domain: str = ""
    page: str = ""
    third_party: bool = False
    server_address: tuple[str, int] | None = None


@dataclass(slots=True)
class Message:
    """Request, reply or event: one envelope ``{type, id?, timestamp, payload}`` (docs/protocol.md 6.1).

    ``timestamp`` is Unix time in milliseconds. ``content`` lists the binaries in the parameters of a call with their
    paths below ``params``, each a :class:`~transports.BinaryData`. A reply may have ``outputs`` (files beside its
    answer, such as a printed page), ``effects``, and ``warnings`` about values that could not be sent unchanged.

    ``origins`` restricts a message with secrets to these origins (``https://app.example``), ``None`` allows any. The
    session has checked :meth:`Transport.receiver <transports.base.Transport.receiver>` before. A transport whose peer
    may have changed since must check again when sending, and raise :func:`misdirected`. ``sender`` is the document that
    a reply came from, if known; downloads of a reply without a sender are made in the name of the app.
    """

    type: str
    payload: object = None
    id: str | None = None
    timestamp: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    content: Sequence[Found] = ()
    outputs: Sequence[BinaryData] = ()
    effects: Sequence[Effect] = ()
    warnings: Sequence[str] = ()
    origins: frozenset[str] | None = None
    sender: Sender | None = None


def misdirected(url: str | None, secret: str = "") -> UsageError:
    """Return the error for a message that may not be sent to ``url`` because of a secret. Nothing was sent.

    ``secret`` is the name of the secret, if it has one.
    """
    what = f"the secret {secret}" if secret else "a secret in this message"
    where = redact_url(url or "an app without an address")
    return UsageError(
        f"{what} may not be sent to {where}; the operator can name that origin in its `origins`",
        code="PERMISSION_DENIED",
    )


def package_version() -> str:
    """Return the version of this package, or "0" if it runs from a source tree that was never installed."""
    import importlib.metadata  # late: it takes 20 ms to load

    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def initialize_params(agent: str = "abp-transports", *, capabilities: Sequence[str] = ()) -> dict[str, object]:
    """Return the payload of ``initialize``: the agent, the protocol's version and the features of this client.

    ``capabilities`` are the names of the requested capabilities, if not all are requested.
    """
    params: dict[str, object] = {
        "agent": {"name": agent, "version": package_version()},
        "protocolVersion": PROTOCOL_VERSION,
        "features": {"notifications": True, "progress": True, "elicitation": True},
    }
    if capabilities:
        params["requestedCapabilities"] = list(capabilities)
    return params


def new_id() -> str:
    """Return a random UUID (RFC 9562 §5.4) as text. :func:`uuid.uuid4` takes three times as long."""
    digits = os.urandom(16).hex()
    # 4 is the version; a, one of the digits for the variant, is fixed, which costs two random bits
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


#: Outcome of an incoming message: ``delivered`` to its request; ``late`` or ``duplicate``, a reply to a request that
#: has ended without or with a reply; ``unknown``, a reply without a request; ``event``, not a reply.
Outcome: TypeAlias = Literal["delivered", "late", "duplicate", "unknown", "event"]

#: Types of replies, and the requests that they answer.
_REQUEST_OF_REPLY = {
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
}
#: Maximum ended requests that are remembered, to distinguish late replies from unknown ones.
_MAX_REMEMBERED = 4096


class PendingReplies:
    """Pending requests of one connection. Its length is their number. ``counts`` are the messages by :data:`Outcome`.

    Use it in one event loop.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._ended: OrderedDict[str, Literal["late", "duplicate"]] = OrderedDict()
        self._deadlines = Deadlines()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, message: Message) -> asyncio.Future[Message]:
        """Return a future for the reply to a request. Raises :class:`ValueError` for a missing or reused id."""
        if message.id is None or message.id in self._waiting or message.id in self._ended:
            raise ValueError(f"a request needs a new id, not {message.id!r}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = (message.type, future)
        return future

    def forget(self, message_id: str) -> None:
        """Stop waiting for a reply, after a timeout or a cancellation. A reply that still comes counts as late."""
        if self._waiting.pop(message_id, None) is not None:
            self._end(message_id, "late")

    async def request(
        self, message: Message, send: Callable[[Message], Awaitable[None] | None], *, timeout: float
    ) -> Message:
        """Send a request and return its reply. ``message`` gets an id if it has none.

        ``send`` returns ``None`` if the message has been sent, otherwise an awaitable that sends it. Raises the errors
        of ``send``, the error of :meth:`fail` or :meth:`fail_all`, and :class:`~transports.errors.CallTimeout` after
        ``timeout`` seconds of sending and waiting together.
        """
        message.id = identity = message.id or new_id()
        future = self.register(message)
        try:
            sending = send(message)
            if sending is None:
                self._deadlines.add(future, timeout, no_answer, message.type, timeout)
                return await future
            try:
                async with asyncio.timeout(timeout):
                    await sending
                    return await future
            except TimeoutError:
                raise no_answer(message.type, timeout) from None
        finally:
            self._deadlines.discard(future)
            self.forget(identity)
            future.cancel()

    def deliver(self, message: Message) -> Outcome:
        """Deliver a message to its pending request and return the outcome.

        The first reply wins. A reply of a different type than the request's is ``unknown``; the request stays pending.
        """
        outcome = self._match(message)
        self.counts[outcome] += 1
        return outcome

    def _match(self, message: Message) -> Outcome:
        request_type = _REQUEST_OF_REPLY.get(message.type)
        if request_type is None:
            return "event"
        identity = message.id
        if identity is None:
            return "unknown"
        waiting = self._waiting.get(identity)
        if waiting is None:
            return self._ended.get(identity, "unknown")
        if waiting[0] != request_type:
            return "unknown"
        del self._waiting[identity]
        self._end(identity, "duplicate")
        if not waiting[1].done():
            waiting[1].set_result(message)
        return "delivered"

    def fail(self, message_id: str, error: ABPError) -> None:
        """Raise ``error`` in one request instead of a reply. Does nothing if that request is not pending."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is not None:
            self._end(message_id, "late")
            if not waiting[1].done():
                waiting[1].set_exception(error)

    def fail_all(self, error: ABPError) -> None:
        """Raise an error in every pending request, each a new instance of its class, message and details."""
        for message_id in tuple(self._waiting):
            self.fail(message_id, type(error)(error.message, details=error.details))
        self._deadlines.clear()

    def _end(self, message_id: str, outcome: Literal["late", "duplicate"]) -> None:
        self._ended[message_id] = outcome
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)
