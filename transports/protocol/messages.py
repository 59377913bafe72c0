"""What a transport carries: one :class:`Message` per request, reply or event. No I/O."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..binary import BinaryData
from ..binary.detect import Found
from ..errors import UsageError
from ._plain_text import redact_url
from ._strict_json import JSONValue

__all__ = [
    "PROTOCOL_VERSION",
    "Effect",
    "Message",
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
