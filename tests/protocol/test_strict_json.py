"""Strict JSON: what is refused, and how many values, names and levels there may be."""

from __future__ import annotations

import json
import math
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from tests.support.processor import BOUND, seconds
from tests.support.rows import each_row
from transports.errors import ABPError, ProtocolError, UsageError
from transports.playwright._received import parse_event, parse_reply
from transports.protocol._strict_json import (
    MAX_LISTED,
    MAX_ON_LOOP,
    MAX_VALUES,
    ValueCounter,
    decode_json,
    decode_user_json,
    encode_json,
    has_more_values,
)
from transports.protocol.messages import Message
from transports.websocket.envelope import decode_envelope

# --- JSON (docs/faults.md 17, 21) -------------------------------------------------------------------------------------


@pytest.mark.fault(17)
@each_row(
    "text",
    [
        *("", "{", "[1] x", "[1,]", "{'a': 1}", "undefined"),
        *("NaN", "[Infinity]", "-Infinity", "1e999", "-1e999"),
        # halves of surrogate pairs, escaped, in a key, and as they are
        *('"\\ud800"', '"\\ud800 and more"', '"\\udc00 and more"', '{"\\ud800":1}', '"\ud800"'),
        *(b'"\xed\xa0\x80"', b'"\xff\xfe"'),
    ],
)
def test_non_strict_json_is_rejected(text: str | bytes) -> None:
    with pytest.raises(ProtocolError, match="JSON that cannot be read"):
        decode_json(text)


@pytest.mark.parametrize("text", ['["\\ud83d"]', b'["\\ud83d and more"]', '{"\\udc00": 1}'])
def test_cut_emoji_is_not_called_truncated_json(text: str | bytes) -> None:
    with pytest.raises(ProtocolError, match="half of a surrogate pair"):
        decode_json(text)
    with pytest.raises(UsageError, match="half of a surrogate pair"):
        decode_user_json(text, "--params")


@pytest.mark.fault(17)
@each_row(
    ("text", "levels"),
    [
        ("[%s]", 0),
        ("[" * 500 + "%s" + "]" * 500, 500),
        ("[" * 501 + "%s" + "]" * 501, 501),
        ('{"a":' * 501 + "%s" + "}" * 501, 501),
        ('{"]":[' * 251 + "%s" + "]}" * 251, 502),
        ("[" * 100_000 + "%s", 100_000),
        ("[" + ",".join(["[" * 498 + "]" * 498] * 50) + ",%s]", 499),
    ],
)
@each_row("value", ["1", r'"\\\"[[[["', '"' + "[" * 600 + '"', '"' + "]" * 600 + '"', '"é\\\\"'])
def test_json_nested_over_500_levels_is_rejected(text: str, levels: int, value: str) -> None:
    for data in (text % value, (text % value).encode()):
        if levels <= 500:
            assert decode_json(data)
        else:
            with pytest.raises(ProtocolError, match="nested more than 500 levels deep"):
                decode_json(data)


@pytest.mark.fault(17)
def test_huge_number_is_exact_or_rejected() -> None:
    for digits in (20, 400, 5000):
        text = "9" * digits
        try:
            value = decode_json(text)
        except ProtocolError:
            assert digits > 4000
        else:
            assert value == 10**digits - 1


def test_json_is_written_and_read_again() -> None:
    value = {"é": [1, -(2**63), 2**64 - 1, 1.5, None, True, "ü\n"], "": {}}
    text = encode_json(value)
    assert decode_json(text) == decode_json(text.decode()) == json.loads(text) == value
    assert encode_json({"é": [1, math.nan, None]}) == '{"é":[1,null,null]}'.encode()


# --- numbers of values ---

TEXTS = st.text(st.sampled_from('a",:[{}]\\é😀\n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


def marks(value: object) -> int:
    """Its commas, colons and opening brackets, and those of what is in it."""
    if isinstance(value, dict):
        return max(2 * len(value), 1) + sum(map(marks, value.values()))
    return max(len(value), 1) + sum(map(marks, value)) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 20), st.booleans())
def test_value_count_is_independent_of_chunking(value: object, size: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    counter = ValueCounter()
    for at in range(0, len(text), size):
        counter.add(text[at : at + size])
    assert counter.count == marks(value)
    assert not has_more_values(text, marks(value))


def numbers(count: int) -> bytes:
    """A list with so many marks."""
    return b"[" + b"1," * (count - 1) + b"1]"


@pytest.mark.load
def test_parsers_accept_maximum_values_and_reject_one_more() -> None:
    head = b'{"type":"%s","id":"1","payload":'
    call, listing = Message("capabilities/call", {}, id="1"), Message("capabilities/list", {}, id="1")
    for read, around, limit in (
        (decode_json, (b"", b""), MAX_VALUES),
        (decode_envelope, (head % b"progress", b"}"), MAX_VALUES),
        (decode_envelope, (head % b"capabilities/call-result", b"}"), MAX_VALUES),
        (decode_envelope, (head % b"initialize-result", b"}"), MAX_LISTED),
        (lambda data: parse_reply(call, data), (b'{"rest":{},"answer":', b"}"), MAX_VALUES),
        (lambda data: parse_reply(call, data.decode()), (b'{"rest":{},"answer":', b"}"), MAX_VALUES),
        (lambda data: parse_reply(listing, data), (b'{"rest":{},"answer":', b"}"), MAX_LISTED),
        (lambda data: parse_event(data.decode()), (b'["progress",', b"]"), MAX_ON_LOOP),
    ):
        outside = ValueCounter().add(b"".join(around))
        before, after = around
        read(before + numbers(limit - outside) + after)
        with pytest.raises(ProtocolError, match=f"more than {limit:,} values and names") as caught:
            read(before + numbers(limit - outside + 1) + after)
        assert caught.value.code == "TOO_LARGE" and caught.value.details == {"limit": limit}
    decode_user_json(numbers(MAX_VALUES), "params")
    with pytest.raises(UsageError, match=r"params has more than 1,000,000 values .* give less at once"):
        decode_user_json(numbers(MAX_VALUES + 1), "params")


@pytest.mark.load
def test_rejected_json_uses_no_memory_and_string_content_is_not_counted() -> None:
    rows = b"[" + b"[]," * (8 << 20) + b"1]"
    tracemalloc.start()
    try:
        with pytest.raises(ABPError):
            decode_json(rows)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
    quoted = json.dumps(rows.decode())
    assert decode_json(quoted) == rows.decode()
    assert decode_json(json.dumps(quoted)) == quoted


@pytest.mark.slow
@pytest.mark.load
def test_largest_event_parsed_on_loop_stays_within_time_bound() -> None:
    names = b",".join(b'"%x":1' % n for n in range(MAX_ON_LOOP // 2 - 10))
    for payload in (numbers(MAX_ON_LOOP - 10), b"[" + b"[]," * (MAX_ON_LOOP // 2 - 10) + b"1]", b"{" + names + b"}"):
        text = f'["progress",{payload.decode()}]'
        assert seconds(lambda text=text: parse_event(text)) < BOUND  # type: ignore[misc]
