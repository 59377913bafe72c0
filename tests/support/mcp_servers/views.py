"""A server whose tools have views (MCP Apps), each with its own document and policy.

Scripts of the views speak with their host by ``rpc`` and ``tell``; tests call these in the view's frame.
"""

import asyncio
import base64

from mcp.server.apps import Apps, ResourceCsp, ResourcePermissions
from mcp.server.mcpserver import MCPServer
from mcp_types import CallToolResult, ImageContent, TextContent

CLIENT = """<!doctype html><meta charset="utf-8"><title>A view</title><h1>A view</h1><script>
let last = 0;
const waiting = new Map();
const heard = [];
const file = (bytes, type) => ({ type: "resource", resource: { uri: `file:///${type}.bin`, mimeType: "application/octet-stream",
  blob: btoa(String.fromCharCode(...bytes)) } });
const tools = {
  echo: (given) => ({ content: [{ type: "text", text: JSON.stringify(given) }], structuredContent: given }),
  picture: () => ({ content: [{ type: "image", mimeType: "image/png", data: PNG }] }),
  broken: () => ({ content: [{ type: "image", mimeType: "image/png", data: "%%%" }] }),
  fails: () => { throw new Error("no such thing"); },
  never: () => new Promise(() => {}),
  hands: async () => ({ content: [], structuredContent: { answer: await rpc("ui/download-file", { contents: [file([1, 2, 3], "three")] }) } }),
};
const schemas = { echo: { type: "object", properties: { text: { type: "string" } } } };
addEventListener("message", async ({ data }) => {
  if (data.method === undefined) return waiting.get(data.id)?.(data);
  heard.push(data);
  if (data.id === undefined) return;
  const answer = { jsonrpc: "2.0", id: data.id };
  try {
    if (data.method === "tools/list") {
      answer.result = { tools: Object.keys(tools).map((name) => ({ name, inputSchema: schemas[name] ?? { type: "object" } })) };
    } else if (data.method === "tools/call") answer.result = await tools[data.params.name](data.params.arguments);
    else throw new Error(`unknown ${data.method}`);
  } catch (error) { answer.error = { code: -32603, message: error.message }; }
  parent.postMessage(answer, "*");
});
const tell = (method, params) => parent.postMessage({ jsonrpc: "2.0", method, params }, "*");
const rpc = (method, params = {}) => new Promise((resolve) => {
  last += 1;
  waiting.set(last, resolve);
  parent.postMessage({ jsonrpc: "2.0", id: last, method, params }, "*");
});
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
let init;
const begin = async (appCapabilities = { tools: { listChanged: true } }) => {
  init = await rpc("ui/initialize", { appInfo: { name: "Board", version: "3.1" }, appCapabilities, protocolVersion: "2026-01-26" });
  tell("ui/notifications/initialized", {});
};
</script>
"""

#: Documents of the views, by the name of their tool.
DOCUMENTS = {
    "board": f"{CLIENT}<script>begin();</script>",
    "plain": f"{CLIENT}<script>begin({{}});</script>",
    "blank": "<!doctype html><p>Nothing here speaks.",
    "half": f'{CLIENT}<script>rpc("ui/initialize", {{ appInfo: {{ name: "Half" }}, appCapabilities: {{}} }});</script>',
    "fails": "<!doctype html><script>\n\nundefined.begin();</script>",
    "forbidden": '<!doctype html><script src="https://cdn.example/lib.js"></script>',
}
apps = Apps()
for name, html in DOCUMENTS.items():
    uri = f"ui://views/{name}.html"

    def tool(n: int = 1) -> CallToolResult:
        text = TextContent(type="text", text=f"n is {n}")
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


if __name__ == "__main__":
    asyncio.run(server.run_stdio_async())
