"""Tools of an app for LangChain and LangGraph."""

from __future__ import annotations

from typing import Any, Literal

from langchain_core.callbacks import AsyncCallbackManagerForToolRun, adispatch_custom_event
from langchain_core.tools import BaseTool, ToolException
from pydantic import PrivateAttr

from ..protocol._payloads import Progress
from ._tools import Answer, AppTool, AppTools, Attachment

#: Name of the custom events with the progress of a call.
_PROGRESS = "abp_progress"


class _Tool(BaseTool):  # type: ignore[misc]
    """Tool of one session."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True
    _tools: AppTools = PrivateAttr()

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # as one object: a parameter of an app may have the name of one of LangChain's, such as `config`
        return (tool_input,), {}

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(
        self, arguments: dict[str, Any], *, run_manager: AsyncCallbackManagerForToolRun | None = None
    ) -> tuple[object, dict[str, object] | None]:
        async def on_progress(progress: Progress) -> None:
            if run_manager is not None:
                value, total = progress.steps
                data = {"tool": self.name, "progress": value, "total": total, "message": progress.text}
                await adispatch_custom_event(_PROGRESS, data, config={"callbacks": run_manager.get_child()})

        answer = await self._tools.call(self.name, arguments, on_progress=on_progress)
        if answer.is_error:
            raise ToolException(answer.text)
        return _content(answer), answer.document


def tools_of(tools: AppTools) -> list[BaseTool]:
    """Return the tools of the app's current capabilities."""
    return [_tool(tools, one) for one in tools.tools.values()]


def _tool(tools: AppTools, tool: AppTool) -> BaseTool:
    made = _Tool(
        name=tool.name,
        description=tool.description,
        args_schema=tool.schema,
        metadata={"annotations": dict(tool.hints), "capability": tool.capability},
    )
    made._tools = tools
    return made


def _content(answer: Answer) -> object:
    if not answer.attachments:
        return answer.text
    blocks: list[dict[str, Any]] = [{"type": "text", "text": answer.text}]
    for one in answer.attachments:
        blocks += [{"type": "text", "text": one.label}] if one.label else []
        blocks.append(_block(one))
    return blocks


def _block(one: Attachment) -> dict[str, Any]:
    if one.is_image:
        return {"type": "image", "base64": one.base64, "mime_type": one.mime_type}
    return {"type": "file", "base64": one.base64, "mime_type": one.mime_type, "extras": {"filename": one.filename}}
