"""Question of an app as a form of simple fields, and the conversion of its answer. No I/O.

Apps declare questions in many ways (docs/protocol.md 5.2). MCP clients and users at a terminal get the same form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...protocol._elicitation import DECLINED, options_of
from ...protocol._payloads import ElicitationRequest

#: Field of a form by method (docs/protocol.md 5.2), also the key in the answer's ``data``.
_FIELDS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/confirm": "confirmed",
    "elicitation/select": "selected",
}
_FIELD_TYPES = ("string", "number", "integer", "boolean")
_KEYWORDS = ("title", "description", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_FORMATS = ("email", "uri", "date", "date-time")
#: Parameters with the text of a question, in the order in which they are shown.
_TEXTS = ("title", "message", "description", "prompt", "question", "task", "context", "text")
#: Maximum characters of a question.
_MAX_MESSAGE = 2000
_DESTRUCTIVE = "Destructive: the app says that this may delete or overwrite something."


@dataclass(frozen=True, slots=True)
class Question:
    """Form for the user. ``schema`` is an object of simple fields: text, numbers, booleans, choices of one or several
    texts. If ``whole``, the answer is the object, otherwise only its ``field``."""

    message: str
    schema: dict[str, object]
    field: str
    whole: bool

    def answer(self, content: Mapping[str, object]) -> Mapping[str, object]:
        """Return the answer for the app, ``{"success": …, "data": …}``. A form without its field declines."""
        if self.whole:
            return {"success": True, "data": {self.field: dict(content)}}
        if self.field not in content:
            return DECLINED
        return {"success": True, "data": {self.field: content[self.field]}}


def question_text(params: Mapping[str, object]) -> str:
    """Return the text of an app's question, or of its task for a model, as the app wrote it."""
    texts = [params.get(key) for key in _TEXTS]
    return "\n".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def question_of(request: ElicitationRequest) -> Question | None:
    """Return the form for an app's question; ``None`` for a method that a form cannot answer, such as a request for a
    file or for a model's text."""
    field = _FIELDS.get(request.method)
    if field is None:
        return None
    params = request.params
    message = question_text(params)[:_MAX_MESSAGE] or "The app asks"
    declared = params.get("schema")
    schema: Mapping[str, object] = declared if isinstance(declared, Mapping) else {}
    is_destructive = bool(params.get("destructive") or schema.get("destructive"))
    if is_destructive:
        message = f"{message}\n{_DESTRUCTIVE}"
    properties = schema.get("properties")
    if field == "value" and isinstance(properties, Mapping) and properties:
        fields = {str(name): _field(one) for name, one in properties.items()}
        required = schema.get("required")
        names = [name for name in required if name in fields] if isinstance(required, Sequence) else []
        return Question(message, _object(fields, names), field, whole=True)
    if field == "confirmed":
        one: dict[str, object] = {"type": "boolean"}
    elif field == "selected":
        one = _choice(params)
    else:
        one = _field(schema)
    default = params.get("default", schema.get("default"))
    if is_destructive and field == "confirmed":
        default = False
    if isinstance(default, str | int | float | bool) and "items" not in one:
        one["default"] = default
    return Question(message, _object({field: one}, [field]), field, whole=False)


def _object(fields: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    return {"type": "object", "properties": dict(fields), "required": list(required)}


def _field(schema: object) -> dict[str, object]:
    """Return the schema of one field: a simple type, or a choice of one or several; text for any other declaration."""
    declared = schema if isinstance(schema, Mapping) else {}
    kind, items = declared.get("type"), declared.get("items")
    out: dict[str, object] = {"type": kind if kind in _FIELD_TYPES else "string"}
    if kind == "array" and isinstance(items, Mapping) and (inner := _values(items, "anyOf")):
        out = {"type": "array", "items": inner if "anyOf" in inner else {"type": "string", **inner}}
    elif out["type"] == "string":
        out |= _values(declared, "oneOf")
    for key in _KEYWORDS:
        value = declared.get(key)
        if isinstance(value, str | int | float | bool) or (key == "default" and "items" in out and value is not None):
            out[key] = value
    if out["type"] == "string" and declared.get("format") in _FORMATS:
        out["format"] = declared["format"]
    return out


def _values(schema: Mapping[str, object], titled: str) -> dict[str, object]:
    """Return the values of a choice: texts, or texts with titles under the keyword ``titled`` (SEP-1330)."""
    options = [one for one in _list(schema.get("oneOf", schema.get("anyOf"))) if isinstance(one, Mapping)]
    if options and all(isinstance(one.get("const"), str) and isinstance(one.get("title"), str) for one in options):
        return {titled: [{"const": one["const"], "title": one["title"]} for one in options]}
    values, names = _list(schema.get("enum")), _list(schema.get("enumNames"))
    if not values or not all(isinstance(value, str) for value in values):
        return {}
    named = len(names) == len(values) and all(isinstance(name, str) for name in names)
    out: dict[str, object] = {"enum": list(values)}
    return out | {"enumNames": list(names)} if named else out


def _choice(params: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of a choice: texts, or texts with titles; several may be chosen if ``multiple``."""
    options = options_of(params)
    one: dict[str, object] = {"type": "string"}
    if options:
        one["enum"] = [value for value, _ in options]
    if any(value != title for value, title in options):
        one = {"type": "string", "oneOf": [{"const": value, "title": title} for value, title in options]}
    if params.get("multiple") is True:
        return {"type": "array", "items": one if "oneOf" not in one else {"anyOf": one["oneOf"]}}
    return one


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
