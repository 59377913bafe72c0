"""Signed values that expire, their key, and the registry of running servers by which others make links."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from itsdangerous import BadData, URLSafeSerializer

from ..errors import ABPError, StoreError
from ._files import belongs_to_us, may_be_running, open_file, others_may_read, replacing, state_folder

#: Maximum lifetime of a signed value, in seconds.
MAX_SECONDS = 30 * 86400.0
_SERVERS = "servers"


class Expired(ABPError):
    """Raised for a value with a valid signature that has expired or exceeds the maximum lifetime. The session survives;
    ask for a new value."""

    code = "REFERENCE_EXPIRED"


class Signer:
    """Signer of links, tokens and cookies. Servers with the same key accept each other's values. Each kind has another
    salt, so that a value of one kind is not valid as another. ``clock`` returns seconds since 1970."""

    def __init__(self, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._links = URLSafeSerializer(key, salt="abp.link")
        self._tokens = URLSafeSerializer(key, salt="abp.scope")
        self._cookies = URLSafeSerializer(key, salt="abp.cookie")

    def link_path(self, artifact_id: str, expires_at: float) -> str:
        return f"/artifacts/{artifact_id}?link={self._links.dumps([artifact_id, int(expires_at)])!s}"

    def is_link_to(self, signed: str, artifact_id: str) -> bool:
        """Return whether ``signed``, from the query of a link, opens this artifact. Raises :class:`Expired`."""
        content = self._read_signed(self._links, signed)
        return content is not None and content[0] == artifact_id

    def scope_token(self, scope: str, expires_at: float) -> str:
        return f"abps.{self._tokens.dumps([scope, int(expires_at)])!s}"

    def read_scope_token(self, token: str) -> tuple[str, int] | None:
        """Return the scope and the time of expiry; ``None`` if the signature is not valid. Raises :class:`Expired`."""
        if not token.startswith("abps."):
            return None
        return self._read_signed(self._tokens, token.removeprefix("abps."))

    def cookie(self, holder: str, expires_at: float) -> str:
        """Return a new cookie. Each is different, so that ending one does not end another of the same second."""
        return str(self._cookies.dumps([holder, int(expires_at), secrets.token_urlsafe(8)]))

    def read_cookie(self, cookie: str) -> tuple[str, int] | None:
        """Return the holder and the time of expiry; ``None`` if the signature is not valid. Raises :class:`Expired`."""
        return self._read_signed(self._cookies, cookie)

    def _read_signed(self, serializer: URLSafeSerializer, signed: str) -> tuple[str, int] | None:
        # For header bytes that are not text, loads() would raise another error than BadData.
        if not signed.isascii():
            return None
        try:
            subject, expires_at, *_ = serializer.loads(signed)
        except BadData:
            return None

        # The clock may have been set back since the signing; a day is allowed. A value that is valid for longer was
        # signed while the clock was wrong, and would be valid almost forever.
        tolerance = 86400
        remaining_seconds = expires_at - self.clock()
        if not 0 < remaining_seconds <= MAX_SECONDS + tolerance:
            raise Expired("it has expired; request a new one")
        return subject, expires_at


def signing_key() -> str:
    """Return the key of this user on this machine. The first use creates it, with mode 0600."""
    try:
        path = state_folder() / "serve.key"
        _create_key_file(path)
        key = _read_key_file(path)
    except OSError as error:
        place = f": {error.filename}" if error.filename else ""
        raise StoreError(f"cannot create or read a key ({error.strerror}{place}); set ABP_SERVE_KEY") from error
    min_chars = 32
    if len(key) < min_chars:
        raise StoreError(f"{path} contains no key; remove it, and a new one is created")
    return key


def _create_key_file(path: Path) -> None:
    temporary = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
    fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(32))

        # A link makes the whole file appear at once, and never replaces the key of another process.
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink()


def _read_key_file(path: Path) -> str:
    fd = open_file(path, os.O_RDONLY)
    with os.fdopen(fd, encoding="ascii") as file:
        status = os.fstat(fd)
        if others_may_read(status) or not belongs_to_us(status):
            raise StoreError(f"other users can read {path}; remove it, and a new key is created")
        return file.read().strip()


@contextmanager
def registered(url: str, store: str) -> Iterator[None]:
    """Register a server for the block, so that other processes find it (:func:`find_server`). Without a writable state
    folder, do nothing."""
    entry = json.dumps({"url": url, "store": store, "pid": os.getpid()})
    path: Path | None = None
    with suppress(OSError):
        path = state_folder(_SERVERS) / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        # Other processes may read the folder at any time, and must not see half of an entry.
        with replacing(path) as file:
            file.write(entry.encode())

    try:
        yield
    finally:
        if path is not None:
            with suppress(OSError):
                path.unlink()


def find_server(store: str) -> str | None:
    """Return the URL of the newest running server of ``store``, or ``None``. Remove the files of dead servers."""
    return _newest_server(lambda served: served == store)


def download_link(file: Path, artifact_id: str, seconds: float) -> str | None:
    """Return a URL at the newest running server of the store in a folder above ``file``; ``None`` without one."""
    server_url = _newest_server(lambda served: _is_below_store(file, served))
    if server_url is None:
        return None

    try:
        signer = Signer(os.environ.get("ABP_SERVE_KEY") or signing_key())
    except StoreError:
        return None

    link = signer.link_path(artifact_id, signer.clock() + seconds)
    return f"{server_url.rstrip('/')}{link}&download"


def _is_below_store(file: Path, store: str) -> bool:
    parts = urlsplit(store)
    return parts.scheme == "file" and file.is_relative_to(url2pathname(parts.path))


def _newest_server(serves: Callable[[str], bool]) -> str | None:
    """Return the URL of the newest server whose store ``serves``. Remove the files of dead servers."""
    candidates: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in state_folder(_SERVERS).glob("*.json"):
            # A file that cannot be read, or lacks a field of an entry, is ignored.
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(path.read_text(encoding="utf-8"))
                registered_at = path.stat().st_mtime
                if not may_be_running(entry["pid"], registered_at):
                    path.unlink()
                elif serves(str(entry["store"])):
                    candidates.append((registered_at, str(entry["url"])))

    if not candidates:
        return None
    _, newest_url = max(candidates)
    return newest_url
