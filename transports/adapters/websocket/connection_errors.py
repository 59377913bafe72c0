"""Explains why a WebSocket could not be opened, or ended, as errors of ours."""

from __future__ import annotations

import ssl

from websockets.exceptions import ConnectionClosed, InvalidStatus

from ...errors import ABPError, ConnectFailed, Disconnected, ProtocolError, TooLarge, format_seconds
from ...errors.transport import connection_failure
from ...protocol.urls import redact_url

__all__ = ["close_error", "lost_error", "open_error"]

#: What OpenSSL says of an answer that is no TLS.
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")


def open_error(url: str, error: Exception, *, timeout: float) -> ConnectFailed:
    """Return the error for a connection that could not be opened; ``timeout`` is the limit in seconds."""
    address = redact_url(url)
    match error:
        case InvalidStatus():
            status = error.response.status_code
            hint = "; give a token= or headers= that it accepts" if status in (401, 403) else ""
            hint = "; is that the address of its WebSocket?" if status in (200, 404, 426) else hint
            return ConnectFailed(
                f"{address} answered HTTP {status} instead of a WebSocket{hint}", details={"status": status}
            )
        case TimeoutError():
            return ConnectFailed(f"{address} did not answer within {format_seconds(timeout)}; is the app running?")
        case ssl.SSLError() if error.reason in _NO_TLS:
            return ConnectFailed(f"{address} does not speak TLS as wss:// says ({error.reason}); try ws://")
        case ssl.SSLError():
            reason, is_about = error.reason or "TLS failed", "that it accepts"
            if isinstance(error, ssl.SSLCertVerificationError):
                is_about = "that trusts its certificate"
            return ConnectFailed(f"{address}: {reason}; give an ssl= context {is_about}")
        case OSError():
            reason = connection_failure(error)
            return ConnectFailed(f"cannot connect to {address}: {reason}; start the app or correct the address")
    return ConnectFailed(f"{address} did not become a WebSocket ({type(error).__name__}); check the address")


def close_error(closed: ConnectionClosed, *, max_bytes: int, silence: float, reconnects: bool) -> ABPError:
    """Return the error for requests that were under way when the connection ended (RFC 6455 §7.4.1).

    ``max_bytes`` is our limit of a message, ``silence`` the seconds after which a silent peer is given up.
    ``reconnects`` says that the transport opens the connection again.
    """
    code = closed.rcvd.code if closed.rcvd else closed.sent.code if closed.sent else None
    ours = closed.sent is not None and not closed.rcvd_then_sent
    if code == 1009 and ours:
        return TooLarge(
            f"the app sent a message over the limit of {max_bytes:,} bytes; "
            "raise max_bytes=, or have the app answer with a downloadUrl",
            details={"limit": max_bytes},
        )
    if code == 1007 and ours:
        return ProtocolError("the app sent a text frame that is no valid UTF-8")
    if code == 1002 and ours:
        return ProtocolError("the app sent frames that break RFC 6455")
    if code == 1011 and ours:
        return lost_error(f"the app answered no ping for {format_seconds(silence)}", reconnects=reconnects)
    reason = closed.rcvd.reason if closed.rcvd else ""
    said = f": {reason[:80]}" if reason else ""
    return lost_error(f"the connection is gone (code {code or 1006}{said})", reconnects=reconnects)


def lost_error(what: str, *, reconnects: bool) -> Disconnected:
    """Return the error for a connection that is lost: ``what`` happened, and what follows."""
    return Disconnected(f"{what}; {'it is opened again' if reconnects else 'connect again'}")
