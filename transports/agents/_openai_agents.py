"""Tools of an app for the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from agents import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from ._tools import AppTool, AppTools, Attachment, content_of


def tools_of(tools: AppTools) -> list[FunctionTool]:
    return [_function_tool(tools, tool) for tool in tools.tools.values()]


def _function_tool(tools: AppTools, tool: AppTool) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> object:
        return content_of(await tools.call(tool.name, arguments), _output)

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.schema),
        on_invoke_tool=invoke,
        strict_json_schema=tool.strict,
        is_enabled=lambda _, __: tool.name in tools.tools,
        needs_approval=tool.hints.get("destructiveHint") is True,
    )


def _output(part: str | Attachment) -> object:
    if isinstance(part, str):
        return ToolOutputText(text=part)
    url = f"data:{part.mime_type};base64,{part.base64}"
    if part.is_image:
        return ToolOutputImage(image_url=url, detail="auto")
    return ToolOutputFileContent(file_data=url, filename=part.filename)
