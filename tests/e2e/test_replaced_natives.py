"""Pages that replace every native that our scripts use, by what throws or is no function: each kind of call works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.page_scripts import saved_natives
from tests.support.pages import serve_answers
from tests.support.slow import slow_but
from transports import Browser, PlaywrightTransport, PostMessageTransport, Session, WebMcpTransport, connect

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

Target: TypeAlias = tuple[str, str]
#: What the page puts in the place of a native: a function that throws, an object, a getter that throws, a function that
#: throws and cannot be replaced again. The last one stays.
FORMS = ("throws", "object", "getter", "fixed")
#: Natives that are called by syntax and by natives, and what libraries give to a prototype that has it not.
_UNSEEN = {
    "Array.prototype": ["Symbol.iterator", "concat", "entries", "filter", "map", "slice", "toJSON", "values"],
    "ArrayIterator": ["next"],
    "Map.prototype": ["Symbol.iterator", "entries", "get", "keys", "set", "values"],
    "Object.prototype": ["get", "toJSON", "value"],
    "Object": ["assign", "defineProperty", "entries", "fromEntries"],
    "Promise": ["all", "race", "reject", "resolve"],
    "Promise.prototype": ["catch", "finally", "then"],
    "RegExp.prototype": ["Symbol.matchAll", "Symbol.replace", "Symbol.split", "flags", "test"],
    "Set.prototype": ["Symbol.iterator", "add", "has", "values"],
    "String.prototype": ["Symbol.iterator", "matchAll", "replace"],
    "TypedArray.prototype": ["at", "buffer", "byteLength", "set", "slice", "subarray"],
    "crypto": ["randomUUID"],
    "window": [
        "Promise", "console", "crypto", "globalThis", "navigator", "origin", "parent", "performance", "print", "self",
    ],
}  # fmt: skip
#: Without these a page can neither print nor click a link.
_NEEDED_BY_THE_APP = {("window", "print"), ("HTMLElement.prototype", "click")}
_SIZES = {"small": 1000, "large": 1 << 20}

_PAGE = r"""<!doctype html><meta charset="utf-8"><title>Replaced</title><body><p>Some text</p><script>
{
  // The app of this page keeps what it needs, so that what fails is not its own.
  const { defineProperty, getOwnPropertyDescriptor, getPrototypeOf, apply, deleteProperty } = Reflect;
  const NativeError = Error, Bytes = Uint8Array, FileBlob = Blob, { createElement } = Document.prototype;
  const { setAttribute } = Element.prototype, { addEventListener } = EventTarget.prototype, { createObjectURL } = URL;
  const sizeOf = getOwnPropertyDescriptor(ArrayBuffer.prototype, "byteLength").get, { postMessage } = window;
  const typedArray = getPrototypeOf(Bytes.prototype), { split } = String.prototype, top = window.top, { now } = Date;
  const hasOwn = Object.prototype.hasOwnProperty;
  const of = { dataOf: getOwnPropertyDescriptor(MessageEvent.prototype, "data").get };
  const page = window, ArrayIterator = getPrototypeOf([].values());
  const iterators = { ArrayIterator, "TypedArray.prototype": typedArray, window: page };
  const symbols = { __proto__: null };
  for (const name of ["iterator", "matchAll", "replace", "split"]) symbols[`Symbol.${name}`] = Symbol[name];
  const owners = { __proto__: null };
  const ownerOf = (path) => {
    if (iterators[path]) return iterators[path];
    if (!(path in owners)) {
      const parts = apply(split, path, ["."]);
      let owner = page[parts[0]];
      if (parts.length > 1 && owner) owner = owner.prototype;
      owners[path] = owner;
    }
    return owners[path];
  };
  const faults = [];
  const restore = [];
  // Replaces natives: "Array.prototype.map", …
  const replace = (targets, form) => {
    for (let n = 0; n < targets.length; n += 1) {
      const owner = ownerOf(targets[n][0]), key = symbols[targets[n][1]] ?? targets[n][1];
      if (!owner) continue;
      const before = getOwnPropertyDescriptor(owner, key);
      const thrower = function () { throw new NativeError(`replaced ${targets[n][0]}.${targets[n][1]}`); };
      const change = { __proto__: null, configurable: form !== "fixed", enumerable: false };
      const isGetter = before && apply(hasOwn, before, ["get"]);
      if (isGetter || form === "getter") change.get = form === "object" ? () => ({ center: [52, 13] }) : thrower;
      else { change.value = form === "object" ? { center: [52, 13] } : thrower; change.writable = form !== "fixed"; }
      if (defineProperty(owner, key, change)) restore[restore.length] = [owner, key, before];
    }
  };
  const putBack = () => {
    for (let n = restore.length - 1; n >= 0; n -= 1) {
      const entry = restore[n];
      if (entry[2]) defineProperty(entry[0], entry[1], { __proto__: null, ...entry[2] });
      else deleteProperty(entry[0], entry[1]);
    }
    restore.length = 0;
  };
  for (const type of ["error", "unhandledrejection"]) {
    apply(addEventListener, page, [type, (event) => {
      let text = type;
      try { text = `${event.message ?? event.reason}`; } catch { /* one that cannot be read */ }
      faults[faults.length] = text;
    }]);
  }
  const link = apply(createElement, document, ["a"]);
  const address = createObjectURL(new FileBlob(["saved"]));
  apply(setAttribute, link, ["href", address]);
  apply(setAttribute, link, ["download", "saved.txt"]);
  const targetsNow = TARGETS;
  const CALLS = { __proto__: null,
    json: () => ({ rows: [1, 2, { a: "x" }], none: null }),
    small: () => ({ content: new Bytes(1000), mimeType: "application/octet-stream" }),
    large: () => ({ content: new Bytes(1048576), mimeType: "application/octet-stream" }),
    upload: ({ file }) => ({ size: apply(sizeOf, file.content, []) }),
    print: () => { PRINT; return { done: 1 }; },
    download: () => { link.click(); return { done: 1 }; },
    progress: (_, options) => { PROGRESS; return { done: 1 }; },
    replace: ({ form }) => { putBack(); replace(targetsNow, form); return { done: 1 }; },
    faults: () => { putBack(); return { faults }; },
  };
  const names = ["json", "small", "large", "upload", "print", "download", "progress", "replace", "faults"];
  APP
  page.CALLS = CALLS;
  replace(targetsNow, "FORM");
}
</script>"""

_ABP = """
  const list = [];
  for (let n = 0; n < names.length; n += 1) list[n] = { name: names[n], available: true };
  page.abp = {
    async initialize() {
      const app = { id: "r", name: "R", version: "1" };
      return { sessionId: "s", protocolVersion: "0.1", app, features: { progress: true }, capabilities: list };
    },
    async call(name, params, options) { return { success: true, data: await CALLS[name](params, options) }; },
    async shutdown() {},
  };
"""
_EMBEDDED = """
  const list = [];
  for (let n = 0; n < names.length; n += 1) list[n] = { name: names[n], available: true };
  const send = (message) => apply(postMessage, top, [message, "*"]);
  const answer = async (data) => {
    if (data.type === "initialize") {
      const app = { id: "r", name: "R", version: "1" };
      return { sessionId: "s", protocolVersion: "0.1", app, features: { progress: true }, capabilities: list };
    }
    return { success: true, data: await CALLS[data.payload.capability](data.payload.params, data.payload.options) };
  };
  apply(addEventListener, page, ["message", async (event) => {
    const data = apply(of.dataOf, event, []);
    if (data?.type !== "initialize" && data?.type !== "capabilities/call") return;
    let payload;
    try { payload = await answer(data); } catch (error) {
      payload = { success: false, error: { code: "OPERATION_FAILED", message: `${error}` } };
    }
    send({ type: `${data.type}-result`, id: data.id, timestamp: now(), payload });
  }]);
"""
_TOOLS = """
  const held = [];
  const context = { registerTool(tool) { held[held.length] = tool; } };
  Object.defineProperty(document, "modelContext", { value: context, configurable: true });
  for (let n = 0; n < names.length; n += 1) {
    const name = names[n], work = CALLS[name];
    context.registerTool({ name, description: name, execute: async (input) => work(input),
      inputSchema: { type: "object", properties: name === "upload" ? { file: { type: "object" } } : {} } });
  }
"""
_ADAPTER = """
for (const name of ["json", "small", "large", "upload", "print", "download", "progress", "replace", "faults"]) {
  abp.capability(name, {}, (params, options) => window.CALLS[name](params, options));
}
"""
_WINDOW_PROGRESS = "page.__abp_progress({ operationId: options.progressToken, progress: 1, total: 2 })"
_POSTED_PROGRESS = (
    'send({ type: "progress", timestamp: 0, payload: { operationId: options.progressToken, progress: 1, total: 2 } })'
)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of driving a page: the parts of its script, and the kinds of calls that it knows."""

    app: str
    calls: tuple[str, ...]
    progress: str = _WINDOW_PROGRESS


_ALL = ("json", "small", "large", "upload", "print", "download", "progress")
WAYS = {
    "own page": Way(_ABP, _ALL),
    "page=": Way(_ABP, ("json", "small", "large", "upload", "print", "progress")),  # its downloads are the caller's
    "embedded": Way(_EMBEDDED, _ALL, _POSTED_PROGRESS),
    "adapter": Way("", ("json", "small", "large", "upload", "print", "download")),
    "tools": Way(_TOOLS, ("json", "small", "large", "upload", "print", "download"), "undefined"),
}


def replaced_natives() -> list[Target]:
    """Return every native that our scripts save, and those that syntax and natives call: owner and name."""
    saved = [*saved_natives().items(), *_UNSEEN.items()]
    return sorted({(owner, name) for owner, names in saved for name in names} - _NEEDED_BY_THE_APP)


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        way = WAYS[request.query["way"]]
        html = _PAGE.replace("APP", way.app).replace("PROGRESS", way.progress).replace("PRINT", "page.print()")
        html = html.replace("TARGETS", json.dumps(replaced_natives())).replace("FORM", FORMS[0])
        return web.Response(text=html, content_type="text/html")

    async with serve_answers(page) as url:
        yield url


@asynccontextmanager
async def session(browser: Browser, way: str, url: str, folder: Path) -> AsyncIterator[Session]:
    """Connect to the page at ``url`` in a way."""
    settings: dict[str, Any] = {"store": folder / "out", "timeout": 20}
    async with AsyncExitStack() as stack:
        match way:
            case "page=":
                context = await browser.playwright.new_context()
                stack.push_async_callback(context.close)
                page = await context.new_page()
                await page.goto(url)
                transport: Any = PlaywrightTransport(url, page=page, grace=0.5)
            case "embedded":
                transport = PostMessageTransport(url, browser=browser)
            case "adapter":
                script = folder / "adapter.js"
                script.write_text(_ADAPTER)
                transport = PlaywrightTransport(url, browser=browser, adapter=script, grace=0.5)
            case "tools":
                transport = WebMcpTransport(url, browser=browser)
            case _:
                transport = PlaywrightTransport(url, browser=browser, grace=0.5)
        yield await stack.enter_async_context(connect(url, transport=transport, **settings))


async def fault_of(app: Session, call: str, expected: int) -> str:
    """Return why a call failed; empty if it did not."""
    heard: list[object] = []
    params: dict[str, Any] = {"file": b"x" * expected} if call == "upload" else {}
    try:
        result = await app.call(call, params, timeout=20, on_progress=heard.append)
        match call:
            case "json":
                right = result.data == {"rows": [1, 2, {"a": "x"}], "none": None}
            case "small" | "large":
                right = await app.store.get(result.artifact()) == bytes(expected)
            case "upload":
                right = result.data == {"size": expected}
            case "print":
                right = [ref.mime_type for ref in result.artifacts.values()][-1:] == ["application/pdf"]
            case "download":
                right = [ref.filename for ref in result.artifacts.values()][-1:] == ["saved.txt"]
            case _:
                right = len(heard) == 1
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "" if right else f"{result.data!r:.80} {list(result.artifacts)} {heard} {result.warnings}"


@pytest.mark.parametrize("way", slow_but(WAYS, "own page"))
async def test_calls_work_in_page_replacing_all_builtins(browser: Browser, site: str, tmp_path: Path, way: str) -> None:
    """Prints and downloads, which take long, are made in the first form only."""
    url = f"{site}?{urlencode({'way': way})}"
    faults: dict[str, str] = {}
    async with asyncio.timeout(60), session(browser, way, url, tmp_path) as app:
        for form in FORMS:
            await app.call("replace", {"form": form}, timeout=20)
            for call in WAYS[way].calls:
                if form == FORMS[0] or call not in ("print", "download"):
                    faults[f"{call}, {form}"] = await fault_of(app, call, _SIZES.get(call, 300_000))
        thrown = (await app.call("faults", timeout=20)).data
    assert {call: fault for call, fault in faults.items() if fault} == {}
    assert thrown == {"faults": []}
