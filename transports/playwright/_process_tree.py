"""The processes of a browser: list, check, kill."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterable

import psutil

#: Seconds until killed processes must be gone.
_KILL_TIMEOUT = 3.0


def process_tree(pids: list[int]) -> list[psutil.Process]:
    """Return the processes and all their descendants, without processes that have ended and their children."""
    found: dict[int, psutil.Process] = {}
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for member in (process, *process.children(recursive=True)):
                found[member.pid] = member
    return list(found.values())


async def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill the processes and wait until they are gone, for at most three seconds. Those gone already are ignored."""
    alive = [process for process in processes if is_running(process)]
    for process in alive:
        with contextlib.suppress(psutil.Error):
            process.send_signal(getattr(signal, "SIGKILL", signal.SIGTERM))  # psutil raises if the pid was reused
    deadline = time.monotonic() + _KILL_TIMEOUT
    while any(map(is_running, alive)) and time.monotonic() < deadline:
        await asyncio.sleep(0.01)


def is_running(process: psutil.Process) -> bool:
    """Return whether the process is alive. A zombie, which its parent has not reaped yet, is not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
