"""The error for an address that a server of ours cannot listen on. No I/O."""

from __future__ import annotations

import errno

from ...errors import UsageError

__all__ = ["cannot_listen"]


def cannot_listen(host: str, port: int, error: OSError, option: str) -> UsageError:
    """Return the error for ``host`` and ``port``, with the code ``ADDRESS_UNAVAILABLE``. ``option`` names another
    port."""
    another = f"name another port with {option}, 0 for a free one"
    if error.errno == errno.EADDRINUSE:
        reason = f"port {port} is taken; end the program that listens there, or {another}"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason = f"port {port} may not be used by this user; {another}"
    else:
        reason = f"{error.strerror or error}; name an address of this machine"
    details = {"host": host, "port": port}
    return UsageError(f"cannot listen on {host}:{port}: {reason}", code="ADDRESS_UNAVAILABLE", details=details)
