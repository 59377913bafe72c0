"""Validation of parameters by a capability's inputSchema: the part of JSON Schema that the definitions use."""

import json
import math
from typing import Any, NoReturn

from webapp_fixture.errors import AbpError


def type_name(value: Any) -> str:
    """Return the JSON Schema name of a value's type."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    names = ((dict, "object"), (list, "array"), (str, "string"))
    return next((name for kind, name in names if isinstance(value, kind)), "number")


def _is(value: Any, kind: str) -> bool:
    if kind == "integer":
        whole = isinstance(value, float) and value.is_integer()
        return (isinstance(value, int) and not isinstance(value, bool)) or whole
    if kind == "number":
        return type_name(value) == "number" and math.isfinite(value)
    return type_name(value) == kind


def _fail(code: str, path: str, message: str) -> NoReturn:
    raise AbpError(code, f"{path} {message}", details={"param": path})


def _check_limits(value: Any, schema: dict[str, Any], path: str) -> None:
    if "enum" in schema and value not in schema["enum"]:
        _fail("INVALID_PARAMS", path, f"must be one of {', '.join(schema['enum'])}, not {json.dumps(value)}")
    if type_name(value) == "number":
        if value < schema.get("minimum", value):
            _fail("INVALID_PARAMS", path, f"must be at least {schema['minimum']}, not {value}")
        if value > schema.get("maximum", value):
            _fail("INVALID_PARAMS", path, f"must be at most {schema['maximum']}, not {value}")
    elif isinstance(value, str | list) and len(value) < max(schema.get("minLength", 0), schema.get("minItems", 0)):
        _fail("INVALID_PARAMS", path, "must not be empty")


def _check(value: Any, schema: dict[str, Any], path: str) -> None:
    if kind := schema.get("type"):
        kinds = [kind] if isinstance(kind, str) else kind
        if not any(_is(value, each) for each in kinds):
            _fail("INVALID_TYPE", path, f"must be {' or '.join(kinds)}, not {type_name(value)}")
    if value is None:
        return
    _check_limits(value, schema, path)
    if "items" in schema and isinstance(value, list):
        for index, item in enumerate(value):
            _check(item, schema["items"], f"{path}[{index}]")
    if "properties" in schema and isinstance(value, dict):
        _check_properties(value, schema, f"{path}.")


def _check_properties(value: dict[str, Any], schema: dict[str, Any], prefix: str) -> None:
    properties = schema["properties"]
    for name in schema.get("required", ()):
        if name not in value:
            hint = properties.get(name, {}).get("description")
            _fail("MISSING_PARAM", f"{prefix}{name}", f"is required{f': {hint}' if hint else ''}")
    for name, inner in properties.items():
        if name in value:
            _check(value[name], inner, f"{prefix}{name}")


def validate_params(params: Any, schema: dict[str, Any]) -> None:
    """Raise MISSING_PARAM, INVALID_TYPE or INVALID_PARAMS, naming the parameter."""
    if not isinstance(params, dict):
        raise AbpError("INVALID_PARAMS", f"params must be an object, not {type_name(params)}")
    if "properties" in schema:
        _check_properties(params, schema, "")
