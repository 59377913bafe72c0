"""Cancelling, progress, questions and other events of the reference app."""

from typing import Any

import pytest
from playwright.async_api import Browser

from tests.webapp_fixture.page import INITIALIZE, SLEEP, App, open_app
from webapp_fixture import Fixture

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.browser]


@pytest.mark.requirement("R6-7d", "R6-7e")
@pytest.mark.parametrize("form", ["abp.cancel(callId, 'enough')", "abp.cancel({ callId, reason: 'enough' })"])
async def test_cancel(app: App, form: str) -> None:
    got = await app.page.evaluate(
        f"""async () => {{
          const callId = crypto.randomUUID();
          const waiting = abp.call('job.wait', {{}}, {{ callId }});
          const first = await {form};
          const answer = await Promise.race([waiting, {SLEEP.format(2000)}]);
          return [callId, answer, first, await {form}, await abp.cancel('unknown')];
        }}"""
    )
    call_id, answer, first, second, unknown = got
    assert {k: v for k, v in answer.items() if k != "metadata"} == {"success": False, "cancelled": True}
    assert first == second == {"callId": call_id, "cancelled": True, "reason": "enough"}
    assert unknown == {"callId": "unknown", "cancelled": False}
    record = await app.data("app.record")
    assert record["cancelled"][-2]["callId"] == call_id


@pytest.mark.parametrize(("form", "works"), [("string", [True, False]), ("object", [False, True])])
async def test_fixture_accepts_only_configured_cancel_form(
    browser: Browser, fixture: Fixture, form: str, works: list[bool]
) -> None:
    app = await open_app(browser, f"{fixture.url}?canceltype={form}")
    got = await app.page.evaluate(
        """async () => {
          for (const callId of ['a', 'b']) abp.call('job.wait', {}, { callId });
          return [(await abp.cancel('a')).cancelled, (await abp.cancel({ callId: 'b' })).cancelled];
        }"""
    )
    assert got == works
    await app.page.close()


async def test_timeout_counts_as_cancellation(app: App) -> None:
    answer = await app.answer("job.wait", timeout=30)
    assert answer["cancelled"] and answer["error"]["code"] == "TIMEOUT" and answer["metadata"]["duration"] >= 29


async def test_events_reach_the_exposed_functions(browser: Browser, fixture: Fixture) -> None:
    page = await browser.new_page()
    events: list[tuple[str, Any]] = []
    for name in ("notification", "progress"):
        await page.expose_function(f"__abp_{name}", lambda payload, name=name: events.append((name, payload)))
    await page.expose_function("__abp_elicitation", lambda request: {"success": True, "data": {"confirmed": True}})
    await page.goto(fixture.url)
    await page.evaluate(INITIALIZE)
    app = App(page)
    await app.answer("job.run", {"steps": 2, "delay": 0, "label": "L"}, progressToken="token", callId="id")
    step = {"operationId": "token", "progress": 2, "total": 2, "percentage": 100, "status": "step 2 of 2", "stage": "L"}
    assert events[2] == ("progress", step)
    assert [payload["event"] for name, payload in events if name == "notification"] == [
        "notifications/operation/started",
        "notifications/operation/completed",
    ]
    asked = await app.data("form.ask", method="elicitation/confirm", params={"message": "?"})
    assert asked == {"response": {"success": True, "data": {"confirmed": True}}}
    assert await app.data("files.clear") == {"cleared": 2}
    first = (await app.data("app.record"))["first"]
    assert first["functions"] == {
        "__abp_notification": True,
        "__abp_progress": True,
        "__abp_elicitation": True,
        "__abp_capabilities_changed": False,
    }
    assert "__abp_progress" in first["names"] and first["replaced"] == []
    await page.close()


@pytest.mark.parametrize("style", ["assign", "call"])
async def test_fixture_supports_own_event_styles(browser: Browser, fixture: Fixture, style: str) -> None:
    app = await open_app(browser, f"{fixture.url}?ownevents={style}")
    got = await app.page.evaluate(
        """async (style) => {
          const seen = [];
          const listen = (member, listener) => {
            if (style === 'call') abp[member](listener);
            else abp[member] = listener;
          };
          listen('onProgress', ({ percentage }) => { seen.push(percentage); });
          listen('onElicitation', async ({ method }) => ({ success: true, data: { value: method } }));
          await abp.call('job.run', { steps: 2, delay: 0 });
          return [seen, (await abp.call('form.ask', { method: 'm', params: {} })).data.response];
        }""",
        style,
    )
    assert got == [[50, 100], {"success": True, "data": {"value": "m"}}]
    await app.page.close()


async def test_unanswered_question_cancels_call(app: App) -> None:
    answer = await app.answer("files.clear")
    assert answer["cancelled"] and not answer["success"]
    assert (await app.data("form.ask", method="m", params={}))["response"]["success"] is False
