"""The last guard: what an agent is given fits, is JSON, keeps its structure, and says what is missing."""

import json
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from transports.protocol._strict_json import JSONValue, encode_json
from transports.routing import clamp
from transports.routing._guard import cut_texts

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
SCALARS = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES: st.SearchStrategy[JSONValue] = st.recursive(
    SCALARS | TEXTS,
    lambda inner: st.lists(inner, max_size=30) | st.dictionaries(TEXTS, inner, max_size=30),
    max_leaves=80,
)


def kept(cut: JSONValue, whole: JSONValue) -> bool:
    """Whether ``cut`` has the structure of ``whole``, with parts left out."""
    if isinstance(cut, str) and cut != whole:
        return "…" in cut or "... [truncated: " in cut
    if isinstance(cut, dict) and isinstance(whole, dict):
        told = [name for name in cut if name not in whole]
        counted = not told or cut[told[0]] == f"{len(whole) - len(cut) + 1:,} more fields"
        order = [name for name in whole if name in cut] == [name for name in cut if name in whole]
        complete = told or len(cut) == len(whole)
        return bool(counted and order and complete and all(kept(cut[n], whole[n]) for n in cut if n in whole))
    if isinstance(cut, list) and isinstance(whole, list):
        left = len(whole) - len(cut)
        shown = cut
        if left or cut[-1:] == [f"… {left + 1:,} more items"]:
            assert cut[-1] == f"… {left + 1:,} more items"
            shown = cut[:-1]
        return all(kept(a, b) for a, b in zip(shown, whole, strict=False))
    return cut == whole


@pytest.mark.requirement("R2-4.1f", "R2-4.4d")
@given(JSON_VALUES, st.integers(64, 3000))
def test_clamp_result_fits_is_json_and_keeps_structure(value: JSONValue, limit: int) -> None:
    cut = clamp(value, limit)
    text = encode_json(cut)
    assert json.loads(text) == cut
    if len(encode_json(value)) <= limit:
        assert cut is value
    else:
        assert len(text) <= limit
        assert kept(cut, value)


@pytest.mark.requirement("R2-4.1f")
@pytest.mark.parametrize(
    "value",
    [{"a": "x" * 1000}, {"a": "x" * 1000, "b": "y" * 1000}, ["x" * 1000], [["x" * 1000], {"k": ["y" * 1000] * 9}]],
)
def test_clamp_respects_limit_to_the_byte(value: JSONValue) -> None:
    sizes = {limit: len(encode_json(clamp(value, limit))) for limit in range(64, 700)}
    assert all(size <= limit for limit, size in sizes.items())
    assert any(size >= limit - 8 for limit, size in sizes.items())


@pytest.mark.requirement("R2-4.4b", "R2-4.4h")
def test_clamp_keeps_small_values_beside_large_ones() -> None:
    cut = clamp({"id": 7, "log": "x" * 100_000, "name": "Sales", "rows": [{"n": n} for n in range(10_000)]}, 2000)
    assert isinstance(cut, dict)
    assert (cut["id"], cut["name"]) == (7, "Sales")
    assert isinstance(cut["log"], str) and isinstance(cut["rows"], list)
    assert cut["log"].startswith("xxxx") and cut["log"].endswith(" chars]")
    assert cut["rows"][0] == {"n": 0} and str(cut["rows"][-1]).endswith(" more items")
    assert len(cut["rows"]) > 50


@pytest.mark.requirement("R2-4.4j", "R2-4.4c")
def test_clamp_counts_omitted_parts() -> None:
    text = clamp("é" * 5000, 500)
    assert isinstance(text, str)
    body, _, rest = text.partition("\n...")
    assert rest == f" [truncated: {5000 - len(body)} chars]"
    numbers = clamp(list(range(5000)), 500)
    assert isinstance(numbers, list)
    assert numbers[-1] == f"… {5000 - len(numbers) + 1:,} more items"
    fields = clamp({f"key{n}": n for n in range(5000)}, 500)
    assert isinstance(fields, dict)
    assert fields["…"] == f"{5000 - len(fields) + 1:,} more fields"


def test_clamp_cuts_odd_keys_and_numbers() -> None:
    cut = clamp({"…": "mine", **{f"key{n}": n for n in range(5000)}}, 500)
    assert isinstance(cut, dict)
    assert cut["…"] == "mine" and str(cut["……"]).endswith("more fields")
    assert clamp({"k" * 5000: 1, "a": 2, "b": 3}, 100) == {"a": 2, "b": 3, "…": "1 more fields"}
    number = clamp([10**4000, 1], 200)
    assert isinstance(number, list) and str(number[0]).startswith("1000") and number[1] == 1


def test_larger_limit_never_shows_less() -> None:
    value: JSONValue = [{"id": n, "text": "word " * 50} for n in range(200)]
    shown = [len(encode_json(clamp(value, limit))) for limit in range(200, 20_000, 500)]
    assert all(a <= b + 512 for a, b in pairwise(shown))


def test_overly_deep_values_become_ellipsis() -> None:
    deep: JSONValue = "a text of an app"
    for _ in range(5000):
        deep = [deep]
    assert clamp(deep, 64) == cut_texts(deep, 5) == "…"
