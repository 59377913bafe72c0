"""Tools of an app as a toolset of Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import BinaryContent, ModelRetry, RunContext, ToolReturn
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from ..errors import UsageError
from ._tools import AppTool, AppTools, Attachment, content_of

#: The session checks arguments by the app's schema.
_ANY_OBJECT = SchemaValidator(core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()))


class AppToolset(AbstractToolset[object]):  # type: ignore[misc]
    """Tools of one session; the list follows the app's capabilities from step to step."""

    def __init__(self, tools: AppTools) -> None:
        self._tools = tools

    @property
    def id(self) -> str | None:
        """``None``: the toolset cannot be rebuilt elsewhere, since it holds an open session."""
        return None

    async def get_tools(self, ctx: RunContext[object]) -> dict[str, ToolsetTool[object]]:
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=_definition(tool),
                max_retries=ctx.max_retries,
                args_validator=_ANY_OBJECT,
            )
            for name, tool in self._tools.tools.items()
        }

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[object], tool: ToolsetTool[object]
    ) -> object:
        """Pydantic AI lets the model correct wrong arguments (``ModelRetry``)."""
        answer = await self._tools.call(name, tool_args)
        if isinstance(answer.error, UsageError):
            raise ModelRetry(answer.text)
        if answer.is_error:
            raise ToolFailed(answer.text)
        return ToolReturn(return_value=content_of(answer, _content_part), metadata=answer.document)


def _definition(tool: AppTool) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters_json_schema=tool.schema,
        strict=tool.strict or None,
        metadata={"annotations": dict(tool.hints), "capability": tool.capability},
    )


def _content_part(part: str | Attachment) -> Any:
    if isinstance(part, str):
        return part
    return BinaryContent.narrow_type(BinaryContent(data=part.data, media_type=part.mime_type))
