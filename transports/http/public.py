"""What is on the public web, for HTML that is rendered without a network of its own."""

from __future__ import annotations

from ..base import WebResource
from ..errors import UsageError
from .urls import BadUrl, display_unparsed_url, parse

__all__ = ["fetch_public"]

#: Headers that a browser needs to use a body; none of them sets anything.
_HEADERS = ("Content-Type", "Access-Control-Allow-Origin", "Content-Language")


async def fetch_public(
    url: str,
    *,
    accept: str,
    timeout: float,
    max_bytes: int,
    allow_private: bool = False,
) -> WebResource:
    """Return what is at ``url``, after redirects, within ``timeout`` seconds. Every host must have a public address,
    judged by the address that is connected to, unless ``allow_private``. No cookies and no credentials are sent.

    Raises :class:`~transports.errors.UsageError` for what is no http(s) address, and
    :class:`~transports.errors.DiscoveryFailed` (``code`` is ``BLOCKED_ADDRESS`` for a private address)."""
    from .redirects import RedirectedGet  # late, as it imports aiohttp

    try:
        target = parse(url)
    except BadUrl as error:
        raise UsageError(f"{display_unparsed_url(url)} is not fetched: {error}") from None
    get = RedirectedGet(
        "the resource",
        target,
        None,
        accept=accept or "*/*",
        timeout=timeout,
        allow_private=allow_private,
    )
    async with get.deadline():
        while True:
            async with get.send() as response:
                if get.follow_redirect(response):
                    continue
                get.raise_for_status(response)
                body = bytearray()
                while data := await get.read_chunk(response):
                    body += data
                    if len(body) > max_bytes:
                        raise get.error(f"{get.label} is larger than {max_bytes} bytes", limit=max_bytes)
                headers = {name: value for name in _HEADERS if (value := response.headers.get(name))}
                return WebResource(bytes(body), headers)
