"""What comes over HTTP: manifests, heads of pages, headers, URLs."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from transports.errors import DiscoveryFailed
from transports.protocol._capabilities import Capabilities
from transports.protocol._http_dates import retry_after
from transports.protocol._media import safe_filename
from transports.protocol._plain_text import is_loopback, plain_line, redact_url
from transports.routing.http._headers import (
    Representation,
    content_coding,
    content_range,
    disposition_parameter,
    filename_of,
    is_part,
)
from transports.routing.http._urls import (
    BadHeader,
    BadUrl,
    add_query,
    check_headers,
    display_unparsed_url,
    origin_of,
    parse,
    resolve_redirect,
    secret_forms,
)
from transports.session._manifest import ManifestCache, PageHead, _manifest_target, missing_capabilities, read_manifest
from transports.surfaces.web._responses import _parse_range

_PAGE = parse("https://app.example/tools/index.html")
_NOW = 1_800_000_000.0


def manifest(data: bytes) -> None:
    """A manifest, and its comparison with the running app."""
    declared, warnings = read_manifest(data)
    assert all(len(warning) < 1000 and plain_line(warning) == warning for warning in warnings)
    missing_capabilities(declared.capabilities, {})
    Capabilities().merge([one.name for one in declared.capabilities]).with_manifest(declared.capabilities)


def page_head(data: bytes) -> None:
    """The head of a page in two pieces: its link, base and title."""
    for charset in (None, "shift_jis"):
        head = PageHead(charset)
        head.feed(data[: len(data) // 2])
        head.feed(data[len(data) // 2 :], last=True)
        assert "\n" not in head.title
        page = SimpleNamespace(target=_PAGE, label="the page", error=lambda text: DiscoveryFailed(text))
        with suppress(DiscoveryFailed):
            target = _manifest_target(cast(Any, page), head, len(data))
            assert target.url.scheme == "https" and target.authorization is None


def headers(data: bytes) -> None:
    """The headers of an answer, one in a line."""
    text = data.decode("utf-8", "surrogateescape")
    pairs = [line.partition(":")[::2] for line in text.split("\n")]
    fields = CIMultiDict((name.strip(), value.strip()) for name, value in pairs)
    representation = Representation.from_headers(fields)
    assert representation.total is None or representation.total >= 0
    representation.matches(fields)
    content_coding(CIMultiDictProxy(fields))
    is_part(CIMultiDictProxy(fields), range_requested=False)
    for value in fields.values():
        span = content_range(CIMultiDictProxy(CIMultiDict({"Content-Range": value})))
        assert span is None or span[0] <= span[1] < span[2]
        wait = retry_after(value, _NOW)
        assert wait is None or 0 <= wait <= 1e9
        disposition_parameter(value, "name")
        safe_filename(filename_of(value), fallback="file", mime_type=None)
        part = _parse_range(value, 1000)
        assert part is None or part.start >= 1000 or 0 <= part.start <= part.stop <= 1000
    with suppress(BadHeader):
        check_headers(dict(fields))
    cache = ManifestCache(clock=lambda: _NOW)
    cache.put(URL("https://app.example/"), b"{}", CIMultiDictProxy(fields), _NOW)
    if cached := cache.get(URL("https://app.example/")):
        cache.update(URL("https://app.example/"), cached, CIMultiDictProxy(fields), _NOW)
        assert all(value.isprintable() for value in cached.conditions.values())


def url(data: bytes) -> None:
    """A URL, and a base or a redirect after a zero byte. User info is in no form of it that is shown."""
    text, _, other = data.decode("utf-8", "surrogateescape").partition("\0")
    redact_url(text)
    display_unparsed_url(text)
    is_loopback(text)
    origin_of(text)
    with suppress(BadUrl):
        target = parse(text, other or None)
        assert target.url.scheme in ("http", "https") and target.url.raw_host and not target.url.raw_user
        assert parse(str(target.url)).url == target.url
        assert "@" not in target.display_url.split("/")[2]
        secret_forms(*target.url.query.values(), target.url.raw_query_string, target.authorization or "")
        add_query(target.url, {"token": other.encode(errors="replace").decode()})
        redirected = resolve_redirect(target, other)
        assert redirected.authorization is None and (redirected.url.scheme, target.url.scheme) != ("http", "https")
