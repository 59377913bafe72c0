"""Schemas of apps, which may be anything, as schemas of tools."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given, strategies as st

from transports import Capability
from transports.agents import AppTool, AppTools

_JUNK: st.SearchStrategy[Any] = st.sampled_from([None, 5, "x", True, [], {}, ["a"], [["a"]], [5], [{}], {"a": 5}])
_KEYS = st.sampled_from(
    ["type", "properties", "items", "required", "enum", "const", "anyOf", "oneOf", "format", "description", "$ref"]
)
_TYPES = st.sampled_from(["object", "array", "string", "integer", "null", ["string", "null"], ["object", "null"]])
_SCHEMAS = st.recursive(
    _JUNK | st.fixed_dictionaries({"type": _TYPES}),
    lambda inner: (
        st.dictionaries(_KEYS, inner | _TYPES)
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from(["a", "content", "mimeType"]), inner),
            },
            optional={"required": st.just(["a"]), "anyOf": st.lists(inner)},
        )
        | st.fixed_dictionaries({"type": st.just("array"), "items": inner})
    ),
    max_leaves=12,
)


def tool_of(schema: dict[str, object], *, strict: bool) -> AppTool:
    app: Any = SimpleNamespace(capabilities={"a": Capability.model_validate({"name": "a", "inputSchema": schema})})
    return AppTools(app, {"strict": strict}).tools["abp_a"]


@given(st.dictionaries(_KEYS, _SCHEMAS))
def test_any_schema_of_an_app_becomes_an_object_with_properties(schema: dict[str, object]) -> None:
    """Makers of models refuse a request in which one tool has anything else."""
    for strict in (False, True):
        tool = tool_of(schema, strict=strict)
        assert tool.schema["type"] == "object" and isinstance(tool.schema["properties"], dict)
        if tool.strict:
            jsonschema_rs.meta.validate(tool.schema)
            assert tool.schema["additionalProperties"] is False


@pytest.mark.parametrize(("levels", "strict"), [(9, True), (10, False)])
def test_a_strict_schema_has_ten_levels_at_most(levels: int, strict: bool) -> None:
    schema: dict[str, object] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    assert tool_of(schema, strict=True).strict is strict
