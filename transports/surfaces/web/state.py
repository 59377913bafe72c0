"""Files in the user's state folder: the key that links are signed with, and the addresses of running servers."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...artifacts.system import belongs_to_us, open_file, others_may_read
from ...errors import StoreError
from ..shared.state_folder import state_folder

__all__ = ["find_server", "registered", "signing_key"]

_KEY = "serve.key"
_SERVERS = "servers"


def signing_key() -> str:
    """Return the key of this user on this machine, which is made at its first use, with mode 0600.

    Raises :class:`~transports.errors.StoreError` if it can be neither read nor made, or if others can read it."""
    try:
        path = state_folder() / _KEY
        with suppress(FileExistsError):
            temporary = path.with_name(f".{_KEY}-{os.getpid()}-{secrets.token_hex(4)}")
            fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                with os.fdopen(fd, "w", encoding="ascii") as file:
                    file.write(secrets.token_urlsafe(32))
                os.link(temporary, path)  # the whole key at once, and never over another one
            finally:
                temporary.unlink()
        fd = open_file(path, os.O_RDONLY)
        with os.fdopen(fd, encoding="ascii") as file:
            status = os.fstat(fd)
            if others_may_read(status) or not belongs_to_us(status):
                raise StoreError(f"{path} can be read by others; remove it, and a new key is made")
            key = file.read().strip()
    except OSError as error:
        raise StoreError(f"cannot keep a key ({error.strerror}: {error.filename}); set ABP_SERVE_KEY") from error
    if len(key) < 32:
        raise StoreError(f"{path} holds no key; remove it, and a new one is made")
    return key


@contextmanager
def registered(url: str, store: str) -> Iterator[None]:
    """Let other processes find a server of ``store`` at ``url`` while the context lasts (:func:`find_server`). A state
    folder that cannot be written to is no error: the server is not found then."""
    path: Path | None = None
    with suppress(OSError):
        path = state_folder(_SERVERS) / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps({"url": url, "store": store, "pid": os.getpid()}), encoding="utf-8")
        temporary.replace(path)
    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink()


def find_server(store: str) -> str | None:
    """Return the URL of the newest running server of ``store``, or ``None``. Files of servers that died are removed."""
    from psutil import Process, Error  # isort: skip

    found: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in state_folder(_SERVERS).glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(path.read_text(encoding="utf-8"))
                written = path.stat().st_mtime
                try:
                    running = Process(entry["pid"]).create_time() <= written
                except Error:
                    running = False
                if not running:
                    path.unlink()
                elif entry["store"] == store:
                    found.append((written, str(entry["url"])))
    return max(found)[1] if found else None
