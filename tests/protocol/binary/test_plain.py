"""Answers without content, and answers that would take long to search."""

from __future__ import annotations

import time

import pytest

from tests.support.counted import counted_calls
from transports import NoneStore
from transports.errors import ProtocolError
from transports.protocol._find_content import find
from transports.protocol._heuristics import MIN_GUESSED
from transports.routing import Router


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
def test_plain_data_has_no_content(data: object) -> None:
    assert find(data) == []


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
