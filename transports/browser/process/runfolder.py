"""One temporary folder per process for everything a browser leaves behind: profiles, driver scratch, uploads.

The browser's driver does not always clean up after itself (a killed one never does), so its ``TMPDIR`` is this folder:
removing it removes all of it, and folders of processes that died are swept at the next start.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil

__all__ = ["RunFolder"]

_NAME = re.compile(r"abp-run-(\d+)-(\d+)-")
#: Chromium puts a Unix socket below its TMPDIR, and the path of such a socket ends at 104 bytes (macOS) or 108.
_LONGEST_BASE = 28
_lock = threading.Lock()
_users = 0
_path: Path | None = None


class RunFolder:
    """This process's folder, made by the first user and removed with the last: ``with RunFolder() as path``."""

    def __enter__(self) -> Path:
        global _users, _path
        with _lock:
            if _path is None:
                sweep()
                prefix = f"abp-run-{os.getpid()}-{_started(os.getpid())}-"
                _path = Path(tempfile.mkdtemp(prefix=prefix, dir=_bases()[0]))
            _users += 1
            return _path

    def __exit__(self, *_: object) -> None:
        global _users, _path
        with _lock:
            _users -= 1
            if _users == 0 and _path is not None:
                _remove(_path)
                _path = None


def _remove(folder: Path) -> None:
    """Also a browser that was starting when its driver was killed: it would write its profile again."""
    users = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if any(str(folder) in word for word in process.cmdline()):
                process.kill()
                users.append(process)
    psutil.wait_procs(users, timeout=2)
    shutil.rmtree(folder, ignore_errors=True)


def _started(pid: int) -> int:
    """Start time of a process in whole seconds, so that a reused pid is not taken for the old process; 0 if gone."""
    try:
        return int(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0


def sweep() -> None:
    """Remove folders whose process is gone."""
    for base in _bases():
        for folder in base.glob("abp-run-*"):
            name = _NAME.match(folder.name)
            if name and abs(_started(int(name[1])) - int(name[2])) > 2:
                shutil.rmtree(folder, ignore_errors=True)


def _bases() -> list[Path]:
    """Where run folders may be, the best first: the temp folder, or ``/tmp`` where that one's path is too long."""
    own, short = Path(tempfile.gettempdir()), Path("/tmp")
    if len(os.fsencode(own)) <= _LONGEST_BASE or not os.access(short, os.W_OK):
        return [own]
    return [short, own]


_environments = 0
_saved: str | None = None


@contextlib.contextmanager
def as_tmpdir(folder: Path) -> Iterator[None]:
    """Child processes started inside get ``folder`` as their ``TMPDIR``. May overlap; all use the same folder."""
    global _environments, _saved
    with _lock:
        if _environments == 0:
            _saved = os.environ.get("TMPDIR")
            os.environ["TMPDIR"] = str(folder)
        _environments += 1
    try:
        yield
    finally:
        with _lock:
            _environments -= 1
            if _environments == 0:
                if _saved is None:
                    os.environ.pop("TMPDIR", None)
                else:
                    os.environ["TMPDIR"] = _saved
