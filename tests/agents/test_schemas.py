"""Schemas of apps, which may be anything, as schemas of tools."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.agents.test_tools import declaring
from tests.conftest import Connect
from tests.support.model_rules import check_rules
from tests.support.rows import each_row
from transports import Capability
from transports.agents import AppTool, AppTools
from transports.surfaces.shared._capability_tools import app_arguments

_JUNK: st.SearchStrategy[Any] = st.sampled_from([None, 5, "x", True, [], {}, ["a"], [["a"]], [5], [{}], {"a": 5}])
_KEYS = st.sampled_from(
    [
        *("type", "properties", "items", "required", "enum", "const", "anyOf", "oneOf", "allOf", "not", "if", "then"),
        *("format", "description", "$ref", "$defs", "prefixItems", "additionalItems", "exclusiveMinimum", "minimum"),
        *("additionalProperties", "patternProperties", "dependencies", "dependentRequired", "minLength", "id"),
    ]
)
_TYPES = st.sampled_from(
    ["object", "array", "string", "integer", "null", "any", "float", ["string", "null"], ["array", "null"], ["x", 5]]
)
_NAMES = st.sampled_from(["a", "content", "mimeType", "filter[status]", "filter_status", "$top", "a b", "é", "x" * 90])
_SCHEMAS = st.recursive(
    _JUNK | st.fixed_dictionaries({"type": _TYPES}),
    lambda inner: (
        st.dictionaries(_KEYS, inner | _TYPES | st.lists(inner))
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(_NAMES, inner)},
            optional={"required": st.just(["a"]), "anyOf": st.lists(inner), "$ref": st.just("#/properties/a")},
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner | st.lists(inner)})
    ),
    max_leaves=12,
)


def tool_of(schema: dict[str, object], *, strict: bool) -> AppTool:
    app: Any = SimpleNamespace(capabilities={"a": Capability.model_validate({"name": "a", "inputSchema": schema})})
    return AppTools(app, {"strict": strict}).tools["abp_a"]


@pytest.mark.slow
@settings(max_examples=1000)
@given(st.dictionaries(_KEYS, _SCHEMAS))
def test_tool_schema_obeys_model_provider_rules(schema: dict[str, object]) -> None:
    """Makers of models refuse a request in which one tool breaks a rule."""
    for strict in (False, True):
        tool = tool_of(schema, strict=strict)
        check_rules(tool.schema)
        if tool.strict:
            assert tool.schema["additionalProperties"] is False


@settings(max_examples=50)
@given(st.dictionaries(_NAMES, st.integers(), min_size=1), st.booleans())
def test_names_not_allowed_for_models_are_mapped_back(members: dict[str, int], nested: bool) -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": "integer"} for name in members},
        "required": [*members],
    }
    if nested:
        schema = {"type": "object", "properties": {"$in": {"type": "array", "items": {"anyOf": [schema, {}]}}}}
    tool = tool_of(schema, strict=False)
    check_rules(tool.schema)
    inner: Any = tool.schema
    if nested:
        inner = inner["properties"]["in"]["items"]["anyOf"][0]
    assert len(inner["properties"]) == len(members) == len({*inner["required"]})
    by_model = dict(zip(inner["properties"], members.values(), strict=True))
    given_by_model = {"in": [by_model]} if nested else by_model
    expected = {"$in": [members]} if nested else members
    assert app_arguments(tool.declared, given_by_model) == expected


@pytest.mark.parametrize(("levels", "strict"), [(9, True), (10, False)])
def test_strict_schema_is_limited_to_ten_levels(levels: int, strict: bool) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    assert tool_of(schema, strict=True).strict is strict


def branch(*names: str) -> dict[str, object]:
    return {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": [*names]}


@each_row(
    ("member", "strict"),
    [
        ({"anyOf": [branch("x"), branch("y"), {"type": "null"}]}, True),
        ({"oneOf": [branch("x"), {**branch("x", "y"), "required": ["x"]}]}, False),
        ({"oneOf": [branch("x"), {**branch("y"), "required": None}]}, False),
        ({**branch("x"), "required": ["x", "elsewhere"]}, False),
        ({**branch("x"), "additionalProperties": {"type": "string"}}, False),
    ],
)
def test_strict_schema_says_all_that_the_app_takes(member: dict[str, object], strict: bool) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"a": member}, "required": ["a"]}
    assert tool_of(schema, strict=True).strict is strict


@each_row(
    ("schema", "properties", "required", "rule"),
    [
        (
            {"anyOf": [branch("content", "kind"), branch("url", "kind")]},
            {"content", "kind", "url"},
            ["kind"],
            "Give at least one of these sets of parameters: content, kind; url, kind.",
        ),
        (
            {**branch("a"), "oneOf": [{"required": ["b"]}, {"required": ["c"]}]},
            {"a"},
            ["a"],
            "Give exactly one of these sets of parameters: b; c.",
        ),
        (
            {"allOf": [branch("a"), {"if": branch("a"), "then": branch("b")}]},
            {"a", "b"},
            ["a"],
            'The app checks this rule: {"if":',
        ),
        (
            {**branch("a", "b"), "not": {"required": ["a", "b"]}},
            {"a", "b"},
            ["a", "b"],
            '{"not":{"required":["a","b"]}}',
        ),
        ({"$ref": "#/$defs/In", "$defs": {"In": branch("a")}}, {"a"}, ["a"], ""),
        ({"anyOf": [branch("a"), {"type": "object"}]}, {"a"}, None, "The parameters fit at least one of"),
    ],
)
def test_root_combinators_become_properties_and_described_rule(
    schema: dict[str, object], properties: set[str], required: list[str] | None, rule: str
) -> None:
    tool = tool_of(schema, strict=False)
    check_rules(tool.schema)
    assert {*tool.schema["properties"]} == properties  # type: ignore[misc]
    assert tool.schema.get("required") == required
    assert rule in tool.description


def test_parameter_in_two_branches_accepts_either_type() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    branches = [{"properties": {"a": part}} for part in (text, number, text)]
    assert tool_of({"oneOf": branches}, strict=False).schema["properties"] == {"a": {"anyOf": [text, number]}}


@each_row(
    ("declared", "repaired"),
    [
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"type": ["array", "null"]}, {"type": ["array", "null"], "items": {}}),
        (
            {"type": "array", "items": [{"type": "number"}, {"type": "string"}], "additionalItems": False},
            {"type": "array", "prefixItems": [{"type": "number"}, {"type": "string"}], "items": {}, "maxItems": 2},
        ),
        ({"type": "array", "items": [], "additionalItems": {"type": "nil"}}, {"type": "array", "items": {}}),
        (
            {"type": "array", "prefixItems": [{"type": "number"}], "items": False},
            {"type": "array", "prefixItems": [{"type": "number"}], "items": {}, "maxItems": 1},
        ),
        ({"type": "array", "prefixItems": [{}], "items": True}, {"type": "array", "prefixItems": [{}], "items": {}}),
        ({"anyOf": [], "description": "x"}, {"description": "x"}),
        (False, {"not": {}}),
        (
            {"type": "object", "dependentRequired": {"b": ["c", "c", 1]}},
            {"type": "object", "dependentRequired": {"b": ["c"]}},
        ),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, {"type": "number", "exclusiveMinimum": 0}),
        ({"type": "number", "maximum": 5, "exclusiveMaximum": False}, {"type": "number", "maximum": 5}),
        ({"type": "number", "maximum": 1e308}, {"type": "number", "maximum": 1e308}),
        ({"type": "string", "maxLength": 5.0}, {"type": "string", "maxLength": 5}),
        ({"type": "string", "description": None, "default": None}, {"type": "string", "default": None}),
        ({"type": "any", "description": "x"}, {"description": "x"}),
        ({"type": "STRING", "minLength": "2"}, {"type": "string"}),
        ({"type": "str", "enum": []}, {}),
        ({"enum": ["a", "a", "b"]}, {"enum": ["a", "b"]}),
        ({"$ref": "#/$defs/Gone", "title": "T"}, {"title": "T"}),
        ({"$ref": "#gone", "title": "T"}, {"title": "T"}),  # models get no anchors
        (True, {}),
        ("text", {}),
    ],
)
def test_parameter_schema_of_older_draft_is_repaired(declared: object, repaired: object) -> None:
    tool = tool_of({"type": "object", "properties": {"a": declared}}, strict=False)
    # As text: 5 equals 5.0.
    assert json.dumps(tool.schema["properties"], sort_keys=True) == json.dumps({"a": repaired}, sort_keys=True)


def test_boolean_required_on_property_is_honored() -> None:
    tool = tool_of({"type": "object", "properties": {"a": {"type": "string", "required": True}}}, strict=False)
    assert tool.schema["required"] == ["a"] and tool.schema["properties"] == {"a": {"type": "string"}}


@each_row("schema", [{}, {"type": "object"}, {"type": "object", "properties": []}, {"title": "x" * 20_000}])
def test_a_tool_with_unknown_parameters_is_not_strict(schema: dict[str, object]) -> None:
    assert not tool_of(schema, strict=True).strict


@pytest.mark.parametrize("strict", [False, True])
async def test_renamed_tool_parameters_reach_app_under_original_names(app_of: Connect, strict: bool) -> None:
    properties = {name: {"type": "integer"} for name in ("filter[status]", "filter_status", "@id")}
    schema = {"type": "object", "properties": properties, "required": ["@id"], "additionalProperties": False}
    async with app_of(declaring({"name": "list", "inputSchema": schema})) as app:
        tools = AppTools(app, {"strict": strict})
        tool = tools.tools["abp_list"]
        assert {*tool.schema["properties"]} == {"filter_status", "filter_status_2", "id"}  # type: ignore[misc]
        answer = await tools.call("abp_list", {"id": 1, "filter_status": 2, "filter_status_2": 3})
        assert json.loads(answer.text)["data"] == {"@id": 1, "filter_status": 2, "filter[status]": 3}
        refused = await tools.call("abp_list", {"id": "x"})
    assert "@id" in refused.text and "The app calls it '@id'" in json.dumps(tool.schema)
