"""What a session needs once its transport is open, brought beside its opening: modules, and the app's manifest.

Pydantic's models and the HTTP client take 0.2 s of the processor to import. A browser takes longer to start, in other
processes, so a program that opens one session gets them for nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from ..tasks import cancel_and_wait

if TYPE_CHECKING:
    from ..http import Discovery

__all__ = ["begin_loading"]

_MODELS, _CLIENT = "transports.protocol.payloads", "transports.http.redirects"


def begin_loading(
    discover: Callable[[], Awaitable[Discovery]] | None, stack: AsyncExitStack
) -> tuple[asyncio.Future[None], asyncio.Future[Discovery] | None]:
    """Return the task that imports the modules, and the one that calls ``discover`` after that, if it is given.

    Both are cancelled with ``stack``."""
    names = (_MODELS,) if discover is None else (_MODELS, _CLIENT)
    loading = asyncio.ensure_future(_load([name for name in names if name not in sys.modules]))
    stack.push_async_callback(cancel_and_wait, (loading,))
    if discover is None:
        return loading, None
    discovery = asyncio.ensure_future(_discover(loading, discover))
    stack.push_async_callback(cancel_and_wait, (discovery,))
    return loading, discovery


async def _load(names: list[str]) -> None:
    if names:
        await asyncio.to_thread(lambda: [importlib.import_module(name) for name in names])


async def _discover(loading: asyncio.Future[None], discover: Callable[[], Awaitable[Discovery]]) -> Discovery:
    await asyncio.wait((loading,))
    return await discover()
