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
from ...protocol.plain_text import plain_schema, plain_text
from ..shared.question import Question, question_of

__all__ = ["ClientRequest", "Form", "Prompt", "client_request_for"]

_SAMPLING = "sampling/create"
#: Tokens that a model may answer with unless the app says otherwise.
_DEFAULT_MAX_TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Form:
    """A form for the person at the client."""

    question: Question
    result: ClassVar[type[BaseModel]] = ElicitResult

    def fits(self, client: ClientCapabilities | None) -> bool:
        """Whether the client shows forms."""
        able = client.elicitation if client else None
        return able is not None and not (able.form is None and able.url is not None)

    def request(self) -> ElicitRequest:
        """Return the form as MCP sends it."""
        return ElicitRequest(
            params=ElicitRequestFormParams(
                message=plain_text(self.question.message),
                requested_schema=plain_schema(self.question.schema) or self.question.schema,
            )
        )

    def answer(self, given: object) -> Mapping[str, object]:
        """Return the answer for the app, ``{"success": …, "data": …}``. A form without its field declines."""
        if not isinstance(given, ElicitResult) or given.action != "accept":
            return DECLINED
        return self.question.answer(given.content or {})


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
    if request.method == _SAMPLING:
        return _prompt(request.params)
    question = question_of(request)
    return None if question is None else Form(question)


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
