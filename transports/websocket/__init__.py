"""The WebSocket transport: envelopes in JSON text frames (docs/protocol.md 6.4), made for networks that break."""
