"""The address by which others reach a server that stands behind a reverse proxy."""

from __future__ import annotations

from urllib.parse import urlsplit

__all__ = ["base_url"]


def base_url(text: str) -> str:
    """Return an address without a slash at its end. Raises :class:`ValueError` for what is no plain http(s) address."""
    parts = urlsplit(text)  # raises it for http://[ and the like
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in text:
        raise ValueError(f"{text!r} is no address of a server, such as https://abp.example")
    return text.rstrip("/")
