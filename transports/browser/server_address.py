"""The address from which the browser loaded a document."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

if TYPE_CHECKING:
    from playwright.async_api import Response

__all__ = ["ServerAddress"]


class ServerAddress:
    """The numeric address and the port of the server that the app's document came from, for its origin alone."""

    def __init__(self) -> None:
        self._origin: tuple[str, str] | None = None
        self._address: tuple[str, int] | None = None

    async def read(self, response: Response | None) -> None:
        """Take the address from the response that holds the document, where the browser tells it."""
        from playwright.async_api import Error

        self._origin = self._address = None
        if response is None:
            return
        try:
            found = await response.server_addr()
        except Error:  # the page is going away, or the browser never asked the network
            return
        if found is not None:
            self._origin = _origin(urlsplit(response.url))
            self._address = (found["ipAddress"], found["port"])

    def of(self, url: str | None) -> tuple[str, int] | None:
        """Return the address for ``url``, or ``None`` if the document had another origin or its address is unknown."""
        return self._address if url is not None and _origin(urlsplit(url)) == self._origin else None


def _origin(parts: SplitResult) -> tuple[str, str]:
    return parts.scheme, parts.netloc.rpartition("@")[2].lower()
