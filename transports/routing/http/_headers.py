"""Parsing of response headers: length, validator, file name. No I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from typing import NamedTuple
from urllib.parse import unquote, unquote_to_bytes

from multidict import CIMultiDictProxy

from ...protocol._http_dates import http_date
from ...protocol._media import normalise_mime

_DIGITS = re.compile(r"[0-9]{1,18}")
_STRONG_ETAG = re.compile(r'"[\x21\x23-\x7e\x80-\U0010ffff]*"')
_CONTENT_RANGE = re.compile(
    r"(?:bytes\s+)?(?P<first>[0-9]{1,18})-(?P<last>[0-9]{1,18})/(?P<total>[0-9]{1,18})", re.IGNORECASE
)
_BYTES = re.compile(r"bytes\b", re.IGNORECASE)
_UNIT = re.compile(r"[a-z]", re.IGNORECASE)
_PARAMETER = re.compile(r";\s*([!#$%&'*+.^_`|~0-9A-Za-z-]+)\s*=\s*(\"(?:[^\"\\]|\\.)*\"|[^;]*)")


@dataclass(frozen=True, slots=True)
class Representation:
    """The representation (RFC 9110 §3.2) that a 200 answer began to transfer. ``framed`` is true if the end of the body
    is marked (``Content-Length`` or chunks). ``validator`` can be sent as ``If-Range`` (RFC 9110 §13.1.5): a strong
    ETag or, if there is no ETag, a ``Last-Modified`` at least a minute older than the answer. ``filename`` is
    untrusted."""

    total: int | None
    framed: bool
    validator: str | None
    content_type: str | None
    filename: str | None

    @classmethod
    def from_headers(cls, headers: Mapping[str, str]) -> Representation:
        total = content_length(headers)
        has_ranges = headers.get("Accept-Ranges", "").strip().lower() != "none"
        return cls(
            total,
            framed="Transfer-Encoding" in headers or total is not None,
            validator=_validator(headers) if has_ranges else None,
            content_type=normalise_mime(headers.get("Content-Type")),
            filename=filename_of(headers.get("Content-Disposition")),
        )

    def matches(self, headers: Mapping[str, str]) -> bool:
        """Return whether an answer with these headers certainly transfers the same representation."""
        if self.validator is None:
            return False
        # A 206 carries the ETag, but may omit Last-Modified (RFC 9110 §15.3.7).
        if self.validator.startswith('"'):
            return headers.get("ETag", "").strip() == self.validator
        return headers.get("Last-Modified", self.validator).strip() == self.validator


def _validator(headers: Mapping[str, str]) -> str | None:
    """Return the value for ``If-Range``, or ``None`` if the server gave none that is reliable."""
    etag = headers.get("ETag", "").strip()
    if etag:
        return etag if _STRONG_ETAG.fullmatch(etag) else None

    # Dates have no fractions of a second, so content that was changed just before may change again unnoticed.
    last_modified = headers.get("Last-Modified", "").strip()
    modified_at = http_date(last_modified)
    sent_at = http_date(headers.get("Date", ""))
    if modified_at is None or sent_at is None:
        return None
    is_settled = (sent_at - modified_at).total_seconds() >= 60
    return last_modified if is_settled else None


def content_length(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body in bytes, or ``None`` if no header has it."""
    length = headers.get("Content-Length", "").strip()
    if "Transfer-Encoding" in headers or not _DIGITS.fullmatch(length):
        return None
    return int(length)


class ContentRange(NamedTuple):
    """Positions of the first and the last byte of a part of a file, and the size of the file, all in bytes."""

    first: int
    last: int
    total: int


def content_range(headers: CIMultiDictProxy[str]) -> ContentRange | None:
    """Return which part of a file a response holds. ``None`` means that the range is missing or invalid, contradicts
    another range or the length of the body, or has no total: then the end looks the same as a broken connection."""
    ranges = set(headers.getall("Content-Range", ()))
    if len(ranges) != 1 or _has_several_parts(headers):
        return None
    match = _CONTENT_RANGE.fullmatch(ranges.pop().strip())
    if match is None:
        return None

    part = ContentRange(int(match["first"]), int(match["last"]), int(match["total"]))
    if not part.first <= part.last < part.total:
        return None
    if content_length(headers) not in (None, part.last + 1 - part.first):
        return None
    return part


def is_part(headers: CIMultiDictProxy[str], *, range_requested: bool) -> bool:
    """Return whether a 200 response wrongly holds only a part of the content (RFC 9110 §15.3.1 requires all of it).
    Without a request for a range, a range in other units than bytes is the app's own, such as rows of a table, and a
    range without a unit counts only if its length is that of the body."""
    if _has_several_parts(headers):
        return True

    ranges = [text.strip() for text in headers.getall("Content-Range", ()) if text.strip()]
    if range_requested:
        return bool(ranges)
    ranges_with_unit = [text for text in ranges if _UNIT.match(text)]
    if ranges_with_unit:
        return any(_BYTES.match(text) for text in ranges_with_unit)
    return content_range(headers) is not None


def _has_several_parts(headers: Mapping[str, str]) -> bool:
    return normalise_mime(headers.get("Content-Type")) == "multipart/byteranges"


def content_coding(headers: CIMultiDictProxy[str]) -> str | None:
    """Return the coding of a body in lower case, or ``None`` for plain bytes. Several codings, from one header or from
    several, are joined by a comma and a space."""
    if content_length(headers) == 0:
        # For an empty body, servers name the coding of their other bodies, too. It needs no decoding.
        return None
    names = ",".join(headers.getall("Content-Encoding", ())).lower().split(",")
    codings = [coding.strip() for coding in names if coding.strip() not in ("", "identity")]
    return ", ".join(codings) or transfer_coding(headers)


def transfer_coding(headers: Mapping[str, str]) -> str | None:
    """Return the coding of a body for its transfer alone, or ``None`` for one that is sent as it is or in chunks."""
    coding = headers.get("Transfer-Encoding", "").strip().lower()
    return None if coding in ("", "chunked", "identity") else coding


def filename_of(disposition: str | None) -> str | None:
    """Return the file name in a ``Content-Disposition``, which is untrusted: it may be a path, or worse. ``filename*``
    (RFC 8187) has precedence over ``filename``."""
    plain, extended = _read_parameter(disposition, "filename")
    return extended or _decode_percent(plain) or None


def disposition_parameter(disposition: str | None, parameter: str) -> str | None:
    """Return a parameter of a ``Content-Disposition``, in its extended form if there is one. An unreadable parameter
    counts as missing, and so does any in a field that would take long to read."""
    plain, extended = _read_parameter(disposition, parameter)
    return extended or plain or None


def _read_parameter(disposition: str | None, parameter: str) -> tuple[str, str]:
    """Return the plain and the extended form of a parameter, each empty if it is missing or unreadable."""
    max_chars = 8192
    if not disposition or len(disposition) > max_chars:
        return "", ""

    plain = None
    extended = None
    for name, value in _PARAMETER.findall(disposition):
        name = name.lower()
        value = value.strip()
        if name == f"{parameter}*" and extended is None:
            extended = _decode_extended(value)
        elif name == parameter and plain is None:
            plain = _decode_words(_decode_latin1(_unquote_string(value)))
    return plain or "", extended or ""


def _decode_extended(value: str) -> str | None:
    """Decode ``charset'language'percent-encoded`` (RFC 8187), or return ``None`` if it is something else."""
    charset, _, rest = value.strip('"').partition("'")
    _, second_quote, encoded = rest.partition("'")
    if not second_quote or charset.lower() not in ("utf-8", "iso-8859-1"):
        return None
    try:
        return unquote_to_bytes(encoded).decode(charset)
    except UnicodeError:
        return None


def _unquote_string(value: str) -> str:
    """Return the text of a quoted string (RFC 9110 §5.6.4), or any other value unchanged. The last quote may be
    missing."""
    if not value.startswith('"'):
        return value
    if len(value) > 1 and value.endswith('"'):
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value[1:]


def _decode_latin1(value: str) -> str:
    """Decode a name as ISO 8859-1 (RFC 9110 §5.5) if it is not UTF-8: aiohttp escapes its bytes as surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogateescape").decode("latin-1")
    return value


def _decode_words(value: str) -> str:
    """Decode ``=?utf-8?B?…?=`` (RFC 2047), which has no place in a parameter, but browsers read it there."""
    if "=?" not in value:
        return value
    try:
        return str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        # LookupError: an unknown charset.
        return value


def _decode_percent(name: str) -> str:
    """Decode ``%E4%BD%A0``, which has no place in a plain name, but browsers read it there."""
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        return name


def is_json(kind: str) -> bool:
    return kind in ("application/json", "text/json") or kind.endswith("+json")
