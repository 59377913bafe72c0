"""Views as others write them: they reload themselves, are refused things by their policy, or miss a host."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.async_api import Route

from tests.support.canned_view import CannedView, serve_views, viewing
from tests.support.eventually import eventually
from transports import Browser, Disconnected, Session, View, connect
from transports.errors import ABPError, CapabilityError, NotAbpApp
from transports.testing.conformance import Plan, check_app

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_violation_that_view_catches_and_answer_that_cannot_leave_it_are_reported(
    tmp_path: Path, browser: Browser
) -> None:
    # The first is a library's question whether it may; its answer is an exception, which is caught.
    codes = ('new Function("")', "await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))")
    caught = "".join(f"try {{ {code}; }} catch (error) {{ show('out', error.name); }}" for code in codes)
    body = (
        f"start().then(async () => {{ {caught} }});"
        + """
    addEventListener("message", async ({ data }) => {
      if (data?.method !== "tools/call") return;
      const folder = await navigator.storage.getDirectory();
      send({ id: data.id, result: { file: await folder.getFileHandle("a", { create: true }) } });
    });"""
    )
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        await eventually(lambda: view.violations)
        with pytest.raises(CapabilityError, match="what another origin may not have"):
            await view.call("slow", timeout=5)
        (violation,) = view.violations  # what the browser reported before has arrived
        assert violation.startswith("Compiling or") and "script-src" in violation


@pytest.mark.slow
async def test_sandbox_refusals_are_warnings(tmp_path: Path, whole_browser: Browser) -> None:
    refused = {
        "confirm('Delete it?')": "confirm()",
        "window.open('https://example.invalid/')": "example.invalid",
        (
            "const href = URL.createObjectURL(new Blob(['saved']));"
            "Object.assign(document.createElement('a'), { href, download: 'saved.txt' }).click()"
        ): "Download is disallowed",
    }
    body = f"start().then(() => {{ {'; '.join(refused)}; }});"
    async with (
        connect(viewing(tmp_path, body), store="memory:", browser=whole_browser) as app,
        app.open_view("go") as view,
    ):
        await eventually(lambda: len(view.warnings) == len(refused))
        assert all("sandbox refused" in warning for warning in view.warnings)
        for reason in refused.values():
            assert sum(reason in warning for warning in view.warnings) == 1
        assert not view.violations


async def test_reloading_view_fails_its_call_and_gets_handshake_and_result_again(
    tmp_path: Path, browser: Browser
) -> None:
    """The second document begins while it loads, the others once they have loaded."""
    body = """
      const count = Number(window.name || 0);
      window.name = count + 1;
      window.called = () => location.reload();
      const begin = () => start().then(() => show("out", `document ${count}`));
      if (count === 1) begin(); else addEventListener("load", () => setTimeout(begin, 50));
    """
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        with pytest.raises(ABPError, match="reloaded or navigated"):
            await view.call("slow", timeout=30)
        await view.frame.get_by_text("document 1").wait_for()
        await view.frame.locator("#result").get_by_text("answer").wait_for()
        await view.frame.evaluate("() => { setTimeout(() => location.reload()); }")
        await view.frame.get_by_text("document 2").wait_for()
        await view.frame.locator("#result").get_by_text("answer").wait_for()
        await view.update(theme="dark")
        assert view.warnings.count("the view reloaded itself; its handshake was answered again") == 2


async def test_view_leaving_for_good_raises_kit_error(tmp_path: Path, browser: Browser) -> None:
    ways = ("location.href = 'https://example.invalid/'", "location.href = 'about:blank'", "location.reload()")

    async def leave(view: View, away: str) -> None:
        await view.frame.evaluate(f"() => {{ window.name = 'gone'; setTimeout(() => {{ {away}; }}); }}")
        # Asked often, for a lost view is opened again in less than a second, and then it is a view as before.
        await eventually(lambda: _is_refused(view), within=60)

    async with AsyncExitStack() as stack:
        target = viewing(tmp_path, "if (!window.name) start();")
        app = await stack.enter_async_context(connect(target, store="memory:", browser=browser))
        views = [await stack.enter_async_context(app.open_view("go", timeout=6)) for _ in ways]
        await asyncio.gather(*map(leave, views, ways))


async def _is_refused(view: View) -> bool:
    """Whether the view's methods raise the kit's error; any other error fails the test."""
    try:
        await view.update(theme="dark")
        _ = view.frame
    except Disconnected as error:
        assert any(word in error.message for word in ("reload", "navigat", "closed", "reconnecting")), error.message
        return True
    return False


class Blank(NamedTuple):
    """A view that stays blank, why, and what to do."""

    head: str
    body: str
    reason: str
    remedy: str
    options: Mapping[str, Any] = {}


#: By a name. The first ones are shown in each run; the next two are in the report of the conformance check, too.
BLANK = {
    "eval": Blank(
        "",
        "eval('start()');",
        "its policy stops it: Evaluating a string as JavaScript violates",
        "no declared domain allows it: put it into the document, or do without it",
    ),
    "own-script": Blank(
        '<script type="module" src="/assets/app.js"></script>',
        "",
        "script /assets/app.js is not in the document",
        "put the script into the document, or correct its address",
    ),
    "error": Blank(
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "try { new Function(''); } catch {} lib.start(); start();",
        "its script failed: ReferenceError: lib is not defined (line ",
        "correct the script",
    ),
    "half": Blank(
        "",
        "request('ui/initialize', { appInfo: { name: 'V' }, appCapabilities: {} });",
        "it asked for its host and did not finish the handshake",
        "send ui/notifications/initialized once the answer to ui/initialize is there",
    ),
    "page-for-script": Blank(
        '<script type="module" src="https://page.example/lib.js?v=1"></script>',
        "lib.start(); start();",
        "script https://page.example/lib.js?… was answered with a page of HTML",
        "put the script into the document, or correct its address",
    ),
    "strict": Blank(
        '<script src="https://declared.invalid/lib.js"></script>',
        "",
        "its policy stops it: Loading the script 'https://declared.invalid/lib.js' violates",
        'this policy is for views that declare nothing; csp="declared" grants what the server declares',
        {"csp": "spec"},
    ),
    "script": Blank(
        '<script src="https://cdn.example/lib.js"></script>',
        "lib.start(); start();",
        "its policy stops it: Loading the script 'https://cdn.example/lib.js' violates",
        "declare https://cdn.example in _meta.ui.csp.resourceDomains of the resource",
    ),
    "unreachable": Blank(
        '<script src="https://declared.invalid/app.js?key=hidden"></script>',
        "lib.start(); start();",
        "script https://declared.invalid/app.js?… did not load: ",
        "put it into the document, or make its host reachable",
    ),
    "missing-script": Blank(
        '<script type="module" src="https://missing.example/lib.js?v=1"></script>',
        "lib.start(); start();",
        "script https://missing.example/lib.js?… was answered with 404",
        "put the script into the document, or correct its address",
    ),
    "fetch": Blank(
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "fetch('https://api.example:8443/v1?key=secret').then(start)",
        "its policy stops it: Connecting to 'https://api.example:8443/v1",
        "declare https://api.example:8443 in _meta.ui.csp.connectDomains of the resource",
    ),
    "this-machine": Blank(
        '<script src="http://127.0.0.1:5173/main.js"></script>',
        "",
        "its policy stops it: Loading the script 'http://127.0.0.1:5173/main.js' violates",
        "http://127.0.0.1:5173 cannot be declared: it is this machine, where views have their own origins; "
        'csp="loose" allows it in tests',
    ),
    "refused": Blank(
        "",
        "request('ui/initialize', { appInfo: { name: 'V' }, appCapabilities: [] });",
        "its host refused ui/initialize: Expected `object`, got `array` - at `$.appCapabilities`",
        "correct the parameters",
    ),
    "silent": Blank(
        '<img src="https://cdn.example/a.png"><img src="https://declared.invalid/a.png">',
        "",
        "it sent no ui/initialize",
        "connect to the host while the document loads, with the App of the SDK or by hand",
    ),
}
DECLARED = {"resourceDomains": [f"https://{host}" for host in ("declared.invalid", "page.example", "missing.example")]}
FRAMED = "start().then(() => { document.body.innerHTML = '<iframe src=https://maps.example/a></iframe>'; })"


def blank_view(name: str) -> CannedView:
    return CannedView(BLANK[name].body, DECLARED, BLANK[name].head)


@pytest.mark.parametrize(
    "names", [[*BLANK][:6], pytest.param([*BLANK][6:], marks=pytest.mark.slow)], ids=["quick", "slow"]
)
async def test_blank_view_error_names_cause_and_next_step(tmp_path: Path, browser: Browser, names: list[str]) -> None:
    """All are open at a time, since each does nothing until its time is up."""

    async def answer(route: Route) -> None:
        status = 404 if "missing" in route.request.url else 200
        await route.fulfill(status=status, body="<p>The start page", content_type="text/html")

    async def check_view(app: Session, name: str) -> None:
        _, _, reason, remedy, options = BLANK[name]
        with pytest.raises(NotAbpApp) as raised:
            async with app.open_view(name, timeout=15, **options):
                pass
        message = raised.value.message
        assert re.search(rf"stayed blank for [\d.]+ s: {re.escape(reason)}", message), message
        assert message.endswith(f"; {remedy}") and "blocked." not in message and "hidden" not in message, message

    target = serve_views(tmp_path, {name: blank_view(name) for name in names})
    async with await browser.playwright.new_context() as context:
        await context.route(re.compile(r"^https://\w+\.example/lib\.js\?v=1"), answer)
        async with connect(target, context=context, store="memory:") as app, asyncio.TaskGroup() as tasks:
            for name in names:
                tasks.create_task(check_view(app, name))
        assert context.pages == []


async def test_conformance_report_says_how_to_fix_a_view_unless_a_host_is_unreachable(
    tmp_path: Path, browser: Browser
) -> None:
    (other := tmp_path / "other").mkdir()
    faulty = serve_views(tmp_path, {"script": blank_view("script"), "framed": CannedView(FRAMED)})
    unreachable = serve_views(other, {"unreachable": blank_view("unreachable")})
    report, excused = await asyncio.gather(
        *(check_app(target, Plan(timeout=3), browser=browser) for target in (faulty, unreachable))
    )
    outcomes = {outcome.check.id: outcome for outcome in report.outcomes}
    _, _, reason, remedy, _ = BLANK["script"]
    failed = outcomes["APP-100"]
    assert failed.fixes == (remedy,) and f"ui://x/script sent none: {reason}" in failed.findings[0]
    assert failed.as_dict()["fix"] == remedy
    assert f"how to fix it: {remedy}".encode() in report.junit().replace(b"&quot;", b'"')
    assert "declare https://maps.example in _meta.ui.csp.frameDomains of the resource" in outcomes["view.policy"].fixes
    (judged,) = [outcome for outcome in excused.outcomes if outcome.check.id == "APP-100"]
    assert judged.status == "not-applicable" and BLANK["unreachable"].reason in str(judged)
    assert "hidden" not in str(judged)


@pytest.mark.slow
async def test_request_flood_does_not_evict_other_kinds(tmp_path: Path, browser: Browser) -> None:
    body = """
      start().then(async () => {
        await request("ui/message", { role: "user", content: [{ type: "text", text: "first" }] });
        for (let n = 0; n < 1500; n += 1) send({ method: "notifications/message", params: { level: "info", data: n } });
        await request("ui/message", { role: "user", content: [{ type: "text", text: "last" }] });
        show("out", "done");
      });
    """
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        await view.frame.get_by_text("done").wait_for()
        kinds = [request.kind for request in view.requests]
        messages: list[Any] = [request.params for request in view.requests if request.kind == "message"]
    assert [message["content"][0]["text"] for message in messages] == ["first", "last"]
    assert kinds[0] == "message" and kinds[-1] == "message" and kinds.count("log") <= 1000
