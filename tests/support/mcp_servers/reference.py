"""The reference app's Python side as an MCP server over stdin and stdout: its capabilities are tools, its data is
structured content, its errors are ``isError`` results."""

import asyncio
import json
import sys
import uuid
from pathlib import Path
from typing import Any, cast

sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parent)]

from mcp.server.stdio import stdio_server  # noqa: E402
from mcp_types import CallToolResult, ListToolsResult, TextContent, Tool  # noqa: E402
from tableau import OldLines, Tableau  # type: ignore[import-not-found]  # noqa: E402

from webapp_fixture.conversation import Conversation  # noqa: E402
from webapp_fixture.definitions import app_info  # noqa: E402


class App:
    """One client's conversation, and the requests that it is about."""

    def __init__(self) -> None:
        self.conversation = Conversation(self.deliver, {"faults": ""})
        self.replies: dict[str, asyncio.Future[Any]] = {}
        self.latest: Any = None
        self.running: dict[str, Any] = {}

    async def deliver(self, message: dict[str, Any]) -> None:
        kind, payload, session = message["type"], cast(Any, message.get("payload")), self.latest.session
        if kind == "progress":
            if (ctx := self.running.get(payload["operationId"])) is not None:
                await ctx.session.report_progress(payload["progress"], payload.get("total"), payload.get("stage"))
        elif kind == "notification":
            if payload["event"].endswith("capabilities/list_changed"):
                await session.send_tool_list_changed()
            else:
                await session.send_log_message("info", payload, "app", self.latest.request_id)
        elif kind == "elicitation/request":
            self.conversation.spawn(self.ask(message["id"], payload))
        elif (reply := self.replies.get(message.get("id", ""))) is not None and not reply.done():
            reply.set_result(payload)

    async def ask(self, key: str, request: dict[str, Any]) -> None:
        question = request.get("params", {}).get("message", request["method"])
        default = request.get("params", {}).get("default")
        field = {"type": "string"} | ({"default": default} if isinstance(default, str) else {})
        form = {"type": "object", "properties": {"value": field}, "required": ["value"]}
        reply = await self.latest.session.elicit_form(question, form, self.latest.request_id)
        answer: dict[str, object] = {"success": False, "cancelled": True}
        if reply.action == "accept":
            answer = {"success": True, "data": dict(reply.content or {})}
        await self.conversation.receive({"type": "elicitation/response", "id": key, "payload": answer})

    async def list_tools(self, ctx: Any, params: Any) -> ListToolsResult:
        self.latest = ctx
        if self.conversation.session_id is None:
            hello = {"agent": {"name": "mcp"}, "features": {}}
            await self.conversation.receive({"type": "initialize", "id": "hello", "payload": hello})
        return ListToolsResult(
            tools=[
                Tool(
                    name=entry["name"],
                    description=entry.get("description"),
                    input_schema=entry.get("inputSchema") or {"type": "object"},
                )
                for entry in self.conversation.listed
            ]
        )

    async def call_tool(self, ctx: Any, params: Any) -> CallToolResult:
        self.latest, key = ctx, str(uuid.uuid4())
        self.running[key] = ctx
        self.replies[key] = asyncio.get_running_loop().create_future()
        call = {"capability": params.name, "params": params.arguments or {}, "options": {"callId": key}}
        try:
            await self.conversation.receive({"type": "capabilities/call", "id": key, "payload": call})
            return result(await self.replies[key])
        except asyncio.CancelledError:
            cancel = {"callId": key, "reason": "the request was cancelled"}
            await self.conversation.receive({"type": "capabilities/cancel", "id": "cancel", "payload": cancel})
            raise
        finally:
            del self.replies[key], self.running[key]


def result(answer: Any) -> CallToolResult:
    """An app's answer, whatever it is, as a tool's result."""
    if not isinstance(answer, dict) or not answer.get("success"):
        error = answer.get("error") if isinstance(answer, dict) else None
        if isinstance(answer, dict) and answer.get("cancelled"):
            error = {"code": "CANCELLED", "message": "the call was cancelled"}
        described = error if isinstance(error, dict) else {"code": "OPERATION_FAILED", "message": str(error or answer)}
        return CallToolResult(
            content=[TextContent(type="text", text=str(described.get("message")))],
            structured_content={"error": described},
            is_error=True,
        )
    data = answer.get("data")
    if isinstance(data, dict):
        return CallToolResult(content=[], structured_content=data)
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(data))])


async def main() -> None:
    app = App()
    server = Tableau(
        app_info()["id"],
        version=app_info()["version"],
        title=app_info()["name"],
        on_list_tools=app.list_tools,
        on_call_tool=app.call_tool,
    )
    async with stdio_server(stdin=cast(Any, OldLines())) as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
    await app.conversation.aclose()


if __name__ == "__main__":
    asyncio.run(main())
