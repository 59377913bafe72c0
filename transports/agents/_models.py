"""The functions of this room: tools in the shapes of the APIs of models, and tools of frameworks.

Nothing for an API needs the package of a model's maker: definitions and answers are JSON; a call is JSON or the object
of a package. Each function for a framework imports it when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, Unpack, cast

from .._internal.arguments import showing_options
from ..errors import UsageError
from ..session._call import OnProgress
from ..session._session import Session
from ._tools import Answer, AppTool, AppTools, Attachment, ToolOptions, answer_parts, content_of

if TYPE_CHECKING:
    from agents import FunctionTool
    from langchain_core.tools import BaseTool
    from pydantic_ai.toolsets import AbstractToolset

Json: TypeAlias = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Call:
    id: str
    name: str
    arguments: Mapping[str, object] | str


class _Shape(Protocol):
    """The shape of one API of models."""

    def definitions(self, tools: list[AppTool]) -> list[Json]: ...

    def read_call(self, call: object) -> _Call:
        """Return a call of the model. Raises :class:`~transports.errors.UsageError` for anything else."""

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
        tool_call = self._shape.read_call(call)
        answer = await self._tools.call(tool_call.name, tool_call.arguments, on_progress=on_progress)
        return self._shape.message(tool_call, answer), answer


@showing_options(ToolOptions)
def openai_tools(
    app: Session, *, api: Literal["chat", "responses"] = "chat", **options: Unpack[ToolOptions]
) -> ModelTools:
    """Return the tools of ``app`` for OpenAI's Chat Completions, which many other makers offer, or for its Responses.

    Messages of tools in Chat Completions are text only: attached files are named in it. ``options`` are those of
    :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Chat() if api == "chat" else _Responses())


@showing_options(ToolOptions)
def anthropic_tools(app: Session, **options: Unpack[ToolOptions]) -> ModelTools:
    """Return the tools of ``app`` for Anthropic's Messages; an answer is a block ``tool_result``. ``options`` are those
    of :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Anthropic())


@showing_options(ToolOptions)
def google_tools(app: Session, **options: Unpack[ToolOptions]) -> ModelTools:
    """Return the tools of ``app`` for Google's Gemini; an answer is a part with a ``functionResponse``. ``options`` are
    those of :class:`ToolOptions <transports.agents.ToolOptions>`."""
    return ModelTools(AppTools(app, options), _Google())


class _Chat:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        return [{"type": "function", "function": _openai_function(tool)} for tool in tools]

    def read_call(self, call: object) -> _Call:
        function = _member(call, "function")
        return _Call(_text_member(call, "id"), _text_member(function, "name"), _arguments_member(function, "arguments"))

    def message(self, call: _Call, answer: Answer) -> Json:
        lines = [answer.text, *map(_unshown_note, answer.attachments)]
        return {"role": "tool", "tool_call_id": call.id, "content": "\n".join(lines)}


class _Responses:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        return [{"type": "function", **_openai_function(tool)} for tool in tools]

    def read_call(self, call: object) -> _Call:
        return _Call(_text_member(call, "call_id"), _text_member(call, "name"), _arguments_member(call, "arguments"))

    def message(self, call: _Call, answer: Answer) -> Json:
        return {"type": "function_call_output", "call_id": call.id, "output": content_of(answer, _input_part)}


def _openai_function(tool: AppTool) -> Json:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema, "strict": tool.strict}


def _input_part(part: str | Attachment) -> Json:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    url = f"data:{part.mime_type};base64,{part.base64}"
    if part.is_image:
        return {"type": "input_image", "image_url": url, "detail": "auto"}
    return {"type": "input_file", "filename": part.filename, "file_data": url}


def _unshown_note(attachment: Attachment) -> str:
    return f"(content of {attachment.filename}, {attachment.mime_type}: not shown here)"


class _Anthropic:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        definitions: list[Json] = []
        for tool in tools:
            definition: Json = {"name": tool.name, "description": tool.description, "input_schema": tool.schema}
            if tool.strict:
                definition["strict"] = True
            definitions.append(definition)
        return definitions

    def read_call(self, call: object) -> _Call:
        return _Call(_text_member(call, "id"), _text_member(call, "name"), _arguments_member(call, "input"))

    def message(self, call: _Call, answer: Answer) -> Json:
        content = [_content_block(part) for part in answer_parts(answer)]
        return {"type": "tool_result", "tool_use_id": call.id, "content": content, "is_error": answer.is_error}


def _content_block(part: str | Attachment) -> Json:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": part.base64}
    if part.is_image:
        return {"type": "image", "source": source}
    if part.mime_type == "application/pdf":
        return {"type": "document", "source": source}
    return {"type": "text", "text": _unshown_note(part)}


class _Google:
    def definitions(self, tools: list[AppTool]) -> list[Json]:
        declared = [
            {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema} for tool in tools
        ]
        return [{"functionDeclarations": declared}]

    def read_call(self, call: object) -> _Call:
        has_id = _member(call, "id") is not None
        call_id = _text_member(call, "id") if has_id else ""
        return _Call(call_id, _text_member(call, "name"), _arguments_member(call, "args"))

    def message(self, call: _Call, answer: Answer) -> Json:
        outcome = "error" if answer.is_error else "output"
        response: Json = {"name": call.name, "response": {outcome: answer.text}}
        if call.id:
            response["id"] = call.id
        if answer.attachments:
            response["parts"] = [{"inlineData": _inline_data(attachment)} for attachment in answer.attachments]
        return {"functionResponse": response}


def _inline_data(attachment: Attachment) -> Json:
    return {"mimeType": attachment.mime_type, "data": attachment.base64, "displayName": attachment.filename}


def _member(call: object, name: str) -> object:
    """A call is JSON or an object of the maker's package."""
    if isinstance(call, Mapping):
        return call.get(name)
    return getattr(call, name, None)


def _text_member(call: object, name: str) -> str:
    value = _member(call, name)
    if isinstance(value, str):
        return value
    raise UsageError(
        f"this is not a call of a tool: it has no {name}; give the part of the model's message that is the call"
    )


def _arguments_member(call: object, name: str) -> Mapping[str, object] | str:
    """Other values than objects and texts are for :meth:`AppTools.call` to refuse."""
    value = _member(call, name)
    return {} if value is None else cast("Mapping[str, object] | str", value)


# --- frameworks -------------------------------------------------------------------------------------------------------


@showing_options(ToolOptions)
def pydantic_ai_toolset(app: Session, **options: Unpack[ToolOptions]) -> AbstractToolset[object]:
    """Return the tools of ``app`` as a toolset of Pydantic AI, which follows the app's capabilities.

    Wrong arguments are a ``ModelRetry``, other errors a ``ToolFailed``. The metadata of a tool has its annotations, the
    metadata of an answer the JSON of ``abp call --json`` without ``data``. ``options`` are those of
    :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without Pydantic AI, 2.0 or newer."""
    with _requiring_package("pydantic_ai_toolset", "pydantic-ai-slim"):
        from ._pydantic_ai import AppToolset
    return AppToolset(AppTools(app, options))


@showing_options(ToolOptions)
def langchain_tools(app: Session, **options: Unpack[ToolOptions]) -> list[BaseTool]:
    """Return the tools of ``app`` for LangChain and LangGraph, for asynchronous agents.

    The artifact of a tool's message is the JSON of ``abp call --json`` without ``data``; an error is a message with the
    status ``error``. Progress is sent as custom events ``abp_progress``. The list is of the app's current capabilities.
    ``options`` are those of :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without LangChain's core, 1.0 or newer."""
    with _requiring_package("langchain_tools", "langchain-core"):
        from ._langchain import tools_of
    return tools_of(AppTools(app, options))


@showing_options(ToolOptions)
def openai_agents_tools(app: Session, **options: Unpack[ToolOptions]) -> list[FunctionTool]:
    """Return the tools of ``app`` for the OpenAI Agents SDK.

    A tool that the app calls destructive needs approval; one whose capability is gone is disabled. ``options`` are
    those of :class:`ToolOptions <transports.agents.ToolOptions>`.

    Raises :class:`~transports.errors.UsageError` without the OpenAI Agents SDK."""
    with _requiring_package("openai_agents_tools", "openai-agents"):
        from ._openai_agents import tools_of
    return tools_of(AppTools(app, options))


@contextmanager
def _requiring_package(function: str, package: str) -> Iterator[None]:
    """Raise :class:`~transports.errors.UsageError` with advice for an import in the block that fails."""
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{function} needs {package} ({error}); install it: pip install -U {package}") from error
