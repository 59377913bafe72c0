"""Tables of cases in one test: what pytest does for each test of its own takes longer than most cases do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import wraps
from typing import Any

import pytest


class _Failures:
    """What the rows of a table failed with."""

    def __init__(self) -> None:
        self._errors: list[BaseException] = []

    @contextmanager
    def of_row(self, number: int, name: str, values: Mapping[str, object]) -> Iterator[None]:
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:
            with suppress(ValueError):  # of a number with thousands of digits
                name = name or repr(values)[:500]
            error.add_note(f"in row {number}: {name}")
            self._errors.append(error)

    def report(self) -> None:
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise BaseExceptionGroup("rows failed", self._errors)


def each_row(
    names: str | Sequence[str], table: Iterable[object], *, ids: Sequence[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Run a test for each row of a table, as ``pytest.mark.parametrize`` does, but as one test whose rows share its
    fixtures. All rows run; those that fail are named."""
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else [*names]
    cases = []
    for number, row in enumerate(table):
        param = row if isinstance(row, pytest.ParameterSet) else pytest.param(*(row if len(keys) > 1 else (row,)))  # type: ignore[misc]
        assert not param.marks, number
        name = ids[number] if ids else str(param.id or "")
        cases.append((number, name, dict(zip(keys, param.values, strict=True))))
    assert cases, "a table has a row"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run_async(**fixtures: object) -> None:
                failures = _Failures()
                for case in cases:
                    with failures.of_row(*case):
                        await test(**fixtures, **case[-1])
                failures.report()

            run = run_async
        else:

            @wraps(test)
            def run_plain(**fixtures: object) -> None:
                failures = _Failures()
                for case in cases:
                    with failures.of_row(*case):
                        test(**fixtures, **case[-1])
                failures.report()

            run = run_plain  # type: ignore[assignment]
        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
