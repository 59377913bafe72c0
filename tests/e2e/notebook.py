"""Notebook: a small app that remembers, to see whose storage a session has. Served on 127.0.0.1, any number at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.support.pages import serve_answers

APP = """
globalThis.loads = (globalThis.loads ?? 0) + 1;
const bytes = (size, seed) => new Uint8Array(size).map((_, i) => (i * 7 + seed) % 251).buffer;
const CAPABILITIES = {
  "note.write": ({ text }) => {
    document.cookie = `note=${text}; max-age=3600; path=/`;
    localStorage.setItem("note", text);
    return { saved: true };
  },
  "note.read": () => ({
    cookie: /note=([^;]*)/.exec(document.cookie)?.[1] ?? null,
    storage: localStorage.getItem("note"),
    state: globalThis.state ?? null,
  }),
  "note.file": ({ size, seed }) => ({
    file: { content: bytes(size, seed), mimeType: "application/octet-stream", size, filename: `note-${seed}.bin` },
  }),
  "note.link": ({ size, seed }) => ({
    file: { downloadUrl: URL.createObjectURL(new Blob([bytes(size, seed)])), mimeType: "text/plain", size },
  }),
  "note.measure": ({ file }) => ({ size: file.content.byteLength, last: new Uint8Array(file.content).at(-1) }),
};
globalThis.abp = {
  async initialize() {
    return {
      sessionId: "notebook", protocolVersion: "0.1", app: { id: "notebook", name: document.title, version: "1" },
      capabilities: Object.keys(CAPABILITIES).map((name) => ({ name, available: true })), features: {},
    };
  },
  async listCapabilities() { return Object.keys(CAPABILITIES).map((name) => ({ name, description: name })); },
  async call(name, params) {
    if (!CAPABILITIES[name]) return { success: false, error: { code: "UNKNOWN_CAPABILITY", message: name } };
    return { success: true, data: await CAPABILITIES[name](params) };
  },
  async shutdown() {},
};
"""


def content(size: int, seed: int) -> bytes:
    """What ``note.file`` answers."""
    again = bytes((i * 7 + seed) % 251 for i in range(251))  # and so on: megabytes of it take no time
    return (again * (size // 251 + 1))[:size]


@asynccontextmanager
async def notebook(title: str = "Notebook", scripts: list[str] | None = None) -> AsyncIterator[str]:
    """The address of a notebook of its own origin; below it, ``plain`` is a page without an app. The first of
    ``scripts`` runs at the next load of the page, and never again."""

    async def page(request: web.Request) -> web.Response:
        script = f"<script>{APP}</script>" if request.path == "/" else ""
        if script and scripts:
            script += f"<script>{scripts.pop(0)}</script>"
        html = f"<!doctype html><title>{title if script else 'plain'}</title>{script}"
        return web.Response(text=html, content_type="text/html", headers={"Cache-Control": "no-store"})

    async with serve_answers(page) as url:
        yield url
