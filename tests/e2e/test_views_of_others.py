"""Views as others write them: they reload themselves, are refused things by their policy, or miss a host."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Route

from tests.support.canned_view import viewing
from tests.support.eventually import eventually
from tests.support.slow import slow_but
from transports import Browser, Disconnected, View, connect
from transports.errors import ABPError, CapabilityError, NotAbpApp
from transports.testing.conformance import Plan, check_app

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


async def test_csp_violation_that_view_catches_is_reported_unless_of_a_string(tmp_path: Path, browser: Browser) -> None:
    # The first is a library's question whether it may; its answer is an exception, which is caught.
    codes = ('new Function("")', "await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))")
    caught = "".join(f"try {{ {code}; }} catch (error) {{ show('out', error.name); }}" for code in codes)
    body = f"start().then(async () => {{ {caught} }});"
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        await eventually(lambda: view.violations)
        await view.screenshot()  # what the browser reported before it has arrived
        (violation,) = view.violations
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


async def test_answer_that_only_its_origin_may_have_fails_with_reason(tmp_path: Path, browser: Browser) -> None:
    body = """start(); addEventListener("message", async ({ data }) => {
      if (data?.method !== "tools/call") return;
      const folder = await navigator.storage.getDirectory();
      send({ id: data.id, result: { file: await folder.getFileHandle("a", { create: true }) } });
    });"""
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        with pytest.raises(CapabilityError, match="what another origin may not have"):
            await view.call("slow", timeout=5)


_RELOADING = """
start().then(() => {
  const count = Number(window.name || 0);
  window.name = count + 1;
  if (count < TIMES) setTimeout(() => location.reload(), 100); else show("out", `document ${count}`);
});
"""


@pytest.mark.parametrize("moment", slow_but(["while it loads", "once it has loaded"], "once it has loaded"))
async def test_reloading_view_gets_handshake_and_result_again(tmp_path: Path, browser: Browser, moment: str) -> None:
    body = _RELOADING.replace("TIMES", "2")
    if "once" in moment:
        body = body.replace(
            "start()", "new Promise((done) => addEventListener('load', () => setTimeout(done, 50))).then(start)"
        )
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        await view.frame.get_by_text("document 2").wait_for()
        await view.frame.locator("#result").get_by_text("answer").wait_for()
        await view.update(theme="dark")
        assert view.warnings.count("the view reloaded itself; its handshake was answered again") == 2


async def test_call_interrupted_by_reload_fails_with_reason(tmp_path: Path, browser: Browser) -> None:
    body = "window.called = () => location.reload(); start();"
    async with connect(viewing(tmp_path, body), store="memory:", browser=browser) as app, app.open_view("go") as view:
        with pytest.raises(ABPError, match="reloaded or navigated"):
            await view.call("slow", timeout=30)


@pytest.mark.parametrize(
    "ways",
    [
        ("location.href = 'https://example.invalid/'", "location.reload()"),
        pytest.param(("location.href = 'about:blank'",), marks=pytest.mark.slow),
    ],
    ids=["elsewhere", "blank"],
)
async def test_view_leaving_for_good_raises_kit_error(tmp_path: Path, browser: Browser, ways: tuple[str, ...]) -> None:
    target = viewing(tmp_path, "if (!window.name) start();")

    async def leave(view: View, away: str) -> None:
        await view.frame.evaluate(f"() => {{ window.name = 'gone'; setTimeout(() => {{ {away}; }}); }}")
        async with asyncio.timeout(60):
            while not await _is_refused(view):
                await asyncio.sleep(0.1)

    async with AsyncExitStack() as stack:
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


async def test_unreachable_host_is_named_and_not_blamed_on_view(tmp_path: Path, browser: Browser) -> None:
    body = """
      const script = document.createElement("script");
      script.src = "https://cdn.invalid/app.js?key=secret";
      script.onload = start;
      document.head.append(script);
    """
    target = viewing(tmp_path, body, {"resourceDomains": ["https://cdn.invalid"]})
    error, report = await asyncio.gather(
        blank_view_error(target, browser, timeout=6), check_app(target, Plan(timeout=3), browser=browser)
    )
    assert re.search(r"script https://cdn\.invalid/app\.js\?… did not load: ", error) and "secret" not in error
    (judged,) = [outcome for outcome in report.outcomes if outcome.check.id == "APP-100"]
    assert judged.status == "not-applicable" and "did not load" in str(judged)


async def blank_view_error(target: str, browser: Browser, *, timeout: float = 3, **options: Any) -> str:
    """What opening a view that stays blank raises."""
    async with connect(target, store="memory:", browser=browser) as app:
        with pytest.raises(NotAbpApp) as raised:
            async with app.open_view("go", timeout=timeout, **options):
                pass
    return raised.value.message


#: By a name: the head and the script of a document, why its view stays blank, and what to do. The first ones are shown
#: in each run.
BLANK = {
    "script": (
        '<script src="https://cdn.example/lib.js"></script>',
        "lib.start(); start();",
        "its policy stops it: Loading the script 'https://cdn.example/lib.js' violates",
        "declare https://cdn.example in _meta.ui.csp.resourceDomains of the resource",
    ),
    "eval": (
        "",
        "eval('start()');",
        "its policy stops it: Evaluating a string as JavaScript violates",
        "no declared domain allows it: put it into the document, or do without it",
    ),
    "own script": (
        '<script type="module" src="/assets/app.js"></script>',
        "",
        "script /assets/app.js is not in the document",
        "put the script into the document, or correct its address",
    ),
    "error": (
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "try { new Function(''); } catch {} lib.start(); start();",
        "its script failed: ReferenceError: lib is not defined (line ",
        "correct the script",
    ),
    "half": (
        "",
        "request('ui/initialize', { appInfo: { name: 'V' }, appCapabilities: {} });",
        "it asked for its host and did not finish the handshake",
        "send ui/notifications/initialized once the answer to ui/initialize is there",
    ),
    "fetch": (
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "fetch('https://api.example:8443/v1?key=secret').then(start)",
        "its policy stops it: Connecting to 'https://api.example:8443/v1",
        "declare https://api.example:8443 in _meta.ui.csp.connectDomains of the resource",
    ),
    "this machine": (
        '<script src="http://127.0.0.1:5173/main.js"></script>',
        "",
        "its policy stops it: Loading the script 'http://127.0.0.1:5173/main.js' violates",
        "http://127.0.0.1:5173 cannot be declared: it is this machine, where views have their own origins; "
        'csp="loose" allows it in tests',
    ),
    "refused": (
        "",
        "request('ui/initialize', { appInfo: { name: 'V' }, appCapabilities: [] });",
        "its host refused ui/initialize: Expected `object`, got `array` - at `$.appCapabilities`",
        "correct the parameters",
    ),
    "silent": (
        '<img src="https://cdn.example/a.png">',
        "",
        "it sent no ui/initialize",
        "connect to the host while the document loads, with the App of the SDK or by hand",
    ),
    "no picture": (
        '<img src="https://declared.invalid/a.png">',
        "",
        "it sent no ui/initialize",
        "connect to the host while the document loads, with the App of the SDK or by hand",
    ),
}


@pytest.mark.parametrize(
    ("names", "judged"),
    [([*BLANK][:5], ["script"]), pytest.param([*BLANK][5:], ["half"], marks=pytest.mark.slow)],
    ids=["quick", "slow"],
)
async def test_blank_view_error_names_cause_and_next_step(
    tmp_path: Path, browser: Browser, names: list[str], judged: list[str]
) -> None:
    """All are open at a time, since each does nothing until its time is up."""

    def target_of(name: str) -> str:
        head, body, _, _ = BLANK[name]
        (folder := tmp_path / name.replace(" ", "-")).mkdir(exist_ok=True)
        return viewing(folder, body, {"resourceDomains": ["https://declared.invalid"]}, head=head)

    async def check_view(name: str) -> None:
        _, _, reason, remedy = BLANK[name]
        message = await blank_view_error(target_of(name), browser, timeout=15)
        assert re.search(rf"stayed blank for [\d.]+ s: {re.escape(reason)}", message), message
        assert message.endswith(f"; {remedy}") and "blocked." not in message, message

    async def check_conformance(name: str) -> None:
        _, _, reason, remedy = BLANK[name]
        report = await check_app(target_of(name), Plan(timeout=12), browser=browser)
        (failed, *_) = [
            outcome for outcome in report.outcomes if outcome.check.id in ("APP-100", "APP-102") and outcome.fixes
        ]
        assert failed.fixes == (remedy,) and f"ui://x/v sent none: {reason}" in failed.findings[0]
        assert failed.as_dict()["fix"] == remedy
        assert f"how to fix it: {remedy}".encode() in report.junit().replace(b"&quot;", b'"')

    async with asyncio.TaskGroup() as tasks:
        for name in names:
            tasks.create_task(check_view(name))
        for name in judged:
            tasks.create_task(check_conformance(name))


async def test_view_showing_only_forbidden_frame_names_the_domain(tmp_path: Path, browser: Browser) -> None:
    body = "start().then(() => { document.body.innerHTML = '<iframe src=https://maps.example/a></iframe>'; })"
    report = await check_app(viewing(tmp_path, body), Plan(timeout=1.5), browser=browser)
    (policy,) = [outcome for outcome in report.outcomes if outcome.check.id == "view.policy"]
    assert policy.fixes == ("declare https://maps.example in _meta.ui.csp.frameDomains of the resource",)


async def test_error_names_spec_csp_when_declared_domain_is_blocked(tmp_path: Path, browser: Browser) -> None:
    head = '<script src="https://cdn.example/lib.js"></script>'
    target = viewing(tmp_path, "", {"resourceDomains": ["https://cdn.example"]}, head=head)
    message = await blank_view_error(target, browser, csp="spec")
    assert '; this policy is for views that declare nothing; csp="declared" grants' in message


@pytest.mark.parametrize(
    ("status", "answered"), slow_but([(404, "404"), (200, "a page of HTML")], (200, "a page of HTML"))
)
async def test_script_answered_with_wrong_content_is_named(
    tmp_path: Path, browser: Browser, status: int, answered: str
) -> None:
    head = '<script type="module" src="https://cdn.example/lib.js?v=1"></script>'
    target = viewing(tmp_path, "lib.start(); start();", {"resourceDomains": ["https://cdn.example"]}, head=head)

    async def answer(route: Route) -> None:
        await route.fulfill(status=status, body="<p>The start page", content_type="text/html")

    async with await browser.playwright.new_context() as context:
        await context.route("https://cdn.example/**", answer)
        async with connect(target, context=context, store="memory:") as app:
            with pytest.raises(NotAbpApp) as raised:
                async with app.open_view("go", timeout=8):
                    pass
    fault = f"script https://cdn.example/lib.js?… was answered with {answered}; put the script into the document"
    assert fault in raised.value.message


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
