"""What is kept between runs, in the user's state folder: the key that links are signed with, and where servers run."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import platformdirs

from ...errors import StoreError

__all__ = ["noted", "noted_address", "state_key"]

_KEY = "serve.key"
_SERVERS = "servers"


def _folder(*below: str) -> Path:
    folder = Path(platformdirs.user_state_dir("abp-transports", appauthor=False), *below)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def state_key() -> str:
    """The key of this user on this machine; made at its first use, with mode 0600. Raises
    :class:`~transports.errors.StoreError`."""
    try:
        path = _folder() / _KEY
        with suppress(FileExistsError):
            temporary = path.with_name(f".{_KEY}-{os.getpid()}-{secrets.token_hex(4)}")
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                with os.fdopen(fd, "w", encoding="ascii") as file:
                    file.write(secrets.token_urlsafe(32))
                os.link(temporary, path)  # whole at once, and only if there is none
            finally:
                temporary.unlink()
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, encoding="ascii") as file:
            status = os.fstat(fd)
            if status.st_mode & 0o077 or status.st_uid != os.getuid():
                raise StoreError(f"{path} can be read by others; remove it, and a new key is made")
            key = file.read().strip()
    except OSError as error:
        raise StoreError(f"cannot keep a key ({error.strerror}: {error.filename}); set ABP_SERVE_KEY") from error
    if len(key) < 32:
        raise StoreError(f"{path} holds no key; remove it, and a new one is made")
    return key


@contextmanager
def noted(url: str, store: str) -> Iterator[None]:
    """While this lasts, other processes find a server of ``store`` at ``url``. That it cannot be noted stops nobody."""
    path: Path | None = None
    with suppress(OSError):
        path = _folder(_SERVERS) / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({"url": url, "store": store, "pid": os.getpid()}), encoding="utf-8")
        temporary.replace(path)
    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink()


def noted_address(store: str) -> str | None:
    """Where a server of ``store`` runs now: the newest, if there are several. What dead ones left is removed."""
    from psutil import Process, Error  # isort: skip

    found: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in _folder(_SERVERS).glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(path.read_text(encoding="utf-8"))
                written = path.stat().st_mtime
                try:
                    alive = Process(said["pid"]).create_time() <= written
                except Error:
                    alive = False
                if not alive:
                    path.unlink()
                elif said["store"] == store:
                    found.append((written, str(said["url"])))
    return max(found)[1] if found else None
