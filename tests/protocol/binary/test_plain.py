"""The first look at an answer: whether anything in it can be content, before a search that knows all places."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.support.counted import counted_calls
from transports import NoneStore
from transports.errors import ProtocolError
from transports.protocol._find_content import MIN_GUESSED, find, is_plain
from transports.protocol.binary import BinaryData
from transports.routing import Router
from transports.routing._result import long_texts

_KEYS = st.sampled_from(["a", "name", "type", "mimeType", "content", "blob", "data", "encoding", "size"])
_LEAVES = st.sampled_from([1, 1.5, True, None, "", "text", "image", "text/plain", "QUJD", "x" * MIN_GUESSED, b"bytes"])
_TREES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_KEYS, inner, max_size=4))


def nested(levels: int, leaf: object) -> object:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


@pytest.mark.parametrize(
    "data",
    [
        pytest.param({}, id="nothing"),
        pytest.param([{"id": n, "name": "a", "more": {"tags": ["x", None]}} for n in range(20)], id="rows"),
        pytest.param([{"type": "row", "content": "text"}], id="keys that declare nothing by themselves"),
        pytest.param({"text": "x" * (MIN_GUESSED - 1)}, id="text too short to be guessed at"),
        pytest.param(nested(64, 1), id="64 levels"),
    ],
)
def test_plain_data_holds_nothing_to_be_searched_for(data: object) -> None:
    assert is_plain(data, MIN_GUESSED, at_most=1000)
    assert find(data) == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param("text", id="a text alone"),
        pytest.param([b"bytes"], id="bytes"),
        pytest.param({"file": BinaryData(b"x", "a/b")}, id="content"),
        pytest.param({"a": [{"content": "x", "mimeType": "a/b"}]}, id="a descriptor"),
        pytest.param({"content": [{"type": "image", "data": "QUJD", "mimeType": "image/png"}]}, id="a content block"),
        pytest.param([{"blob": "QUJD"}], id="a resource"),
        pytest.param({"content": b"x"}, id="content without a type"),
        pytest.param({"text": "x" * MIN_GUESSED}, id="text long enough to be guessed at"),
        pytest.param(("a",), id="no JSON"),
        pytest.param(nested(65, 1), id="65 levels"),
        pytest.param([0] * 1001, id="more values than are looked at"),
    ],
)
def test_what_may_hold_content_is_not_plain(data: object) -> None:
    assert not is_plain(data, MIN_GUESSED, at_most=1000)


@given(_TREES)
def test_a_search_of_plain_data_finds_nothing(tree: Any) -> None:
    if is_plain(tree, MIN_GUESSED, at_most=1000):
        others: list[Any] = []
        assert find(tree, others=others) == others == long_texts(tree, MIN_GUESSED - 1) == []


async def test_data_that_holds_itself_many_times_is_refused_in_time() -> None:
    endless: list[object] = []
    endless += [endless] * 5
    with pytest.raises(ProtocolError, match="64 levels"):
        await Router(NoneStore()).route(endless, capability="endless")


async def test_a_large_table_costs_the_event_loop_no_function_call_for_each_row() -> None:
    """Counted, because time depends on the machine. A search in a thread is another one's time."""
    rows = [{"id": n, "name": f"person {n}", "tags": ["a", "b"]} for n in range(2000)]
    router = Router(NoneStore())
    with counted_calls() as calls:
        result = await router.route({"rows": rows}, capability="table", started=time.perf_counter())
    assert result.data == {"rows": rows}
    assert calls.count < 1000
