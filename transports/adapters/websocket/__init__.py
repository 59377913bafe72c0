"""The WebSocket transport: envelopes in JSON text frames (docs/protocol.md 6.4), made for networks that break.

* :mod:`.transport` — :class:`WebSocketTransport`.
* :mod:`.connection` — one connection, its frames and messages.
* :mod:`.incoming` — what becomes of messages.
* :mod:`.connection_errors` — why a connection could not be opened, or ended.
"""

from __future__ import annotations

from ._transport import State, WebSocketTransport

__all__ = ["State", "WebSocketTransport"]
