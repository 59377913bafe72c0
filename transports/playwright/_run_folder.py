"""One temporary folder per process for all files of a browser: profiles, scratch files of the driver, uploads.

The browser's driver does not always clean up after itself (a killed one never does), so its ``TMPDIR`` is this folder,
which is removed as a whole. Folders of processes that died are removed when any process starts a browser or makes
its folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

#: Name of a run folder: process id and start time.
_NAME = re.compile(r"abp-run-(\d+)-(\d+)-")
#: Base folder with a short path.
_SHORT_BASE = Path("/tmp")
_lock = threading.Lock()
_users = 0
_path: Path | None = None
_run_folders: set[Path] = set()


def _remove_all_folders() -> None:
    """Remove the folders of sessions and browsers that were never closed, since the program ends."""
    for folder in tuple(_run_folders):
        _remove_folder(folder)


def _forget_folders() -> None:
    global _lock, _users, _path
    _lock, _users, _path = threading.Lock(), 0, None
    _run_folders.clear()


atexit.register(_remove_all_folders)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_folders)


class RunFolder:
    """The folder of this process: ``with RunFolder() as path``. The first user creates it, the last one removes it.

    Thread-safe. Removing the folder also kills every process with the folder in its command line.
    """

    def __enter__(self) -> Path:
        global _users, _path
        with _lock:
            if _path is None:
                # Chromium creates a Unix socket below its TMPDIR, whose path is limited to 104 bytes (macOS) or 108
                # (Linux).
                _path = _make_folder(28)
            _users += 1
            return _path

    def __exit__(self, *_: object) -> None:
        global _users, _path
        with _lock:
            _users -= 1
            if _users == 0 and _path is not None:
                _remove_folder(_path)
                _path = None


@contextlib.contextmanager
def short_folder(longest: int) -> Iterator[Path]:
    """Create another folder of this process, with a path of at most ``longest`` bytes if the system allows it. It is
    removed in the same way as a :class:`RunFolder`."""
    # The longest name of a run folder, and the slash before it.
    longest_name = 36
    folder = _make_folder(longest - longest_name)
    try:
        yield folder
    finally:
        _remove_folder(folder)


def _make_folder(longest_base: int) -> Path:
    sweep()
    prefix = f"abp-run-{os.getpid()}-{_start_time(os.getpid())}-"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_base_folder(longest_base)))
    _run_folders.add(folder)
    return folder


def _remove_folder(folder: Path) -> None:
    # First kill browsers that were starting when their driver was killed: they would write the profile again.
    killed = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=2)
    shutil.rmtree(folder, ignore_errors=True)
    _run_folders.discard(folder)


def _start_time(pid: int) -> int:
    """Return the start time of a process in whole seconds, which identifies a reused pid; 0 without such a process."""
    try:
        return int(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0


def sweep() -> None:
    """Remove the run folders of processes that have ended."""
    for base in {Path(tempfile.gettempdir()), _SHORT_BASE}:
        for folder in base.glob("abp-run-*"):
            name = _NAME.match(folder.name)
            if name is None:
                continue
            pid, start_time = int(name[1]), int(name[2])
            # The start time of a process, as the system computes it, may vary a little.
            is_running = abs(_start_time(pid) - start_time) <= 2
            if not is_running:
                shutil.rmtree(folder, ignore_errors=True)


def _base_folder(longest: int) -> Path:
    """Return the parent of a run folder: the temp folder, or ``/tmp`` if its path is longer than ``longest`` bytes."""
    base = Path(tempfile.gettempdir())
    if len(os.fsencode(base)) > longest and os.access(_SHORT_BASE, os.W_OK):
        return _SHORT_BASE
    return base
