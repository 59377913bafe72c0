"""An MCP client that starts `abp mcp` and uses an app's capabilities as tools, as an agent does.

python examples/mcp_client.py http://127.0.0.1:8000/
"""

import asyncio
import base64
import json
import os
import sys

from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, ResourceLink, TextContent


def show(answer: CallToolResult) -> None:
    for item in answer.content:
        match item:
            case TextContent():
                print(item.text)
            case ResourceLink():
                print(f"-> {item.uri} ({item.mime_type}, {item.size} bytes)")
            case _:
                print(f"-> {item.type}")


async def main(url: str) -> None:
    args = ["-m", "transports.surfaces.cli", "mcp"]  # the command `abp mcp`, in this Python
    async with Client(StdioServerParameters(command=sys.executable, args=args, env=dict(os.environ))) as client:
        show(await client.call_tool("abp_connect", {"url": url}))
        print(len((await client.list_tools()).tools), "tools")

        made = await client.call_tool("abp_export_pdf", {"html": "<h1>From an agent</h1>"})
        show(made)
        (pdf,) = [
            item for item in made.content if isinstance(item, ResourceLink) and item.mime_type == "application/pdf"
        ]

        # A file goes into the next call by its URI, so its bytes never pass through the agent.
        files = [{"param": "file", "artifact": pdf.uri}]
        digest = await client.call_tool("abp_file_digest", {"files": files})
        print(json.dumps(digest.structured_content["data"]))

        (content,) = (await client.read_resource(pdf.uri)).contents
        print(base64.b64decode(content.model_dump()["blob"])[:5])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
