"""Signed values that expire: links to an artifact, tokens for a scope, cookies.

Also their key in the user's state folder, and the registry of running servers for ``abp artifacts link``.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from itsdangerous import BadData, URLSafeSerializer

from ...artifacts import ArtifactStore, Scope, belongs_to_us, open_file, others_may_read
from ...errors import ABPError, StoreError, UsageError
from ...protocol import iso_utc, parse_duration
from ..shared import state_folder
from ._options import Options

#: Maximum lifetime of a signed value, in seconds.
MAX_SECONDS = 30 * 86400.0
#: Seconds by which the clock may have been set back since a value was signed. A value with a later end was signed by a
#: clock that was wrong, and would be valid almost forever.
_MAX_SET_BACK = 86400.0
_KEY = "serve.key"
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
        """Return the path and query that open an artifact until ``expires_at``."""
        return f"/artifacts/{artifact_id}?link={self._links.dumps([artifact_id, int(expires_at)])!s}"

    def link_opens(self, signed: str, artifact_id: str) -> bool:
        """Return whether ``signed``, from the query of a link, opens this artifact. Raises :class:`Expired`."""
        content = self._read(self._links, signed)
        return content is not None and content[0] == artifact_id

    def scope_token(self, scope: Scope, expires_at: float) -> str:
        """Return a bearer token for one scope, such as a tenant or a session."""
        return f"abps.{self._tokens.dumps([encode_scope(scope), int(expires_at)])!s}"

    def read_scope_token(self, token: str) -> tuple[Scope, int] | None:
        """Return the scope and the time of expiry of a token; ``None`` for a token that is not signed with this key.
        Raises :class:`Expired`."""
        content = self._read(self._tokens, token.removeprefix("abps.")) if token.startswith("abps.") else None
        return (decode_scope(content[0]), content[1]) if content else None

    def cookie(self, holder: str, expires_at: float) -> str:
        """Return the value of a cookie for ``holder``. It stays valid after a restart of the server."""
        return str(self._cookies.dumps([holder, int(expires_at)]))

    def read_cookie(self, cookie: str) -> tuple[str, int] | None:
        """Return the holder and the time of expiry of a cookie; ``None`` for a cookie that is not signed with this key.
        Raises :class:`Expired`."""
        return self._read(self._cookies, cookie)

    def _read(self, serializer: URLSafeSerializer, signed: str) -> tuple[str, int] | None:
        if not signed.isascii():  # loads() would raise another error for header bytes that are not text
            return None
        try:
            content = serializer.loads(signed)
        except BadData:
            return None
        match content:
            case [str(subject), int(expires_at)]:
                if not 0 < expires_at - self.clock() <= MAX_SECONDS + _MAX_SET_BACK:
                    raise Expired("it has expired; request a new one")
                return subject, expires_at
        return None


def encode_scope(scope: Scope) -> str:
    """Return a scope as text for signing."""
    return json.dumps(dict(scope.items()))


def decode_scope(text: str) -> Scope:
    """Return the scope of a text by :func:`encode_scope`. The text must come from a value with a valid signature."""
    return Scope(**json.loads(text))


def signing_key() -> str:
    """Return the key of this user on this machine. The first use creates it, with mode 0600.

    Raises :class:`~transports.errors.StoreError` if it can be neither read nor created, or if others can read it."""
    try:
        path = state_folder() / _KEY
        with suppress(FileExistsError):
            temporary = path.with_name(f".{_KEY}-{os.getpid()}-{secrets.token_hex(4)}")
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
                raise StoreError(f"{path} can be read by others; remove it, and a new key is made")
            key = file.read().strip()
    except OSError as error:
        raise StoreError(f"cannot keep a key ({error.strerror}: {error.filename}); set ABP_SERVE_KEY") from error
    if len(key) < 32:
        raise StoreError(f"{path} does not hold a key; remove it, and a new one is made")
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
    from psutil import Process, Error  # isort: skip

    found: list[tuple[float, str]] = []
    with suppress(OSError):
        for path in state_folder(_SERVERS).glob("*.json"):
            with suppress(OSError, ValueError, KeyError, TypeError):
                entry = json.loads(path.read_text(encoding="utf-8"))
                written = path.stat().st_mtime
                try:
                    running = Process(entry["pid"]).create_time() <= written  # a later process has reused the pid
                except Error:
                    running = False
                if not running:
                    path.unlink()
                elif entry["store"] == store:
                    found.append((written, str(entry["url"])))
    return max(found)[1] if found else None


async def make_link(store: ArtifactStore, artifact_id: str, expires: str, base: str | None) -> tuple[str, str]:
    """Return a URL that opens the artifact without a token, and its time of expiry (ISO 8601).

    With ``base``, it is a URL of the server at that address. Without ``base``, a store with presigned URLs (such as S3)
    makes it; for other stores it is a URL of the server that runs on this machine for the store. ``expires`` is a
    duration: ``90s``, ``30m``, ``1h``, ``7d``.

    Raises :class:`~transports.errors.ArtifactNotFound`, and :class:`~transports.errors.UsageError` for an invalid
    ``expires`` or ``base``, or if no server of this store runs on this machine.
    """
    seconds = _seconds(expires)
    signer = Signer(Options.load().key or signing_key())
    expires_at = signer.clock() + seconds
    if base is None and (presigned := await store.presigned(artifact_id, seconds)):
        return presigned, iso_utc(expires_at, timespec="seconds")
    ref = await store.stat(artifact_id)
    address = base or find_server(store.url)
    if address is None:
        raise UsageError(
            "no server of this store runs here; start one with `abp serve`, or name the address of yours with --url"
        )
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {address}: give the address of a server, such as http://127.0.0.1:8000")
    return address.rstrip("/") + signer.link_path(ref.id, expires_at), iso_utc(expires_at, timespec="seconds")


def _seconds(text: str) -> int:
    seconds = parse_duration(text)
    if seconds is None or not 0 < seconds <= MAX_SECONDS:
        raise UsageError(f"--expires {text}: give a time such as 90s, 30m, 1h or 7d; at most 30d")
    return seconds
