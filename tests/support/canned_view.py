"""A server whose tools have views, written by hand: they speak MCP Apps and do what a test says."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class CannedView:
    """The script of a view, the domains that it declares, and what comes before."""

    body: str = ""
    csp: Mapping[str, object] = field(default_factory=dict)
    head: str = ""

    def document(self, uri: str) -> dict[str, object]:
        html = f'<!doctype html>{self.head}<p id="result"></p><p id="out"></p><script>{_SCRIPT}{self.body}</script>'
        meta = {"ui": {"csp": self.csp}}
        return {"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": html, "_meta": meta}


def serve_views(folder: Path, views: Mapping[str, CannedView]) -> str:
    """The target of a server that has a tool for each view, by the name of the tool."""
    uris = {name: f"ui://x/{name}" for name in views}
    answers = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}},
            "serverInfo": {"name": "canned", "version": "1"},
        },
        "tools": [
            {"name": name, "inputSchema": {"type": "object"}, "_meta": {"ui": {"resourceUri": uri}}}
            for name, uri in uris.items()
        ],
        "results": {name: {"content": [{"type": "text", "text": "answer"}]} for name in views},
        "documents": {uri: views[name].document(uri) for name, uri in uris.items()},
    }
    file = folder / "said.json"
    file.write_text(json.dumps(answers))
    return f"mcp+stdio:{sys.executable} -S -I {FOLDER / 'canned.py'} {file}"


def viewing(folder: Path, body: str, *, head: str = "") -> str:
    """The target of a server whose tool ``go`` has a view with this script."""
    return serve_views(folder, {"go": CannedView(body, head=head)})
