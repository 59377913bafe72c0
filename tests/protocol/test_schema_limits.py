"""The work that a schema makes for a value: counted before the validator sees either."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from transports.protocol.schema import NotChecked, count_steps, count_values, references_and_patterns

DRAFT_4 = "http://json-schema.org/draft-04/schema#"


def has_references(schema: Mapping[str, object]) -> bool:
    return references_and_patterns(dict(schema))[0]


@pytest.mark.parametrize(
    ("schema", "value", "steps"),
    [
        ({}, 5, 1),
        ({"items": {}}, [1, 2], 3),
        ({"items": [{}, {}]}, [1, 2, 3], 3),
        ({"items": {}}, (1, 2), 3),
        ({"prefixItems": [{}, {}]}, [1], 2),
        ({"contains": {}}, [1, 2], 3),
        ({"additionalItems": {}}, [1, 2], 3),
        ({"unevaluatedItems": {}}, [1, 2], 3),
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
        ({"oneOf": [{}, {}]}, 5, 3),
        ({"not": {}}, 5, 2),
        ({"if": {}, "then": {}, "else": {}}, 5, 4),
        ({"dependentSchemas": {"a": {}}}, 5, 2),
        ({"dependencies": {"a": {}}}, 5, 2),
        ({"enum": [0] * 15}, 5, 1),
        ({"enum": [0] * 32}, 5, 3),
        ({"pattern": "a"}, "x" * 127, 2),
        ({"pattern": "a"}, "x" * 128, 3),
        ({"pattern": "a"}, 5, 1),
        ({"examples": [{}], "default": {}, "$defs": {"a": {}}}, 5, 1),
        ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"not": {}}}}, 5, 3),
        ({"$ref": "#/$defs/a~0b", "$defs": {"a~b": {"not": {}}}}, 5, 3),
        ({"$ref": "#/$defs/a%25b", "$defs": {"a%b": {"not": {}}}}, 5, 3),
        ({"$ref": "#/x/1", "x": [{}, {"not": {}}]}, 5, 3),
    ],
)
def test_steps(schema: dict[str, object], value: object, steps: int) -> None:
    assert count_steps(schema, value) == steps


@pytest.mark.parametrize("target", ["#/$defs/b", "#/x/2", "#/x/y", "#/type/0/1", "#/x/" + "9" * 5000])
def test_a_reference_that_leads_nowhere(target: str) -> None:
    with pytest.raises(NotChecked, match=r"^\$ref to #/.* leads nowhere$"):
        count_steps({"$ref": target, "x": [{}], "type": "object"}, 5)


def test_a_reference_to_itself_ends() -> None:
    with pytest.raises(NotChecked, match="it would take too long"):
        count_steps({"$ref": "#"}, 5)


def test_references_are_relative_to_the_schema_itself() -> None:
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


def test_values_are_counted_65_levels_deep() -> None:
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
