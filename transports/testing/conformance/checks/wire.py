"""What travels as envelopes (PROTOCOL "Envelope")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..evidence import Evidence
from ..rules import NotApplicable, Rules

RULES = Rules()


@RULES(
    "wire.frames",
    "MUST",
    "Every frame is an envelope that the protocol knows, and every request has one reply",
    source="PROTOCOL Envelope; RFC 6455; RFC 8259",
    fix="send JSON text frames {type, id?, timestamp, payload}; one reply per request, with its id; close with 1000",
)
def frames(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only a WebSocket has frames")
    yield from (f"{what}{f' ({count} times)' if count > 1 else ''}" for what, count in Counter(app.oddities).items())


@RULES(
    "wire.window",
    "SHOULD",
    "Nobody but the app itself posts to the embedding page",
    source="PROTOCOL Envelope: check event.source and event.origin on every message",
    fix="do not load frames that post to window.top",
)
def window(app: Evidence) -> Iterator[str]:
    if app.kind != "embedded":
        raise NotApplicable("only an embedded app shares a window with others")
    yield from (f"{what} ({count})" for what, count in Counter(app.oddities).items())
