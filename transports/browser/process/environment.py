"""The environment of the driver and of the browsers that it starts."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["child_environment", "compile_cache"]

#: The variable that says where Node.js keeps its scripts compiled. Loading the driver takes a fifth less of the
#: processor with it.
_COMPILE_CACHE = "NODE_COMPILE_CACHE"
#: What names the temp folder on some system or other.
_TEMP_FOLDER = ("TMPDIR", "TEMP", "TMP")
_lock = threading.Lock()
_users = 0
_saved: dict[str, str | None] = {}


@contextlib.contextmanager
def child_environment(folder: Path, cache: Path | None = None) -> Iterator[None]:
    """Give child processes that are started inside the block ``folder`` as their temp folder, and ``cache``, which is
    a :func:`compile_cache`.

    Blocks may overlap if all name the same folder; the last one restores the variables.
    """
    global _users
    with _lock:
        if _users == 0:
            wanted = dict.fromkeys(_TEMP_FOLDER, str(folder))
            if cache is not None:
                wanted[_COMPILE_CACHE] = str(cache)
            _saved.update({name: os.environ.get(name) for name in wanted})
            os.environ.update(wanted)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for name, value in _saved.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value
                _saved.clear()


def compile_cache() -> Path | None:
    """Return the folder of this user for compiled scripts of the driver, made if it was not there; ``None`` if there
    can be none, or the environment names another. What is in it is run, so nobody else may write there. It blocks."""
    if _COMPILE_CACHE in os.environ:
        return None
    given = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    try:
        base = Path(given) if given else Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
        folder = base / "abp-transports" / "node"
        if not base.is_absolute():
            return None
        base.mkdir(0o700, parents=True, exist_ok=True)
        mode = base.stat().st_mode
        if sys.platform != "win32" and mode & 0o022 and not mode & stat.S_ISVTX:  # others could replace what is in it
            return None
        for one in (folder.parent, folder):
            one.mkdir(0o700, parents=True, exist_ok=True)
            status = one.lstat()
            if sys.platform != "win32" and (status.st_uid != os.geteuid() or status.st_mode & 0o170022 != 0o040000):
                return None
    except (OSError, RuntimeError):  # a user without a home
        return None
    return folder
