"""Use an MCP server as an app: list its tools, call one, read a resource.

python examples/mcp_server.py "mcp+stdio:npx -y @modelcontextprotocol/server-everything" get-tiny-image
"""

import asyncio
import json
import sys

from transports import connect


async def main(target: str, tool: str, params: str = "{}") -> None:
    async with connect(target) as app:
        print(app.info.name, app.info.version, "has", ", ".join(app.capabilities))
        result = await app.call(tool, json.loads(params), on_progress=lambda progress: print(progress.progress))
        print(result.summary())

        resources = await app.resources.list()
        print(len(resources), "resources")
        if resources:
            read = await app.resources.read(resources[0].uri, size=resources[0].size)
            print(read.summary())


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
