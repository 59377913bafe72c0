"""A server whose tools have views (MCP Apps), each with its own document and policy.

Scripts of the views speak with their host by ``rpc`` and ``tell``; tests call these in the view's frame.
"""

import asyncio
import base64
from pathlib import Path

from mcp.server.apps import Apps, ResourceCsp, ResourcePermissions
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

#: The script of a view: ``begin()`` is its handshake.
CLIENT = (Path(__file__).parent / "view.html").read_text()

#: Documents of the views, by the name of their tool.
DOCUMENTS = {
    "board": f"{CLIENT}<script>begin();</script>",
    "plain": f"{CLIENT}<script>begin({{}});</script>",
    "modes": f"{CLIENT}<script>begin({{ availableDisplayModes: ['inline', 'fullscreen'] }});</script>",
    "openai": """<!doctype html><p><script>
      document.querySelector("p").textContent = JSON.stringify([openai.toolInput, openai.toolOutput, openai.theme]);
      const seen = [];
      addEventListener("openai:set_globals", (event) => seen.push(event.detail.globals));
      </script>""",
    "blank": "<!doctype html><p>Nothing here speaks.",
    "half": f'{CLIENT}<script>rpc("ui/initialize", {{ appInfo: {{ name: "Half" }}, appCapabilities: {{}} }});</script>',
    "fails": "<!doctype html><script>\n\nundefined.begin();</script>",
    "told": CLIENT
    + """<script>begin().then(() => {
      const { theme, locale } = init.result.hostContext;
      tell("notifications/message", { level: "info", data: { theme, locale, name: init.result.hostInfo.name } });
    });</script>""",
    "hollow": CLIENT.replace("<h1>A view</h1>", '<script src="https://cdn.example/lib.js"></script>')
    + "<script>begin();</script>",
    "forbidden": '<!doctype html><script src="https://cdn.example/lib.js"></script>',
}
apps = Apps()
for name, html in DOCUMENTS.items():
    uri = f"ui://views/{name}.html"

    def tool(n: int = 1, note: str = "") -> CallToolResult:
        text = TextContent(type="text", text=f"n is {n} {note}".strip())
        picture = ImageContent(type="image", data=base64.b64encode(bytes(100)).decode(), mime_type="image/png")
        return CallToolResult(content=[text, picture], structured_content={"n": n})

    apps.tool(resource_uri=uri, name=name)(tool)
    apps.add_html_resource(
        uri,
        html,
        csp=ResourceCsp(resource_domains=["https://fonts.example", "evil; script-src *"]) if name == "board" else None,
        permissions=ResourcePermissions(clipboard_write={}) if name == "board" else None,
    )


@apps.tool(resource_uri="ui://views/board.html", visibility=["app"])
def secret(key: str) -> str:
    """Give a view what agents do not see."""
    return f"for views: {key}"


server = MCPServer("views", extensions=[apps])


@server.tool(meta={"ui": {"visibility": ["model"]}})
def model_only() -> str:
    """Answer agents alone."""
    return "for agents"


@server.tool(meta={"openai/outputTemplate": "ui://views/plain.html"})
def legacy() -> str:
    """Name its view as earlier hosts had it."""
    return "old"


@server.resource("data://report.csv", mime_type="text/csv")
def report() -> str:
    """Rows for a link."""
    return "a,b\n1,2\n"


@server.resource("data://rows/{number}", mime_type="text/csv")
def rows(number: str) -> str:
    """One row of many."""
    return number


@server.tool()
def links() -> CallToolResult:
    """Name a view, and two resources that are in no list and cannot be read."""
    embedded = TextResourceContents(uri="gone://embedded", text="embedded")
    return CallToolResult(
        content=[
            ResourceLink(type="resource_link", uri="ui://views/plain.html", name="plain"),
            ResourceLink(type="resource_link", uri="gone://linked", name="linked"),
            EmbeddedResource(type="resource", resource=embedded),
        ]
    )


if __name__ == "__main__":
    asyncio.run(server.run_stdio_async())
