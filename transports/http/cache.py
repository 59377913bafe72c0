"""Manifests that were fetched before, kept and asked for again as HTTP says (RFC 9111); for one user, in memory."""

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
_OF_ONE_ANSWER = ("Age", "Date")


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A body, the headers it came with, and until when it is taken without asking (Unix seconds)."""

    body: bytes
    headers: CIMultiDict[str]
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """Headers with which a server is asked whether it is still the same (RFC 9110 §13.1)."""
        pairs = {"ETag": "If-None-Match", "Last-Modified": "If-Modified-Since"}
        said = ((asked, self.headers.get(name, "")) for name, asked in pairs.items())
        return {asked: value for asked, value in said if value and value.isprintable()}


class ManifestCache:
    """Bodies by URL, at most ``entries`` of them: the one that was not used for longest goes first.

    Nothing stale is used without asking, so ``must-revalidate`` needs no care; nor is freshness guessed. ``clock``
    gives Unix seconds. Safe to use from several threads.
    """

    def __init__(self, entries: int = 64, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._entries = entries
        self._kept: dict[URL, CachedResponse] = {}
        self._lock = threading.Lock()

    def get(self, url: URL) -> CachedResponse | None:
        with self._lock:
            if kept := self._kept.pop(url, None):
                self._kept[url] = kept
            return kept

    def fresh(self, kept: CachedResponse) -> bool:
        return self.clock() < kept.fresh_until

    def put(self, url: URL, body: bytes, headers: CIMultiDictProxy[str], asked_at: float) -> None:
        """Keep a 200 answer to a request of ``asked_at``, if it may be kept and keeping it can save anything."""
        self._put(url, body, headers.copy(), asked_at)

    def revalidated(self, url: URL, kept: CachedResponse, headers: CIMultiDictProxy[str], asked_at: float) -> None:
        """A 304 came: the body is what it was, the headers are those of the 304 as far as it has any (§4.3.4)."""
        both = kept.headers.copy()
        for name in (*_OF_ONE_ANSWER, *headers):
            both.popall(name, None)
        both.extend(headers)
        self._put(url, kept.body, both, asked_at)

    def _put(self, url: URL, body: bytes, headers: CIMultiDict[str], asked_at: float) -> None:
        now = self.clock()
        lifetime = _lifetime(headers)
        kept = CachedResponse(body, headers, now + (lifetime or 0) - _age(headers, asked_at, now))
        with self._lock:
            self._kept.pop(url, None)
            if lifetime is not None and (lifetime or kept.conditions):
                self._kept[url] = kept
            while len(self._kept) > self._entries:
                del self._kept[next(iter(self._kept))]


def _lifetime(headers: CIMultiDict[str]) -> float | None:
    """Seconds for which an answer is fresh (RFC 9111 §4.2.1), 0 if it must be asked for again each time; ``None`` if it
    may not be kept. What cannot be read counts as stale."""
    said: dict[str, str] = {}
    for name, value in _DIRECTIVE.findall(",".join(headers.getall("Cache-Control", []))):
        said.setdefault(name.lower(), value.strip('"'))
    if "no-store" in said:
        return None
    if "no-cache" in said or "*" in ",".join(headers.getall("Vary", [])):  # else our requests never vary
        return 0
    if "max-age" in said:
        return _seconds(said["max-age"])
    expires, sent = http_date(headers.get("Expires", "")), http_date(headers.get("Date", ""))
    return max(0.0, (expires - sent).total_seconds()) if expires and sent else 0


def _age(headers: CIMultiDict[str], asked_at: float, now: float) -> float:
    """How old an answer already was when it came, in seconds (RFC 9111 §4.2.3)."""
    sent = http_date(headers.get("Date", ""))
    apparent = max(0.0, now - sent.timestamp()) if sent else 0.0
    return max(apparent, _seconds(headers.get("Age", "")) + max(0.0, now - asked_at))


def _seconds(text: str) -> float:
    text = text.strip()
    return min(int(text), _FOREVER) if _SECONDS.fullmatch(text) else 0
