"""Validation of parameters by a capability's inputSchema."""

from typing import Any

import jsonschema_rs

from webapp_fixture.errors import AbpError

_CODES = {"required": "MISSING_PARAM", "type": "INVALID_TYPE"}


def validate_params(params: Any, schema: dict[str, Any]) -> None:
    """Raise MISSING_PARAM, INVALID_TYPE or INVALID_PARAMS for the first fault, naming the parameter."""
    if not isinstance(params, dict):
        raise AbpError("INVALID_PARAMS", "params must be an object")
    try:
        errors = jsonschema_rs.validator_for(schema, mask="the value").iter_errors(params)
    except UnicodeEncodeError as fault:
        raise AbpError("INVALID_PARAMS", "params hold a lone surrogate") from fault
    for error in errors:
        path = [*error.instance_path]
        if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
            path.append(error.kind.property)
        name = ".".join(map(str, path))
        code = _CODES.get(error.kind.name, "INVALID_PARAMS")
        raise AbpError(code, f"{name}: {error.message}", details={"param": name})
