"""What a transport carries: one :class:`Message` per request, reply or event. No I/O."""

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

#: The version of ABP that this library speaks (docs/protocol.md 1.4).
PROTOCOL_VERSION = "0.1"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that an app did beside answering (``docs/side-effects.md``).

    ``kind`` is ``dialog``, ``print``, ``download``, ``popup``, ``filechooser``, ``clipboard``, …, or ``more`` where
    further effects were dropped; ``detail["count"]`` is then how many. ``call`` is the id of the call that was running,
    or ``None``. ``detail`` is small and holds no content.
    """

    kind: str
    call: str | None = None
    detail: Mapping[str, JSONValue] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """Return the effect as JSON values."""
        return {"kind": self.kind, "call": self.call, "detail": dict(self.detail)}


@dataclass(frozen=True, slots=True)
class Sender:
    """The document that a message came from, as the browser knows it: in its name its downloads are made.

    ``url`` is its address, against which relative ones are resolved. ``origin`` is as a browser writes it, ``"null"``
    for a document without one (a sandbox). ``domain`` is the registered name that ends the host of its site
    (``app.example`` for ``a.app.example``), empty where nobody knows: then it is the host. ``page`` is the site of the
    page that it is in, with the scheme. ``third_party`` says that a document of another site is around it, so that its
    cookies for its own site (``SameSite``) are not sent. ``server_address`` is as that of a transport.
    """

    url: str
    origin: str
    domain: str = ""
    page: str = ""
    third_party: bool = False
    server_address: tuple[str, int] | None = None


@dataclass(slots=True)
class Message:
    """A request, reply or event: one envelope ``{type, id?, timestamp, payload}`` (docs/protocol.md 6.1).

    ``timestamp`` is Unix time in milliseconds. ``content`` lists the binaries in the parameters of a call with their
    paths below ``params``; a :class:`~transports.BinaryData` stands at each. A reply may have ``outputs``, which are
    files beside its answer (a printed page), ``effects``, and ``warnings`` about values that could not be sent as they
    were.

    ``origins`` are the only ones that the message may go to (``https://app.example``), ``None`` for any: it holds
    secrets. A transport whose far side may be another at the moment of sending compares them there, and raises
    :func:`misdirected`; that of :meth:`Transport.receiver <transports.base.Transport.receiver>` was among them just
    before. ``sender`` is the document that a reply came from, where that is known; downloads of a reply without one are
    the app's own.
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
    """Return the error for a message that may not go to who is at ``url``, because of its ``secret``, if that has a
    name here. Nothing was sent."""
    what = f"the secret {secret}" if secret else "a secret in this message"
    where = redact_url(url or "an app without an address")
    return UsageError(
        f"{what} may not be sent to {where}; the operator can name that origin in its `origins`",
        code="PERMISSION_DENIED",
    )


def package_version() -> str:
    """Return the version of this package, or "0" where it runs from a source tree that was never installed."""
    import importlib.metadata  # late: it takes 20 ms to load

    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def initialize_params(agent: str = "abp-transports", *, capabilities: Sequence[str] = ()) -> dict[str, object]:
    """Return the payload of ``initialize``: who asks, the protocol's version, the features of this client, and the
    names of the capabilities that are wanted, where not all are."""
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
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


#: The fate of a message that came in: ``delivered`` to the request that waited; ``late`` or ``duplicate``, a reply to a
#: request that has ended without or with one; ``unknown``, a reply to no request; ``event``, no reply at all.
Outcome: TypeAlias = Literal["delivered", "late", "duplicate", "unknown", "event"]

#: Types of replies, and the requests that they answer.
_REQUEST_OF_REPLY = {
    "initialize-result": "initialize",
    "capabilities/call-result": "capabilities/call",
    "capabilities/cancel-result": "capabilities/cancel",
}
#: How many ended requests are remembered, to tell a late reply from a foreign one.
_MAX_REMEMBERED = 4096


class PendingReplies:
    """The requests of one connection that wait for a reply; its length is their number. ``counts`` says how many
    messages had which :data:`Outcome`. Use it in one event loop."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[str, asyncio.Future[Message]]] = {}
        self._ended: OrderedDict[str, Literal["late", "duplicate"]] = OrderedDict()
        self._deadlines = Deadlines()
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def register(self, message: Message) -> asyncio.Future[Message]:
        """Return a future for the reply to a request. Raises :class:`ValueError` without an id, or with one that was
        used before."""
        if message.id is None or message.id in self._waiting or message.id in self._ended:
            raise ValueError(f"a request needs an id of its own, not {message.id!r}")
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[message.id] = (message.type, future)
        return future

    def forget(self, message_id: str) -> None:
        """Wait no longer for a reply, after a timeout or a cancellation. If it still comes, it is late."""
        if self._waiting.pop(message_id, None) is not None:
            self._end(message_id, "late")

    async def request(
        self, message: Message, send: Callable[[Message], Awaitable[None] | None], *, timeout: float
    ) -> Message:
        """Send a request and return its reply. ``message`` gets an id if it has none.

        ``send`` returns ``None`` if the message has been sent, else what sends it. Raises what ``send`` raises, the
        error of :meth:`fail` or :meth:`fail_all`, and after ``timeout`` seconds, for sending and waiting together,
        :class:`~transports.errors.CallTimeout`.
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
        """Give a message to the request that waits for it, and return what became of it. The first reply wins. A reply
        of another type than the request's is ``unknown``, and the request goes on waiting."""
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
        """Raise ``error`` in one request instead of a reply. Does nothing if that request does not wait."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is not None:
            self._end(message_id, "late")
            if not waiting[1].done():
                waiting[1].set_exception(error)

    def fail_all(self, error: ABPError) -> None:
        """Raise an error of the same class, message and details in every request, each its own instance."""
        for message_id in tuple(self._waiting):
            self.fail(message_id, type(error)(error.message, details=error.details))
        self._deadlines.clear()

    def _end(self, message_id: str, outcome: Literal["late", "duplicate"]) -> None:
        self._ended[message_id] = outcome
        if len(self._ended) > _MAX_REMEMBERED:
            self._ended.popitem(last=False)
