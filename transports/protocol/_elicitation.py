"""Answers to an app's questions (docs/protocol.md 5): their validation, and the default without a handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .._internal.redaction import Redactor
from ._strict_json import encode_json, members_of
from .schema import check_value

if TYPE_CHECKING:
    from ._payloads import ElicitationRequest

#: Answer that declines a question.
DECLINED: Mapping[str, object] = {"success": False, "cancelled": True}
#: Error code for an answer of a handler that does not fit the question.
INVALID_ANSWER = "INVALID_ANSWER"

#: Key of an answer's ``data``, by method (docs/protocol.md 5.2).
_KEYS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/select": "selected",
    "elicitation/confirm": "confirmed",
    "elicitation/resource": "content",
    "sampling/create": "result",
}
#: Methods without a default: a file or a model's text cannot be made up.
_NO_DEFAULT = ("elicitation/resource", "sampling/create")
_EXAMPLES = {"confirmed": "True", "selected": '"red"', "value": '"Ada"', "content": '"…"', "result": '"…"'}


def default_answer(request: ElicitationRequest) -> Mapping[str, object]:
    """Return the app's ``default``, from ``params`` or their ``schema``, as an answer.

    A question without a default is declined, as is a ``destructive`` confirmation unless its default is ``False``.
    """
    key = _KEYS.get(request.method)
    sources = (request.params, _schema_of(request))
    defaults = [source["default"] for source in sources if source.get("default") is not None]
    if key is None or request.method in _NO_DEFAULT or not defaults:
        return DECLINED

    default = defaults[0]
    is_destructive = any(source.get("destructive") for source in sources)
    if key == "confirmed" and is_destructive and default is not False:
        return DECLINED
    return {"success": True, "data": {key: default}}


def refused_answer(message: str) -> Mapping[str, object]:
    """Return the error sent to the app in place of an answer that does not fit its question."""
    return {"success": False, "error": {"code": INVALID_ANSWER, "message": message, "retryable": False}}


def options_of(params: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the value and label of each option of an ``elicitation/select``, declared as texts or as objects."""
    enum = members_of(params.get("schema")).get("enum")
    listed = params.get("options", params.get("choices", enum))
    if not isinstance(listed, list):
        return []

    options: list[tuple[str, str]] = []
    for option in listed:
        if isinstance(option, Mapping):
            value = option.get("value", option.get("id"))
            label = option.get("label", option.get("title", value))
        else:
            value = label = option
        options.append((str(value), str(label)))
    return options


def answer_fault(request: ElicitationRequest, answer: object) -> str:
    """Return a description of the fault in a handler's ``answer`` to a question, or an empty text if the answer fits.

    An answer must be JSON, state its ``success``, and hold the value for the method (docs/protocol.md 5.2), within the
    schema or the options of the question. A form of one field accepts a value without the field's name. For an unknown
    method, any ``data`` fits.
    """
    key = _KEYS.get(request.method)
    data_example = f'{{"{key}": {_EXAMPLES[key]}}}' if key else "{…}"
    form = f'{{"success": True, "data": {data_example}}}'
    if not isinstance(answer, Mapping):
        return f"it is of the type {type(answer).__name__}, not {form}"
    try:
        encode_json(answer)
    except (TypeError, ValueError) as error:
        return f"it is not JSON: {error}"

    success = answer.get("success")
    is_declined = answer.get("cancelled") is True or bool(answer.get("error"))
    if success is False or (success is None and is_declined):
        return ""
    if success is not True:
        return f"it does not say whether it is a success; return {form}"
    if key is None:
        return ""

    data = answer.get("data")
    if not isinstance(data, Mapping) or key not in data:
        return f"its data has no {key!r}; return {form}"
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
    """Return a description of the first selected value that is not an option; empty if all are, or none is declared."""
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
    """Return whether the name of a field, or the text of its question, suggests that the answer is a secret."""
    texts = (field, *(request.params.get(key) for key in ("title", "message", "prompt", "question")))
    return any(Redactor().is_secret(text) for text in texts if isinstance(text, str))


def _schema_of(request: ElicitationRequest) -> Mapping[str, object]:
    return members_of(request.params.get("schema"))
