"""Views as others write them: they reload themselves, are refused things by their policy, or miss a host."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.canned_view import viewing
from tests.support.eventually import eventually
from transports import Disconnected, View, connect
from transports.errors import ABPError, NotAbpApp
from transports.testing.conformance import Plan, check_app

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize(
    ("code", "refused"),
    [
        ('new Function("return 1")', "Evaluating a string"),
        ('eval("1")', "Evaluating a string"),
        ("await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))", "WebAssembly"),
    ],
)
async def test_what_the_policy_refuses_is_told_although_the_view_catches_it(
    tmp_path: Path, code: str, refused: str
) -> None:
    body = f"start().then(async () => {{ try {{ {code}; }} catch (error) {{ show('out', error.name); }} }});"
    async with connect(viewing(tmp_path, body), store="memory:") as app, app.open_view("go") as view:
        await eventually(lambda: len(view.violations) > 0)
        assert refused in view.violations[0] and "script-src" in view.violations[0]


_RELOADING = """
start().then(() => {
  const count = Number(window.name || 0);
  window.name = count + 1;
  if (count < TIMES) setTimeout(() => location.reload(), 100); else show("out", `document ${count}`);
});
"""


@pytest.mark.parametrize("moment", ["while it loads", "once it has loaded"])
async def test_view_that_reloads_itself_gets_its_handshake_and_result_again(tmp_path: Path, moment: str) -> None:
    body = _RELOADING.replace("TIMES", "2")
    if "once" in moment:
        body = body.replace(
            "start()", "new Promise((done) => addEventListener('load', () => setTimeout(done, 50))).then(start)"
        )
    async with connect(viewing(tmp_path, body), store="memory:") as app, app.open_view("go") as view:
        await view.frame.get_by_text("document 2").wait_for()
        await view.frame.locator("#result").get_by_text("answer").wait_for()
        await view.update(theme="dark")
        assert view.warnings.count("the view reloaded itself; its handshake was answered again") == 2


async def test_call_that_a_reload_interrupts_fails_with_the_reason(tmp_path: Path) -> None:
    body = "window.called = () => location.reload(); start();"
    async with connect(viewing(tmp_path, body), store="memory:") as app, app.open_view("go") as view:
        with pytest.raises(ABPError, match="reloaded or navigated"):
            await view.call("slow", timeout=30)


@pytest.mark.parametrize(
    "away", ["location.href = 'https://example.invalid/'", "location.href = 'about:blank'", "location.reload()"]
)
async def test_view_that_leaves_for_good_is_an_error_of_the_kit(tmp_path: Path, away: str) -> None:
    leave = f"window.name = 'gone'; setTimeout(() => {{ {away}; }}, 100);"
    body = f"if (!window.name) {{ start().then(() => {{ {leave} }}); }}"
    async with connect(viewing(tmp_path, body), store="memory:") as app, app.open_view("go", timeout=6) as view:
        async with asyncio.timeout(60):
            while True:
                if await _is_refused(view):
                    break
                await asyncio.sleep(0.1)


async def _is_refused(view: View) -> bool:
    """Whether the view's methods raise the kit's error; any other error fails the test."""
    try:
        await view.update(theme="dark")
        _ = view.frame
    except Disconnected as error:
        assert any(word in error.message for word in ("reload", "navigat", "closed", "reconnecting")), error.message
        return True
    return False


async def test_host_that_is_not_reached_is_named_and_not_the_fault_of_the_view(tmp_path: Path) -> None:
    body = """
      const script = document.createElement("script");
      script.src = "https://cdn.invalid/app.js?key=secret";
      script.onload = start;
      document.head.append(script);
    """
    target = viewing(tmp_path, body, {"resourceDomains": ["https://cdn.invalid"]})
    async with connect(target, store="memory:") as app:
        with pytest.raises(NotAbpApp, match=r"script https://cdn\.invalid/app\.js\?… did not load: ") as raised:
            async with app.open_view("go", timeout=6):
                pass
    assert "secret" not in str(raised.value)
    report = await check_app(target, Plan(timeout=3))
    (judged,) = [outcome for outcome in report.outcomes if outcome.check.id == "APP-100"]
    assert judged.status == "not-applicable" and "did not load" in str(judged)


async def test_missing_picture_does_not_excuse_a_view_that_never_starts(tmp_path: Path) -> None:
    body = """
      const picture = document.createElement("img");
      picture.src = "https://cdn.invalid/a.png";
      document.body.append(picture);
    """
    target = viewing(tmp_path, body, {"resourceDomains": ["https://cdn.invalid"]})
    async with connect(target, store="memory:") as app:
        with pytest.raises(NotAbpApp, match="it sent no ui/initialize"):
            async with app.open_view("go", timeout=3):
                pass
    report = await check_app(target, Plan(timeout=3))
    (judged,) = [outcome for outcome in report.outcomes if outcome.check.id == "APP-100"]
    assert judged.status == "failed", judged


async def test_flood_of_one_kind_of_requests_keeps_the_others(tmp_path: Path) -> None:
    body = """
      start().then(async () => {
        await request("ui/message", { role: "user", content: [{ type: "text", text: "first" }] });
        for (let n = 0; n < 1500; n += 1) send({ method: "notifications/message", params: { level: "info", data: n } });
        await request("ui/message", { role: "user", content: [{ type: "text", text: "last" }] });
        show("out", "done");
      });
    """
    async with connect(viewing(tmp_path, body), store="memory:") as app, app.open_view("go") as view:
        await view.frame.get_by_text("done").wait_for()
        kinds = [request.kind for request in view.requests]
        messages: list[Any] = [request.params for request in view.requests if request.kind == "message"]
    assert [message["content"][0]["text"] for message in messages] == ["first", "last"]
    assert kinds[0] == "message" and kinds[-1] == "message" and kinds.count("log") <= 1000
