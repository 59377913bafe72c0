"""Messages of a transport (requests, replies, events), the first one, and ids."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

from ..errors import UsageError
from ._find_content import Found
from ._plain_text import redact_url
from ._strict_json import JSONValue
from .binary import BinaryData

#: Version of ABP that this library speaks (docs/protocol.md 1.4).
PROTOCOL_VERSION = "0.1"


@dataclass(frozen=True, slots=True)
class Effect:
    """Side effect of an app (``docs/side-effects.md``).

    ``kind`` is ``dialog``, ``print``, ``download``, ``popup``, ``filechooser``, ``clipboard``, ``share``, …, or
    ``more`` if further effects were dropped, with their number in ``detail["count"]``. ``call`` is the id of the
    running call, or ``None``. ``detail`` is small and holds no content.
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

    ``url`` is the base of relative addresses. ``origin`` is in the browser's notation, ``"null"`` in a sandbox.
    ``domain`` is the registrable domain (``app.example`` for ``a.app.example``), empty if unknown: the host is used
    then. ``page`` is the site of the embedding page, with the scheme. ``third_party`` is true if a document of another
    site embeds this one, so that its ``SameSite`` cookies are not sent. ``server_address`` is as that of a
    transport."""

    url: str
    origin: str
    domain: str = ""
    page: str = ""
    third_party: bool = False
    server_address: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class WebResource:
    """Answer of a web address: its ``body``, and only those headers that a browser needs to use it."""

    body: bytes
    headers: Mapping[str, str]


class Fetch(Protocol):
    """Function that fetches resources for HTML without a network of its own."""

    async def __call__(self, url: str, accept: str, max_bytes: int) -> WebResource:
        """Raises :class:`~transports.errors.ABPError`, also for a body of more than ``max_bytes``."""


@dataclass(frozen=True, slots=True)
class ServerCall:
    """A call of an MCP server's tool as JSON values of MCP: the ``tool`` as it is listed, ``arguments``, ``result``."""

    tool: Mapping[str, object]
    arguments: Mapping[str, object]
    result: Mapping[str, object]


@dataclass(slots=True)
class Message:
    """Request, reply or event: one envelope ``{type, id?, timestamp, payload}`` (docs/protocol.md 6.1).

    ``timestamp`` is Unix time in milliseconds. ``content`` lists the binaries in the parameters of a call with their
    paths below ``params``, each a :class:`~transports.BinaryData`. A reply may have ``outputs`` (files beside its
    answer, such as a printed page), ``effects``, and ``warnings`` about values that could not be sent unchanged.

    ``origins`` restricts a message with secrets to these origins (``https://app.example``), ``None`` allows any. The
    session has checked :meth:`Transport.receiver <transports.base.Transport.receiver>` before. A transport whose peer
    may have changed since must check again when sending, and raise :func:`misdirected`. ``sender`` is the document that
    a reply came from, if known; downloads of a reply without a sender are made in the name of the app. A reply with
    ``relists`` came when the page navigated: the app has another list of capabilities now. A reply that ``is_checked``
    was compared with the capability's ``outputSchema`` by the transport, whose ``warnings`` tell the differences.

    ``fetch`` brings the resources of HTML to print; without it there are none. A call that ``opens_view`` is answered
    with ``server_call``, which the view of an MCP server's tool is shown.
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
    relists: bool = False
    is_checked: bool = False
    fetch: Fetch | None = None
    opens_view: bool = False
    server_call: ServerCall | None = None


def misdirected(url: str | None, secret: str = "") -> UsageError:
    """Return the error for a message that may not go to ``url`` because of the secret of this name."""
    what = f"the secret {secret}" if secret else "a secret in this message"
    where = redact_url(url or "an app without an address")
    return UsageError(
        f"{what} may not be sent to {where}; the operator can name that origin in its `origins`",
        code="PERMISSION_DENIED",
    )


@cache
def package_version() -> str:
    """Return the version of this package, or "0" if it runs from a source tree that was never installed."""
    import importlib.metadata  # late: it takes 20 ms to load

    try:
        return importlib.metadata.version("abp-transports")
    except importlib.metadata.PackageNotFoundError:
        return "0"


def initialize_params(agent: str = "abp-transports", *, capabilities: Sequence[str] = ()) -> dict[str, object]:
    """``capabilities`` are the names of the requested capabilities, if not all are requested."""
    params: dict[str, object] = {
        "agent": {"name": agent, "version": package_version()},
        "protocolVersion": PROTOCOL_VERSION,
        "features": {"notifications": True, "progress": True, "elicitation": True},
    }
    if capabilities:
        params["requestedCapabilities"] = list(capabilities)
    return params


def new_id() -> str:
    return str(uuid.uuid4())
