"""Checks of the envelopes, over a WebSocket and over postMessage (docs/protocol.md 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from .._evidence import Evidence, NotApplicable, Rules

RULES = Rules()


@RULES(
    "wire.frames",
    "MUST",
    "Every frame is an envelope that the protocol knows, and every request has one reply",
    source="docs/protocol.md 6.1, 6.2, 6.3, 6.4; RFC 6455; RFC 8259",
    fix="send JSON text frames {type, id?, timestamp, payload}; one reply per request, with its id; close with 1000",
)
def _frames(app: Evidence) -> Iterator[str]:
    if app.kind != "websocket":
        raise NotApplicable("only a WebSocket has frames")
    yield from (
        f"{what}{f' ({count} times)' if count > 1 else ''}" for what, count in Counter(app.transport_findings).items()
    )


@RULES(
    "wire.window",
    "SHOULD",
    "Only the app itself posts to the embedding page",
    source="docs/protocol.md 6.5",
    fix="do not load frames that post to window.top",
)
def _window(app: Evidence) -> Iterator[str]:
    if app.kind != "embedded":
        raise NotApplicable("only an embedded app shares a window with others")
    yield from (f"{what} ({count})" for what, count in Counter(app.transport_findings).items())
