"""What a session keeps in memory of a large answer once nobody has it any more."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Mapping

from transports import Session


async def bytes_held_after(app: Session, capability: str, params: Mapping[str, object]) -> int:
    """Return the bytes that a call leaves in memory, after a first one that fills caches."""
    await app.call(capability, params)
    gc.collect()
    tracemalloc.start()
    try:
        await app.call(capability, params)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
