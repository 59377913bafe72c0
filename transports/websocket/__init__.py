"""The WebSocket transport: envelopes in JSON text frames (docs/protocol.md 6.4), made for networks that break.

* :mod:`._transport` — :class:`WebSocketTransport`: handshake, errors, delivery of messages, reconnection.
* :mod:`._connection` — one connection, its frames and messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._internal.lazy import lazy_names

if TYPE_CHECKING:
    from ._transport import State, WebSocketTransport
else:
    __getattr__ = lazy_names(__name__, {"_transport": ("State", "WebSocketTransport")})

__all__ = ["State", "WebSocketTransport"]
