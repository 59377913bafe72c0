"""A private HTTP cache (RFC 9111) for manifests, in memory."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from .headers import http_date

__all__ = ["CachedResponse", "ManifestCache"]

_DIRECTIVE = re.compile(r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,]*))?""")
_SECONDS = re.compile(r"[0-9]{1,18}")
_FOREVER = 2**31  # seconds (RFC 9111 §1.2.2)
_PER_RESPONSE = ("Age", "Date")


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A stored response: its body, its headers, and from when until when it is fresh (Unix seconds)."""

    body: bytes
    headers: CIMultiDict[str]
    fresh_from: float
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request that revalidates the response (RFC 9110 §13.1)."""
        validators = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
        pairs = ((condition, self.headers.get(name, "")) for name, condition in validators.items())
        return {condition: value for condition, value in pairs if value and value.isprintable()}


class ManifestCache:
    """Responses by URL, at most ``entries`` of them: the least recently used goes first.

    A stale response is never used without revalidation, so ``must-revalidate`` changes nothing; freshness is never
    guessed (RFC 9111 §4.2.2). ``clock`` gives Unix seconds. Safe to use from several threads.
    """

    def __init__(self, entries: int = 64, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._entries = entries
        self._responses: dict[URL, CachedResponse] = {}
        self._lock = threading.Lock()

    def get(self, url: URL) -> CachedResponse | None:
        """Return the stored response of a URL, fresh or stale."""
        with self._lock:
            if cached := self._responses.pop(url, None):
                self._responses[url] = cached  # now the most recently used
            return cached

    def is_fresh(self, cached: CachedResponse) -> bool:
        """Return whether a response may be used without revalidation."""
        # before it was stored: the clock has been set back since, so how old it is nobody knows
        return cached.fresh_from <= self.clock() < cached.fresh_until

    def put(self, url: URL, body: bytes, headers: CIMultiDictProxy[str], requested_at: float) -> None:
        """Store a 200 response to a request sent at ``requested_at`` (Unix seconds), if it may and need be stored."""
        self._put(url, body, headers.copy(), requested_at)

    def update(self, url: URL, cached: CachedResponse, headers: CIMultiDictProxy[str], requested_at: float) -> None:
        """Update a stored response after a 304, whose headers replace its own (RFC 9111 §4.3.4)."""
        merged = cached.headers.copy()
        for name in (*_PER_RESPONSE, *headers):
            merged.popall(name, None)
        merged.extend(headers)
        self._put(url, cached.body, merged, requested_at)

    def _put(self, url: URL, body: bytes, headers: CIMultiDict[str], requested_at: float) -> None:
        now = self.clock()
        lifetime = _lifetime(headers)
        response = CachedResponse(body, headers, now, now + (lifetime or 0) - _age(headers, requested_at, now))
        with self._lock:
            self._responses.pop(url, None)
            if lifetime is not None and (lifetime or response.conditions):
                self._responses[url] = response
            while len(self._responses) > self._entries:
                del self._responses[next(iter(self._responses))]


def _lifetime(headers: CIMultiDict[str]) -> float | None:
    """Return the freshness lifetime in seconds (RFC 9111 §4.2.1), or ``None`` if the response may not be stored.

    It is 0 if the response must always be revalidated, or if the value cannot be read.
    """
    directives: dict[str, str] = {}
    for name, value in _DIRECTIVE.findall(",".join(headers.getall("Cache-Control", []))):
        directives.setdefault(name.lower(), value.strip('"'))
    if "no-store" in directives:
        return None
    # of the values of Vary only * matters: the headers of our requests are always the same
    if "no-cache" in directives or "*" in ",".join(headers.getall("Vary", [])):
        return 0
    if "max-age" in directives:
        return _seconds(directives["max-age"])
    expires, sent = http_date(headers.get("Expires", "")), http_date(headers.get("Date", ""))
    return max(0.0, (expires - sent).total_seconds()) if expires and sent else 0


def _age(headers: CIMultiDict[str], requested_at: float, now: float) -> float:
    """Return the age of a response when it arrived, in seconds (RFC 9111 §4.2.3)."""
    sent = http_date(headers.get("Date", ""))
    apparent = max(0.0, now - sent.timestamp()) if sent else 0.0
    return max(apparent, _seconds(headers.get("Age", "")) + max(0.0, now - requested_at))


def _seconds(text: str) -> float:
    text = text.strip()
    return min(int(text), _FOREVER) if _SECONDS.fullmatch(text) else 0
