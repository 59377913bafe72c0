"""A small server like Tableau's: the outputs of docs/requirements.md R2-B, typed content, links, resources, questions.

``tableau.py`` speaks over stdin and stdout, both protocol eras; ``--legacy`` the older one only; ``--http TOKEN`` over
HTTP, and prints its address.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, cast

from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    ReadResourceResult,
    Resource,
    ResourceLink,
    ResourceTemplate,
    SamplingMessage,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

PDF = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + b"1 0 obj\n<< >>\nendobj\n" * 25_000 + b"%%EOF\n"
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
) + bytes(300_000)
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(60_000)
VIEW = "tableau://views/7/data.csv"
_HOUR = 3_600_000  # ms
COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
VIEW_SCHEMA = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("pdf_data", "view_name", "generated_at")},
    "additionalProperties": False,
}

state: dict[str, Any] = {"version": 1, "reads": 0, "extra": False, "subscribed": set(), "waiting": 0, "cancelled": 0}
bus = InMemorySubscriptionBus()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_text(value: object) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=json.dumps(value))])


def tool(name: str, description: str = "", properties: dict[str, Any] | None = None, **more: Any) -> Tool:
    return Tool(
        name=name, description=description, input_schema={"type": "object", "properties": properties or {}}, **more
    )


def tools() -> list[Tool]:
    reads = ToolAnnotations(title="Reads", read_only_hint=True)
    listed = [
        tool("download_workbook", "A workbook as PDF", {"id": {"type": "string"}}, annotations=reads),
        tool("get_view_as_pdf", "A view as PDF", output_schema=VIEW_SCHEMA),
        tool("list_workbooks", "All workbooks", annotations=reads),
        tool("get_view_image", "A view as a picture"),
        tool("narrate", "Sound and an embedded file"),
        tool("export_links", "Links to exports"),
        tool("fails", "Always fails"),
        tool("refuses", "Refused as JSON-RPC"),
        tool("upload", "A file", {"file": {"type": "string"}, "described": {"type": "object"}}),
        tool("ask", "Asks for a colour"),
        tool("think", "Asks for a model's words"),
        tool("work", "Reports progress", {"steps": {"type": "integer"}}),
        tool("wait", "Never ends"),
        tool("record", "How many calls began to wait and were cancelled, and how many reads there were"),
        tool("refresh", "Changes the view"),
        tool("grow", "Adds a tool"),
        tool("large", "A blob", {"bytes": {"type": "integer"}}),
    ]
    return [*listed, tool("extra")] if state["extra"] else listed


async def list_tools(ctx: Any, params: Any) -> ListToolsResult:
    listed, start = tools(), int(params.cursor or 0) if params else 0
    more = str(start + 10) if len(listed) > start + 10 else None
    return ListToolsResult(tools=listed[start : start + 10], next_cursor=more)


async def call_tool(ctx: Any, params: Any) -> CallToolResult | InputRequiredResult:
    arguments = params.arguments or {}
    modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
    match params.name:
        case "download_workbook":
            return as_text({"content": b64(PDF), "name": "Sales Dashboard", "format": "pdf"})
        case "get_view_as_pdf":
            view = {"pdf_data": b64(PDF), "view_name": "Revenue by Region", "generated_at": "2025-12-22T10:30:00Z"}
            return CallToolResult(content=[TextContent(type="text", text=json.dumps(view))], structured_content=view)
        case "list_workbooks":
            names = (("123", "Sales"), ("456", "Marketing"))
            return as_text({"workbooks": [{"id": n, "name": name, "project": "Analytics"} for n, name in names]})
        case "get_view_image":
            return CallToolResult(
                content=[
                    TextContent(type="text", text="The view:"),
                    ImageContent(type="image", data=b64(PNG), mime_type="image/png"),
                ]
            )
        case "narrate":
            blob = BlobResourceContents(uri="tableau://files/note.bin", mime_type="application/x-note", blob=b64(PDF))
            text = TextResourceContents(uri="tableau://files/note.txt", mime_type="text/plain", text="a note")
            return CallToolResult(
                content=[
                    AudioContent(type="audio", data=b64(WAV), mime_type="audio/wav"),
                    EmbeddedResource(type="resource", resource=blob),
                    EmbeddedResource(type="resource", resource=text),
                ]
            )
        case "export_links":
            size = len(view_data().encode())
            return CallToolResult(
                content=[
                    ResourceLink(type="resource_link", uri=VIEW, name="data.csv", mime_type="text/csv", size=size),
                    ResourceLink(type="resource_link", uri="tableau://views/gone", name="gone", size=10),
                    ResourceLink(type="resource_link", uri="tableau://views/7/lies", name="lies", size=5),
                    ResourceLink(type="resource_link", uri="tableau://files/7.pdf", name="7.pdf", size=len(PDF)),
                ]
            )
        case "fails":
            return CallToolResult(content=[TextContent(type="text", text="the printer is empty")], is_error=True)
        case "refuses":
            raise MCPError(-32602, "this view is not for you")
        case "upload":
            return CallToolResult(content=[], structured_content=arguments)
        case "ask":
            question = ElicitRequestFormParams(message="Which colour?", requested_schema=COLOUR)
            if modern:
                if not params.input_responses:
                    return InputRequiredResult(
                        input_requests={"colour": ElicitRequest(params=question)}, request_state="asked"
                    )
                answer = params.input_responses["colour"]
            else:
                answer = await ctx.session.elicit_form("Which colour?", COLOUR, ctx.request_id)
            return CallToolResult(
                content=[], structured_content={"action": answer.action, "content": dict(answer.content or {})}
            )
        case "think":
            message = SamplingMessage(role="user", content=TextContent(type="text", text="Say hi"))
            reply = await ctx.session.create_message([message], max_tokens=10, related_request_id=ctx.request_id)
            return CallToolResult(content=[], structured_content={"said": reply.content.text, "model": reply.model})
        case "work":
            steps = arguments.get("steps", 3)
            for step in range(1, steps + 1):
                await ctx.session.report_progress(step, steps, f"step {step}")
            return CallToolResult(content=[], structured_content={"steps": steps})
        case "wait":
            state["waiting"] += 1
            try:
                await asyncio.Event().wait()
            except BaseException:
                state["cancelled"] += 1
                raise
        case "record":
            return CallToolResult(
                content=[], structured_content={name: state[name] for name in ("waiting", "cancelled", "reads")}
            )
        case "refresh":
            state["version"] += 1
            await bus.publish(ResourceUpdated(VIEW))
            if VIEW in state["subscribed"]:
                await ctx.session.send_resource_updated(VIEW)
            return CallToolResult(content=[], structured_content={"version": state["version"]})
        case "grow":
            state["extra"] = True
            await bus.publish(ToolsListChanged())
            if not modern:
                await ctx.session.send_tool_list_changed()
            return CallToolResult(content=[], structured_content={"grown": True})
        case "large":
            blob = BlobResourceContents(uri="tableau://files/large.bin", blob=b64(bytes(arguments["bytes"])))
            return CallToolResult(content=[EmbeddedResource(type="resource", resource=blob)])
        case "extra" if state["extra"]:
            return CallToolResult(content=[], structured_content={"extra": True})
    raise MCPError(-32602, f"Unknown tool: {params.name}")


def view_data() -> str:
    return "region,revenue\n" + f"north,{state['version']}\n" * 2000


RESOURCES = [
    Resource(uri=VIEW, name="data.csv", title="Data of view 7", mime_type="text/csv", size=len(view_data())),
    *(Resource(uri=f"tableau://notes/{n}", name=f"note {n}", mime_type="text/plain") for n in range(24)),
    Resource(uri="tableau://files/7.pdf", name="7.pdf", mime_type="application/pdf", size=len(PDF)),
]


async def list_resources(ctx: Any, params: Any) -> ListResourcesResult:
    start = int(params.cursor or 0) if params else 0
    more = str(start + 10) if len(RESOURCES) > start + 10 else None
    return ListResourcesResult(resources=RESOURCES[start : start + 10], next_cursor=more)


async def list_templates(ctx: Any, params: Any) -> ListResourceTemplatesResult:
    named = ("notes", "tableau://notes/{number}"), ("files", "tableau://files/{name}"), ("views", "tableau://views/{n}")
    templates = [ResourceTemplate(uri_template=uri, name=name, mime_type="text/plain") for name, uri in named]
    start = int(params.cursor or 0) if params else 0
    more = str(start + 1) if len(templates) > start + 1 else None
    return ListResourceTemplatesResult(resource_templates=templates[start : start + 1], next_cursor=more)


async def read_resource(ctx: Any, params: Any) -> ReadResourceResult:
    state["reads"] += 1
    uri = str(params.uri)
    if uri == VIEW:
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type="text/csv", text=view_data())], ttl_ms=_HOUR
        )
    if uri == "tableau://files/7.pdf":
        return ReadResourceResult(
            contents=[BlobResourceContents(uri=uri, mime_type="application/pdf", blob=b64(PDF))], ttl_ms=_HOUR
        )
    if uri == "tableau://files/slow":
        await asyncio.Event().wait()
    if uri == "tableau://files/broken":
        return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob="AAA=BBB*")])
    if uri.startswith("tableau://notes/") or uri.endswith("/lies"):
        return ReadResourceResult(
            contents=[TextResourceContents(uri=uri, mime_type="text/plain", text=f"This is {uri}")], ttl_ms=_HOUR
        )
    raise MCPError(-32002, "Resource not found", {"uri": uri})


async def subscribe(ctx: Any, params: Any) -> EmptyResult:
    state["subscribed"].add(str(params.uri))
    return EmptyResult()


async def unsubscribe(ctx: Any, params: Any) -> EmptyResult:
    state["subscribed"].discard(str(params.uri))
    return EmptyResult()


class Tableau(Server[Any]):
    def create_initialization_options(self, notification_options: Any = None, *args: Any, **more: Any) -> Any:
        changing = NotificationOptions(tools_changed=True, resources_changed=True)
        return super().create_initialization_options(notification_options or changing, *args, **more)


def server() -> Server[Any]:
    return Tableau(
        "tableau-mcp",
        version="1.0",
        title="Tableau",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
        on_subscribe_resource=subscribe,
        on_unsubscribe_resource=unsubscribe,
        on_subscriptions_listen=ListenHandler(bus),
    )


class OldLines:
    """The lines of stdin for a server that has never heard of ``server/discover``."""

    def __init__(self) -> None:
        self._stdout = os.dup(1)  # the SDK keeps the other one for itself

    async def __aiter__(self) -> AsyncIterator[str]:
        while line := await asyncio.to_thread(sys.stdin.readline):
            if '"server/discover"' not in line:
                yield line
                continue
            error = {"code": -32601, "message": "Method not found"}
            answer = {"jsonrpc": "2.0", "id": json.loads(line)["id"], "error": error}
            os.write(self._stdout, json.dumps(answer).encode() + b"\n")


async def main(era: str = "") -> None:
    """Serve over stdin and stdout; ``--legacy`` as the older era."""
    made, stdin = server(), OldLines() if era == "--legacy" else None
    async with stdio_server(stdin=cast(Any, stdin)) as (reading, writing):
        await made.run(reading, writing, made.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
