"""Links that open one artifact without a token, for ``abp artifacts link``."""

from __future__ import annotations

from urllib.parse import urlsplit

from ...artifacts import MAX_SECONDS, ArtifactStore, Signer, find_server, signing_key
from ...errors import UsageError
from ...protocol import iso_utc, parse_duration
from ._options import Options


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
