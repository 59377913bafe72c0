"""Live views in the gallery: shown beside the files of their call, and kept behind their border (docs/gallery.md)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import aiohttp
import pytest
import pytest_asyncio
from playwright.async_api import Error as PlaywrightError, Frame, Page, expect

from tests.session.test_calls import ListedApp
from tests.support.eventually import eventually
from tests.support.gallery import Gallery, open_gallery
from tests.support.listener import PEER, listening
from transports import Browser
from transports.surfaces.web._access import LIMITS, Limits

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ASK = "([method, params]) => rpc(method, params)"


@asynccontextmanager
async def serving(
    folder: Path, browser: Browser, target: str, limits: Limits = LIMITS, memory: ListedApp | None = None
) -> AsyncIterator[Gallery]:
    """A gallery with the server connected."""
    async with open_gallery(folder, browser, limits=limits, memory=memory) as gallery:
        gallery.app = (await gallery.served.apps.connect(target, {})).key
        yield gallery


@asynccontextmanager
async def visited(gallery: Gallery, browser: Browser) -> AsyncIterator[Page]:
    """The page, signed in, with its apps."""
    context = await browser.playwright.new_context(reduced_motion="reduce", color_scheme="dark", locale="de-DE")
    context.set_default_timeout(15_000)
    try:
        page = await context.new_page()
        await page.goto(gallery.entry)
        await page.get_by_role("link", name="Apps").click()
        yield page
    finally:
        await context.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def one_visit(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser, views_address: str
) -> AsyncIterator[tuple[Gallery, Page]]:
    async def answer(params: object, _: object) -> object:
        return {"ok": True}

    liar = ListedApp({"liar": answer}, liar={"view": "ui://x/y.html"})
    async with (
        serving(tmp_path_factory.mktemp("gallery"), browser, views_address, memory=liar) as gallery,
        visited(gallery, browser) as page,
    ):
        yield gallery, page


@pytest_asyncio.fixture(loop_scope="session")
async def shared(one_visit: tuple[Gallery, Page]) -> AsyncIterator[tuple[Gallery, Page]]:
    """One gallery and one page of it, newly loaded, with its apps."""
    yield one_visit
    gallery, page = one_visit
    await page.goto("about:blank")
    await page.goto(f"{gallery.url}#apps")


async def heard(view: Frame, condition: str) -> None:
    """Wait for a condition in the view, whose policy forbids Playwright's own way."""

    async def holds() -> bool:
        try:
            return bool(await view.evaluate(condition))
        except PlaywrightError:  # its document comes later
            return False

    await eventually(holds, what=condition)


async def shown(page: Page, capability: str) -> Frame:
    """Run a capability, and return the frame of its view when it has its input."""
    before = len(page.frames)
    await page.locator(f'.capability:has(.name:text-is("{capability}"))').click()
    await page.get_by_role("button", name="Run").click()
    await eventually(lambda: len(page.frames) == before + 2)
    frame = page.frames[-1]
    await heard(frame, "heard.length === 2")
    return frame


async def start(gallery: Gallery, capability: str = "board", **more: object) -> str:
    """Begin a call with its view; its id."""
    body = {"capability": capability, "params": {}, "view": True, **more}
    return str((await gallery.ask("POST", f"apps/{gallery.app}/calls", body=body, expect=202))["id"])


async def test_a_call_shows_its_view_live_beside_its_files(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    await expect(page.locator('.capability:has(.name:text-is("board")) .flag')).to_have_text("view")
    view = await shown(page, "board")
    panel = page.locator("#work .panel")
    await expect(panel.get_by_role("list", name="Files of this call").get_by_role("link")).to_have_count(1)
    context = (await view.evaluate("init"))["result"]["hostContext"]
    assert (context["theme"], context["locale"], context["displayMode"]) == ("dark", "de-DE", "inline")
    assert context["toolInfo"]["tool"]["name"] == "board"
    messages = await view.evaluate("heard")
    methods = [message["method"] for message in messages]
    assert methods == ["ui/notifications/tool-input", "ui/notifications/tool-result"]
    assert messages[0]["params"] == {"arguments": {"n": 1}}
    assert messages[1]["params"]["structuredContent"] == {"n": 1}
    assert messages[1]["params"]["content"][1]["data"] == base64.b64encode(bytes(100)).decode()

    # what the view asks goes to its server, to the store, or to the person
    secret = await view.evaluate(ASK, ["tools/call", {"name": "secret", "arguments": {"key": "k"}}])
    assert secret["result"]["content"][0]["text"] == "for views: k"
    assert "error" in await view.evaluate(ASK, ["tools/call", {"name": "model_only", "arguments": {}}])
    link = await view.evaluate(ASK, ["ui/open-link", {"url": "https://example.com/a"}])
    assert link["result"] == {}
    bad = await view.evaluate(ASK, ["ui/open-link", {"url": "javascript:alert(1)"}])
    assert bad["result"] == {"isError": True}
    hello = {"role": "user", "content": [{"type": "text", "text": "<b>Hello</b>"}]}
    assert (await view.evaluate(ASK, ["ui/message", hello]))["result"] == {}
    mode = await view.evaluate(ASK, ["ui/request-display-mode", {"mode": "fullscreen"}])
    assert mode["result"] == {"mode": "inline"}
    requests = panel.get_by_role("list", name="Requests of the view")
    await expect(requests.get_by_role("listitem")).to_have_text([
        "Called secret", "Called model_only (refused)", "Link to open: https://example.com/a",
        "Link refused: javascript:alert(1)", "Message: <b>Hello</b>",
    ])  # fmt: skip
    await expect(requests.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer")

    handed = await view.evaluate("rpc('ui/download-file', { contents: [file([1, 2, 3], 'three')] })")
    assert handed["result"] == {}
    file_links = panel.get_by_role("list", name="Files of the view").get_by_role("link")
    await expect(file_links).to_contain_text("three.bin")
    (file,) = [meta for meta in (await gallery.ask("GET", "artifacts"))["artifacts"] if meta["filename"] == "three.bin"]
    assert (gallery.folder / file["filename"]).read_bytes() == bytes([1, 2, 3])

    await view.evaluate("tell('ui/notifications/size-changed', { width: 10, height: 5000 })")
    await expect(panel.locator("iframe")).to_have_css("height", "900px")
    await page.get_by_role("button", name="Theme: auto").click()
    await heard(view, "heard.at(-1).method === 'ui/notifications/host-context-changed'")
    assert (await view.evaluate("heard.at(-1).params")) == {"theme": "light"}

    call = (await gallery.ask("GET", "calls"))["calls"][0]
    assert call["view"] == "ui://views/board.html"
    await page.get_by_role("link", name="Calls").click()  # and there, once more
    await page.locator(".call > summary").first.click()
    await expect(page.locator("#view-calls .panel iframe")).to_be_visible()
    await page.get_by_role("link", name="Apps").click()
    await panel.get_by_role("button", name="Close view").click()
    await expect(panel.get_by_text("The view is closed.")).to_be_visible()
    await gallery.ask("GET", f"views/{call['id']}", expect=404)


async def test_a_view_cannot_reach_the_gallery(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    view = await shown(page, "board")
    proxy = view.parent_frame
    assert proxy is not None and proxy.url.startswith("http://view-") and ".localhost:" in proxy.url
    assert await view.evaluate("document.cookie") == "" == await proxy.evaluate("document.cookie")
    for reach in ("parent.parent.document", "top.location.href", "top.localStorage"):
        outcome = await view.evaluate(
            f"(() => {{ try {{ return String({reach}); }} catch (e) {{ return e.name; }} }})()"
        )
        assert outcome == "SecurityError", reach
    assert await view.evaluate("fetch('/apps').then((r) => r.status)") == 404  # its own origin has nothing
    for address in (f"{gallery.url}apps", "https://example.com/"):
        assert "Failed to fetch" in await view.evaluate("(url) => fetch(url).then((r) => r.status, String)", address)
    before = page.url
    assert await view.evaluate("(() => { try { top.location = 'about:blank'; } catch (e) { return e.name; } })()")
    assert await view.evaluate("open('about:blank')") is None
    # the frame around it is at the view's mercy, and as powerless: it shows no page of the gallery
    await proxy.evaluate("(url) => { location.href = url; }", gallery.url)
    await eventually(lambda: proxy.url.startswith("chrome-error:"))
    assert page.url == before and len(page.context.pages) == 1
    await expect(page.get_by_role("heading", name="Apps", exact=True)).to_be_visible()


#: Ways out of a document that a policy has no directive for.
_UNCOVERED = """async (port) => {
  const peer = PEER;
  const html = `<script>(${peer})(window, ${port})</scr` + "ipt>";
  const hint = { rel: "preconnect", href: `http://127.0.0.1:${port}` };
  document.head.append(Object.assign(document.createElement("link"), hint));
  for (const sandbox of ["allow-scripts", "allow-scripts allow-same-origin"]) {
    const frame = Object.assign(document.createElement("iframe"), { srcdoc: html });
    frame.setAttribute("sandbox", sandbox);
    document.body.append(frame);
  }
  await peer(window, port);
  await peer(document.body.appendChild(document.createElement("iframe")).contentWindow, port);
}""".replace("PEER", PEER)


@pytest.mark.slow
async def test_view_cannot_escape_gallery_by_webrtc_or_resource_hints(
    tmp_path: Path, browser: Browser, views_address: str
) -> None:
    async with (
        serving(tmp_path, browser, views_address) as gallery,
        visited(gallery, browser) as page,
        listening() as outside,
        listening() as control,
    ):
        view = await shown(page, "board")
        with suppress(PlaywrightError):  # Chromium ends the process of a view that tries
            await view.evaluate(_UNCOVERED, outside.port)
        free = await page.context.new_page()
        await free.evaluate(_UNCOVERED, control.port)
        await eventually(lambda: {"UDP"} < set(control.heard))
        assert outside.heard == []


async def test_messages_from_foreign_frames_are_not_answered(shared: tuple[Gallery, Page]) -> None:
    _, page = shared
    view = await shown(page, "board")
    posts: list[str] = []
    page.on("request", lambda request: posts.append(request.post_data or "") if "/views/" in request.url else None)
    forged = {"jsonrpc": "2.0", "id": 9, "method": "ui/open-link", "params": {"url": "https://evil.example/"}}
    await view.evaluate("(forged) => top.postMessage(forged, '*')", forged)  # not by the frame that speaks for it
    await page.evaluate("(forged) => postMessage(forged, '*')", forged)
    await view.evaluate("""() => {
      const jsonrpc = "2.0", own = "ui/notifications/sandbox-";
      for (const odd of [
        null, 7, "x", [], {}, { jsonrpc: "1.0", id: 1, method: "ping" }, { jsonrpc, id: {}, method: "ping" },
        { jsonrpc, id: 1, method: "ping", params: 7 }, { jsonrpc, id: 77, result: {} },
        { jsonrpc, method: own + "proxy-ready" },
        { jsonrpc, id: 2, method: own + "resource-ready", params: { html: "" } }]) parent.postMessage(odd, "*");
    }""")
    assert (await view.evaluate("rpc('ping')"))["result"] == {}
    (answered,) = (post for post in posts if '"request":true' in post)  # the page itself asks for the view's state
    assert "ping" in answered
    await expect(page.get_by_role("list", name="Requests of the view").get_by_role("listitem")).to_have_count(0)
    flood = await view.evaluate("Promise.all(Array.from({ length: 40 }, () => rpc('ping')))")
    refused = [answer for answer in flood if "error" in answer]
    assert refused and "more than 16 requests" in refused[0]["error"]["message"]
    assert (await view.evaluate("rpc('ping')"))["result"] == {}


async def test_view_origin_serves_only_its_sandbox(shared: tuple[Gallery, Page]) -> None:
    gallery, _ = shared
    call = await start(gallery)
    view = await gallery.ask("GET", f"views/{call}?theme=dark&width=400&height=300")
    name = view["origin"].removeprefix("http://")
    assert view["allow"] == "clipboard-write" and "rpc" in view["html"]

    async def at(host: str, path: str = "", method: str = "GET", **more: str) -> aiohttp.ClientResponse:
        return await gallery.http.request(method, gallery.url + path, headers={"Host": host, **more})

    sandbox = await at(name)
    policy = sandbox.headers["Content-Security-Policy"]
    assert sandbox.status == 200 and "connect-src 'self';" in policy and "https://fonts.example" in policy
    assert "script-src *" not in policy and f"frame-ancestors {gallery.url.rstrip('/')} " in policy
    assert "Set-Cookie" not in sandbox.headers and view["html"] not in await sandbox.text()
    for path in ("apps", "artifacts", "assets/app.js", f"views/{call}", "?x", "healthz"):
        assert (await at(name, path)).status == 404, path  # with the operator's token
    assert (await at(name, "", "POST")).status == 404
    other = f"view-{'0' * 16}.localhost{name[name.index(':') :]}"
    assert (await at(other)).status == 404
    assert (await at(f"x.{name}")).status == 421
    # and the gallery takes nothing from there
    netloc = gallery.url.removeprefix("http://").rstrip("/")
    assert (await at(netloc, "apps", Origin=view["origin"])).status == 403
    frames = f"frame-src 'self' http://*.localhost:{netloc.rpartition(':')[2]};"
    assert frames in (await at(netloc)).headers["Content-Security-Policy"]
    await gallery.ask("DELETE", f"views/{call}", expect=204)
    assert (await at(name)).status == 404


async def test_app_only_claiming_views_runs_without_live_view(shared: tuple[Gallery, Page]) -> None:
    _, page = shared
    await page.locator(".capability", has_text="liar").click()
    await page.get_by_role("button", name="Run").click()
    await expect(page.locator("#work .panel")).to_contain_text("Succeeded")
    await expect(page.locator("#work .panel")).to_contain_text("No live view: views belong to the tools of MCP servers")


async def test_live_views_are_shown_only_locally_to_those_who_see_call(
    tmp_path: Path, browser: Browser, views_address: str
) -> None:
    async with open_gallery(tmp_path, browser, public_url="https://files.example") as gallery:
        gallery.app = (await gallery.served.apps.connect(views_address, {})).key
        call = await start(gallery)
        shown = await gallery.ask("GET", f"views/{call}")
        elsewhere = {"Host": "files.example"}
        async with gallery.http.get(f"{gallery.url}views/{call}", headers=elsewhere) as answer:
            assert answer.status == 409 and "opened at 127.0.0.1 or localhost" in await answer.text()
        async with gallery.http.get(gallery.url, headers=elsewhere) as page:
            assert "localhost" not in page.headers["Content-Security-Policy"]
        message = {"method": "ping", "params": {}, "request": True}
        token = (await gallery.ask("POST", "tokens", body={"tenant": "else"}, expect=201))["token"]
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as stranger:
            for method in ("GET", "POST", "DELETE"):
                async with stranger.request(method, f"{gallery.url}views/{call}", json=message) as answer:
                    assert answer.status == 404, method
        reply = await gallery.ask("POST", f"views/{call}", body=message)
        assert reply == {"answer": {"result": {}}, "files": [], "warnings": shown["warnings"]}


async def test_live_view_limits_are_enforced(
    tmp_path: Path, browser: Browser, views_address: str, shared: tuple[Gallery, Page]
) -> None:
    view = await shared[0].ask("GET", f"views/{await start(shared[0])}")
    document, given = len(view["html"]), len(json.dumps(view["given"], separators=(",", ":")))
    fitting = Limits(view_document=document, view_input=given, view_files=2, views=2)
    for smaller in ({"view_document": document - 1}, {"view_input": given - 1}):
        async with serving(tmp_path, browser, views_address, replace(fitting, **smaller)) as gallery:
            call = await start(gallery)
            await gallery.ask("GET", f"views/{call}", expect=413)
            result = (await gallery.ask("GET", f"calls/{call}?wait=20"))["result"]
            (warning,) = [text for text in result["warnings"] if "view" in text]
            assert warning.startswith("the view is not shown: the page shows views of")
    async with serving(tmp_path, browser, views_address, fitting) as gallery:
        call = await start(gallery)
        await gallery.ask("GET", f"views/{call}")
        answers: list[dict[str, object]] = [{}, {}, {"isError": True}]
        for number, answer in enumerate(answers):
            blob = base64.b64encode(bytes([number])).decode()
            content = {"type": "resource", "resource": {"uri": f"file:///{number}.bin", "blob": blob}}
            message = {"method": "ui/download-file", "params": {"contents": [content]}, "request": True}
            reply = await gallery.ask("POST", f"views/{call}", body=message)
            assert reply["answer"] == {"result": answer} and len(reply["files"]) == min(number + 1, 2)
        ping = {"method": "ping", "params": {}, "request": True}
        for odd in ({}, {**ping, "method": 1}, {**ping, "params": []}):
            await gallery.ask("POST", f"views/{call}", body=odd, expect=400)
        last = [await start(gallery), await start(gallery)]
        for kept in last:
            await gallery.ask("GET", f"views/{kept}")
        await gallery.ask("GET", f"views/{call}", expect=404)  # the oldest of three
        failed = await start(gallery, params={"n": "x"})  # a call that fails has no view
        await eventually(lambda: gallery.served.activity.calls[failed].duration_ms is not None)
        await gallery.ask("GET", f"views/{failed}", expect=404)


async def test_csp_violations_of_live_view_are_listed(shared: tuple[Gallery, Page]) -> None:
    gallery, page = shared
    view = await shown(page, "hollow")  # whose script is from elsewhere
    warned = page.get_by_role("list", name="Warnings of the view").get_by_role("listitem")
    declare = "declare https://cdn.example in _meta.ui.csp.resourceDomains of the resource"
    await expect(warned).to_have_text(
        [f"forbidden by its policy: script-src-elem, https://cdn.example/lib.js; {declare}"]
    )
    await view.evaluate("document.body.append(Object.assign(new Image(), { src: 'https://a.example/<b>.png' }))")
    await eventually(lambda: sent_report(gallery, page))
    await view.evaluate("rpc('ping')")
    await expect(warned.nth(1)).to_contain_text("forbidden by its policy: img-src, https://a.example/%3Cb%3E.png; ")


async def sent_report(gallery: Gallery, page: Page) -> bool:
    call = (await gallery.ask("GET", "calls"))["calls"][0]["id"]
    return len((await gallery.ask("GET", f"views/{call}"))["warnings"]) == 2


async def test_policy_reports_are_limited(shared: tuple[Gallery, Page]) -> None:
    gallery, _ = shared
    call = await start(gallery, "plain")
    name = (await gallery.ask("GET", f"views/{call}"))["origin"].removeprefix("http://")

    async def report(body: bytes, path: str = "violations", host: str = name) -> int:
        headers = {"Host": host, "Origin": f"http://{host}", "Content-Type": "application/csp-report"}
        async with gallery.http.post(gallery.url + path, data=body, headers=headers) as answer:
            return answer.status

    def about(blocked: str) -> bytes:
        return json.dumps({"csp-report": {"effective-directive": "img-src", "blocked-uri": blocked}}).encode()

    async def warnings() -> list[str]:
        return list((await gallery.ask("GET", f"views/{call}"))["warnings"])

    assert await report(about("data")) == await report(about("data")) == 204
    remedy = "; no declared domain allows it: put it into the document, or do without it"
    assert await warnings() == [f"forbidden by its policy: img-src, data{remedy}"]
    limit = 64 << 10
    at_the_limit = about("x" * (limit - len(about(""))))
    assert await report(at_the_limit) == 204 and await report(at_the_limit + b" ") == 413
    assert len((await warnings())[1]) == len("forbidden by its policy: ") + 300 + len(remedy)
    for odd in (b"", b"{", b"[]", b"7", b'{"csp-report": 7}', b"[" * 5000, b"\xff"):
        assert await report(odd) == 400, odd
    assert await report(about("a"), "violations?x") == await report(about("a"), "violation") == 404
    other = f"view-{'0' * 16}.localhost{name[name.index(':') :]}"
    assert await report(about("a"), host=other) == 404
    for number in range(60):
        assert await report(about(f"https://{number}.example/")) == 204
    assert len(await warnings()) == 50


async def test_call_keeps_result_when_its_view_fails(
    shared: tuple[Gallery, Page], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(size: int) -> str:
        raise KeyError("no name")

    gallery, _ = shared
    monkeypatch.setattr("transports.surfaces.web._views.secrets", SimpleNamespace(token_hex=failing))
    call = await start(gallery)
    ended = await gallery.ask("GET", f"calls/{call}?wait=20")
    assert (ended["status"], ended["result"]["warnings"]) == (
        "completed",
        ["the view is not shown: it failed: 'no name'"],
    )
    async with gallery.http.get(f"{gallery.url}views/{call}") as answer:
        assert "it failed: 'no name'" in (await answer.json())["error"]["message"]
