"""The WebSocket transport: envelopes in JSON text frames (docs/protocol.md 6.4), made for networks that break.

* :mod:`._transport` — :class:`WebSocketTransport`: handshake, errors, delivery of messages, reconnection.
* :mod:`._connection` — one connection, its frames and messages.
"""
