"""A server whose tool has a view, written by hand: the view speaks MCP Apps and does what a test says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.mcp_servers import FOLDER

_SCRIPT = """
const waiting = {}; let last = 0;
const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
const request = (method, params) => new Promise((done) => {
  waiting[last += 1] = done;
  send({ id: last, method, params });
});
const show = (id, text) => { document.getElementById(id).textContent = text; };
addEventListener("message", ({ data }) => {
  if (data?.jsonrpc !== "2.0") return;
  if (data.method === "ui/notifications/tool-result") show("result", data.params.content[0].text);
  if (data.method === "tools/list") send({ id: data.id, result: { tools: [{ name: "slow", inputSchema: {} }] } });
  if (data.method === "tools/call") window.called?.();
  if (data.method === "ui/resource-teardown") send({ id: data.id, result: {} });
  if (!data.method) waiting[data.id]?.(data.result);
});
const start = async () => {
  const appInfo = { name: "V", version: "1" };
  await request("ui/initialize", { appInfo, appCapabilities: { tools: {} }, protocolVersion: "2026-01-26" });
  send({ method: "ui/notifications/initialized", params: {} });
};
"""


def viewing(folder: Path, body: str, csp: dict[str, object] | None = None, *, head: str = "") -> str:
    """The target of a server whose tool ``go`` has a view with this script."""
    html = f'<!doctype html>{head}<p id="result"></p><p id="out"></p><script>{_SCRIPT}{body}</script>'
    answers = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "canned", "version": "1"},
        },
        "tools": [{"name": "go", "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": "ui://x/v"}}}],
        "results": {"go": {"content": [{"type": "text", "text": "answer"}]}},
        "documents": {
            "ui://x/v": {
                "uri": "ui://x/v",
                "mimeType": "text/html;profile=mcp-app",
                "text": html,
                "_meta": {"ui": {"csp": csp or {}}},
            }
        },
    }
    file = folder / "said.json"
    file.write_text(json.dumps(answers))
    return f"mcp+stdio:{sys.executable} -S -I {FOLDER / 'canned.py'} {file}"
