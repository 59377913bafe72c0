"""Waiting for a condition that no event announces, in coroutines and in blocking tests."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable

#: Seconds that a condition may take, by default: far more than it needs on a busy machine.
_PATIENCE = 30.0
#: Seconds between two looks.
_PAUSE = 0.02


async def eventually(
    holds: Callable[[], object], *, within: float = _PATIENCE, pause: float = _PAUSE, what: str = "the condition"
) -> None:
    """Wait until ``holds()``, a plain or a coroutine function, returns something true, for at most ``within`` seconds.

    ``pause`` is the time in seconds between two looks, longer for a condition that is costly to look at. Raises
    ``AssertionError``, which says that ``what`` did not come true.
    """
    try:
        async with asyncio.timeout(within) as limit:
            while not (await found if inspect.isawaitable(found := holds()) else found):
                await asyncio.sleep(pause)
    except TimeoutError:
        if not limit.expired():
            raise
        raise AssertionError(_message(what, within)) from None


def eventually_blocking(holds: Callable[[], object], *, within: float = _PATIENCE, what: str = "the condition") -> None:
    """Wait as :func:`eventually` does, without an event loop."""
    end = time.monotonic() + within
    while not holds():
        assert time.monotonic() < end, _message(what, within)
        time.sleep(_PAUSE)


def _message(what: str, within: float) -> str:
    return f"{what} did not come true within {within:g} s"
