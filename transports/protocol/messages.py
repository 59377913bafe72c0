"""What a transport carries: one :class:`Message` per request, reply or event. No I/O."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..binary import BinaryData
from ..binary.detect import Found
from .strict_json import JSONValue

__all__ = ["PROTOCOL_VERSION", "Effect", "Message"]

#: The version of ABP that this library speaks (docs/protocol.md 1.4).
PROTOCOL_VERSION = "0.1"


@dataclass(frozen=True, slots=True)
class Effect:
    """Something an app did beside answering (``docs/side-effects.md``).

    ``kind`` is ``dialog``, ``print``, ``download``, ``popup``, ``filechooser``, ``clipboard``, or ``more`` with the
    ``count`` of those not told; ``call`` is the id of the call that was running. ``detail`` is small.
    """

    kind: str
    call: str | None = None
    detail: Mapping[str, JSONValue] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """The same as JSON values."""
        return {"kind": self.kind, "call": self.call, "detail": dict(self.detail)}


@dataclass(slots=True)
class Message:
    """One envelope ``{type, id?, timestamp, payload}``.

    ``content`` lists the binaries in the parameters of a call: where they stand (below ``params``), a
    :class:`~transports.BinaryData` stands in the tree. ``outputs`` is what the far side produced beside its
    answer (a printed page), ``effects`` what it did, ``warnings`` what it could not send as it was.
    """

    type: str
    payload: object = None
    id: str | None = None
    timestamp: int = field(default_factory=lambda: int(time.time() * 1000))
    content: Sequence[Found] = ()
    outputs: Sequence[BinaryData] = ()
    effects: Sequence[Effect] = ()
    warnings: Sequence[str] = ()
