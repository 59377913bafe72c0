"""An app's questions (docs/protocol.md 5): the validation of answers, the default without a handler, and questions as
forms of simple fields for MCP clients and users at a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .._internal.redaction import Redactor
from ._strict_json import encode_json, items_of, members_of
from .schema import check_value

if TYPE_CHECKING:
    from ._payloads import ElicitationRequest

DECLINED: Mapping[str, object] = {"success": False, "cancelled": True}
#: Error code for an answer of a handler that does not fit the question.
INVALID_ANSWER = "INVALID_ANSWER"

#: Key of an answer's ``data`` by method (docs/protocol.md 5.2), of questions that a form can ask.
_FORM_ANSWER_KEYS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/select": "selected",
    "elicitation/confirm": "confirmed",
}
#: The same of all questions, also for a file and for a model's text, which have no default: they cannot be made up.
_ANSWER_KEYS = {**_FORM_ANSWER_KEYS, "elicitation/resource": "content", "sampling/create": "result"}
_EXAMPLES = {"confirmed": "True", "selected": '"red"', "value": '"Ada"', "content": '"…"', "result": '"…"'}


def default_answer(request: ElicitationRequest) -> Mapping[str, object]:
    """A question without a default is declined, as is a ``destructive`` confirmation unless its default is
    ``False``."""
    key = _FORM_ANSWER_KEYS.get(request.method)
    sources = (request.params, _schema_of(request))
    defaults = [source["default"] for source in sources if source.get("default") is not None]
    if key is None or not defaults:
        return DECLINED

    default = defaults[0]
    is_destructive = any(source.get("destructive") for source in sources)
    if key == "confirmed" and is_destructive and default is not False:
        return DECLINED
    return {"success": True, "data": {key: default}}


def refused_answer(message: str) -> Mapping[str, object]:
    return {"success": False, "error": {"code": INVALID_ANSWER, "message": message, "retryable": False}}


def options_of(params: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the value and label of each option of an ``elicitation/select``, declared as texts or as objects."""
    enum = members_of(params.get("schema")).get("enum")
    options: list[tuple[str, str]] = []
    for option in items_of(params.get("options", params.get("choices", enum))):
        if isinstance(option, Mapping):
            value = option.get("value", option.get("id"))
            label = option.get("label", option.get("title", value))
        else:
            value = label = option
        options.append((str(value), str(label)))
    return options


def answer_fault(request: ElicitationRequest, answer: object) -> str:
    """Return a description of the fault, or an empty text if the answer fits. An answer must be JSON, state its
    ``success``, and hold the value for the method (docs/protocol.md 5.2), within the schema or the options of the
    question. A form of one field accepts a value without the field's name. For an unknown method, any ``data`` fits."""
    key = _ANSWER_KEYS.get(request.method)
    data_example = f'{{"{key}": {_EXAMPLES[key]}}}' if key else "{…}"
    expected = f'{{"success": True, "data": {data_example}}}'
    if not isinstance(answer, Mapping):
        return f"it is of the type {type(answer).__name__}, not {expected}"
    try:
        encode_json(answer)
    except (TypeError, ValueError) as error:
        return f"it is not JSON: {error}"

    success = answer.get("success")
    is_declined = answer.get("cancelled") is True or bool(answer.get("error"))
    if success is False or (success is None and is_declined):
        return ""
    if success is not True:
        return f"it does not say whether it is a success; return {expected}"
    if key is None:
        return ""

    data = answer.get("data")
    if not isinstance(data, Mapping) or key not in data:
        return f"its data has no {key!r}; return {expected}"
    return _value_fault(request, key, data[key])


def _value_fault(request: ElicitationRequest, key: str, value: object) -> str:
    """Return a description of the fault in the value of an answer, without the value if it may be a secret."""
    if key == "selected":
        return _selection_fault(request, value)
    if key == "confirmed":
        if isinstance(value, bool):
            return ""
        return f"confirmed is of the type {type(value).__name__}, not True or False"

    schema = _schema_of(request) if key == "value" else {}
    fields = schema.get("properties")
    if isinstance(fields, Mapping) and len(fields) == 1 and not isinstance(value, Mapping):
        value = {next(iter(fields)): value}

    faults = check_value(schema, value, key)
    if not faults:
        return ""
    place = faults[0].partition(": ")[0]
    field = place.rpartition(".")[2]
    if _is_secret(request, field):
        # The validator's message shows the value.
        return f"{place} does not fit the schema"
    return faults[0]


def _selection_fault(request: ElicitationRequest, selected: object) -> str:
    options = [option for option, _ in options_of(request.params)]
    values = selected if isinstance(selected, list) else [selected]
    unknown = [value for value in values if str(value) not in options]
    if not options or not unknown:
        return ""
    listed = ", ".join(options[:10])
    if len(options) > 10:
        listed += " …"
    return f"selected is {str(unknown[0])[:80]!r}, which is none of {listed}"


def _is_secret(request: ElicitationRequest, field: str) -> bool:
    texts = (field, *(request.params.get(key) for key in ("title", "message", "prompt", "question")))
    return any(Redactor().is_secret(text) for text in texts if isinstance(text, str))


def _schema_of(request: ElicitationRequest) -> Mapping[str, object]:
    return members_of(request.params.get("schema"))


# --- questions as forms -----------------------------------------------------------------------------------------------

_COPIED_KEYWORDS = (
    "title",
    "description",
    "default",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
#: Parameters with the text of a question, in the order in which they are shown.
_TEXT_PARAMS = ("title", "message", "description", "prompt", "question", "task", "context", "text")


@dataclass(frozen=True, slots=True)
class Question:
    """Form for the user. ``schema`` is an object of simple fields: text, numbers, booleans, choices. If ``whole``, the
    answer is the object, otherwise only its ``field``."""

    message: str
    schema: dict[str, object]
    field: str
    whole: bool

    def answer(self, content: Mapping[str, object]) -> Mapping[str, object]:
        if self.whole:
            return {"success": True, "data": {self.field: dict(content)}}
        if self.field not in content:
            return DECLINED
        return {"success": True, "data": {self.field: content[self.field]}}


def question_text(params: Mapping[str, object]) -> str:
    """Return the text of an app's question, or of its task for a model, as the app wrote it."""
    texts = [params.get(key) for key in _TEXT_PARAMS]
    return "\n".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))


def model_messages(params: Mapping[str, object]) -> list[tuple[object, str]]:
    """Return the role and the text of each message for a model; messages without a text are left out."""
    items = params.get("messages")
    messages: list[tuple[object, str]] = []
    for item in items if isinstance(items, list) else ():
        match item:
            case {"content": {"text": str(text)}} | {"content": str(text)}:
                messages.append((item.get("role"), text))
            case {"text": str(text)} if "content" not in item:
                messages.append((item.get("role"), text))
    return messages


def question_of(request: ElicitationRequest) -> Question | None:
    """Return ``None`` for a method that a form cannot answer, such as a request for a file or for a model's text."""
    field = _FORM_ANSWER_KEYS.get(request.method)
    if field is None:
        return None

    params = request.params
    max_chars = 2000
    message = question_text(params)[:max_chars] or "The app asks"
    schema = _schema_of(request)
    is_destructive = bool(params.get("destructive") or schema.get("destructive"))
    if is_destructive:
        message += "\nDestructive: the app says that this may delete or overwrite something."

    if field == "value" and members_of(schema.get("properties")):
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
    properties = members_of(schema.get("properties"))
    fields = {str(name): _field_schema(member) for name, member in properties.items()}
    return _object_schema(fields, [name for name in items_of(schema.get("required")) if name in fields])


def _answer_schema(field: str, params: Mapping[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    if field == "confirmed":
        return {"type": "boolean"}
    if field == "selected":
        return _choice_schema(params)
    return _field_schema(schema)


def _object_schema(fields: Mapping[str, object], required: Sequence[str]) -> dict[str, object]:
    return {"type": "object", "properties": dict(fields), "required": list(required)}


def _field_schema(declared: object) -> dict[str, object]:
    schema = members_of(declared)
    kind = schema.get("type")
    item_choices = _choice_values(members_of(schema.get("items")), "anyOf")
    field: dict[str, object]
    if kind == "array" and item_choices:
        items = item_choices if "anyOf" in item_choices else {"type": "string", **item_choices}
        field = {"type": "array", "items": items}
    elif kind in ("number", "integer", "boolean"):
        field = {"type": kind}
    else:
        field = {"type": "string", **_choice_values(schema, "oneOf")}

    for key in _COPIED_KEYWORDS:
        value = schema.get(key)
        is_list_default = key == "default" and "items" in field and value is not None
        if isinstance(value, str | int | float | bool) or is_list_default:
            field[key] = value

    if field["type"] == "string" and schema.get("format") in ("email", "uri", "date", "date-time"):
        field["format"] = schema["format"]
    return field


def _choice_values(schema: Mapping[str, object], titled_keyword: str) -> dict[str, object]:
    """Return ``enum`` with texts, or ``titled_keyword`` with texts and titles (SEP-1330), or nothing."""
    declared = items_of(schema.get("oneOf", schema.get("anyOf")))
    options = [option for option in declared if isinstance(option, Mapping)]
    if options and all(_is_text(option.get("const")) and _is_text(option.get("title")) for option in options):
        return {titled_keyword: [{"const": option["const"], "title": option["title"]} for option in options]}

    values = items_of(schema.get("enum"))
    names = items_of(schema.get("enumNames"))
    if not values or not all(map(_is_text, values)):
        return {}
    choice: dict[str, object] = {"enum": list(values)}
    if len(names) == len(values) and all(map(_is_text, names)):
        choice["enumNames"] = list(names)
    return choice


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _choice_schema(params: Mapping[str, object]) -> dict[str, object]:
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
