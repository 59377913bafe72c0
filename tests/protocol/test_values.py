"""The number of values and names of JSON is bounded, and counted without parsing it."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from tests.support.processor import seconds
from transports.errors import ABPError, ProtocolError, UsageError
from transports.playwright._received import parse_event, parse_reply
from transports.protocol._strict_json import (
    MAX_LISTED,
    MAX_ON_LOOP,
    MAX_VALUES,
    ValueCounter,
    decode_given,
    decode_json,
    has_more_values,
)
from transports.protocol.messages import Message
from transports.websocket.envelope import decode_envelope

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
def test_values_are_counted_however_the_text_is_cut(value: object, size: int, ascii_only: bool) -> None:
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
def test_as_many_as_there_may_be_are_read_and_one_more_is_refused() -> None:
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
    decode_given(numbers(MAX_VALUES), "params")
    with pytest.raises(UsageError, match=r"params has more than 1,000,000 values .* give less at once"):
        decode_given(numbers(MAX_VALUES + 1), "params")


@pytest.mark.load
def test_what_is_refused_takes_no_memory_and_what_is_in_a_text_does_not_count() -> None:
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


@pytest.mark.load
def test_events_are_read_on_the_loop() -> None:
    names = b",".join(b'"%x":1' % n for n in range(MAX_ON_LOOP // 2 - 10))
    for payload in (numbers(MAX_ON_LOOP - 10), b"[" + b"[]," * (MAX_ON_LOOP // 2 - 10) + b"1]", b"{" + names + b"}"):
        text = f'["progress",{payload.decode()}]'
        assert seconds(lambda text=text: parse_event(text)) < 0.050  # type: ignore[misc]
