"""Rows of a large matrix that `make test` runs, and the others, which `make slow` runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def slow_but(rows: Iterable[Any], *first: Any) -> list[Any]:
    """Return all ``rows`` for ``pytest.mark.parametrize``; those that are not among ``first`` are marked ``slow``."""
    rows = list(rows)
    assert set(first) <= set(rows), first
    marked = []
    for row in rows:
        values = row if isinstance(row, tuple) else (row,)
        marked.append(pytest.param(*values, marks=() if row in first else pytest.mark.slow))
    return marked
