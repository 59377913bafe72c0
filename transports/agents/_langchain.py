"""Tools of an app for LangChain and LangGraph."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForToolRun, adispatch_custom_event
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from ..protocol._payloads import Progress
from ._tools import AppTool, AppTools, Attachment, content_of


class _Tool(BaseTool):  # type: ignore[misc]
    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _tools: AppTools = PrivateAttr()

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # Passed as one object: a parameter of an app may have the name of one of LangChain's, such as `config`.
        return (tool_input,), {}

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(
        self, arguments: dict[str, Any], *, run_manager: AsyncCallbackManagerForToolRun | None = None
    ) -> tuple[object, dict[str, object] | None]:
        """Return the content of the answer for the model, and its document for the message."""

        async def on_progress(progress: Progress) -> None:
            if run_manager is not None:
                value, total = progress.steps
                data = {"tool": self.name, "progress": value, "total": total, "message": progress.text}
                await adispatch_custom_event("abp_progress", data, config={"callbacks": run_manager.get_child()})

        answer = await self._tools.call(self.name, arguments, on_progress=on_progress)
        if answer.is_error:
            raise ToolException(answer.text)
        return content_of(answer, _content_block), answer.document


def tools_of(tools: AppTools) -> list[BaseTool]:
    return [_langchain_tool(tools, tool) for tool in tools.tools.values()]


def _langchain_tool(tools: AppTools, tool: AppTool) -> BaseTool:
    langchain_tool = _Tool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        metadata={"annotations": dict(tool.hints), "capability": tool.capability},
    )
    langchain_tool._tools = tools
    return langchain_tool


def _content_block(part: str | Attachment) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if part.is_image:
        return {"type": "image", "base64": part.base64, "mime_type": part.mime_type}
    return {"type": "file", "base64": part.base64, "mime_type": part.mime_type, "extras": {"filename": part.filename}}
