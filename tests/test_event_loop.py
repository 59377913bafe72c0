"""Nothing that an app sends holds the event loop for more than 50 ms: what is read on the loop is read in that time at
any size that is read there, and what may take longer is read in a thread (``tests/session/test_long_turns.py``).

Measured is processor time, the best of three, as on the usual machine (``tests/support/processor.py``).
"""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from tests.support.processor import BOUND, seconds
from tests.support.rows import each_row
from transports._internal.redaction import Redactor
from transports.artifacts._content import Meter, clean_namespace, describe
from transports.artifacts._ref import MAX_METADATA_BYTES, Metadata
from transports.errors import ABPError, CapabilityError
from transports.protocol._capabilities import with_suggestions
from transports.protocol._declarations import Capability, parse
from transports.protocol._find_content import find
from transports.protocol._http_dates import http_date, retry_after
from transports.protocol._media import contradicts, extension_for, normalise_mime, safe_filename, sniff
from transports.protocol._plain_text import redact_url
from transports.protocol._strict_json import PARSED_ON_LOOP, decode_json
from transports.protocol.schema import _compile, check_output
from transports.routing.http._headers import Representation, content_range, filename_of
from transports.websocket.envelope import decode_envelope

INLINE = PARSED_ON_LOOP
#: Bytes of one header that an HTTP client takes.
HEADER = 8190


def message(payload: bytes) -> bytes:
    return b'{"type":"x","id":"1","payload":' + payload + b"}"


def filled(head: bytes, part: bytes, tail: bytes, size: int = INLINE - 100) -> bytes:
    return head + part * ((size - len(head) - len(tail)) // len(part)) + tail


ENVELOPES = {
    "lists": filled(b"[", b"[],", b"1]"),
    "objects": filled(b"[", b"{},", b"1]"),
    "numbers": filled(b"[", b"1,", b"1]"),
    "texts": filled(b"[", b'"",', b"1]"),
    "deep chains": filled(b"[", b"[" * 60 + b"]" * 60 + b",", b"1]"),
    "one nest": b"[" * (INLINE // 2 - 100) + b"]" * (INLINE // 2 - 100),
    "never closed": b"[" * (INLINE - 100),
    "keys": b"{" + b",".join(b'"%x":1' % n for n in range(INLINE // 10)) + b"}",
    "escapes": filled(b'"', b"\\u0061", b'"'),
    "a long text": filled(b'"', b"a", b'"'),
    "a run of base64": filled(b'{"mimeType":"image/png","encoding":"base64","content":"', b"AAAA", b'"}'),
    "a run that is none": filled(b'{"mimeType":"image/png","encoding":"base64","content":"', b"AA-A", b'"}'),
    "quotation marks": filled(b"[", b'"\\"",', b"1]"),
    "a long number": filled(b"", b"9", b""),
}


@pytest.mark.fault(21)
@each_row("kind", ENVELOPES)
def test_messages_parsed_on_loop_stay_within_time_bound(kind: str) -> None:
    assert INLINE <= 128 << 10  # twice as much took 51 ms of a busy machine
    assert len(data := message(ENVELOPES[kind])) <= INLINE
    assert seconds(lambda: attempt(decode_envelope, data)) < BOUND


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.fault(21)
def test_millions_of_nesting_levels_use_no_memory() -> None:
    for part in (b"[", b'{"a":'):
        data = part * (2 << 20)
        tracemalloc.start()
        try:
            with pytest.raises(ABPError):
                decode_json(data)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
        assert seconds(lambda text=data: attempt(decode_json, text)) < BOUND  # type: ignore[misc]


def attempt(work: Callable[..., object], *arguments: object) -> None:
    """Do work that may refuse what it is given."""
    with suppress(ABPError, ValueError):
        work(*arguments)


TEXTS = {
    "colons": "a:" * 20_000,
    "schemes": "a://" * 10_000 + "@",
    "user info": "a:" * 20_000 + "u:p@x",
    "slashes": "/" * 40_000 + "@",
    "line breaks": " \n" * 20_000 + ":",
    "queries": "?a=b&key=c" * 4_000,
    "tokens": "eyJaaaaaaaa.eyJaaaaaa." * 1_800,
    "dots": "a." * 20_000 + ":",
    "headers": "authorization: a\n" * 2_500,
    "credentials": "basic a1aaaaa= bearer a1aaaaaa" * 1_300,
    "marks": "a" + "\u0316\u0301" * 20_000,
    "surrogates": "\ud800" * 40_000,
    "dashes": "-_.~" * 10_000,
    "types": "a/" * 20_000,
    "parameters": "a/b;" + 'a="\\"' * 8_000,
}
NOTHING = Capability(name="a")
#: What reads a text on the event loop, whatever its length.
READERS: dict[str, Callable[[str], object]] = {
    "redact_url": redact_url,
    "secrets": Redactor().redact_text,
    "file names": lambda text: safe_filename(text, fallback="a", mime_type=None),
    "types": normalise_mime,
    "extensions": extension_for,
    "lies": lambda text: contradicts(text, "image/png"),
    "namespaces": clean_namespace,
    "namesakes": lambda text: with_suggestions(
        CapabilityError("no", code="UNKNOWN_CAPABILITY"), text[:1000], dict.fromkeys(map(str, range(5000)), NOTHING)
    ),
}


#: Readers of which all texts together take a third of a second.
SLOW = ("secrets", "redact_url")


@pytest.mark.parametrize(
    "reader", [pytest.param(name, marks=[pytest.mark.load] if name in SLOW else []) for name in READERS]
)
def test_app_texts_do_not_block_event_loop(reader: str) -> None:
    """Up to 40,000 characters; longer ones take their time in proportion, and are cut or read in a thread."""
    slow = {kind: took for kind, text in TEXTS.items() if (took := seconds(lambda: READERS[reader](text))) >= BOUND}  # noqa: B023
    assert slow == {}


def test_parsing_hostile_response_headers_is_fast() -> None:
    values = [
        "attachment" + ';a="\\"' * 1_300,
        "attachment; filename*=UTF-8''" + "%e2%82" * 1_300,
        "attachment; filename*=utf-8''" + "'" * 8_000,
        'attachment; filename="' + '\\"' * 4_000,
        ";" * HEADER,
        "a=" * (HEADER // 2),
        "bytes " + "9" * 8_000,
        "bytes 0-" + " " * 8_000,
        "9" * HEADER,
        "Mon, " * 1_600,
        '"' + "a" * 8_000,
    ]
    names = ("Content-Disposition", "Content-Type", "ETag", "Content-Length", "Last-Modified", "Date")
    for value in values:
        headers = dict.fromkeys(names, value[:HEADER])
        parts = CIMultiDictProxy(CIMultiDict({"Content-Range": headers["ETag"]}))
        assert seconds(lambda: attempt(content_range, parts)) < BOUND, value[:30]  # noqa: B023
        for reader in (filename_of, http_date, lambda text: retry_after(text, 0.0)):
            assert seconds(lambda: attempt(reader, headers["ETag"])) < BOUND, value[:30]  # noqa: B023
        assert seconds(lambda: Representation.from_headers(headers)) < BOUND, value[:30]  # noqa: B023


def test_sniffing_hostile_file_heads_is_fast() -> None:
    heads = [
        b"PK\x03\x04" * 1024,
        b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml" + b"PK\x03\x04" * 1000,
        b"PK\x03\x04" + bytes(26) + b"mimetypeapplication/vnd.oasis.opendocument." + b"a-" * 2000,
        b"<?xml" + b" " * 4000,
        b"\xef\xbb\xbf" + b"\n" * 4000,
        b"\xff\xfb" * 2048,
        bytes(4096),
        os.urandom(4096),
    ]
    for head in heads:
        assert seconds(lambda: sniff(head), 0.005) < 0.005  # noqa: B023


def nested(levels: int, leaf: object = 1) -> object:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


_PATTERNS = [f"^(.{{1,255}})*{n}$" for n in range(100)]
_TREE = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#"}}]}


def schemas() -> Iterator[tuple[str, Mapping[str, object], object]]:
    """Schemas that take long to check, each with its name and what it is asked about."""
    yield "a pattern that backtracks", {"pattern": "^(a+)+$"}, "a" * 50_000 + "?"
    yield "alternatives that backtrack", {"pattern": "^(a|a)*$"}, "a" * 50_000 + "?"
    yield "wildcards that backtrack", {"pattern": "^(.*)*b$"}, "a" * 50_000 + "?"
    yield "a hundred large patterns", {"allOf": [{"pattern": one} for one in _PATTERNS]}, "a" * 1000
    yield "large patterns of names", {"patternProperties": {one: {} for one in _PATTERNS}}, {"a" * 5000: 1}
    yield (
        "as many properties as it may",
        {"properties": {f"p{n}": {"type": "string"} for n in range(4900)}},
        {f"p{n}": "a" for n in range(4900)},
    )
    yield (
        "a chain of references",
        {"$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3000)} | {"d3000": {}}, "$ref": "#/$defs/d0"},
        1,
    )
    yield "a reference to itself", {"$ref": "#"}, {"a": 1}
    yield "references that double", {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#"}] * 2}}}, nested(40)
    yield "a tree", _TREE, [[["a"] * 20] * 20] * 20
    yield "a remote reference", {"$ref": "http://192.0.2.1/s"}, 1
    yield "as many values as it may", {"properties": {"a": {"items": {"type": "integer"}}}}, {"a": [0] * 99_000}
    yield "more values than it may", {"type": "object"}, {"a": [0] * 3_000_000}
    yield "values that are all different", {"uniqueItems": True}, [{"a": n} for n in range(14_000)]
    yield "one of many", {"enum": [f"{n:020}" for n in range(9000)]}, "y"
    yield "contained nowhere", {"contains": {"const": 1}}, [0] * 49_000
    yield "faults without end", {"items": {"anyOf": [{"type": "string"}] * 40}}, [0] * 45
    yield "a long description", {"description": "x" * 261_000}, {}
    yield "deeper than it may", {"properties": {"a": {"$ref": "#"}}}, nested(100_000)


@pytest.mark.load
@pytest.mark.fault(23)
def test_schemas() -> None:
    def check(schema: Mapping[str, object], data: object) -> None:
        _compile.cache_clear()  # as at the first call
        check_output(schema, data)

    taken = {kind: seconds(partial(check, schema, data)) for kind, schema, data in schemas()}
    assert {kind: took for kind, took in taken.items() if took >= BOUND} == {}


@pytest.mark.slow
@pytest.mark.load
def test_describing_hostile_metadata_is_fast() -> None:
    meter = Meter(1)
    meta = {"a": ["://u:p@x/?key=b " * 100] * 30}
    assert (
        seconds(
            lambda: describe(
                meter, size=0, mime_type="a/b" * 20_000, filename="a.b" * 20_000, namespace="a." * 20_000, meta=meta
            )
        )
        < BOUND
    )
    assert seconds(lambda: attempt(Metadata.decode, b"{" * MAX_METADATA_BYTES, "a_0123456789ab")) < BOUND
    entry = {"name": "a", "alternatives": ["b"] * 2000, "requirements": ["c"] * 2000, "unknown": nested(60)}
    assert seconds(lambda: parse(Capability, entry, "a")) < BOUND


def test_answers_small_enough_for_event_loop_are_searched_fast() -> None:
    """As many values as are searched there; larger answers are searched in a thread."""
    descriptors = [{"content": "QUJD", "mimeType": "image/png", "encoding": "base64"}] * 990
    pictures = ["iVBORw0KGgo" + "A" * 1001] * 190
    for data in (descriptors, pictures, nested(60, [0] * 2900), [[]] * 2900, ["\x89PNG" + "\xff" * 900] * 200):
        assert seconds(lambda: find(data)) < BOUND  # noqa: B023
