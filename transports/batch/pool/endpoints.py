"""Where the browsers of a pool come from: this machine, or a place where they run already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ...browser.process.launch import Browser
from ...errors import UsageError

__all__ = ["Endpoint", "Source"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A browser that runs elsewhere, for a :class:`Pool`: ``cdp_url`` or ``browser_server`` with their ``headers``, as
    :class:`~transports.Browser` takes them.

    ``weight`` is its share of the calls beside other endpoints and the pool's own browsers, which have a weight of 1
    each. ``sessions`` is how many it takes at once, by default as many as any browser of the pool.

    Raises :class:`~transports.errors.UsageError` for a weight or a number that is not positive, and unless exactly one
    address is given.
    """

    cdp_url: str | None = field(default=None, repr=False)
    browser_server: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    weight: float = 1.0
    sessions: int | None = None

    def __post_init__(self) -> None:
        if (self.cdp_url is None) == (self.browser_server is None):
            raise UsageError("an endpoint is either cdp_url= or browser_server=; give one of them")
        if not self.weight > 0 or (self.sessions is not None and self.sessions < 1):
            raise UsageError("the weight and the sessions of an endpoint are more than 0")

    def browser(self, timeout: float) -> Browser:
        """Return the browser, not opened yet; connecting to it may take ``timeout`` seconds."""
        return Browser(cdp_url=self.cdp_url, browser_server=self.browser_server, headers=self.headers, timeout=timeout)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """``make`` makes a browser, of which there are ``count`` at most, for ``sessions`` at once each."""

    make: Callable[[], Browser]
    count: int
    sessions: int
    weight: float = 1.0
