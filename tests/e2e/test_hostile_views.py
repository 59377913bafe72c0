"""Views and their servers that break the rules: each is refused, and disturbs no other session (docs/security.md)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest
import pytest_asyncio
from playwright.async_api import Error as PlaywrightError, Route

from tests.support.eventually import eventually
from tests.support.listener import PEER, listening
from tests.support.mcp_servers import target
from transports import Browser, Session, View, connect
from transports.errors import BrowserCrashed
from transports.mcp.views._transport import ViewTransport

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]
ASK = "([method, params]) => rpc(method, params)"
LINE = "tell('notifications/message', { level: 'info', data: 'x'.repeat(200) });"


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def app(browser: Browser, tmp_path_factory: pytest.TempPathFactory, views_address: str) -> AsyncIterator[Session]:
    async with connect(views_address, browser=browser, store=tmp_path_factory.mktemp("views")) as app:
        yield app


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def board(app: Session) -> AsyncIterator[View]:
    """A view for the tests that change nothing in it but its warnings."""
    async with app.open_view("board") as view:
        yield view


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    async with connect(target("hostile_views"), browser=browser, store=tmp_path_factory.mktemp("hostile")) as app:
        yield app


def wire(view: View) -> ViewTransport:
    assert isinstance(view.transport, ViewTransport)
    return view.transport


async def ask(view: View, method: str, params: object) -> Any:
    return await view.frame.evaluate(ASK, [method, params])


# --- teardown ---------------------------------------------------------------------------------------------------------


async def test_view_teardown_message_is_received_before_close(server: Session) -> None:
    async with server.open_view("last_words") as view:
        pass
    assert view.model_context == {"structuredContent": {"saved": 1}}


async def test_unresponsive_view_is_closed_and_so_is_one_whose_closing_is_cancelled(server: Session) -> None:
    ways: list[tuple[float, AbstractContextManager[object]]] = [
        (20, contextlib.nullcontext()),
        (0.2, pytest.raises(TimeoutError)),
    ]
    for within, outcome in ways:
        view = await server.open_view("slow_goodbye")
        with outcome:
            async with asyncio.timeout(within):
                await view.aclose()
        page = wire(view).page
        assert page is not None and page.is_closed()


# --- messages ---------------------------------------------------------------------------------------------------------


async def test_unsolicited_answers_are_ignored(app: Session) -> None:
    async with app.open_view("board") as view:
        # forged before, answered twice, and answered late; and from a frame inside the view
        await view.frame.evaluate("""() => {
          const result = { content: [], structuredContent: "forged" };
          const forge = (id) => parent.postMessage({ jsonrpc: "2.0", id, result }, "*");
          tools.echo = async (given) => {
            for (let id = 1000; id < 1100; id += 1) forge(id);
            return { content: [], structuredContent: given };
          };
          tools.twice = (given) => {
            const mine = heard.at(-1).id;
            setTimeout(() => forge(mine), 0);
            return { content: [], structuredContent: { first: true } };
          };
        }""")
        await eventually(
            lambda: "twice" in view.capabilities or view.frame.evaluate("tell('notifications/tools/list_changed')")
        )
        assert (await view.call("echo", {"text": "a"})).data == {"text": "a"}
        for _ in range(3):
            assert (await view.call("twice")).data == {"first": True}
        assert (await view.call("echo", {"text": "b"})).data == {"text": "b"}
        await eventually(lambda: wire(view).counts.get("duplicate", 0) >= 3)
        await eventually(lambda: wire(view).counts["unknown"] >= 200)


async def test_view_messages_violating_specification_are_rejected(board: View) -> None:
    before = board.requests
    for method, params in [
        ("ui/open-link", {"url": 7}),
        ("ui/open-link", {}),
        ("ui/open-link", {"url": "https://a.example/" + "x" * 8192}),
        ("ui/message", {"role": "assistant", "content": []}),
        ("ui/message", {"role": "user", "content": "text"}),
        ("ui/request-display-mode", {"mode": "huge"}),
        ("ui/update-model-context", {"structuredContent": []}),
        ("ui/download-file", {"contents": []}),
        ("ui/download-file", {"contents": {}}),
        ("ui/download-file", {"contents": [{"type": "resource_link", "uri": "data://report.csv"}] * 65}),
        ("ui/message", []),
    ]:
        assert (await ask(board, method, params))["error"]["code"] == -32602, method
    await board.frame.evaluate("""() => {
      tell('ui/notifications/size-changed', { width: -1 });
      tell('ui/notifications/size-changed', { height: 'tall' });
      tell('notifications/message', { level: 'loud', data: 1 });
    }""")
    assert (await ask(board, "ping", {}))["result"] == {}
    await eventually(lambda: any("3 notifications of the view are not valid" in text for text in board.warnings))
    assert board.requests == before and board.model_context is None and board.files == ()


async def test_second_handshake_is_answered_without_changing_session(board: View) -> None:
    heard = "heard.filter((one) => one.method.startsWith('ui/')).length"
    before = await board.frame.evaluate(heard)
    other = {"appInfo": {"name": "Bank"}, "appCapabilities": {}, "protocolVersion": "1"}
    assert "result" in await ask(board, "ui/initialize", other)
    await board.frame.evaluate("tell('ui/notifications/initialized', {}); rpc('ping')")
    assert wire(board).host.app_info["name"] == "Board"
    await eventually(lambda: board.frame.evaluate(f"{heard} === {before} + 2"))  # input and result once more


async def test_view_is_not_switched_to_undeclared_display_mode(app: Session) -> None:
    async with app.open_view("modes") as view:
        assert (await ask(view, "ui/request-display-mode", {"mode": "pip"}))["result"] == {"mode": "inline"}
        assert (await ask(view, "ui/request-display-mode", {"mode": "fullscreen"}))["result"] == {"mode": "fullscreen"}
        changed = (
            "heard.filter((one) => one.method === 'ui/notifications/host-context-changed').map((one) => one.params)"
        )
        await eventually(lambda: view.frame.evaluate(f"({changed}).length"))
        assert await view.frame.evaluate(changed) == [{"displayMode": "fullscreen"}]


# --- reach ------------------------------------------------------------------------------------------------------------


async def test_view_reads_only_resources_of_its_server(board: View) -> None:
    for uri in (
        "data://hidden",
        "file:///etc/passwd",
        "https://example.com/",
        "ui://views/none.html",
        7,
        "x" * 9000,
    ):
        assert (await ask(board, "resources/read", {"uri": uri}))["error"]["code"] == -32602, uri
    for uri in ("data://report.csv", "data://rows/7", "ui://views/board.html"):
        assert "result" in await ask(board, "resources/read", {"uri": uri}), uri
    named = ("gone://linked", "gone://embedded")

    async def errors() -> list[str]:
        answers = [await ask(board, "resources/read", {"uri": uri}) for uri in named]
        return [answer["error"]["message"] for answer in answers]

    assert all("does not offer" in error for error in await errors())
    await ask(board, "tools/call", {"name": "links", "arguments": {}})
    assert not any("does not offer" in error for error in await errors())  # the server has named them, and is asked


async def test_view_cannot_reach_host_page_other_views_or_network(app: Session, board: View) -> None:
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readline()).decode())
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    outside = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/"
    async with listening, app.open_view("board") as view:
        neighbour = board.frame.url
        tried = await view.frame.evaluate(
            """async ([outside, neighbour]) => {
              const named = async (work) => {
                try { return await work() === null ? "null" : "got in"; } catch (e) { return e.name; }
              };
              const settled = (source, good) => new Promise((resolve, reject) => {
                source[good] = resolve;
                source.onerror = () => reject(new TypeError());
              });
              await named(() => localStorage.setItem("mine", "1"));  // some browsers give frames none
              document.cookie = "mine=1";
              return {
                parent: await named(() => parent.document), top: await named(() => top.document.body.innerHTML),
                topGoes: await named(() => { top.location = outside; }),
                opened: await named(() => window.open(outside)),
                fetched: await named(() => fetch(outside)), neighbour: await named(() => fetch(neighbour)),
                socket: await named(() => settled(new WebSocket(outside.replace("http", "ws")), "onopen")),
                image: await named(() => settled(Object.assign(new Image(), { src: outside }), "onload")),
                frames: String(parent.frames.length),
              };
            }""",
            [outside, neighbour],
        )
        refused = {"SecurityError", "TypeError", "null"}
        assert {
            name: got for name, got in tried.items() if got not in refused and name not in ("frames", "topGoes")
        } == {}
        assert tried["frames"] == "1"
        stored = "(() => { try { return localStorage.getItem('mine'); } catch { return null; } })()"
        assert await board.frame.evaluate(f"[{stored}, document.cookie]") == [None, ""]
        for leave in (
            "(src) => document.body.append(Object.assign(document.createElement('iframe'), { src }))",
            """(action) => {
              const form = Object.assign(document.createElement('form'), { action, method: 'post' });
              document.body.append(form);
              form.submit();
            }""",
            "(a) => { location.href = a; }",
        ):
            with contextlib.suppress(PlaywrightError):  # the attempt before may have left an error page
                await view.frame.evaluate(leave, outside)
        assert (await board.call("echo", {"text": "here"})).data == {"text": "here"}
        await asyncio.sleep(0.3)  # the requests that must not come
        assert seen == []


#: Tries WebRTC in every frame, window and worker that a view can make, and returns what has become of each.
PEERS = """async (port) => {
  const peer = PEER;
  const make = (tag, changes) => document.body.appendChild(Object.assign(document.createElement(tag), changes));
  const link = (text, type) => URL.createObjectURL(new Blob([text], { type }));
  const html = `<script>(${peer})(window, ${port}).then((said) => parent.postMessage(said, "*"))</scr` + "ipt>";
  const answerOf = (frame) => new Promise((resolve) => {
    addEventListener("message", ({ source, data }) => { if (source === frame.contentWindow) resolve(data); });
  });
  const worker = new Worker(link("postMessage(typeof RTCPeerConnection)", "text/javascript"));
  const workerSaid = new Promise((resolve) => { worker.onmessage = ({ data }) => resolve(data); });
  const popup = open("about:blank");
  return {
    own: await peer(window, port),
    blank: await peer(make("iframe", {}).contentWindow, port),
    object: await peer(make("object", { type: "text/html", data: "about:blank" }).contentWindow, port),
    srcdoc: await answerOf(make("iframe", { srcdoc: html })),
    blob: await answerOf(make("iframe", { src: link(html, "text/html") })),
    data: await answerOf(make("iframe", { src: `data:text/html,${encodeURIComponent(html)}` })),
    script: await answerOf(make("iframe", { src: `javascript:${encodeURIComponent(JSON.stringify(html))}` })),
    popup: popup === null ? "no window" : await peer(popup, port),
    worker: await workerSaid,
  };
}""".replace("PEER", PEER)


async def try_peers(server: Session, port: int) -> Any:
    """What becomes of WebRTC in a view with the usual policy.

    On a busy machine Chromium may start a frame before the script that removes WebRTC, and end when it tries."""
    for _ in range(3):
        with contextlib.suppress(BrowserCrashed, PlaywrightError):
            async with server.open_view("frames") as view:
                return await view.frame.evaluate(PEERS, port)
    raise AssertionError("Chromium has ended three times")


@pytest.mark.slow
@pytest.mark.usefixtures("whole_chromium")
async def test_view_has_storage(views_address: str, tmp_path: Path) -> None:
    """A whole Chromium denies it to a frame of another site in a private window; the headless shell does not."""
    write = """async () => {
        localStorage.note = "mine";
        await new Promise((resolve, reject) => {
            const opening = indexedDB.open("notes");
            opening.onsuccess = resolve;
            opening.onerror = () => reject(opening.error);
        });
        return localStorage.note;
    }"""
    async with connect(views_address, store=tmp_path) as app, app.open_view("board") as view:
        assert await view.frame.evaluate(write) == "mine"


async def test_webrtc_is_available_only_without_view_policy(server: Session) -> None:
    async with listening() as outside, listening() as control:
        tried = await try_peers(server, outside.port)
        assert tried.pop("popup") == "no window" and tried.pop("worker") == "undefined"
        assert tried == dict.fromkeys(tried, "TypeError")  # no frame has its constructor
        async with server.open_view("frames", csp="loose") as view:
            tried = await view.frame.evaluate(PEERS, control.port)
            assert tried["own"] == tried["blank"] == tried["data"] == "connects"
            await eventually(lambda: "UDP" in control.heard and len(set(control.heard)) > 1)  # and TCP
        assert outside.heard == []


async def test_all_responses_at_view_origin_carry_csp(board: View) -> None:
    read = """async (path) => {
      const { status, headers } = await fetch(path);
      return [status, headers.get("Content-Security-Policy"), headers.get("Connection-Allowlist")];
    }"""
    allowed = '(response-origin "*://fonts.example:*/*");redirects=allow;webrtc=block'
    for path in ("/x", "/?x", "/a/b", "/" + "x" * 20_000):
        assert await board.frame.evaluate(read, path) == [404, await board.frame.evaluate("policy()"), allowed], path


async def test_same_origin_frame_inherits_view_policy(app: Session) -> None:
    async with listening() as outside, app.open_view("board", host="claude") as view:  # which allows such frames
        reached = await view.frame.evaluate(
            """async (address) => {
              const frame = Object.assign(document.createElement("iframe"), { src: "/x" });
              await new Promise((resolve) => { frame.onload = resolve; document.body.append(frame); });
              return [frame.contentDocument.URL, await frame.contentWindow.fetch(address).then(() => "got in", String)];
            }""",
            f"http://127.0.0.1:{outside.port}/",
        )
        assert reached[0].endswith(".localhost/x") and "Failed to fetch" in reached[1]
        assert outside.heard == [] and any("connect-src" in text for text in view.violations)


async def test_only_declared_host_is_reachable(server: Session) -> None:
    async with server.open_view("listed") as view:

        async def answer(route: Route) -> None:
            await route.fulfill(body="got in", headers={"Access-Control-Allow-Origin": "*"})

        await view.frame.page.route("https://*.example/**", answer)
        reach = "(host) => fetch(`https://${host}.example/`).then((response) => response.text(), (error) => error.name)"
        assert await view.frame.evaluate(reach, "listed") == "got in"
        assert await view.frame.evaluate(reach, "other") == "TypeError"


async def test_undecodable_resources_leave_no_file(app: Session, board: View) -> None:
    folder = Path(app.store.root)  # type: ignore[attr-defined]
    before = set(folder.iterdir())
    good = {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAAA"}}
    odd: list[dict[str, object]] = [
        {"type": "else"},
        {"type": "resource_link", "uri": "data://nothing"},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "%%%"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "AAA=A"}},
        {"type": "resource", "resource": {"uri": "file:///a.bin", "held": {"id": "0", "size": 3}}},
        {"type": "resource", "resource": {"uri": "file:///a.bin"}},
        {"type": "resource_link", "uri": "data://hidden"},
    ]
    for bad in odd:
        answer = await ask(board, "ui/download-file", {"contents": [good, bad]})
        assert answer["result"] == {"isError": True}, bad
    assert len([text for text in board.warnings if "was refused" in text]) == len(odd)
    assert set(folder.iterdir()) == before and board.files == ()


# --- floods and sizes -------------------------------------------------------------------------------------------------


#: An update of the model's context of so many characters, and what becomes of it.
SIZED = """async (length) => {
  const empty = JSON.stringify({ structuredContent: { a: "" } }).length;
  const answer = await rpc("ui/update-model-context", { structuredContent: { a: "x".repeat(length - empty) } });
  return answer.error?.code ?? answer.result;
}"""


async def test_view_requests_over_64_pending_or_4_mb_are_rejected(app: Session) -> None:
    release = asyncio.Event()

    async def wait(_: object) -> bool:
        return await release.wait()

    async with app.open_view("board", on_open_link=wait) as view:
        started = """async () => {
          globalThis.links = Array.from({ length: 64 }, () => rpc("ui/open-link", { url: "https://a.example/" }));
          return (await rpc("ping")).error.code;
        }"""
        assert await view.frame.evaluate(started) == -32000
        release.set()
        answers = await view.frame.evaluate("Promise.all(links)")
        assert [one["result"] for one in answers] == [{}] * 64
        assert await view.frame.evaluate(SIZED, (4 << 20) + 1) == -32001
        assert len(view.requests) == 64


@pytest.mark.slow
async def test_view_requests_over_16_mb_are_not_remembered(app: Session) -> None:
    async with app.open_view("board") as view:
        for size in (4 << 20, *[4_000_000] * 4):
            assert await view.frame.evaluate(SIZED, size) == {}
        assert any("1 requests of the kind model-context are not remembered" in text for text in view.warnings)
        assert len(view.requests) == 4


@pytest.mark.slow
async def test_view_file_downloads_over_limit_are_rejected(app: Session) -> None:
    async with app.open_view("board") as view:
        hand_out = """async (count) => {
          const one = () => rpc("ui/download-file", { contents: [file([1], "x")] });
          const answers = [];
          for (let n = 0; n < count; n += 1) answers.push((await one()).result.isError === true);
          return answers;
        }"""
        await view.frame.evaluate(
            f"tools.many = async () => ({{ content: [], structuredContent: {{ all: await ({hand_out})(65) }} }})"
        )
        await view.frame.evaluate("tell('notifications/tools/list_changed')")
        await eventually(lambda: "many" in view.capabilities)
        result = await view.call("many")
        assert len(result.artifacts) == 64
        assert result.data == {"all": [False] * 64 + [True]}
        assert any("too many files" in text for text in view.warnings)


@pytest.mark.slow
async def test_view_flood_keeps_memory_flat_and_others_undisturbed(app: Session) -> None:
    async with app.open_view("board") as other, app.open_view("board") as view:
        me = psutil.Process(os.getpid())
        await view.frame.evaluate(f"(() => {{ for (let n = 0; n < 2000; n += 1) {{ {LINE} }} }})()")
        await ask(view, "ping", {})
        before = me.memory_info().rss
        await view.frame.evaluate(f"(() => {{ for (let n = 0; n < 20000; n += 1) {{ {LINE} console.log(n); }} }})()")
        began = time.monotonic()
        assert (await other.call("echo", {"text": "here"}, timeout=20)).data == {"text": "here"}
        assert (await view.call("echo", {"text": "there"}, timeout=20)).data == {"text": "there"}
        assert time.monotonic() - began < 30
        assert len(view.requests) == 1000 and {one.kind for one in view.requests} == {"log"}
        assert any("were too many and were left out" in text for text in view.warnings)
        # one block of 48 KiB, repeated: the view is not to spend its time on making the file
        sent = """async () => {
          const block = btoa(String.fromCharCode(...Array.from({ length: 49152 }, (_, n) => (n * 31 + 7) % 251)));
          const blob = block.repeat(1366);
          const contents = [{ type: "resource", resource: { uri: "file:///large.bin", blob } }];
          return (await rpc("ui/download-file", { contents })).result;
        }"""
        assert await view.frame.evaluate(sent) == {}
        (large,) = view.files
        content = bytes((n * 31 + 7) % 251 for n in range(49152)) * 1366
        assert (large.size_bytes, large.sha256) == (len(content), hashlib.sha256(content).hexdigest())
        del content
        assert me.memory_info().rss - before < (48 << 20)  # the file alone has 64 MiB, and 86 in base64
        assert (await other.call("echo", {"text": "still"})).data == {"text": "still"}
