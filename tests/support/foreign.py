"""Foreign input: values that a model, an app, a client or a file may give, at the limits of JSON and beyond."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st


def deep(levels: int) -> list[Any]:
    """A list in a list, so many times."""
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def json_values(names: Iterable[str]) -> st.SearchStrategy[Any]:
    """JSON values, with numbers that JSON Schema calls integers, numbers without a value, and half surrogates; objects
    with ``names`` among their own."""
    numbers = [0.0, 1.0, -1, 1e300, -1e300, 10**400, 1 << 63, -(1 << 63), math.nan, math.inf, 2**53, 0.5]
    texts = st.text(max_size=20) | st.sampled_from(["\ud800", "\0", "artifact://", "../x", "x" * 5000, "\u202e\x1b"])
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(numbers) | texts
    keys = st.sampled_from([*names]) | st.text(max_size=5)
    inner = st.recursive(
        leaves, lambda some: st.lists(some, max_size=4) | st.dictionaries(keys, some, max_size=4), max_leaves=10
    )
    return st.dictionaries(keys, inner, max_size=5)
