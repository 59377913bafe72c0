"""The processes of a browser: which they are, and their end."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterable

import psutil

__all__ = ["family", "kill"]

#: Seconds until killed processes must be gone.
_GONE = 3.0


def family(pids: list[int]) -> list[psutil.Process]:
    """The processes and all that descend from them, as long as they can still be told."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in (process, *process.children(recursive=True)):
                family[member.pid] = member
    return list(family.values())


async def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill them, and wait a few seconds until they are gone."""
    alive = [process for process in processes if _runs(process)]
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))  # psutil refuses a reused pid
    deadline = time.monotonic() + _GONE
    while any(map(_runs, alive)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Whether it is more than an entry that its parent has yet to collect."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
