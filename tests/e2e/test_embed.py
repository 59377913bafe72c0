"""``abp-embed.js``: what the app side of the postMessage transport does, seen from a page that embeds it.

The host is a page of another origin; the app is the reference app, or a small one that can answer anything.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from playwright.async_api import ConsoleMessage, Frame, Page

from tests.support.eventually import eventually
from transports import Browser
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

SCRIPT = Path(__file__).parents[2] / "webapp_fixture" / "static" / "abp-embed.js"

# Speaks the envelope to one frame. Content in what comes back is told as {kind, size, sha256}.
HOST = """<!doctype html><title>Host</title><script>
const host = {
  heard: [], foreign: [], waiting: new Map(),
  open(url) {
    this.origin = new URL(url).origin;
    this.frame = document.createElement('iframe');
    this.frame.allow = 'cross-origin-isolated';
    const loaded = new Promise((resolve) => { this.frame.onload = resolve; });
    this.frame.src = url;
    document.body.append(this.frame);
    return loaded.then(() => {});
  },
  post(message) { this.frame.contentWindow.postMessage(message, this.origin); },
  request(type, payload, id = crypto.randomUUID()) {
    const reply = new Promise((resolve) => this.waiting.set(id, resolve));
    this.post({ type, id, timestamp: Date.now(), payload });
    return reply.then(tell);
  },
};
addEventListener('message', ({ source, origin, data }) => {
  const mine = source === host.frame.contentWindow && origin === host.origin;
  (mine ? host.heard : host.foreign).push(data);
  if (!mine) return;
  host.waiting.get(data.id)?.(data.payload);
  host.waiting.delete(data.id);
});
async function tell(value) {
  const kindOf = (given) => Object.prototype.toString.call(given).slice(8, -1), kind = kindOf(value);
  if (ArrayBuffer.isView(value) && kindOf(value.buffer) === 'SharedArrayBuffer') return tell(value.buffer);
  const bytes = ArrayBuffer.isView(value) || value instanceof ArrayBuffer ? await new Blob([value]).arrayBuffer()
    : value instanceof Blob ? await value.arrayBuffer() : null;
  if (bytes) {
    const sum = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
    return { kind, size: bytes.byteLength, sha256: Array.from(sum, (n) => n.toString(16).padStart(2, '0')).join('') };
  }
  if (value instanceof Map) return tell([...value.values()]);
  if (Array.isArray(value)) return Promise.all(value.map(tell));
  if (kind === 'SharedArrayBuffer') return { kind, size: value.byteLength };
  if (kind !== 'Object') return value;
  const entries = Object.entries(value).map(async ([key, inner]) => [key, await tell(inner)]);
  return Object.fromEntries(await Promise.all(entries));
}
</script><body></body>"""

# An app whose capabilities are the functions of `answers`; options in its address say how it begins.
APP = """<!doctype html><title>App</title><script src="/abp-embed.js" ORIGINS></script><script>
const options = new URLSearchParams(location.search), large = new ArrayBuffer(1000);
const coded = (code) => Object.assign(new Error('on purpose'), { code });
window.kept = { buffer: large };
window.log = [];
const nest = (depth) => { let inner = {}; while (depth--) inner = { inner }; return inner; };
class Holder { constructor() { this.buffer = new ArrayBuffer(12); } }
const answers = {
  echo: (value) => value,
  function: () => ({ list: [() => {}] }),
  node: () => document.body,
  getter: () => ({ get broken() { throw new Error('this getter throws'); } }),
  cycle: () => {
    const a = { buffer: new ArrayBuffer(8) };
    return { a: Object.assign(a, { self: a, list: [a] }) };
  },
  detached: () => { structuredClone(large, { transfer: [large] }); return large; },
  same: () => [large, new Uint8Array(large, 10, 20), new DataView(large), { again: large }],
  hidden: () => {
    const [holder, map, numbers] = [new Holder(), new ArrayBuffer(10), new Float64Array(2)];
    window.kept = { holder: holder.buffer, map, numbers: numbers.buffer };
    return { map: new Map([['a', map]]), list: [[holder]], set: new Set([numbers]) };
  },
  memory: () => ({ wasm: new WebAssembly.Memory({ initial: 1 }).buffer, other: large }),
  shared: () => ({ shared: new SharedArrayBuffer(16), view: new Uint8Array(new SharedArrayBuffer(4)), other: large }),
  deep: ({ depth }) => nest(depth),
  throws: () => { throw new Error('on purpose'); },
  string: () => { throw 'just text'; },
  coded: () => { throw coded('PERMISSION_DENIED'); },
  unreadable: () => { throw { get message() { throw 1; } }; },
  log: () => window.log,
  event: async ({ kind, payload, ways = ['own', 'page'] }) => {
    const [own, page, guide] = EVENTS[kind];
    const call = { own: listeners[own] ?? abp[own], page: window[page], guide: window[guide] };
    const said = ways.map((way) => call[way](payload)), outcomes = [];
    for (const one of said) outcomes.push(await one);
    return outcomes;
  },
  functionEvent: () => { window.__abp_notification({ event: 'x', data: () => {} }); },
};
const EVENTS = {
  progress: ['onProgress', '__abp_progress', '__abpOnProgress'],
  notification: ['onNotification', '__abp_notification', '__abp_notify'],
  elicitation: ['onElicitation', '__abp_elicitation'], changes: ['onCapabilitiesChanged', '__abp_capabilities_changed'],
};
const listeners = {};
const abp = {
  async initialize(params) {
    log.push(['initialize', params.agent?.name]);
    if (options.get('init') === 'throws') throw new Error('on purpose');
    if (options.get('init') === 'coded') throw coded('SESSION_INVALID');
    if (options.get('init') === 'function') return { app() {} };
    return { sessionId: '1', protocolVersion: '0.1' };
  },
  call: async (capability, params, options) => (capability === 'nothing' ? undefined
    : { success: true, data: await answers[capability](params, options) }),
  cancel: async (first, second) => {
    log.push(['cancel', typeof first]);
    if (options.get('cancel') === 'hangs') return new Promise(() => {});
    if (options.get('cancel') !== typeof first) throw new TypeError('not this form');
    return { callId: first.callId ?? first, cancelled: true, reason: first.reason ?? second };
  },
  shutdown: async (params) => { log.push(['shutdown', params]); },
};
if (options.get('own') === 'function') {
  for (const [name] of Object.values(EVENTS)) {
    abp[name] = (callback) => { listeners[name] = callback; };
  }
}
if (options.has('half')) delete abp.call;
if (!options.has('absent')) setTimeout(() => { window.abp = abp; }, Number(options.get('late') ?? 0));
if (options.has('hostile')) setTimeout(() => {
  const broken = () => { throw new Error('replaced by the app'); };
  for (const type of [Map, Set]) {
    for (const name of ['get', 'set', 'has', 'add', 'delete']) type.prototype[name] = broken;
  }
  for (const name of ['postMessage', 'setTimeout', 'addEventListener', 'Map', 'Set', 'Promise']) window[name] = broken;
  JSON.stringify = Date.now = Object.keys = Array.isArray = ArrayBuffer.isView = broken;
}, 0);
</script>"""


@dataclass
class Host:
    """A page that embeds one app."""

    page: Page
    console: list[str]

    async def open(self, url: str) -> None:
        await self.page.evaluate("(url) => host.open(url)", url)

    async def request(self, kind: str, payload: object = None, message_id: str | None = None) -> Any:
        asked = self.page.evaluate(
            "([type, payload, id]) => host.request(type, payload, id ?? undefined)", [kind, payload, message_id]
        )
        async with asyncio.timeout(10):
            return await asked

    async def initialize(self, **features: bool) -> Any:
        agent = {"name": "test", "version": "1"}
        return await self.request("initialize", {"agent": agent, "protocolVersion": "0.1", "features": features})

    async def call(self, name: str, params: object = None, **options: object) -> Any:
        return await self.request("capabilities/call", {"capability": name, "params": params or {}, "options": options})

    async def data(self, name: str, params: object = None, **options: object) -> Any:
        answer = await self.call(name, params, **options)
        assert answer["success"], answer
        return answer["data"]

    async def post(self, kind: str, payload: object = None, message_id: str | None = None) -> None:
        await self.page.evaluate(
            "(message) => host.post(message)", {"type": kind, "id": message_id, "payload": payload}
        )

    async def heard(self, kind: str) -> list[Any]:
        """The messages of a kind that the frame posted so far."""
        return list(await self.page.evaluate("(type) => host.heard.filter((message) => message.type === type)", kind))

    async def hears(self, kind: str, count: int = 1) -> list[Any]:
        """The messages of that kind, as soon as there are so many."""
        async with asyncio.timeout(30):
            while len(heard := await self.heard(kind)) < count:
                await asyncio.sleep(0.01)
        return heard

    @property
    def app(self) -> Frame:
        return self.page.frames[1]


OpenHost = Callable[..., Awaitable[Host]]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def origins() -> AsyncIterator[list[str]]:
    """Two origins, either of which has the host page and the small app; ``?isolated`` pages may have shared memory."""
    isolation = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}

    async def script(_request: web.Request) -> web.FileResponse:
        return web.FileResponse(SCRIPT)

    async def page(request: web.Request) -> web.Response:
        named = request.query.get("origins", "*")
        text = APP.replace("ORIGINS", f'data-origins="{named}"' if named else "")
        headers = isolation if "isolated" in request.query else {}
        return web.Response(text=HOST if request.path == "/host" else text, content_type="text/html", headers=headers)

    application = web.Application()
    application.add_routes([web.get("/abp-embed.js", script), web.get("/host", page), web.get("/app", page)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2, handle_signals=False)
    await runner.setup()
    try:
        for _ in range(2):
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield [f"http://127.0.0.1:{address[1]}/" for address in runner.addresses]
    finally:
        await runner.cleanup()


@pytest.fixture
def hosting(origins: list[str]) -> str:
    """Where the host page is."""
    return origins[0]


@pytest.fixture
def own(origins: list[str]) -> str:
    """Where the small app is."""
    return origins[1]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page for one host after the other: a new page costs another process."""
    async with await browser.playwright.new_context() as context:
        yield await context.new_page()


@pytest_asyncio.fixture(loop_scope="session")
async def host(page: Page, hosting: str) -> AsyncIterator[OpenHost]:
    """``await host(url, …)``: a host page with that app in it, in the place of the one before."""
    made = Host(page, [])

    def write_down(message: ConsoleMessage) -> None:
        made.console.append(message.text)

    async def make(url: str, *, query: str = "", initialize: bool = True) -> Host:
        await page.goto(f"{hosting}host{query}")
        made.console.clear()
        await made.open(url)
        if initialize:
            assert "sessionId" in await made.initialize()
        return made

    page.on("console", write_down)
    yield make
    page.remove_listener("console", write_down)


# The reference app in a frame


@pytest.mark.requirement("R1-8b")
async def test_blobs_arrive_whole_and_buffers_are_transferred(host: OpenHost, fixture: Fixture) -> None:
    app = await host(fixture.embed_url)
    data = bytes(i % 251 for i in range(70_000))
    for form in ("Blob", "File"):
        content = (await app.data("shape", {"shape": form, "size": len(data)}))["file"]["content"]
        assert content == {"kind": form, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert isinstance((await app.heard("capabilities/call-result"))[0]["timestamp"], int)
    for form in ("ArrayBuffer", "Uint8Array", "subarray", "DataView", "list"):
        await app.data("shape", {"shape": form, "size": 5000})
    assert (await app.data("app.record"))["handedOut"] == [0] * 7
    kept = await app.app.evaluate(
        "abp.call('shape', { shape: 'ArrayBuffer', size: 5000 }).then(({ data }) => data.size)"
    )
    assert (await app.data("app.record"))["handedOut"][-1] == kept == 5000  # nobody transferred that one


async def test_shutdown_ends_session_and_allows_another(host: OpenHost, fixture: Fixture) -> None:
    app = await host(fixture.embed_url)
    asking = asyncio.create_task(app.call("form.ask", {"method": "elicitation/input", "params": {}}))
    waiting = asyncio.create_task(app.call("job.run", {"steps": 1, "delay": 60_000}))
    await app.hears("notification")
    await app.hears("elicitation/request")
    await app.post("shutdown", {"reason": "done"})
    assert (await waiting)["cancelled"] is True and (await asking)["cancelled"] is True
    assert (await app.call("file.list"))["error"]["code"] == "NOT_INITIALIZED"
    before = len(await app.heard("notification"))
    await app.app.evaluate("abp.notify('unheard')")
    assert "sessionId" in await app.initialize()
    await app.app.evaluate("abp.notify('heard')")
    after = (await app.hears("notification", before + 1))[before:]
    assert [message["payload"]["event"] for message in after] == ["heard"]


async def test_reloaded_app_does_not_answer_for_previous_page(host: OpenHost, fixture: Fixture) -> None:
    app = await host(f"{fixture.embed_url}?faults")
    question = {"capability": "form.ask", "params": {"method": "elicitation/input", "params": {}}}
    await app.post("capabilities/call", question, "lost")
    await app.hears("elicitation/request")
    await app.page.evaluate(
        """() => {
          const loaded = new Promise((resolve) => { host.frame.onload = resolve; });
          host.request('capabilities/call', { capability: 'fault.navigate', params: { how: 'reload' } }, 'gone');
          return loaded.then(() => {});
        }"""
    )
    assert (await app.call("file.list"))["error"]["code"] == "NOT_INITIALIZED"
    assert "sessionId" in await app.initialize()
    await app.post("capabilities/call", question, "asked again")
    before, after = await app.hears("elicitation/request", 2)
    assert before["id"] != after["id"]  # so that a late answer to the old page answers nothing in the new one
    assert not {"lost", "gone"} & {message["id"] for message in await app.heard("capabilities/call-result")}


async def test_embed_script_does_nothing_outside_a_frame(page: Page, fixture: Fixture) -> None:
    await page.goto(fixture.embed_url)
    assert await page.evaluate("typeof __abp_progress") == "undefined"
    await page.evaluate("postMessage({ type: 'initialize', id: '1', payload: { agent: { name: 'x' } } }, '*')")
    await page.evaluate("new Promise((resolve) => setTimeout(resolve, 100))")
    assert await page.evaluate("abp.initialized") is False


# Any app


async def test_unlisted_origins_are_rejected(host: OpenHost, own: str, hosting: str) -> None:
    for named in ("", "https://elsewhere.example", "https://a.example http://127.0.0.1"):
        app = await host(f"{own}app?origins={named}", initialize=False)
        for _ in range(2):
            await app.post("initialize", {"agent": {"name": "test"}}, "1")
        await asyncio.sleep(0.2)
        assert await app.page.evaluate("host.heard") == [] and await app.app.evaluate("log") == []
        refusals = [line for line in app.console if "refused" in line]
        assert len(refusals) == 1 and hosting.rstrip("/") in refusals[0] and "data-origins" in refusals[0]
    await host(f"{own}app?origins=https://a.example%20{hosting}")  # one that is named may drive


@pytest.mark.requirement("R1-8a")
async def test_embedded_app_posts_only_to_exact_host_origin(host: OpenHost, hosting: str) -> None:
    app = await host("about:blank", initialize=False)
    await app.page.evaluate(
        """() => {
          host.targets = [];
          window.postMessage = ({ type, id, payload }, target) => {
            host.targets.push([type, target]);
            host.waiting.get(id)?.(structuredClone(payload));
          };
        }"""
    )
    await app.page.evaluate("(url) => { host.frame.remove(); return host.open(url); }", f"{hosting}app")
    await app.initialize()
    for kind in ("progress", "notification", "elicitation"):
        payload = {"method": "m", "timeout": 1} if kind == "elicitation" else {}
        await app.data("event", {"kind": kind, "payload": payload, "ways": ["page"]})
    await app.call("function")
    await app.request("capabilities/cancel", {"callId": "c"})
    targets = await app.page.evaluate("host.targets")
    assert len({kind for kind, _ in targets}) == 6 and {target for _, target in targets} == {hosting.rstrip("/")}


async def test_messages_from_non_parent_windows_are_ignored(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app")
    await app.page.evaluate(
        """() => new Promise((resolve) => {
          const other = document.createElement('iframe');
          other.onload = resolve;
          other.srcdoc = `<script>parent.frames[0].postMessage({ type: 'shutdown', id: '1' }, '*')</` + 'script>';
          document.body.append(other);
        }).then(() => {})"""
    )
    await app.page.evaluate(
        "frames[0].postMessage('shutdown', '*'); frames[0].postMessage(null, '*'); frames[0].postMessage({}, '*')"
    )
    assert await app.data("log") == [["initialize", "test"]]


async def test_page_without_origin_is_rejected(host: OpenHost, own: str) -> None:
    app = await host("about:blank", initialize=False)
    inner = f'<iframe src="{own}app"></iframe>'
    await app.page.evaluate(
        """(inner) => {
          host.frame.sandbox = 'allow-scripts';
          host.frame.srcdoc = inner + `<script>onload = () =>
            frames[0].postMessage({ type: 'initialize', id: '1', payload: {} }, '*')</` + 'script>';
        }""",
        inner,
    )
    await eventually(lambda: any("messages from null are refused" in line for line in app.console))


async def test_initialize_waits_for_late_app_and_deduplicates_repeats(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app?late=400", initialize=False)
    for _ in range(5):
        await app.post("initialize", {"agent": {"name": "early"}}, "same")
        await asyncio.sleep(0.02)
    assert (await app.hears("initialize-result"))[0]["id"] == "same"
    await app.post("initialize", {"agent": {"name": "early"}}, "same")
    assert await app.data("log") == [["initialize", "early"]]
    assert len(await app.heard("initialize-result")) == 1
    await app.post("shutdown", {"reason": "done"})  # it forgets old ids
    assert (await app.request("initialize", {}, "same"))["sessionId"] == "1"
    assert ["shutdown", {"reason": "done"}] in await app.data("log")


async def test_app_that_never_appears_is_reported(browser: Browser, hosting: str, own: str) -> None:
    async with await browser.playwright.new_context() as context:
        await context.clock.install()
        app = Host(await context.new_page(), [])
        for query, part in (("absent", "no window.abp"), ("half", "no call()")):
            await app.page.goto(f"{hosting}host")
            await app.open(f"{own}app?{query}")
            asked = asyncio.ensure_future(app.initialize())
            while not asked.done():
                await context.clock.run_for(1_000)
                await asyncio.sleep(0.02)
            answer = await asked
            assert (answer["success"], answer["error"]["code"]) == (False, "NOT_SUPPORTED")
            assert part in answer["error"]["message"] and "5 s" in answer["error"]["message"]


async def test_unpostable_answer_becomes_error_answer(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app")
    for name, code, part in (
        ("throws", "OPERATION_FAILED", "on purpose"),
        ("string", "OPERATION_FAILED", "just text"),
        ("coded", "PERMISSION_DENIED", "on purpose"),
        ("unreadable", "OPERATION_FAILED", "cannot be read"),
        ("function", "OPERATION_FAILED", "could not be cloned"),
        ("node", "OPERATION_FAILED", "could not be cloned"),
        ("getter", "OPERATION_FAILED", "this getter throws"),
        ("detached", "OPERATION_FAILED", "detached"),
    ):
        await check_error_answer(app, await app.call(name), code, part)
    for init, code, part in (
        ("throws", "OPERATION_FAILED", "on purpose"),
        ("coded", "SESSION_INVALID", "on purpose"),
        ("function", "OPERATION_FAILED", "could not be cloned"),
    ):
        app = await host(f"{own}app?init={init}", initialize=False)
        await check_error_answer(app, await app.initialize(), code, part)


async def check_error_answer(app: Host, answer: Any, code: str, part: str) -> None:
    assert answer["success"] is False and answer["error"]["retryable"] is False
    assert answer["error"]["code"] == code and part in answer["error"]["message"]
    assert await app.data("echo", {"still": "here"}) == {"still": "here"}


async def test_odd_answers_are_posted_or_rejected(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app")
    assert await app.call("nothing") is None
    assert (await app.request("capabilities/call"))["error"]["code"] == "OPERATION_FAILED"  # without a payload
    for depth in (1500, 200_000):
        assert "more than 1000 levels" in (await app.call("deep", {"depth": depth}))["error"]["message"]
    data = await app.data("hidden")
    assert [item["size"] for item in data["map"]] == [10] and data["list"][0][0]["buffer"]["size"] == 12
    assert await app.app.evaluate("Object.values(kept).map((buffer) => buffer.byteLength)") == [0, 0, 0]
    data = await app.data("memory")  # of WebAssembly, which cannot be transferred
    assert (data["wasm"]["size"], data["other"]["size"]) == (65536, 1000)

    told = app.page.evaluate(
        """async () => {
          host.post({ type: 'capabilities/call', id: 'c', payload: { capability: 'cycle' } });
          const { data } = await new Promise((resolve) => host.waiting.set('c', resolve));
          return [data.a.self === data.a, data.a.list[0] === data.a, data.a.buffer.byteLength];
        }"""
    )
    assert await told == [True, True, 8]


async def test_shared_buffer_is_transferred_once_and_shared_memory_never(
    host: OpenHost, own: str, hosting: str
) -> None:
    app = await host(f"{own}app")
    whole, view, data_view, again = await app.data("same")
    assert (whole["size"], view["size"], data_view["size"], again["again"]["size"]) == (1000, 20, 1000, 1000)
    assert await app.app.evaluate("kept.buffer.byteLength") == 0
    app = await host(f"{hosting}app?isolated", query="?isolated")
    data = await app.data("shared")
    assert data["shared"] == {"kind": "SharedArrayBuffer", "size": 16} and data["other"]["size"] == 1000
    assert await app.app.evaluate("kept.buffer.byteLength") == 0


@pytest.mark.parametrize("own_events", ["assign", "function"])
async def test_same_event_sent_two_ways_arrives_once(host: OpenHost, own: str, own_events: str) -> None:
    app = await host(f"{own}app?own={own_events}")
    for step in (1, 2):
        await app.data("event", {"kind": "progress", "payload": {"operationId": "x", "percentage": step}})
    twice = {"kind": "progress", "payload": {"operationId": "x", "percentage": 3}, "ways": ["page", "page"]}
    await app.data("event", twice)
    seen = [message["payload"]["percentage"] for message in await app.hears("progress", 4)]
    assert seen == [1, 2, 3, 3]  # by one way, twice is twice
    question = asyncio.create_task(app.data("event", {"kind": "elicitation", "payload": {"method": "m"}}))
    (asked,) = await app.hears("elicitation/request")
    await app.post("elicitation/response", {"success": True, "data": 1}, asked["id"])
    assert await question == [{"success": True, "data": 1}] * 2
    await app.data("event", {"kind": "changes", "payload": {"added": ["x"]}})
    (changed,) = await app.hears("notification")
    assert changed["payload"]["data"] == {"added": ["x"]}


async def test_events_sent_via_guide_names_reach_host_once(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app?own=assign")
    event = {"kind": "notification", "payload": {"method": "x", "params": 1}, "ways": ["page", "guide", "guide"]}
    await app.data("event", event)
    assert [message["payload"] for message in await app.hears("notification", 2)] == [{"method": "x", "params": 1}] * 2
    await app.data("event", {"kind": "progress", "payload": {"operationId": "x", "progress": 1}, "ways": ["guide"]})
    assert [message["payload"]["progress"] for message in await app.hears("progress")] == [1]


async def test_app_hanging_in_cancel_is_abandoned(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app?cancel=hangs")
    assert await app.request("capabilities/cancel", {"callId": "c"}) == {"callId": "c", "cancelled": False}
    assert (await app.data("log"))[1:] == [["cancel", "string"], ["cancel", "object"]]


async def test_odd_messages_are_logged_and_questions_time_out(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app")
    for kind in ("weather", "weather", "__proto__", "constructor"):
        await app.post(kind)
    assert await app.data("echo", {"a": 1}) == {"a": 1}
    assert len([line for line in app.console if "unknown type" in line]) == 1

    await app.data("functionEvent")
    assert any("a notification could not be posted" in line for line in app.console)
    assert await app.heard("notification") == []

    asked = await app.data(
        "event", {"kind": "elicitation", "payload": {"method": "m", "timeout": 50}, "ways": ["page"]}
    )
    assert asked[0]["error"]["code"] == "TIMEOUT" and asked[0]["error"]["retryable"] is True


async def test_globals_replaced_later_by_app_do_not_break_embed(host: OpenHost, own: str) -> None:
    app = await host(f"{own}app?hostile&cancel=object")
    assert (await app.data("same"))[0]["size"] == 1000
    asked = asyncio.create_task(
        app.data("event", {"kind": "elicitation", "payload": {"method": "m"}, "ways": ["page"]})
    )
    (question,) = await app.hears("elicitation/request")
    await app.post("elicitation/response", {"success": True}, question["id"])
    cancelled = await app.request("capabilities/cancel", {"callId": "c"})
    assert cancelled["cancelled"] is True
    assert await asked == [{"success": True}]
