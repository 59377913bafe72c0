"""Tools in the shapes of the APIs of models, and the answers to their calls.

Nothing here needs the package of a model's maker: definitions and answers are JSON; a call is JSON or the object of a
package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, Unpack

from .._internal.signatures import showing
from ..errors import UsageError
from ..session._dispatch import OnProgress
from ..session._session import Session
from ._tools import Answer, AppTool, AppTools, Attachment, ToolOptions

#: Object of JSON.
Json: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Call:
    """Call of a tool by a model."""

    id: str
    name: str
    arguments: Mapping[str, object] | str


class _Shape(Protocol):
    """Shape of one API."""

    def definitions(self, tools: list[AppTool]) -> list[Json]: ...

    def call(self, given: object) -> _Call: ...

    def message(self, call: _Call, answer: Answer) -> Json: ...


class ModelTools:
    """Tools of an app for the API of a model: :attr:`definitions`, and :meth:`answer` for each call of the model."""

    def __init__(self, tools: AppTools, shape: _Shape) -> None:
        self._tools = tools
        self._shape = shape

    @property
    def definitions(self) -> list[Json]:
        """JSON for ``tools=`` of the API, of the app's current capabilities."""
        return self._shape.definitions(list(self._tools.tools.values()))

    async def answer(self, call: object, *, on_progress: OnProgress | None = None) -> Json:
        """Call the tool that a model's ``call`` names, and return the message with its answer.

        ``call`` is the part of the model's message, as JSON or as an object of the maker's package. Cancelling this
        cancels the call in the app. Raises :class:`~transports.errors.UsageError` for something that is not a call;
        every other error is in the answer."""
        message, _ = await self.answer_with(call, on_progress=on_progress)
        return message

    async def answer_with(self, call: object, *, on_progress: OnProgress | None = None) -> tuple[Json, Answer]:
        """Return what :meth:`answer` does, and the :class:`Answer <transports.agents.Answer>` for the program: the
        result of the app's call, with the references of its files, or the error."""
        given = self._shape.call(call)
        answer = await self._tools.call(given.name, given.arguments, on_progress=on_progress)
        return self._shape.message(given, answer), answer


@showing(ToolOptions)
def openai_tools(
    app: Session, *, api: Literal["chat", "responses"] = "chat", **options: Unpack[ToolOptions]
) -> ModelTools:
    """Return the tools of ``app`` for OpenAI's Chat Completions, which many other makers offer, or for its Responses.

    Messages of tools in Chat Completions are text only: attached files are named in it. ``options`` are those of
    :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Chat() if api == "chat" else _Responses())


@showing(ToolOptions)
def anthropic_tools(app: Session, **options: Unpack[ToolOptions]) -> ModelTools:
    """Return the tools of ``app`` for Anthropic's Messages; an answer is a block ``tool_result``. ``options`` are those
    of :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Anthropic())


@showing(ToolOptions)
def google_tools(app: Session, **options: Unpack[ToolOptions]) -> ModelTools:
    """Return the tools of ``app`` for Google's Gemini; an answer is a part with a ``functionResponse``. ``options`` are
    those of :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Google())


class _Chat:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        return [{"type": "function", "function": _openai_function(tool)} for tool in tools]

    def call(self, given: object) -> _Call:
        function = _part(given, "function")
        return _Call(_text(given, "id"), _text(function, "name"), _arguments(function, "arguments"))

    def message(self, call: _Call, answer: Answer) -> Json:
        lines = [answer.text]
        lines += [f"(content of {one.filename}, {one.mime_type}: not shown here)" for one in answer.attachments]
        return {"role": "tool", "tool_call_id": call.id, "content": "\n".join(lines)}


class _Responses:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        return [{"type": "function", **_openai_function(tool)} for tool in tools]

    def call(self, given: object) -> _Call:
        return _Call(_text(given, "call_id"), _text(given, "name"), _arguments(given, "arguments"))

    def message(self, call: _Call, answer: Answer) -> Json:
        output: object = answer.text
        if answer.attachments:
            parts: list[Json] = [{"type": "input_text", "text": answer.text}]
            for one in answer.attachments:
                parts += [{"type": "input_text", "text": one.label}] if one.label else []
                parts.append(_input_part(one))
            output = parts
        return {"type": "function_call_output", "call_id": call.id, "output": output}


def _openai_function(tool: AppTool) -> Json:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema, "strict": tool.strict}


def _input_part(one: Attachment) -> Json:
    url = f"data:{one.mime_type};base64,{one.base64}"
    if one.is_image:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": one.filename, "file_data": url}


class _Anthropic:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        return [
            {
                "name": tool.name,
                "description": tool.description,
                "input_schema": tool.schema,
                **({"strict": True} if tool.strict else {}),
            }
            for tool in tools
        ]

    def call(self, given: object) -> _Call:
        return _Call(_text(given, "id"), _text(given, "name"), _arguments(given, "input"))

    def message(self, call: _Call, answer: Answer) -> Json:
        content: list[Json] = [{"type": "text", "text": answer.text}]
        for one in answer.attachments:
            content += [{"type": "text", "text": one.label}] if one.label else []
            kind = "image" if one.is_image else "document" if one.mime_type == "application/pdf" else None
            if kind is None:
                content.append(
                    {"type": "text", "text": f"(content of {one.filename}, {one.mime_type}: not shown here)"}
                )
                continue
            content.append(
                {"type": kind, "source": {"type": "base64", "media_type": one.mime_type, "data": one.base64}}
            )
        return {"type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": answer.is_error}


class _Google:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema} for tool in tools
        ]
        return [{"functionDeclarations": declared}]

    def call(self, given: object) -> _Call:
        return _Call(_text(given, "id", needed=False), _text(given, "name"), _arguments(given, "args"))

    def message(self, call: _Call, answer: Answer) -> Json:
        response: Json = {
            "name": call.name,
            "response": {"error" if answer.is_error else "output": answer.text},
            **({"id": call.id} if call.id else {}),
        }
        if answer.attachments:
            response["parts"] = [
                {"inlineData": {"mimeType": one.mime_type, "data": one.base64, "displayName": one.filename}}
                for one in answer.attachments
            ]
        return {"functionResponse": response}


def _part(given: object, name: str) -> object:
    """Return a member of a model's call, of JSON or of an object."""
    return given.get(name) if isinstance(given, Mapping) else getattr(given, name, None)


def _text(given: object, name: str, *, needed: bool = True) -> str:
    found = _part(given, name)
    if isinstance(found, str):
        return found
    if not needed and found is None:
        return ""
    raise UsageError(
        f"this is not a call of a tool: it has no {name}; give the part of the model's message that is the call"
    )


def _arguments(given: object, name: str) -> Mapping[str, object] | str:
    found = _part(given, name)
    return found if isinstance(found, Mapping | str) else {}
