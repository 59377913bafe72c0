"""MCP server with a view: votes as bars. ``python server.py`` speaks MCP over stdin and stdout."""

from pathlib import Path

from mcp.server.apps import Apps
from mcp.server.mcpserver import MCPServer

VIEW = "ui://poll/bars.html"
apps = Apps()
votes = {"tea": 3, "coffee": 5}


@apps.tool(resource_uri=VIEW)
def poll(question: str = "Tea or coffee?") -> dict[str, object]:
    """Show the votes."""
    return {"question": question, "votes": votes}


@apps.tool(resource_uri=VIEW, visibility=["app"])
def vote(choice: str) -> dict[str, object]:
    """Count a vote. Only the view calls this: agents do not see it."""
    votes[choice] += 1
    return {"votes": votes}


apps.add_html_resource(VIEW, Path(__file__).with_name("view.html").read_text(encoding="utf-8"))
server = MCPServer("poll", extensions=[apps])

if __name__ == "__main__":
    server.run()
