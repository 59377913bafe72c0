"""Resources that a server offers to its views: those of its lists, and links in its results."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate
from mcp_types import INVALID_PARAMS

from ..errors import CapabilityError

ListPage: TypeAlias = Callable[..., Awaitable[Mapping[str, object]]]

#: Characters of an address.
_MAX_URI = 8192
#: Pages of each list that are looked through for one address.
_MAX_PAGES = 100


class Offered:
    """Addresses of the resources that a server offers. Its lists are read for an address that is not remembered."""

    def __init__(self, list_page: ListPage) -> None:
        self._list_page = list_page
        self._remembered: dict[str, None] = {}

    def add(self, uri: object) -> None:
        """Remember an address that the server has named."""
        if isinstance(uri, str) and len(uri) <= _MAX_URI:
            self._remembered.pop(uri, None)
            self._remembered[uri] = None
            if len(self._remembered) > 10_000:  # the oldest is forgotten, and looked up again
                del self._remembered[next(iter(self._remembered))]

    def add_links(self, result: Mapping[str, object]) -> None:
        """Remember the links in a result of a tool."""
        content = result.get("content")
        for block in content if isinstance(content, list) else []:
            match block:
                case {"type": "resource_link", "uri": uri} | {"type": "resource", "resource": {"uri": uri}}:
                    self.add(uri)

    async def require(self, uri: object, *, timeout: float) -> None:
        """Raise :class:`~transports.errors.CapabilityError` unless the server offers the resource."""
        if not isinstance(uri, str) or len(uri) > _MAX_URI or not await self._has(uri, timeout):
            raise CapabilityError(
                f"the server does not offer the resource {str(uri)[:200]!r}", details={"code": INVALID_PARAMS}
            )

    async def entry(self, uri: str, *, timeout: float) -> Mapping[str, object] | None:
        """Return the entry of a resource in the server's list, or ``None``."""
        async for entry in _entries(self._list_page, "resources/list", "resources", timeout):
            if entry.get("uri") == uri:
                return entry
        return None

    async def _has(self, uri: str, timeout: float) -> bool:
        if uri in self._remembered:
            return True
        async for entry in _entries(self._list_page, "resources/list", "resources", timeout):
            self.add(entry.get("uri"))
            if uri == entry.get("uri"):
                return True
        async for entry in _entries(self._list_page, "resources/templates/list", "resourceTemplates", timeout):
            if _matches(entry.get("uriTemplate"), uri):
                return True
        return False


async def _entries(list_page: ListPage, method: str, key: str, timeout: float) -> AsyncIterator[Mapping[str, object]]:
    cursor: str | None = None
    for _ in range(_MAX_PAGES):
        try:
            page = await list_page(method, cursor, timeout=timeout)
        except CapabilityError:  # many servers have one of the lists only
            return
        items, next_cursor = page.get(key), page.get("nextCursor")
        for item in items if isinstance(items, list) else []:
            if isinstance(item, Mapping):
                yield item
        if not isinstance(next_cursor, str):
            return
        cursor = next_cursor


def _matches(template: object, uri: str) -> bool:
    try:
        return isinstance(template, str) and UriTemplate.parse(template).match(uri) is not None
    except InvalidUriTemplate:
        return False
