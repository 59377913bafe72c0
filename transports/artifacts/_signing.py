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
from ._files import belongs_to_us, open_file, others_may_read, state_folder

#: Maximum lifetime of a signed value, in seconds.
MAX_SECONDS = 30 * 86400.0
_SERVERS = "servers"


class Expired(ABPError):
    """Raised for a value with a valid signature that has expired or exceeds the maximum lifetime. The session survives;
    ask for a new value."""

    code = "REFERENCE_EXPIRED"


class Signer:
    """Signer of links, tokens and cookies with ``key``. Servers with the same key accept each other's values.

    Each kind has a salt of its own, so that a value of one kind is not valid as another. ``clock`` returns seconds
    since 1970.
    """

    def __init__(self, key: str, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._links = URLSafeSerializer(key, salt="abp.link")
        self._tokens = URLSafeSerializer(key, salt="abp.scope")
        self._cookies = URLSafeSerializer(key, salt="abp.cookie")

    def link_path(self, artifact_id: str, expires_at: float) -> str:
        return f"/artifacts/{artifact_id}?link={self._links.dumps([artifact_id, int(expires_at)])!s}"

    def link_opens(self, signed: str, artifact_id: str) -> bool:
        """Return whether ``signed``, from the query of a link, opens this artifact. Raises :class:`Expired`."""
        content = self._read_signed(self._links, signed)
        return content is not None and content[0] == artifact_id

    def scope_token(self, scope: str, expires_at: float) -> str:
        """Return a bearer token for one scope, such as a tenant or a session, as text."""
        return f"abps.{self._tokens.dumps([scope, int(expires_at)])!s}"

    def read_scope_token(self, token: str) -> tuple[str, int] | None:
        """Return the scope and the time of expiry of a token; ``None`` for a token that is not signed with this key.
        Raises :class:`Expired`."""
        if not token.startswith("abps."):
            return None
        return self._read_signed(self._tokens, token.removeprefix("abps."))

    def cookie(self, holder: str, expires_at: float) -> str:
        """Return the value of a cookie for ``holder``. It stays valid after a restart of the server."""
        return str(self._cookies.dumps([holder, int(expires_at)]))

    def read_cookie(self, cookie: str) -> tuple[str, int] | None:
        """Return the holder and the time of expiry of a cookie; ``None`` for a cookie that is not signed with this key.
        Raises :class:`Expired`."""
        return self._read_signed(self._cookies, cookie)

    def _read_signed(self, serializer: URLSafeSerializer, signed: str) -> tuple[str, int] | None:
        if not signed.isascii():  # loads() would raise another error for header bytes that are not text
            return None
        try:
            content = serializer.loads(signed)
        except BadData:
            return None
        match content:
            case [str(subject), int(expires_at)]:
                # the clock may have been set back by a day since; a value with a later end was signed by a clock that
                # was wrong, and would be valid almost forever
                if not 0 < expires_at - self.clock() <= MAX_SECONDS + 86400:
                    raise Expired("it has expired; request a new one")
                return subject, expires_at
        return None


def signing_key() -> str:
    """Return the key of this user on this machine. The first use creates it, with mode 0600.

    Raises :class:`~transports.errors.StoreError` if it can be neither read nor created, or if others can read it."""
    try:
        path = state_folder() / "serve.key"
        with suppress(FileExistsError):
            temporary = path.with_name(f".{path.name}-{os.getpid()}-{secrets.token_hex(4)}")
            fd = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                with os.fdopen(fd, "w", encoding="ascii") as file:
                    file.write(secrets.token_urlsafe(32))
                os.link(temporary, path)  # atomic, and does not replace an existing key
            finally:
                temporary.unlink()
        fd = open_file(path, os.O_RDONLY)
        with os.fdopen(fd, encoding="ascii") as file:
            status = os.fstat(fd)
            if others_may_read(status) or not belongs_to_us(status):
                raise StoreError(f"other users can read {path}; remove it, and a new key is created")
            key = file.read().strip()
    except OSError as error:
        raise StoreError(
            f"cannot create or read a key ({error.strerror}: {error.filename}); set ABP_SERVE_KEY"
        ) from error
    if len(key) < 32:
        raise StoreError(f"{path} contains no key; remove it, and a new one is created")
    return key


@contextmanager
def registered(url: str, store: str) -> Iterator[None]:
    """Register a server of ``store`` at ``url`` for the length of the context, so that :func:`find_server` finds it in
    other processes. Without a writable state folder the server stays unregistered."""
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
    """Return the URL of the newest running server of ``store``, or ``None``. Remove the files of dead servers."""
    return _newest_server(lambda served: served == store)


def download_link(file: Path, artifact_id: str, seconds: float) -> str | None:
    """Return a URL that downloads the artifact in ``file`` for ``seconds``, from the newest running server of the store
    in a folder above it; ``None`` without a server."""
    address = _newest_server(lambda served: _holds(served, file))
    if address is None:
        return None
    try:
        signer = Signer(os.environ.get("ABP_SERVE_KEY") or signing_key())
    except StoreError:
        return None
    return f"{address.rstrip('/')}{signer.link_path(artifact_id, signer.clock() + seconds)}&download"


def _holds(store: str, file: Path) -> bool:
    parts = urlsplit(store)
    return parts.scheme == "file" and file.is_relative_to(url2pathname(parts.path))


def _newest_server(serves: Callable[[str], bool]) -> str | None:
    """Return the URL of the newest running server whose store fits, and remove the files of dead servers."""
    import psutil  # late: the import takes 20 ms

    servers: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in state_folder(_SERVERS).glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(path.read_text(encoding="utf-8"))
                written = path.stat().st_mtime
                try:
                    running = (
                        psutil.Process(entry["pid"]).create_time() <= written
                    )  # a later process has reused the pid
                except psutil.Error:
                    running = False
                if not running:
                    path.unlink()
                elif serves(str(entry["store"])):
                    servers.append((written, str(entry["url"])))
    return max(servers)[1] if servers else None
