"""The web server and a real browser: what pages elsewhere can do with a signed-in user, and what artifacts can do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import BrowserContext, Page, Route

from tests.support.web_client import TOKEN, Web, put_artifact, running
from transports import Browser
from transports.artifacts import LocalStore
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

PNG = (Path(__file__).parents[2] / "webapp_fixture" / "samples" / "picture.png").read_bytes()
LOGIN = "token => fetch('/login', {method: 'POST', body: JSON.stringify({token}), headers: {'Content-Type': 'application/json'}}).then(a => a.status)"  # noqa: E501
STATUS = "path => fetch(path).then(a => a.status)"


@pytest_asyncio.fixture(loop_scope="session")
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with running(LocalStore(tmp_path / "out")) as web:
        yield web


@pytest_asyncio.fixture(loop_scope="session")
async def page(browser: Browser, web: Web) -> AsyncIterator[Page]:
    """Signed in. Scripts of the test may run everywhere: what a policy forbids is another test's matter."""
    context = await browser.playwright.new_context(bypass_csp=True)
    page = await context.new_page()
    await page.goto(f"{web.served.url}healthz")
    assert await page.evaluate(LOGIN, TOKEN) == 204
    yield page
    await context.close()


async def test_foreign_page_cannot_use_user_cookie(page: Page, web: Web, fixture: Fixture) -> None:
    ref = await put_artifact(web.store, PNG, mime_type="image/png")
    path = f"/artifacts/{ref.id}"
    assert await page.evaluate(STATUS, path) == 200 and await page.evaluate("document.cookie") == ""
    assert fixture.url.startswith("http://127.0.0.1:")  # another port of the same machine: the same site to a browser
    await page.goto(fixture.url)
    url = web.served.url.rstrip("/")
    for options in ("{credentials: 'include'}", "{}"):
        read = await page.evaluate(f"url => fetch(url, {options}).then(a => a.text(), () => 'refused')", url + path)
        assert read == "refused"
    await page.evaluate("url => fetch(url, {mode: 'no-cors', credentials: 'include'}).catch(() => 0)", url + "/calls")
    send = "url => fetch(url, {mode: 'no-cors', method: 'POST', credentials: 'include'}).catch(() => 0)"
    for target in ("/logout", f"{path}/verify", "/artifacts"):
        await page.evaluate(send, url + target)
    shown = """url => new Promise(done => { const image = new Image(); image.onload = () => done(true);
               image.onerror = () => done(false); image.src = url })"""
    assert await page.evaluate(shown, url + path) is False
    numbers = (await web.get("/metrics")).body.decode()
    for line in (
        'method="GET",route="/calls",status="401"',
        'method="POST",route="/logout",status="403"',
        'method="POST",route="/artifacts/{id}/verify",status="403"',
        'method="POST",route="/artifacts",status="403"',
    ):
        assert line in numbers
    await page.goto(f"{url}/healthz")
    assert await page.evaluate(STATUS, path) == 200  # still signed in
    assert await page.evaluate(shown, path) is True


HTML = """<!doctype html><body onload="parent.ran = 1; top.ran = 1"><script>
window.ran = 1; document.title = 'ran'; fetch('/artifacts?q=canary'); new Image().src = '/calls?canary';
navigator.sendBeacon('/logout?canary'); top.postMessage('canary', '*')</script>
<img src="/healthz?canary"><link rel=stylesheet href="/healthz?canary"><iframe src="/healthz?canary"></iframe>
<form action="/logout?canary" method=post><input></form><meta http-equiv=refresh content="0;url=/healthz?canary">"""
SVG = """<svg xmlns="http://www.w3.org/2000/svg" onload="fetch('/healthz?canary')" width="9" height="9">
<script>window.ran = 1; fetch('/artifacts?q=canary')</script><image href="/healthz?canary" width="9" height="9"/>
<foreignObject><body xmlns="http://www.w3.org/1999/xhtml"><iframe src="/healthz?canary"/></body></foreignObject>
</svg>"""


async def test_artifact_content_is_not_executed(web: Web, context: BrowserContext) -> None:

    async def shown(route: Route) -> None:
        """As if somebody had taken away what has it downloaded: the policy alone must do."""
        answer = await route.fetch()
        headers = {name: value for name, value in answer.headers.items() if name != "content-disposition"}
        await route.fulfill(response=answer, headers=headers)

    page = await context.new_page()
    await page.route("**/artifacts/**", shown)
    for kind, text in (("text/html", HTML), ("image/svg+xml", SVG)):
        ref = await put_artifact(web.store, text.encode(), mime_type=kind, filename="page")
        made = await web.post(f"/artifacts/{ref.id}/link", {"expires": 60})
        await page.goto(made.json["url"], wait_until="load")
        await page.wait_for_load_state("networkidle")
        assert "<script>" in await page.content()  # it is shown as what it is
        assert await page.title() != "ran" and page.url == made.json["url"], kind
    numbers = (await web.get("/metrics")).body.decode()
    for route in ("/healthz", "/calls", "/logout", "/artifacts"):  # what the browser may have thought of never arrived
        assert f'route="{route}"' not in numbers, numbers
