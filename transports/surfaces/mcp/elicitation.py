"""Questions of an app in terms of MCP: a form for a person, or a prompt for the client's model; and their answers in
terms of ABP. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mcp_types import (
    ClientCapabilities,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from ...protocol.elicitation import DECLINED
from ...protocol.payloads import ElicitationRequest

__all__ = ["ClientRequest", "Form", "Prompt", "client_request_for"]

#: The field of a form, by method (docs/protocol.md 5.2); it is the key of the answer's ``data`` too.
_FIELDS = {
    "elicitation/input": "value",
    "elicitation/preference": "value",
    "elicitation/confirm": "confirmed",
    "elicitation/select": "selected",
}
_SAMPLING = "sampling/create"
_FIELD_TYPES = ("string", "number", "integer", "boolean")
_KEYWORDS = ("title", "description", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_FORMATS = ("email", "uri", "date", "date-time")
#: Characters of a question, and tokens that a model may answer with unless the app says otherwise.
_MAX_MESSAGE, _DEFAULT_MAX_TOKENS = 2000, 1000


@dataclass(frozen=True, slots=True)
class Form:
    """A form for the person at the client. ``schema`` is an object of simple fields, as MCP wants it; ``whole`` says
    that the object itself is the answer, and not its one ``field``."""

    message: str
    schema: dict[str, object]
    field: str
    whole: bool
    result: ClassVar[type[BaseModel]] = ElicitResult

    def fits(self, client: ClientCapabilities | None) -> bool:
        """Whether the client shows forms."""
        able = client.elicitation if client else None
        return able is not None and not (able.form is None and able.url is not None)

    def request(self) -> ElicitRequest:
        """Return the form as MCP sends it."""
        return ElicitRequest(params=ElicitRequestFormParams(message=self.message, requested_schema=self.schema))

    def answer(self, given: object) -> Mapping[str, object]:
        """Return the answer for the app, ``{"success": …, "data": …}``. A form without its field declines."""
        if not isinstance(given, ElicitResult) or given.action != "accept":
            return DECLINED
        content = given.content or {}
        if self.whole:
            return {"success": True, "data": {self.field: dict(content)}}
        if self.field not in content:
            return DECLINED
        return {"success": True, "data": {self.field: content[self.field]}}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt for the model of the client (sampling)."""

    params: CreateMessageRequestParams
    result: ClassVar[type[BaseModel]] = CreateMessageResult

    def fits(self, client: ClientCapabilities | None) -> bool:
        """Whether the client lets servers use its model."""
        return client is not None and client.sampling is not None

    def request(self) -> CreateMessageRequest:
        """Return the prompt as MCP sends it."""
        return CreateMessageRequest(params=self.params)

    def answer(self, given: object) -> Mapping[str, object]:
        """Return the model's text for the app, ``{"success": True, "data": {"result": …}}``. Anything but text
        declines."""
        if not isinstance(given, CreateMessageResult | CreateMessageResultWithTools):
            return DECLINED
        blocks = given.content if isinstance(given.content, list) else [given.content]
        texts = [block.text for block in blocks if isinstance(block, TextContent)]
        return {"success": True, "data": {"result": "\n".join(texts)}} if texts else DECLINED


ClientRequest = Form | Prompt


def client_request_for(request: ElicitationRequest) -> ClientRequest | None:
    """Return the request to an MCP client for an app's question; ``None`` for one that MCP does not have: a file, a
    prompt without text."""
    return _prompt(request.params) if request.method == _SAMPLING else _form(request)


# --- prompts ----------------------------------------------------------------------------------------------------------


def _prompt(params: Mapping[str, object]) -> Prompt | None:
    """The messages of the app (``messages`` as in MCP, or one text: ``prompt``, ``message``, ``text``)."""
    messages = [message for one in _list(params.get("messages")) if (message := _message(one))]
    alone = next((text for key in ("prompt", "message", "text") if isinstance(text := params.get(key), str)), None)
    if alone is not None and not messages:
        messages = [SamplingMessage(role="user", content=TextContent(text=alone))]
    if not messages:
        return None
    system = params.get("systemPrompt", params.get("system"))
    max_tokens, temperature = params.get("maxTokens"), params.get("temperature")
    return Prompt(
        CreateMessageRequestParams(
            messages=messages,
            max_tokens=max_tokens if isinstance(max_tokens, int) and max_tokens > 0 else _DEFAULT_MAX_TOKENS,
            system_prompt=system if isinstance(system, str) else None,
            temperature=float(temperature) if isinstance(temperature, int | float) else None,
            stop_sequences=[stop for stop in _list(params.get("stopSequences")) if isinstance(stop, str)] or None,
        )
    )


def _message(message: object) -> SamplingMessage | None:
    if not isinstance(message, Mapping):
        return None
    content = message.get("content", message.get("text"))
    text = content.get("text") if isinstance(content, Mapping) else content
    if not isinstance(text, str):
        return None
    return SamplingMessage(
        role="assistant" if message.get("role") == "assistant" else "user", content=TextContent(text=text)
    )


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []


# --- forms ------------------------------------------------------------------------------------------------------------


def _form(request: ElicitationRequest) -> Form | None:
    field = _FIELDS.get(request.method)
    if field is None:
        return None
    params = request.params
    texts = [params.get(key) for key in ("title", "message", "description", "prompt", "question")]
    message = "\n".join(dict.fromkeys(text for text in texts if isinstance(text, str) and text))[:_MAX_MESSAGE]
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
    """The schema of one field: simple, or a choice of one or several; text where the app declares anything else."""
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
    """The values of a choice: texts, or texts with titles under the keyword ``titled`` (SEP-1330)."""
    options = [one for one in _list(schema.get("oneOf", schema.get("anyOf"))) if isinstance(one, Mapping)]
    if options and all(isinstance(one.get("const"), str) and isinstance(one.get("title"), str) for one in options):
        return {titled: [{"const": one["const"], "title": one["title"]} for one in options]}
    values, names = _list(schema.get("enum")), _list(schema.get("enumNames"))
    if not values or not all(isinstance(value, str) for value in values):
        return {}
    named = len(names) == len(values) and all(isinstance(name, str) for name in names)
    out: dict[str, object] = {"enum": list(values)}
    return out | {"enumNames": list(names)} if named else out


def _choice(params: Mapping[str, object], schema: Mapping[str, object]) -> dict[str, object]:
    """The options: texts, or objects with ``value`` and ``label``; several may be chosen if ``multiple``."""
    listed = params.get("options", params.get("choices", schema.get("enum")))
    values, titles = [], []
    for option in _list(listed):
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
