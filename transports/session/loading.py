"""Modules that a session needs once its transport is open, imported beside its opening.

Pydantic's models and the HTTP client take 0.2 s of the processor to import. A browser takes longer to start, in other
processes, so that a program which opens one session gets them for nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import sys

__all__ = ["load_ahead"]

_MODELS, _CLIENT = "transports.protocol.payloads", "transports.http.redirects"


async def load_ahead(*, client: bool) -> None:
    """Import the models, and with ``client`` the HTTP client, in a thread; at once if both are there."""
    wanted = [name for name in (_MODELS, _CLIENT) if name not in sys.modules and (client or name != _CLIENT)]
    if wanted:
        await asyncio.to_thread(lambda: [importlib.import_module(name) for name in wanted])
