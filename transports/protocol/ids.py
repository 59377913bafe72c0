"""Random bits: ids of calls and messages, keys of frames. No I/O but the system's source of randomness."""

from __future__ import annotations

import os
from collections import deque

__all__ = ["new_id", "random_bytes"]

#: Pieces that are fetched at once: a system call for each would cost more than the rest of sending a message.
_PIECES = 256
_pool: deque[bytes] = deque()
os.register_at_fork(after_in_child=_pool.clear)  # two processes must not have the same


def random_bytes() -> bytes:
    """Return 16 bytes from the system's source of randomness, each time others. Any thread may call it."""
    try:
        return _pool.pop()
    except IndexError:
        fresh = os.urandom(16 * _PIECES)
        _pool.extend(fresh[at : at + 16] for at in range(16, len(fresh), 16))
        return fresh[:16]


def new_id() -> str:
    """Return a random UUID (RFC 9562 §5.4) as text. :func:`uuid.uuid4` takes four times as long."""
    digits = random_bytes().hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"
