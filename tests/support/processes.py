"""The processes of a browser, told apart by their command lines, and the end of processes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import psutil


def processes(kind: str = "", below: psutil.Process | None = None) -> list[psutil.Process]:
    """Our children now, or those of ``below``: all, or the ``driver``, the ``browser`` itself, or its ``renderer``
    processes."""
    rows = []
    for process in (below or psutil.Process()).children(recursive=True):
        with suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            line = " ".join(process.cmdline())
            role = ""
            if "run-driver" in line:
                role = "driver"
            elif "--type=renderer" in line:
                role = "renderer"
            elif "--type=" not in line and "--headless" in line:
                role = "browser"
            if kind in ("", role):
                rows.append(process)
    return rows


def still_running(processes: Sequence[psutil.Process], within: float) -> list[psutil.Process]:
    """Return those that have not ended ``within`` seconds. One whose parent has ended too may wait for init to take its
    status: it has ended."""

    def has_ended(process: psutil.Process) -> bool:
        try:
            return process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    _, alive = psutil.wait_procs(processes, timeout=within)
    return [process for process in alive if not has_ended(process)]
