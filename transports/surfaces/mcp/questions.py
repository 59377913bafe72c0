"""An app's question as a form of MCP, and the filled form as the app's answer. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...elicitation import DECLINED
from ...messages import ElicitationRequest

__all__ = ["Form", "form_of"]

#: The one field of a form, by method (PROTOCOL "App → client"): it is the key of the answer's ``data`` too.
_FIELDS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/confirm": "confirmed",
    "elicitation/select": "selected",
}
_SIMPLE = ("string", "number", "integer", "boolean")
_LONGEST = 2000


@dataclass(frozen=True, slots=True)
class Form:
    """``schema`` is what MCP allows in a form: an object of simple fields."""

    message: str
    schema: dict[str, object]
    field: str
    whole: bool

    def answer(self, content: Mapping[str, object]) -> Mapping[str, object]:
        """``{success, data}`` for the app. A form that came back without its field declines."""
        if self.whole:
            return {"success": True, "data": {self.field: dict(content)}}
        if self.field not in content:
            return DECLINED
        return {"success": True, "data": {self.field: content[self.field]}}


def form_of(request: ElicitationRequest) -> Form | None:
    """``None`` for what no form can ask: files, the words of a model."""
    field = _FIELDS.get(request.method)
    if field is None:
        return None
    params = request.params
    said = [params.get(key) for key in ("title", "message", "description", "prompt", "question")]
    message = "\n".join(dict.fromkeys(text for text in said if isinstance(text, str) and text))[:_LONGEST]
    declared = params.get("schema")
    schema: Mapping[str, object] = declared if isinstance(declared, Mapping) else {}
    properties = schema.get("properties")
    if field == "value" and isinstance(properties, Mapping) and properties:
        fields = {str(name): _field(one) for name, one in properties.items()}
        required = schema.get("required")
        names = [name for name in required if name in fields] if isinstance(required, Sequence) else []
        return Form(message or "The app asks", _object(fields, names), field, True)
    if field == "confirmed":
        one: dict[str, object] = {"type": "boolean"}
    elif field == "selected":
        one = _choice(params, schema)
    else:
        one = _field(schema)
    default = params.get("default", schema.get("default"))
    if isinstance(default, str | int | float | bool) and "items" not in one:
        one["default"] = default
    return Form(message or "The app asks", _object({field: one}, [field]), field, False)


def _object(fields: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    return {"type": "object", "properties": dict(fields), "required": list(required)}


def _field(schema: object) -> dict[str, object]:
    """A simple field; text where the app declares anything that a form cannot hold."""
    said = schema if isinstance(schema, Mapping) else {}
    kind = said.get("type")
    out: dict[str, object] = {"type": kind if kind in _SIMPLE else "string"}
    for key in ("title", "description", "default", "minimum", "maximum", "minLength", "maxLength"):
        if isinstance(said.get(key), str | int | float | bool):
            out[key] = said[key]
    values = said.get("enum")
    if out["type"] == "string" and isinstance(values, list) and values and all(isinstance(v, str) for v in values):
        out["enum"] = values
    return out


def _choice(params: Mapping[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    """The options: texts, or objects with ``value`` and ``label``; several may be chosen if ``multiple``."""
    listed = params.get("options", params.get("choices", schema.get("enum")))
    options = listed if isinstance(listed, list) else []
    values, titles = [], []
    for option in options:
        value = option.get("value", option.get("id")) if isinstance(option, Mapping) else option
        label = option.get("label", option.get("title", value)) if isinstance(option, Mapping) else option
        values.append(str(value))
        titles.append(str(label))
    one: dict[str, object] = {"type": "string"}
    if values:
        one["enum"] = values
    if values != titles:
        one = {"type": "string", "oneOf": [{"const": v, "title": t} for v, t in zip(values, titles, strict=True)]}
    if params.get("multiple") is True:
        return {"type": "array", "items": one if "oneOf" not in one else {"anyOf": one["oneOf"]}}
    return one
