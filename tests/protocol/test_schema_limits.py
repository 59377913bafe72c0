"""The work that a schema makes for a value: counted before the validator sees either."""

from __future__ import annotations

import time
from collections.abc import Mapping

import pytest

from tests.support.rows import each_row
from transports.protocol.schema import (
    NotChecked,
    check_output,
    count_steps,
    count_values,
    references_and_patterns,
    shorten,
    unnamed_params,
)

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def has_references(schema: Mapping[str, object]) -> bool:
    return references_and_patterns(dict(schema))[0]


@each_row(
    ("schema", "value", "steps"),
    [
        ({}, 5, 1),
        *(({name: {}}, [1, 2], 3) for name in ("items", "contains", "additionalItems", "unevaluatedItems")),
        *(({"items": [{}, {}]}, [1, 2, 3], 3), ({"prefixItems": [{}, {}]}, [1], 2)),
        ({"items": {}}, {"a": 1}, 1),
        ({"properties": {"a": {}, "b": {}}}, {"a": 1, "c": 1}, 2),
        ({"additionalProperties": {}}, {"a": 1, "b": 2}, 3),
        ({"properties": {"a": {}}, "additionalProperties": {}}, {"a": 1, "b": 2}, 3),
        ({"properties": {"a": {}}, "unevaluatedProperties": {}}, {"a": 1}, 3),
        ({"propertyNames": {}}, {"a": 1, "b": 2}, 3),
        ({"patternProperties": {"x": {}, "y": {}}}, {"a": 1}, 3),
        ({"patternProperties": {"x": {}, "y": {}}}, {"a" * 64: 1}, 5),
        ({"allOf": [{}, {}]}, 5, 3),
        ({"anyOf": [{}, {}]}, 5, 3),
        ({"not": {}}, 5, 2),
        ({"if": {}, "then": {}, "else": {}}, 5, 4),
        ({"dependentSchemas": {"a": {}}}, 5, 2),
        ({"enum": [0] * 15}, 5, 1),
        ({"enum": [0] * 32}, 5, 3),
        ({"pattern": "a"}, "x" * 127, 2),
        ({"pattern": "a"}, "x" * 128, 3),
        ({"pattern": "a"}, 5, 1),
        ({"examples": [{}], "default": {}, "$defs": {"a": {}}}, 5, 1),
        *(
            ({"$ref": f"#/$defs/{written}", "$defs": {name: {"not": {}}}}, 5, 3)
            for written, name in (("a~1b", "a/b"), ("a~0b", "a~b"), ("a%25b", "a%b"))
        ),
        ({"$ref": "#/x/1", "x": [{}, {"not": {}}]}, 5, 3),
    ],
)
def test_schema_steps_are_counted(schema: dict[str, object], value: object, steps: int) -> None:
    assert count_steps(schema, value) == steps


@pytest.mark.parametrize("target", ["#/$defs/b", "#/x/2", "#/x/y", "#/type/0/1", "#/x/" + "9" * 5000])
def test_unresolvable_or_endless_schema_ref_is_not_checked(target: str) -> None:
    with pytest.raises(NotChecked, match=r"^\$ref to #/.* leads nowhere$"):
        count_steps({"$ref": target, "x": [{}], "type": "object"}, 5)
    with pytest.raises(NotChecked, match="it would take too long"):
        count_steps({"$ref": "#"}, 5)


def test_only_schema_local_references_are_followed() -> None:
    assert has_references({"properties": {"a": [{"$ref": "#/$defs/a"}]}})
    assert has_references({"$ref": "#"}) and not has_references({"properties": {"$ref": {}}})
    assert has_references({"$id": "https://a.example/", "$ref": "#/$defs/a"})
    assert has_references({"$schema": DRAFT_4, "$ref": "#/a", "a": {"$id": "x"}})
    assert not has_references({"a": {"$id": "x"}})
    moved: list[dict[str, object]] = [
        {"$ref": "#/a", "a": {"$id": "x"}},
        {"$schema": DRAFT_4, "$ref": "#/a", "a": {"id": "x"}},
    ]
    for schema in moved:
        with pytest.raises(NotChecked, match="changes what they are relative to"):
            has_references(schema)
    for key, target in (("$ref", "#a"), ("$ref", "b.json"), ("$dynamicRef", "#/a"), ("$recursiveRef", "#")):
        with pytest.raises(NotChecked, match=rf"^\{key} to .* is not followed$"):
            has_references({"a": [{key: target}]})


def test_count_values_counts_65_levels_deep() -> None:
    def nested(levels: int) -> object:
        tree: object = []
        for _ in range(levels - 1):
            tree = [tree]
        return tree

    assert count_values(nested(65), 100, "it") == 65
    with pytest.raises(NotChecked, match="it is nested deeper than 64 levels"):
        count_values(nested(66), 100, "it")
    assert count_values([1, {"a": "x" * 64, "b" * 128: (2, None)}], 10, "it") == 10
    with pytest.raises(NotChecked, match="it has more than 9 values"):
        count_values([1, {"a": "x" * 64, "b" * 128: (2, None)}], 9, "it")


_TOO_MANY = "the schema has more than 10,000 values"
_PATTERNS = "the schema has more than 100 patterns"
_DESCRIPTION = "x" * (256 * 1024 - len('{"description":""}'))
_NAME_PATTERNS: dict[str, object] = {f"a{n}": {} for n in range(100)}


@each_row(
    ("within", "beyond", "data", "reason"),
    [
        ({"enum": [*range(9998)]}, {"enum": [*range(9999)]}, 5, _TOO_MANY),
        # 64 characters of a name or a text count as one value more
        ({"enum": ["x" * 127, *range(9996)]}, {"enum": ["x" * 128, *range(9996)]}, 5, _TOO_MANY),
        ({"enum": [{"x" * 127: 0}, *range(9995)]}, {"enum": [{"x" * 128: 0}, *range(9995)]}, 5, _TOO_MANY),
        (
            {"description": _DESCRIPTION},
            {"description": _DESCRIPTION + "x"},
            5,
            "the schema takes 262,145 bytes, more than 262,144",
        ),
        ({"allOf": [{"pattern": "a"}] * 100}, {"allOf": [{"pattern": "a"}] * 101}, "a", _PATTERNS),
        ({"patternProperties": _NAME_PATTERNS}, {"patternProperties": _NAME_PATTERNS, "pattern": "a"}, {}, _PATTERNS),
    ],
    ids=["values", "characters of a text", "characters of a name", "bytes", "patterns", "patterns of names"],
)
def test_schema_at_limit_is_checked_and_beyond_is_not(
    within: dict[str, object], beyond: dict[str, object], data: object, reason: str
) -> None:
    assert check_output(within, data) == []
    assert check_output(beyond, data) == [f"the answer was not checked against outputSchema: {reason}"]


@pytest.mark.parametrize(
    ("schema", "item", "within", "faults", "reason"),
    [
        ({"type": "array"}, 0, 99_999, 0, "the value has more than 100,000 values"),
        ({"items": {}}, 0, 14_999, 0, "it would take too long"),
        ({"items": {"type": "integer"}}, "x", 1999, 5, "it does not fit, but is too large to list its faults"),
    ],
)
def test_value_at_limit_is_checked_and_beyond_is_not(
    schema: dict[str, object], item: object, within: int, faults: int, reason: str
) -> None:
    assert len(check_output(schema, [item] * within)) == faults
    unchecked = check_output(schema, [item] * (within + 1))
    assert unchecked == [f"the answer was not checked against outputSchema: {reason}"]


def test_schema_fault_messages_are_shortened() -> None:
    text = "".join(chr(ord("a") + n % 26) for n in range(131))
    assert shorten(text[:130]) == text[:130]
    assert shorten(text) == f"{text[:60]}…{text[-70:]}"
    kinds = ("string", "null", "array", "object")
    for most in (3, 4):
        (fault,) = check_output({"anyOf": [{"type": kind} for kind in kinds[:most]]}, 1)
        reasons = "; ".join(f'1 is not of type "{kind}"' for kind in kinds[:3])
        assert fault == f"outputSchema: data: fits no alternative: {reasons}" + "; …" * (most > 3)


def test_hint_lists_8_schema_names_and_compares_500() -> None:
    def hint(names: int, *others: str) -> str:
        listed = [*(f"{n:03}" for n in range(names)), *others]
        schema: dict[str, object] = {"properties": {name: {} for name in listed}}
        (found,) = unnamed_params(schema, {"format": 1})
        return found.partition("; ")[2]

    assert hint(8) == "it has 000, 001, 002, 003, 004, 005, 006, 007"
    assert hint(9) == "it has 000, 001, 002, 003, 004, 005, 006, 007 …"
    assert hint(499, "formats", "formal") == "did you mean 'formats'?"
    assert hint(500, "formats") == "it has 000, 001, 002, 003, 004, 005, 006, 007 …"


def test_hints_for_many_required_names_take_no_time() -> None:
    names = [f"p{n}" for n in range(20_000)]
    began = time.process_time()
    assert unnamed_params({"properties": {"a": {}}, "required": names}, dict.fromkeys(names)) == []
    assert time.process_time() - began < 0.5
