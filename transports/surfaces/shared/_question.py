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
_KEYWORDS = ("title", "description", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
#: Parameters with the text of a question, in the order in which they are shown.
_TEXTS = ("title", "message", "description", "prompt", "question", "task", "context", "text")


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
    max_chars = 2000
    message = question_text(params)[:max_chars] or "The app asks"
    schema = _mapping(params.get("schema"))
    is_destructive = bool(params.get("destructive") or schema.get("destructive"))
    if is_destructive:
        message += "\nDestructive: the app says that this may delete or overwrite something."

    if field == "value" and _mapping(schema.get("properties")):
        return Question(message, _form_schema(schema), field, whole=True)

    field_schema = _answer_schema(field, params, schema)
    default = params.get("default", schema.get("default"))
    # An empty answer must not confirm a deletion.
    if is_destructive and field == "confirmed":
        default = False
    if isinstance(default, str | int | float | bool) and "items" not in field_schema:
        field_schema["default"] = default
    return Question(message, _object_schema({field: field_schema}, [field]), field, whole=False)


def _form_schema(schema: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of a form with a field for each property of ``schema``."""
    properties = _mapping(schema.get("properties"))
    fields = {str(name): _field_schema(member) for name, member in properties.items()}
    required = schema.get("required")
    if not isinstance(required, Sequence):
        required = []
    return _object_schema(fields, [name for name in required if name in fields])


def _answer_schema(field: str, params: Mapping[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of an answer that is one ``field``."""
    if field == "confirmed":
        return {"type": "boolean"}
    if field == "selected":
        return _choice_schema(params)
    return _field_schema(schema)


def _object_schema(fields: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    return {"type": "object", "properties": dict(fields), "required": list(required)}


def _field_schema(declared: object) -> dict[str, object]:
    """Return the schema of one field: a simple type, or a choice of one or several; text for any other declaration."""
    schema = _mapping(declared)
    kind = schema.get("type")
    item_choices = _choice_values(_mapping(schema.get("items")), "anyOf")
    field: dict[str, object]
    if kind == "array" and "anyOf" in item_choices:
        field = {"type": "array", "items": item_choices}
    elif kind == "array" and item_choices:
        field = {"type": "array", "items": {"type": "string", **item_choices}}
    elif kind in ("number", "integer", "boolean"):
        field = {"type": kind}
    else:
        field = {"type": "string", **_choice_values(schema, "oneOf")}

    for key in _KEYWORDS:
        value = schema.get(key)
        is_list_default = key == "default" and "items" in field and value is not None
        if isinstance(value, str | int | float | bool) or is_list_default:
            field[key] = value

    if field["type"] == "string" and schema.get("format") in ("email", "uri", "date", "date-time"):
        field["format"] = schema["format"]
    return field


def _choice_values(schema: Mapping[str, object], titled: str) -> dict[str, object]:
    """Return the values of a choice: texts, or texts with titles under the keyword ``titled`` (SEP-1330)."""
    declared = _sequence(schema.get("oneOf", schema.get("anyOf")))
    options = [option for option in declared if isinstance(option, Mapping)]
    if options and all(_is_text(option.get("const")) and _is_text(option.get("title")) for option in options):
        return {titled: [{"const": option["const"], "title": option["title"]} for option in options]}

    values = _sequence(schema.get("enum"))
    names = _sequence(schema.get("enumNames"))
    if not values or not all(map(_is_text, values)):
        return {}
    choice: dict[str, object] = {"enum": list(values)}
    if len(names) == len(values) and all(map(_is_text, names)):
        choice["enumNames"] = list(names)
    return choice


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _choice_schema(params: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of a choice: texts, or texts with titles; several may be chosen if ``multiple``."""
    options = options_of(params)
    is_multiple = params.get("multiple") is True
    if any(value != title for value, title in options):
        titled = [{"const": value, "title": title} for value, title in options]
        if is_multiple:
            return {"type": "array", "items": {"anyOf": titled}}
        return {"type": "string", "oneOf": titled}
    choice: dict[str, object] = {"type": "string"}
    if options:
        choice["enum"] = [value for value, _ in options]
    if is_multiple:
        return {"type": "array", "items": choice}
    return choice


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
