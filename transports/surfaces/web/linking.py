"""Making a link from another process than the server's: ``abp artifacts link``."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from ...artifacts import ArtifactStore
from ...errors import UsageError
from ...protocol.timestamps import iso_utc
from .links import Links
from .options import Options
from .state import noted_address, state_key

__all__ = ["make_link"]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 30 * 86400


async def make_link(store: ArtifactStore, artifact_id: str, expires: str, base: str | None) -> tuple[str, str]:
    """An address that opens the artifact, and until when. Of a store with addresses of its own it is one of those; else
    one of the server at ``base``, or of the one that serves this store here.

    Raises :class:`~transports.errors.ArtifactNotFound`, and :class:`~transports.errors.UsageError` if ``expires`` is no
    time or no server is known.
    """
    seconds = _seconds(expires)
    links = Links(Options.load().key or state_key())
    until = links.clock() + seconds
    if base is None and (own := await store.presigned(artifact_id, seconds)):
        return own, iso_utc(until, timespec="seconds")
    ref = await store.stat(artifact_id)
    address = base or noted_address(store.url)
    if address is None:
        raise UsageError(
            "no server of this store runs here; start one with `abp serve`, or name the address of yours with --url"
        )
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"--url {address}: give the address of a server, such as http://127.0.0.1:8000")
    return address.rstrip("/") + links.path(ref.id, until), iso_utc(until, timespec="seconds")


def _seconds(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})([smhd]?)", text.strip())
    seconds = int(match[1]) * _UNITS[match[2] or "s"] if match else 0
    if not 0 < seconds <= _LONGEST:
        raise UsageError(f"--expires {text}: give a time such as 90s, 30m, 1h or 7d; at most 30d")
    return seconds
