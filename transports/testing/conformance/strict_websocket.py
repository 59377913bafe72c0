"""The WebSocket transport as a strict reader, which checks every frame and forgives nothing."""

from __future__ import annotations

from collections.abc import Mapping

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ...adapters.websocket import WebSocketTransport
from ...errors import ABPError, Disconnected, ProtocolError
from ...protocol.messages import Message
from ...protocol.strict_json import decode_json

__all__ = ["StrictWebSocket"]

_EVENTS = ("notification", "progress", "elicitation/request")
#: Bytes of content in one message; large answers are a finding of their own, and must be read to be measured.
_MAX_BYTES = 192 << 20
#: What the app did wrong where our side closed the connection, by status code (RFC 6455 §7.4.1).
_CLOSED_BY_US = {
    1002: "it sent frames that break RFC 6455",
    1007: "it sent a text frame that is not UTF-8",
    1009: "it sent a huge message",
    1011: "it did not answer a ping",
}


class StrictWebSocket(WebSocketTransport):
    """One connection to the app at ``url``, which is not opened again when it breaks.

    Every breach of docs/protocol.md 6.1 to 6.4 is appended to ``findings``, in words. Give the same list to several
    connections to collect the findings of all. ``timeout`` in seconds is for connecting, ``headers`` go with the
    handshake.
    """

    def __init__(
        self, url: str, *, timeout: float, findings: list[str], headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(
            url, headers=headers, timeout=timeout, close_timeout=1.0, max_bytes=_MAX_BYTES, reconnect=False
        )
        self._findings = findings
        self._end_noted = False

    async def _read(self, connection: ClientConnection) -> ABPError:
        try:
            while True:
                self._inspect(await connection.recv())
        except ConnectionClosed as closed:
            return self._close_error(closed)

    def _close_error(self, closed: ConnectionClosed) -> ABPError:
        """Why the connection ended; noted as a finding if the app is to blame, once however many wait for it."""
        code = closed.sent.code if closed.sent is not None and not closed.rcvd_then_sent else None
        if code in _CLOSED_BY_US:
            finding = reason = _CLOSED_BY_US[code]
        elif closed.rcvd is None:
            finding, reason = "the connection broke off without a closing frame", "without a closing frame"
        else:
            finding, reason = "", f"the app closed it with {closed.rcvd.code} {closed.rcvd.reason[:80]}"
        if finding and not self._end_noted:
            self._findings.append(finding)
            self._end_noted = True
        return Disconnected(f"the connection ended: {reason}")

    def _inspect(self, frame: str | bytes) -> None:
        """Note what is wrong with a frame, and deliver the message in it if there is one."""
        note = self._findings.append
        if isinstance(frame, bytes):
            note("it sent a binary frame")
        try:
            envelope = decode_json(frame)
        except ProtocolError as error:
            note(f"it sent text that is not JSON ({error.message.partition(': ')[2][:80]})")
            return
        if not isinstance(envelope, dict) or not isinstance(kind := envelope.get("type"), str):
            note("it sent JSON that is no envelope: {type, id?, timestamp, payload}")
            return
        if isinstance(timestamp := envelope.get("timestamp"), bool) or not isinstance(timestamp, int | float):
            note(f"a {kind} has no timestamp (Unix milliseconds)")
        identity = envelope.get("id")
        message = Message(kind, envelope.get("payload"), id=str(identity) if isinstance(identity, str | int) else None)
        outcome = self._pending.deliver(message)
        if outcome == "duplicate":
            note(f"it answered the same {kind} twice")
        elif outcome == "unknown":
            note(f"a {kind} has an id that no request had")
        elif outcome == "event" and kind in _EVENTS:
            self._events.put_nowait(message)
        elif outcome == "event":
            note(f"it sent a message of the type {kind[:40]!r}, which ABP does not know")
