"""Pages whose elements, clocks, buffers and texts are odd, or that turn on the kit: what their app answers arrives, or
it is told why not."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext

from tests.support.pages import app_page, reach_without_cdp, serve_page
from tests.support.pdf import text_of
from tests.support.processor import BOUND, longest_turn
from tests.support.slow import slow_but
from transports import Browser, PlaywrightTransport, Progress, ProtocolError, Session, UsageError, connect
from transports.errors import CapabilityError, NotAbpApp, StoreError, UnsupportedBinary

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: Members of a document that the page and our scripts use: an element of such a name stands in their place.
_MEMBERS = [
    "title", "body", "documentElement", "forms", "createElement", "querySelector", "querySelectorAll",
    "adoptedStyleSheets", "styleSheets", "readyState", "firstElementChild", "childNodes", "all", "location",
    "defaultView",
]  # fmt: skip
#: Members of a form that an input of such a name hides.
_INPUTS = [
    "getAttribute", "hasAttribute", "setAttribute", "removeAttribute", "closest", "click", "style", "shadowRoot",
    "cloneNode", "attributes", "elements", "querySelectorAll", "localName", "tagName", "before", "remove",
    "isConnected", "action", "submit", "method",
]  # fmt: skip


Open = Callable[..., AbstractAsyncContextManager[Session]]


@pytest.fixture
def connected(browser: Browser, tmp_path: Path) -> Open:
    @asynccontextmanager
    async def open_page(page: str, headers: dict[str, str] | None = None) -> AsyncIterator[Session]:
        async with serve_page(page, headers) as url, connect(url, browser=browser, store=tmp_path) as app:
            yield app

    return open_page


async def test_elements_named_like_document_members_and_page_that_cannot_be_copied_are_printed(connected: Open) -> None:
    forms = "".join(f'<form name="{name}"></form>' for name in _MEMBERS)
    inputs = "".join(f'<input name="{name}">' for name in _INPUTS)
    page = app_page(
        """
        print() {
          const said = document.getElementById("said");
          window.print();
          said.textContent = "AFTERWARDS";
          return { done: 1 };
        },
        download() {
          document.getElementById("link").click();
          return { done: 1 };
        },
        vanish() {
          window.print();
          document.getElementById("said").parentNode.remove();  // the body
          window.print();
          window.print();
          return { done: 1 };
        }""",
        body=f'{forms}<form toolname="one">{inputs}<a id="link" download="a.txt" href="data:text/plain,a">link</a>'
        '</form><p id="said">BEFORE</p>',
    )
    async with connected(page) as app:
        printed = await app.call("print")
        (pdf,) = [ref for ref in printed.artifacts.values() if ref.mime_type == "application/pdf"]
        text = text_of(pdf.path)
        assert ("BEFORE" in text, "AFTERWARDS" in text, printed.warnings) == (True, False, ())
        downloaded = await app.call("download")
        assert [ref.filename for ref in downloaded.artifacts.values()][-1] == "a.txt"
        vanished = await app.call("vanish")
    assert [ref.mime_type for ref in vanished.artifacts.values()].count("application/pdf") == 3
    assert vanished.warnings == ("the page could not be copied at its print(): its PDF may show a later state",)


#: Calls of one page, each of which does something odd.
_ODD_CALLS = r"""
["cut \ud83d"]: () => "top \ud83d",
keys: () => ({ ["a \ud83d"]: new Map([["\ude00", new File(["x"], "f \ud83d.txt", { type: "text/plain" })]]) }),
named: () => Object.assign(new Blob(["y"], { type: "text/plain" }), { name: "b \ud83d.txt" }),
fails: () => { throw new Error("no \ud83d"); },
progress: (_, { progressToken }) => {
  const stage = "half \ud83d", more = { ["k \ud83d"]: 1 };
  window.__abp_progress({ operationId: progressToken, progress: 1, total: 2, stage, more });
  return { done: 1 };
},
list: ({ framed }) => {
  const { document } = framed ? frames[0] : window, made = document.implementation.createHTMLDocument();
  let count = 0;
  for (let round = 0; round < 50; round += 1) {
    for (const name in made) count += made[name] === null;
  }
  return count > 0 && document.modelContext === document.modelContext;
},
size: ({ file }) => ({ size: file.size }),
resizable: ({ n }) => new Uint8Array(new ArrayBuffer(n + 8, { maxByteLength: 2 * n + 8 }), 8).fill(7),
shared: ({ n }) => new Uint8Array(new SharedArrayBuffer(n, { maxByteLength: 2 * n })).fill(7),
memory: ({ n }) => {
  const memory = new WebAssembly.Memory({ initial: Math.ceil(n / 65536), maximum: 1000 });
  return new Uint8Array(memory.toResizableBuffer?.() ?? memory.buffer, 0, n).fill(7);
},
reused: ({ n, transferred }) => {
  const bytes = new Uint8Array(n).fill(7);
  setTimeout(() => (transferred ? structuredClone(0, { transfer: [bytes.buffer] }) : bytes.fill(0)));
  return { first: new Blob(["1"]), report: bytes };
},
shrunk: ({ kind }) => {
  const buffer = new ArrayBuffer(80, { maxByteLength: 80 }), view = new globalThis[kind](buffer, 40);
  buffer.resize(10);
  return { good: 1, report: [view] };
},
gone: async ({ n }) => {
  const folder = await navigator.storage.getDirectory();
  const writable = await (await folder.getFileHandle("a.bin", { create: true })).createWritable();
  await writable.write(new Uint8Array(n));
  await writable.close();
  const file = await (await folder.getFileHandle("a.bin")).getFile();
  await folder.removeEntry("a.bin");
  return { report: file };
},
blob: ({ n }) => {
  const frame = document.body.appendChild(document.createElement("iframe"));
  const blob = new frame.contentWindow.Blob([new Uint8Array(n)], { type: "application/x-one" });
  frame.remove();
  return blob;
},
sound: async () => {
  const audio = new AudioContext();
  await audio.resume();
  return audio.state;
},
event() { const all = {}; all.all = all; window.__abp_notification({ event: "x", all }); return 1; },
members() {
  const read = (target, key) => { if (!(key in target)) throw new TypeError("no signal"); return target[key]; };
  const { proxy, revoke } = Proxy.revocable([], {});
  revoke();
  const file = new Uint8Array(3), gone = { file, get size() { throw new Error("gone"); } };
  return { good: [1], player: new Proxy({ volume: 1 }, { get: read }), items: [proxy, 2], gone };
},
save: () => showSaveFilePicker(),
open: async () => { try { await showOpenFilePicker(); } catch (error) { return error.name; } }"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def odd(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    """One session for all tests that leave the page of odd calls as it is."""
    isolated = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"}
    async with (
        serve_page(app_page(_ODD_CALLS, body="<iframe srcdoc=x></iframe>"), isolated) as url,
        connect(url, browser=browser, store=tmp_path_factory.mktemp("odd")) as app,
    ):
        yield app


async def test_members_of_documents_without_window_can_be_listed(odd: Session) -> None:
    """As Partytown does: Chromium crashes in some of its own getters then."""
    for framed in (False, True, False, True):
        assert (await odd.call("list", {"framed": framed}, timeout=10)).data is True


async def test_lone_surrogates_do_not_lose_messages(odd: Session) -> None:
    heard: list[Progress] = []
    assert "cut \ufffd" in odd.capabilities
    result = await odd.call("keys")
    assert list(result.artifacts) == ["a \ufffd.\ufffd"]
    assert result.artifact().filename == "f \ufffd.txt"
    assert any("in this key was replaced by U+FFFD" in warning for warning in result.warnings)
    assert (await odd.call("named")).artifact().filename == "b \ufffd.txt"
    with pytest.raises(CapabilityError, match="no \ufffd"):
        await odd.call("fails")
    await odd.call("progress", on_progress=heard.append)
    assert [one.stage for one in heard] == ["half \ufffd"]


async def test_parameter_that_finds_no_room_on_the_disk_is_an_error_of_its_call(odd: Session) -> None:
    resource = pytest.importorskip("resource", reason="Windows has no limits")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot write a parameter for the browser in"):
            await odd.call("size", {"file": bytes(1 << 20)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (await odd.call("size", {"file": bytes(1 << 20)})).data == {"size": 1 << 20}


async def test_buffers_and_blobs_that_change_arrive_or_are_reported(odd: Session) -> None:
    for name in ("resizable", "shared", "memory"):
        for size in (1000, 400_000, 3 << 20):
            ref = (await odd.call(name, {"n": size})).artifact()
            assert await odd.store.get(ref) == b"\7" * size, (name, size)
    for kind in ("Uint8Array", "Float64Array", "DataView"):
        with pytest.raises(UnsupportedBinary, match=rf"report\.0: .* a {kind} out of the bounds") as caught:
            await odd.call("shrunk", {"kind": kind})
        assert caught.value.code == "NOT_SUPPORTED"
    for size in (1000, 1 << 20):
        with pytest.raises(UnsupportedBinary, match=r"report: .* cannot be read: .*NotFoundError"):
            await odd.call("gone", {"n": size}, timeout=10)
        ref = (await odd.call("blob", {"n": size}, timeout=10)).artifact()  # of a frame that was removed
        assert (ref.mime_type, ref.size_bytes) == ("application/x-one", size)


async def test_buffer_that_app_reuses_after_its_answer_arrives_as_answered(odd: Session) -> None:
    for transferred in (False, True):
        for size in (1000, 400_000, 3 << 20):
            result = await odd.call("reused", {"n": size, "transferred": transferred})
            assert await odd.store.get(result.artifacts["report"]) == b"\7" * size, size


@pytest.mark.slow
async def test_sound_needs_no_click(odd: Session) -> None:
    assert (await odd.call("sound", timeout=10)).data == "running"


async def test_unsendable_event_is_a_warning_and_does_not_fail_app(odd: Session) -> None:
    result = await odd.call("event")
    reason = "an event of the app could not be sent: notification: the answer holds itself at all.all"
    assert (result.data, result.warnings) == (1, (reason,))


async def test_unreadable_member_is_left_out(odd: Session) -> None:
    result = await odd.call("members")
    data: Any = result.data
    assert (data["good"], "player" in data, data["items"]) == ([1], False, [None, 2])
    places = [warning.partition(":")[0] for warning in result.warnings]
    assert places == ["data.player", "data.items.0", "data.gone.size"]


async def test_file_picker_is_cancelled_and_reported(odd: Session) -> None:
    with pytest.raises(CapabilityError, match="AbortError: The file picker was cancelled: there is no user to choose"):
        await odd.call("save")
    result = await odd.call("open")
    assert result.data == "AbortError"
    assert result.warnings == ("showOpenFilePicker() of the app was cancelled: there is no user to choose a file",)
    assert [effect.detail["picker"] for effect in result.effects] == ["showOpenFilePicker"]


async def test_unreadable_member_of_tool_answer_is_left_out(browser: Browser, tmp_path: Path) -> None:
    script = """
    const { proxy, revoke } = Proxy.revocable({}, {}), context = { registerTool() {} };
    revoke();
    Object.defineProperty(document, "modelContext", { value: context });
    const file = { dataUrl: "data:text/plain,abc", fileName: "a.txt" };
    const more = { get it() { throw new Error("no"); }, two: 2 };
    const answer = { good: [1], bad: proxy, file, more };
    context.registerTool({ name: "state", description: "x", execute: async () => answer });
    """
    async with (
        serve_page(f"<!doctype html><title>Tools</title><script>{script}</script>") as url,
        connect(url, browser=browser, store=tmp_path) as app,
    ):
        result = await app.call("state")
    data: Any = result.data
    assert (data["good"], "bad" in data, data["more"]) == ([1], False, {"two": 2})
    assert result.artifact().filename == "a.txt"
    assert [warning.partition(":")[0] for warning in result.warnings] == ["data.bad", "data.more.it"]


_HARDEN = """
for (const name of Object.getOwnPropertyNames(window)) {
  let value;
  try { value = window[name]; } catch { continue; }
  if (typeof value !== "function" || value === window) continue;
  if (value.prototype) Object.freeze(value.prototype);
  Object.freeze(value);
}
for (const value of [JSON, Math, Reflect, Object.getPrototypeOf([].values()), Promise.prototype]) Object.freeze(value);
"""


async def test_page_with_frozen_builtins_is_driven_normally(browser: Browser, tmp_path: Path) -> None:
    calls = """
    data: () => ({ toString: 1, valueOf: [2], constructor: { hasOwnProperty: "x" }, map: new Map([["toString", 3]]) }),
    file: ({ size }) => new Uint8Array(size), size: ({ file }) => ({ size: file.content.byteLength }),
    print: () => { window.print(); return 1; }"""
    async with (
        serve_page(app_page(calls, before=_HARDEN)) as url,
        connect(url, browser=browser, store=tmp_path) as app,
    ):
        data: Any = (await app.call("data")).data
        assert data == {
            "toString": 1,
            "valueOf": [2],
            "constructor": {"hasOwnProperty": "x"},
            "map": {"toString": 3},
        }
        for size in (1000, 1 << 20):
            assert (await app.call("file", {"size": size})).artifact().size_bytes == size
            assert (await app.call("size", {"file": bytes(size)})).data == {"size": size}
        assert (await app.call("print")).artifacts


async def test_page_that_reloads_while_its_app_begins_is_opened(connected: Open) -> None:
    """As a page does that has installed its first service worker."""
    begin = """{
      const initialize = abp.initialize, count = Number(localStorage.count ?? 0);
      abp.initialize = () => {
        if (count >= 2) return initialize();
        localStorage.count = count + 1;
        location.reload();
        return new Promise(() => {});
      };
    }"""
    async with connected(app_page("count: () => Number(localStorage.count)") + f"<script>{begin}</script>") as app:
        assert (await app.call("count")).data == 2


async def test_calls_and_opening_end_although_the_clock_is_stopped(context: BrowserContext, tmp_path: Path) -> None:
    await context.clock.install(time=0)
    await context.clock.pause_at(1000)
    page = app_page(
        'url: () => URL.createObjectURL(new Blob(["a"])).slice(0, 5), echo: (params) => params, '
        "read: () => { new Response(new ReadableStream()).text(); return 7; }"
    )
    async with serve_page(page) as url, connect(url, context=context, store=tmp_path) as app:
        assert (await app.call("url", timeout=10)).data == "blob:"
        assert (await app.call("read", timeout=10)).data == 7
        assert (await app.call("echo", {"a": 1}, timeout=10)).data == {"a": 1}
    # An element of this id is a member of the window.
    async with serve_page('<!doctype html><title>None</title><div id="abp"></div>') as url:
        with pytest.raises(NotAbpApp, match=r"no window\.abp 0\.3 s after it loaded"):
            await connect(url, transport=PlaywrightTransport(url, context=context, grace=0.3), store="none:")


#: What a page puts in the place of natives before the session begins in it, and calls in it with their answers. Others
#: are in tests/e2e/test_replaced_natives.py.
_REPLACED = """
window.reasons = [];
addEventListener("unhandledrejection", (event) => reasons.push(`${event.reason}`));
delete Promise.prototype.constructor;
Object.defineProperty(window, "scheduler", { value: {} });
const native = fetch;
class Request extends Promise { end() {} }
const request = (args) => new Request((resolve) => resolve(native(...args)));
window.fetch = (...args) => Object.assign(request(args), { cancel() {} });"""
_CALLS_IN_REPLACED = """
url: () => URL.createObjectURL(new Blob(["a"])).slice(0, 5),
ask: () => window.__abp_elicitation({ method: "elicitation/input", params: {} }),
blob: ({ n }) => new Blob([new Uint8Array(n)]),
members: () => [typeof fetch("/").cancel, typeof fetch("/").end]"""


async def test_open_page_with_its_own_natives_is_driven_normally(context: BrowserContext, tmp_path: Path) -> None:
    page = await context.new_page()
    async with serve_page(app_page(_CALLS_IN_REPLACED, before=_REPLACED)) as url:
        await page.goto(url)
        answer = {"success": True, "data": {"value": 5}}
        async with connect(url, page=page, store=tmp_path, timeout=10, on_elicitation=lambda _: answer) as app:
            assert (await app.call("url")).data == "blob:"
            assert (await app.call("ask")).data == answer
            for size in (1000, 1 << 20):
                assert (await app.call("blob", {"n": size})).artifact().size_bytes == size
            # What the page gave to its promises is kept.
            assert (await app.call("members")).data == ["function", "function"]
        assert await page.evaluate("reasons") == []


async def test_page_with_a_session_or_with_replaced_builtin_is_rejected(context: BrowserContext) -> None:
    page = await context.new_page()
    no_origin = {"Content-Security-Policy": "sandbox allow-scripts"}  # so that no frame of the page can be looked into
    async with serve_page(app_page("one: () => 1"), no_origin) as url:
        await page.goto(url)
        for _ in range(2):  # one after another is right
            async with connect(url, page=page, store="none:") as app:
                with pytest.raises(UsageError, match="this page has a session already"):
                    await connect(url, page=page, store="none:")
                assert (await app.call("one")).data == 1
        await page.evaluate("window.WeakMap = { a: 1 }")
        with pytest.raises(Exception, match=r"the session cannot begin in this page: the page replaced WeakMap"):
            await connect(url, page=page, store="none:")


# --- pages that turn on the kit ---------------------------------------------------------------------------------------


APP = app_page(
    """
  alive: () => [],
  many: ({ count }) => ({ rows: Array(count).fill([]) }),
  // What the agent says of the content in its reply is this.
  reply: ({ rest }) => {
    Object.prototype.toJSON = function () {
      if (!Object.hasOwn(this, "binaries")) return this;
      delete Object.prototype.toJSON;
      return rest;
    };
    return { content: new Uint8Array(10), more: 1 };
  },
  event: ({ event }) => (forge(event, () => __abp_progress({})), 0),
  digits: ({ digits }) => (__abp_progress({ operationId: "x", progress: 10n ** BigInt(digits) }), 0),""",
    before="""
const forge = (value, work) => {
  Array.prototype.toJSON = () => { delete Array.prototype.toJSON; return value; };
  return work();
};""",
)


#: Some of what a page would have the agent say; tests/playwright/test_received.py has all.
_REPLIES: list[object] = [None, {"binaries": [[["b"], "base64", "AAAA"]]}, {"binaries": {}}, {"warnings": 1}]
_EVENTS: list[object] = [7, [], ["print", {}], ["clipboard", {"size": -1}], ["submitting", []], ["no such kind", {}]]


@pytest.mark.parametrize("way", slow_but(["cdp", "evaluate"], "cdp"))
async def test_page_cannot_forge_events_or_replies(
    browser: Browser, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "evaluate":
        reach_without_cdp(monkeypatch)
    async with (
        serve_page(APP) as url,
        connect(url, transport=PlaywrightTransport(url, browser=browser), store=tmp_path) as app,
    ):
        for event in _EVENTS:
            await app.call("event", {"event": event})
            assert (await app.call("alive")).data == [], event
        await app.call("digits", {"digits": 5000})
        assert (await app.call("alive")).data == []
        for reply in _REPLIES:
            assert (await app.call("reply", {"rest": reply})).artifact().size_bytes == 10, reply
            assert (await app.call("alive")).data == [], reply


@pytest.mark.slow
async def test_answer_with_many_values_does_not_block_and_too_many_is_rejected(
    browser: Browser, tmp_path: Path
) -> None:
    async with (
        serve_page(APP) as url,
        connect(url, transport=PlaywrightTransport(url, browser=browser), store=tmp_path) as app,
    ):
        await app.call("many", {"count": 1000})
        with longest_turn() as turn:
            for count in (30_000, 499_000):  # as it comes with the reply, and as content does
                assert (await app.call("many", {"count": count})).artifacts
            with pytest.raises(ProtocolError, match="more than 1,000,000 values and names") as caught:
                await app.call("many", {"count": 501_000})
            assert caught.value.code == "TOO_LARGE"
        assert turn.seconds < BOUND
