"""The folder of one run of pytest below ``--abp-output``, so that reports of two runs never mix."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

__all__ = ["new_run_name", "remove_older_runs"]

#: The date, the time and the number of the process: names sort by age, and tell whether their run goes on.
_NAME = re.compile(r"\d{8}-\d{6}-\d+")


def new_run_name() -> str:
    """Return the name of this run's folder, such as ``20260131-120000-4711``."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"


def remove_older_runs(folder: Path, name: str, keep: int) -> None:
    """Remove the folders of older runs, so that ``keep`` are left, the run ``name`` among them.

    Nothing is removed if this run has left no folder. A folder of another name is not looked at, and that of a run
    which goes on stays.
    """
    if not (folder / name).is_dir():
        return
    runs = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.name != name)
    for run in runs[: max(len(runs) - keep + 1, 0)]:
        if not _goes_on(run.name):
            shutil.rmtree(run, ignore_errors=True)


def _goes_on(name: str) -> bool:
    import psutil

    pid = int(name.rpartition("-")[2])
    return pid != os.getpid() and psutil.pid_exists(pid)
