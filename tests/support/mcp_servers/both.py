"""A server made with the official SDK, of both eras: numbers, progress, and pictures of any size."""

import random

from mcp.server.mcpserver import Context, Image, MCPServer

server = MCPServer("both")


@server.tool()
def double(number: int) -> int:
    return 2 * number


@server.tool(structured_output=False)
def picture(size: int) -> Image:
    return Image(data=random.Random(1).randbytes(size), format="png")


@server.tool()
async def steps(context: Context) -> str:
    await context.report_progress(1, 2)
    await context.report_progress(2, 2)
    return "done"


server.run("stdio")
