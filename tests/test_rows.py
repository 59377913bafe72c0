"""Tables of cases in one test: no row is left out, and each that fails is named."""

from __future__ import annotations

import pytest

from tests.support.rows import each_row

TABLE = [(1, "one"), pytest.param(2, "two", id="the second"), (10**5000, "many")]


def test_every_row_runs_and_failing_rows_are_named() -> None:
    seen: list[str] = []

    @each_row(("number", "name"), TABLE)
    def check(folder: str, number: int, name: str) -> None:
        seen.append(f"{folder}/{name}")
        assert number == 1, name

    with pytest.raises(BaseExceptionGroup) as failed:
        check(folder="in")
    assert seen == ["in/one", "in/two", "in/many"]
    second, third = failed.value.exceptions
    assert second.__notes__ == ["in row 1: the second"] and third.__notes__ == ["in row 2: "]


@each_row("value", ["a", "b"])
async def check_later(value: str, seen: list[str]) -> None:
    seen.append(value)
    with pytest.raises(ValueError, match=value):
        raise ValueError("a")


async def test_asynchronous_rows_run_too_and_one_failure_is_raised_itself() -> None:
    seen: list[str] = []
    with pytest.raises(AssertionError) as failed:
        await check_later(seen=seen)
    assert seen == ["a", "b"] and failed.value.__notes__ == ["in row 1: {'value': 'b'}"]
