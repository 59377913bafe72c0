"""What a session needs once its transport is open, brought beside its opening: modules, and the app's manifest.

Pydantic's models, the HTTP client, the checks of schemas and of file names take 0.2 s of the processor to import. A
browser takes longer to start, in other processes, so a program that opens one session gets them for nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING

from ..tasks import cancel_and_wait

if TYPE_CHECKING:
    from ..http import Discovery

__all__ = ["Loading", "begin_loading"]

#: Seconds that a transport has to begin to open before the import takes the interpreter's lock.
_LEAD = 0.03
_MODELS, _CLIENT = "transports.protocol.payloads", "transports.http.redirects"
_CHECKS = ("jsonschema_rs", "pathvalidate")


class Loading:
    """The import of modules, in a thread; it ends with ``stack``."""

    def __init__(self, names: Sequence[str], stack: AsyncExitStack) -> None:
        self._wanted = asyncio.Event()
        #: Done when they are imported.
        self.task = asyncio.ensure_future(self._load([name for name in names if name not in sys.modules]))
        stack.push_async_callback(cancel_and_wait, (self.task,))

    async def wait(self) -> None:
        """Wait until the modules are imported."""
        self._wanted.set()
        await self.task

    async def _load(self, names: list[str]) -> None:
        if names:
            with suppress(TimeoutError):  # a transport that starts processes does so first: imports hold it up
                await asyncio.wait_for(self._wanted.wait(), _LEAD)
            await asyncio.to_thread(lambda: [importlib.import_module(name) for name in names])


def begin_loading(
    discover: Callable[[], Awaitable[Discovery]] | None, stack: AsyncExitStack
) -> tuple[Loading, asyncio.Future[Discovery] | None]:
    """Begin to import the modules; return that, and the task that calls ``discover`` after it, if it is given.

    Both are cancelled with ``stack``."""
    loading = Loading((_MODELS, *_CHECKS) if discover is None else (_MODELS, _CLIENT, *_CHECKS), stack)
    if discover is None:
        return loading, None
    discovery = asyncio.ensure_future(_discover(loading.task, discover))
    stack.push_async_callback(cancel_and_wait, (discovery,))
    return loading, discovery


async def _discover(loading: asyncio.Future[None], discover: Callable[[], Awaitable[Discovery]]) -> Discovery:
    await asyncio.wait((loading,))
    return await discover()
