"""Tools of an app for the OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from agents import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from ._tools import Answer, AppTool, AppTools, Attachment


def tools_of(tools: AppTools) -> list[FunctionTool]:
    """Return the tools of the app's current capabilities."""
    return [_tool(tools, one) for one in tools.tools.values()]


def _tool(tools: AppTools, tool: AppTool) -> FunctionTool:
    async def invoke(_: ToolContext[Any], arguments: str) -> object:
        return _content(await tools.call(tool.name, arguments))

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.schema),
        on_invoke_tool=invoke,
        strict_json_schema=tool.strict,
        is_enabled=lambda _, __: tool.name in tools.tools,
        needs_approval=tool.hints.get("destructiveHint") is True,
    )


def _content(answer: Answer) -> object:
    if not answer.attachments:
        return answer.text
    content: list[object] = [ToolOutputText(text=answer.text)]
    for one in answer.attachments:
        content += [ToolOutputText(text=one.label)] if one.label else []
        content.append(_output(one))
    return content


def _output(one: Attachment) -> object:
    url = f"data:{one.mime_type};base64,{one.base64}"
    if one.is_image:
        return ToolOutputImage(image_url=url, detail="auto")
    return ToolOutputFileContent(file_data=url, filename=one.filename)
