"""Discovery of a manifest without a browser: page → ``<link rel=abp-manifest>`` → manifest.

In this order: validation of a manifest (:func:`read_manifest`), the parser of a page's head (:class:`PageHead`), the
cache (:class:`ManifestCache`, RFC 9111), and the requests (:func:`discover`).
"""

from __future__ import annotations

import codecs
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urljoin

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from .. import protocol
from .._internal.arguments import short_traceback
from .._internal.recent import Recent
from ..errors import DiscoveryFailed, ProtocolError, UsageError
from ..protocol._capabilities import Discovery
from ..protocol._find_content import MAX_DEPTH
from ..protocol._http_dates import http_date
from ..protocol._media import normalise_mime
from ..protocol._plain_text import first_names, plain_line
from ..protocol._strict_json import decode_json, is_deeper
from ..protocol.messages import PROTOCOL_VERSION
from ..routing.http._headers import is_json
from ..routing.http._urls import BadUrl, Target, display_unparsed_url, parse, resolve_redirect

if TYPE_CHECKING:
    from aiohttp.abc import AbstractResolver
    from pydantic import BaseModel

    from ..protocol._declarations import Capability
    from ..routing.http._redirects import RedirectedGet

#: Capabilities read from a manifest (docs/protocol.md 7.2); the rest is left out with a warning.
MAX_CAPABILITIES = 1000
_MAX_LISTED = 5  # warnings of one kind, and names in one warning; the rest is only counted
_VERSION = re.compile(r"\s*v?(?P<major>[0-9]{1,9})(?:\.[0-9.]*)?\s*(?:[-+].*)?", re.IGNORECASE)

_M = TypeVar("_M", bound="BaseModel")


def read_manifest(body: bytes) -> tuple[protocol.Manifest, list[str]]:
    """Read a manifest leniently: return it, and warnings about unreadable parts, which are left out."""
    document = decode_json(body.removeprefix(codecs.BOM_UTF8))
    if not isinstance(document, dict):
        raise ProtocolError(
            f"it is JSON but not an object: it begins with {plain_line(body[:40].decode('utf-8', 'replace'), 40)!r}"
        )
    if not document.keys() & {"abp", "app", "capabilities"}:
        raise ProtocolError("it is a JSON object, but has none of abp, app and capabilities")

    warnings: list[str] = []
    manifest = _read_version(document, warnings)
    app = _read_app(document, warnings)
    entries = document.get("capabilities")
    if not isinstance(entries, list):
        warnings.append("the manifest has no list of capabilities")
        return manifest.model_copy(update={"app": app}), warnings

    if len(entries) > MAX_CAPABILITIES:
        warnings.append(f"the manifest lists {len(entries)} capabilities; the first {MAX_CAPABILITIES} are taken")
    capabilities = _read_capabilities(entries[:MAX_CAPABILITIES], warnings)
    return manifest.model_copy(update={"app": app, "capabilities": capabilities}), warnings


def _read_version(document: Mapping[str, object], warnings: list[str]) -> protocol.Manifest:
    """Return a manifest with nothing but the version of the protocol."""
    manifest = _parse_part(protocol.Manifest, {"abp": document.get("abp")}, "its abp version", warnings)
    if manifest is None:
        return protocol.Manifest()
    warnings += _version_warnings(manifest.abp)
    return manifest


def _read_app(document: Mapping[str, object], warnings: list[str]) -> protocol.AppInfo:
    app = _parse_part(protocol.AppInfo, document.get("app") or {}, "its app", warnings)
    if app is None:
        return protocol.AppInfo()
    missing = [f"app.{name}" for name in ("id", "name", "version") if not getattr(app, name)]
    if missing:
        warnings.append(f"the manifest names no {', '.join(missing)}")
    return app


def _parse_part(model: type[_M], value: object, what: str, warnings: list[str]) -> _M | None:
    try:
        return protocol.parse(model, value, what)
    except ProtocolError as error:
        warnings.append(f"the manifest: {plain_line(error.message, 300)}")
        return None


def _version_warnings(version: str) -> list[str]:
    theirs = _VERSION.fullmatch(version)
    ours = _VERSION.fullmatch(PROTOCOL_VERSION)
    display_version = plain_line(version, 40)
    if theirs is None and display_version:
        return [f"the manifest's ABP version {display_version!r} cannot be read"]
    if theirs is None:
        return ["the manifest names no ABP version"]
    if ours is not None and int(theirs["major"]) > int(ours["major"]):
        return [f"the manifest is for ABP {display_version}, newer than {PROTOCOL_VERSION}; parts of it may not work"]
    return []


def _read_capabilities(entries: Iterable[object], warnings: list[str]) -> list[protocol.Capability]:
    capabilities: dict[str, protocol.Capability] = {}
    left_out: list[str] = []
    for number, item in enumerate(entries):
        try:
            if is_deeper(item, MAX_DEPTH):
                raise ProtocolError(f"it is nested deeper than {MAX_DEPTH} levels")
            capability = protocol.parse(protocol.Capability, item, "it")
            if not capability.name.strip():
                raise ProtocolError("it has no name")
            if capability.name in capabilities:
                raise ProtocolError(f"there is a {plain_line(capability.name, 60)!r} already")
        except ProtocolError as error:
            left_out.append(f"capability {number} of the manifest is left out: {plain_line(error.message, 300)}")
        else:
            capabilities[capability.name] = capability

    warnings += left_out[:_MAX_LISTED]
    if len(left_out) > _MAX_LISTED:
        warnings.append(f"{len(left_out) - _MAX_LISTED} more capabilities of the manifest are left out")
    return list(capabilities.values())


def missing_capabilities(declared: Iterable[Capability], run_time: Mapping[str, Capability]) -> list[str]:
    """Return at most one warning: the names of capabilities in the manifest that the running app lacks."""
    names = [plain_line(capability.name, 60) for capability in declared if capability.name not in run_time]
    if not names:
        return []
    return [f"the manifest names {first_names(names, _MAX_LISTED)}, which the running app does not have"]


_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
#: Encodings of the web. Python's other codecs may be slow on crafted input, or do not decode to text.
_ENCODING_LABEL = re.compile(
    r"utf-?8|utf-16(?:le|be)?|us-ascii|ascii|latin-?1|iso-?8859-\d{1,2}|windows-125\d|koi8-[ru]"
    r"|shift_jis|euc-(?:jp|kr)|gbk|gb2312|gb18030|big5",
)
#: Encodings that are read as windows-1252, as in every browser.
_READ_AS_WINDOWS_1252 = {"us-ascii", "ascii", "latin1", "latin-1", "iso-8859-1", "iso8859-1"}
#: Elements whose content is text, not markup; <noscript> too in a browser that runs scripts.
_RAW_TEXT_ELEMENTS = {"iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "xmp"}


class PageHead:
    """Incremental parser of a page's head, for bytes as they arrive. ``charset`` is that of the ``Content-Type``."""

    def __init__(self, charset: str | None = None) -> None:
        self._declared_charset = charset
        self._start = b""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._tags = _Tags()

    @property
    def ended(self) -> bool:
        return self._tags.ended

    @property
    def href(self) -> str | None:
        """The ``href`` of the first ``<link rel=abp-manifest>``, unresolved."""
        return self._tags.href

    @property
    def base(self) -> str | None:
        """The ``href`` of the first ``<base>``, unresolved."""
        return self._tags.base

    @property
    def title(self) -> str:
        return " ".join("".join(self._tags.title).split())

    def feed(self, data: bytes, *, last: bool = False) -> None:
        """Parse the next bytes. ``last`` marks the end of the page; an incomplete tag there does not count."""
        if self._decoder is None:
            self._start += data
            charset = _find_charset(self._start, self._declared_charset)
            if charset is None:
                return
            data = self._start
            self._decoder = codecs.getincrementaldecoder(charset)("replace")

        try:
            self._tags.feed(self._decoder.decode(data, last))
        except ValueError:
            # A character reference with more digits than int() converts.
            self._tags.ended = True


def _find_charset(start: bytes, declared: str | None) -> str | None:
    """Return the encoding of a page: that of its byte order mark, else of the header (``declared``), else UTF-8.

    ``None`` means that more bytes are needed to decide."""
    for bom, name in _BOMS.items():
        if start.startswith(bom):
            return name
    longest_bom = 3
    if len(start) < longest_bom:
        return None
    return _codec_name(declared or "") or "utf-8"


def _codec_name(label: str) -> str | None:
    """Return Python's name of the encoding that browsers use for a label, or ``None`` for an unknown label."""
    label = label.strip().lower()
    if not _ENCODING_LABEL.fullmatch(label):
        return None
    if label in _READ_AS_WINDOWS_1252:
        label = "cp1252"
    elif label == "utf-16":
        label = "utf-16-le"
    try:
        return codecs.lookup(label).name
    except LookupError:
        return None


class _Tags(HTMLParser):
    """Collector of the tags of a head. It is never closed, so an incomplete tag is not reported."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = False
        self.href: str | None = None
        self.base: str | None = None
        self.title: list[str] = []
        self._room = 1000  # characters of the title
        self._templates = 0
        self._in_title: bool | None = None  # None before the title, False after it

    def parse_html_declaration(self, i: int) -> int:
        """Skip ``<![…>``, a comment in HTML; the base class expects SGML there and fails on anything else."""
        if self.rawdata.startswith("<![", i):
            return self.parse_bogus_comment(i)
        return super().parse_html_declaration(i)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _RAW_TEXT_ELEMENTS:
            self.set_cdata_mode(tag)
        if self.ended or self._in_title:
            return

        # Nothing inside a <template> belongs to the page.
        if tag == "template":
            self._templates += 1
        if self._templates:
            return

        # Reversed, since the first of several attributes with one name counts.
        attributes = {name: value or "" for name, value in reversed(attrs)}
        href = attributes.get("href", "").strip()
        relations = attributes.get("rel", "").lower().split()
        # The first title, <base> and manifest link of a page count.
        match tag:
            case "body" | "frameset":
                self.ended = True
            case "title" if self._in_title is None:  # no title so far
                self._in_title = True
            case "base" if self.base is None and "href" in attributes:
                self.base = href
            case "link" if self.href is None and href and "abp-manifest" in relations:
                self.href = href

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Handle ``<tag/>`` as ``<tag>``: HTML ignores the slash."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._in_title:
            self._in_title = tag != "title"
        elif tag == "template":
            self._templates = max(0, self._templates - 1)
        elif tag == "head" and not self._templates:
            self.ended = True

    def handle_data(self, data: str) -> None:
        if self._in_title and not self.ended and self._room:
            self.title.append(data[: self._room])
            self._room -= len(self.title[-1])


_DIRECTIVE = re.compile(r"""([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:\s*=\s*("(?:[^"\\]|\\.)*"|[^\s,]*))?""")


@dataclass(frozen=True, slots=True)
class CachedResponse:
    """A stored response: body, headers, and the interval in which it is fresh (Unix seconds)."""

    body: bytes
    headers: CIMultiDict[str]
    fresh_from: float
    fresh_until: float

    @property
    def conditions(self) -> dict[str, str]:
        """The headers of a request that revalidates the response (RFC 9110 §13.1)."""
        conditions = {}
        for name, condition in (("ETag", "If-None-Match"), ("Last-Modified", "If-Modified-Since")):
            value = self.headers.get(name, "")
            if value and value.isprintable():
                conditions[condition] = value
        return conditions


class ManifestCache:
    """HTTP cache of manifests by URL (RFC 9111). A stale response is always revalidated, so ``must-revalidate`` needs
    no code. Heuristic freshness (§4.2.2) is not used. ``clock`` returns Unix seconds. Thread-safe."""

    def __init__(self, entries: int = 64, *, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._responses: Recent[URL, CachedResponse] = Recent(entries)
        self._lock = threading.Lock()

    def get(self, url: URL) -> CachedResponse | None:
        """Return the stored response of a URL, fresh or stale, and count this as its use."""
        with self._lock:
            cached = self._responses.get(url)
            if cached is not None:
                self._responses.move_to_end(url)
            return cached

    def is_fresh(self, cached: CachedResponse) -> bool:
        # Before `fresh_from` means that the clock was set back since: then the age of the response is unknown.
        return cached.fresh_from <= self.clock() < cached.fresh_until

    def put(self, url: URL, body: bytes, headers: CIMultiDictProxy[str], requested_at: float) -> None:
        """Store a 200 response to a request sent at ``requested_at`` (Unix seconds), if its headers allow it."""
        self._replace_response(url, body, headers.copy(), requested_at)

    def update(self, url: URL, cached: CachedResponse, headers: CIMultiDictProxy[str], requested_at: float) -> None:
        """Update a stored response from the headers of a 304 (RFC 9111 §4.3.4)."""
        new_headers = cached.headers.copy()
        for name in ("Age", "Date", *headers):
            new_headers.popall(name, None)
        new_headers.extend(headers)
        self._replace_response(url, cached.body, new_headers, requested_at)

    def _replace_response(self, url: URL, body: bytes, headers: CIMultiDict[str], requested_at: float) -> None:
        """Store a response in the place of an earlier one, or remove that one if the new one must not be stored."""
        now = self.clock()
        lifetime = _lifetime(headers)
        fresh_until = now + (lifetime or 0) - _age(headers, requested_at, now)
        response = CachedResponse(body, headers, now, fresh_until)
        is_storable = lifetime is not None
        is_reusable = bool(lifetime or response.conditions)

        with self._lock:
            self._responses.pop(url, None)
            if is_storable and is_reusable:
                self._responses[url] = response


def _lifetime(headers: CIMultiDict[str]) -> float | None:
    """Return for how many seconds a response is fresh (RFC 9111 §4.2.1): 0 if it must be revalidated before each use,
    ``None`` if it must not be stored."""
    directives: dict[str, str] = {}
    for name, value in _DIRECTIVE.findall(",".join(headers.getall("Cache-Control", []))):
        directives.setdefault(name.lower(), value.strip('"'))

    if "no-store" in directives:
        return None
    # Only `Vary: *` matters, since the headers of our requests are always the same.
    if "no-cache" in directives or "*" in ",".join(headers.getall("Vary", [])):
        return 0
    if "max-age" in directives:
        return _seconds(directives["max-age"])

    expires = http_date(headers.get("Expires", ""))
    sent_at = http_date(headers.get("Date", ""))
    if not expires or not sent_at:
        return 0
    return max(0.0, (expires - sent_at).total_seconds())


def _age(headers: CIMultiDict[str], requested_at: float, now: float) -> float:
    """Return the age of a response when it arrived, in seconds (RFC 9111 §4.2.3)."""
    sent_at = http_date(headers.get("Date", ""))
    apparent_age = max(0.0, now - sent_at.timestamp()) if sent_at else 0.0
    response_delay = max(0.0, now - requested_at)
    corrected_age = _seconds(headers.get("Age", "")) + response_delay
    return max(apparent_age, corrected_age)


def _seconds(text: str) -> float:
    """Return a number of seconds in a header (RFC 9111 §1.2.2); 0 for any other text."""
    text = text.strip()
    if not re.fullmatch(r"[0-9]{1,18}", text):
        return 0
    largest = 2**31
    return min(int(text), largest)


#: Bytes of a page in which the link is searched (docs/protocol.md 7.1, 7.2).
HEAD_BYTES = 50 * 1024
#: Largest manifest in bytes (docs/protocol.md 1.3).
MANIFEST_BYTES = 1 << 20

#: The cache of the process.
_SHARED = ManifestCache()


@short_traceback
async def discover(
    url: str,
    *,
    timeout: float = 10.0,
    allow_private: bool = False,
    cache: ManifestCache | None = None,
    resolver: AbstractResolver | None = None,
) -> Discovery:
    """Return the manifest of the app at ``url``, without a browser.

    ``timeout`` in seconds is for the page, and again for its manifest, each with its redirects. The host of ``url`` may
    have any address; later requests must reach it at the same address or at a public one. Other hosts, named by
    redirects or the page's link, must be public unless ``allow_private``. User info in ``url`` is sent to its own
    origin only, and a manifest that was fetched with it is not cached. Cookies are neither sent nor kept. Proxy
    settings of the environment are not used.

    Manifests are cached according to their ``Cache-Control``, in ``cache`` or by default in a cache of the process.

    A page without a manifest, or one that cannot be reached, raises nothing: ``reason`` then holds the
    :class:`~transports.errors.DiscoveryFailed` (``code`` is ``TIMEOUT`` at a deadline and ``BLOCKED_ADDRESS`` where a
    private address was refused). Raises :class:`~transports.errors.UsageError` if ``url`` is not a web address.
    """
    from ..routing.http._redirects import RedirectedGet, UserHost  # late, as it imports aiohttp

    try:
        user_target = parse(url)
    except BadUrl as error:
        display_url = display_unparsed_url(url)
        raise UsageError(
            f"{display_url!r} is not the address of a page: {error}; give one such as http://127.0.0.1:8000/"
        ) from None

    user_host = UserHost(user_target)
    request = partial(
        RedirectedGet, user_host=user_host, timeout=timeout, allow_private=allow_private, resolver=resolver
    )
    page = request("the page", user_target, accept="text/html")
    manifest: RedirectedGet | None = None
    title = ""
    try:
        async with page.deadline():
            head, size = await _read_head(page)
        title = plain_line(head.title, 200)
        manifest = request("the manifest", _manifest_target(page, head, size), accept="application/json")
        app_manifest, mime_type, warnings = await _fetch_manifest(manifest, _SHARED if cache is None else cache)
    except DiscoveryFailed as failure:
        manifest_url = None if manifest is None else str(manifest.target.url)
        return Discovery(str(page.target.url), manifest_url, title, reason=failure)
    return Discovery(str(page.target.url), str(manifest.target.url), title, app_manifest, mime_type, tuple(warnings))


async def _fetch_manifest(manifest: RedirectedGet, cache: ManifestCache) -> tuple[protocol.Manifest, str, list[str]]:
    """Return the manifest, its media type and warnings. Raises :class:`~transports.errors.DiscoveryFailed`."""
    async with manifest.deadline():
        body, headers = await _read_body(manifest, cache)
    try:
        manifest_of_app, warnings = read_manifest(body)
    except ProtocolError as error:
        raise manifest.error(f"{manifest.label} cannot be used: {error.message}") from None

    mime_type = plain_line(normalise_mime(headers.get("Content-Type")) or "", 80)
    if not is_json(mime_type):
        display_type = mime_type or "a file without a type"
        warnings.append(f"the manifest is served as {display_type}, not as application/json")
    return manifest_of_app, mime_type, warnings


async def _read_head(page: RedirectedGet) -> tuple[PageHead, int]:
    """Follow the redirects of a page and read its head. Return the head, and the bytes that were searched."""
    async with page.final_response() as response:
        head = PageHead(response.charset)
        size = 0
        while size < HEAD_BYTES and not head.ended and (data := await page.read_chunk(response)):
            head.feed(data[: HEAD_BYTES - size])
            size = min(size + len(data), HEAD_BYTES)
        if not head.ended:
            head.feed(b"", last=True)
        return head, size


def _manifest_target(page: RedirectedGet, head: PageHead, size: int) -> Target:
    """Return the address of the manifest that a page links to. ``size`` bytes of the page were searched."""
    if head.href is None:
        raise page.error(
            f'{page.label} has no <link rel="abp-manifest" href="…"> in its head ({size} bytes); '
            "if the app speaks ABP without a manifest, connect to it in a browser to list its capabilities"
        )

    base = str(page.target.url)
    if head.base:
        # An invalid base is ignored, as in browsers (HTML §4.2.3).
        with suppress(BadUrl):
            base = str(parse(head.base, base).url)

    try:
        return resolve_redirect(page.target, urljoin(base, head.href))
    except BadUrl as error:
        raise page.error(f"{page.label} has a manifest link that is not followed: {error}") from None
    except ValueError:
        raise page.error(f"{page.label} has a manifest link that is not a valid URL") from None


async def _read_body(manifest: RedirectedGet, cache: ManifestCache) -> tuple[bytes, Mapping[str, str]]:
    """Return the body and the headers of a manifest, from the cache if they are fresh there. Follows redirects."""
    while True:
        url = manifest.target.url
        # A manifest for one user must not be served to another.
        cacheable = manifest.authorization is None
        cached = cache.get(url) if cacheable else None
        if cached is not None and cache.is_fresh(cached):
            return cached.body, cached.headers

        requested_at = cache.clock()
        async with manifest.send(cached.conditions if cached else None) as response:
            if manifest.follow_redirect(response):
                continue
            if response.status == 304 and cached is not None:
                cache.update(url, cached, response.headers, requested_at)
                return cached.body, cached.headers
            manifest.raise_for_status(response)

            body = await manifest.read_body(response, MANIFEST_BYTES)
            if cacheable:
                cache.put(url, body, response.headers, requested_at)
            return body, response.headers
