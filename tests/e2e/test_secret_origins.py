"""Secrets reach documents of their own origins alone, in real browsers: compared where they arrive, not before."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.e2e.test_download_senders import tool_of
from tests.support.pages import page_speaking
from transports import Browser, PlaywrightTransport, PostMessageTransport, Transport, WebMcpTransport, connect
from transports._internal.masking import KNOWN_SECRETS
from transports.errors import ABPError, CapabilityError, UsageError
from transports.protocol.messages import Message

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

CANARY = "canary-7f3a-value"
#: A page that tells its server what it was told. All that the agent could ask before it compares says that the other
#: origin is right.
APP = page_speaking(
    "take, ask",
    before="""{
  const other = location.origin.replace("127.0.0.1", "localhost"), define = Object.defineProperty;
  for (const name of ["receiver", "origin"]) define(Object.prototype, name, { get: () => () => other, set(value) {
    define(this, name, { value, writable: true, enumerable: true, configurable: true });
  } });
  define(globalThis, "origin", { value: other });
  for (const name of ["includes", "some", "indexOf"]) Array.prototype[name] = () => true;
}
const tell = (what) => fetch("/heard", { method: "POST", body: JSON.stringify(what) });
const take = async (params) => { await tell(params); return { taken: true }; };
const asked = [];
const ask = async () => { asked.push(globalThis.__abp_elicitation({ message: "who?" }).then(tell)); return {}; };""",
)


@dataclass
class Site:
    """Two origins of one server, with what the pages at each were told."""

    own: str = ""
    other: str = ""
    heard: dict[str, list[Any]] = field(default_factory=dict)
    #: What happens while a secret is read.
    meanwhile: Callable[[], Awaitable[object]] | None = None

    @property
    def told_elsewhere(self) -> list[Any]:
        return self.heard.get(self.other, [])


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[Site]:
    made = Site()

    async def page(request: web.Request) -> web.Response:
        frame = request.query.get("frame")
        more = f'<iframe name=side allow=tools src="{frame}"></iframe>' if frame else ""
        return web.Response(text=APP + more, content_type="text/html")

    async def heard(request: web.Request) -> web.Response:
        made.heard.setdefault(f"http://{request.host}", []).append(await request.json())
        return web.Response()

    async def meanwhile(_: web.Request) -> web.Response:
        if made.meanwhile is not None:
            await made.meanwhile()
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", page), web.post("/heard", heard), web.get("/meanwhile", meanwhile)])
    async with TestServer(app) as server:
        made.own = f"http://127.0.0.1:{server.port}"
        made.other = f"http://localhost:{server.port}"
        yield made


@pytest.fixture(autouse=True)
def _forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("CANARY", CANARY)
    monkeypatch.chdir(tmp_path)
    yield
    KNOWN_SECRETS.forget()


def settings(site: Site, *origins: str) -> str:
    """A settings file with a secret that takes its time: its command asks the server, which does what it likes."""
    asking = f"import urllib.request as r; r.urlopen('{site.own}/meanwhile').read(); print('{CANARY}')"
    Path("team.toml").write_text(
        f"[secrets.CRM]\ncommand = [{sys.executable!r}, '-c', \"{asking}\"]\norigins = {[*origins]!r}\n"
        f'[secrets.OTHER]\nenv = "CANARY"\norigins = ["{site.other}"]\n'
    )
    return "team.toml"


async def test_page_navigating_while_secret_is_read_does_not_get_it(site: Site, browser: Browser) -> None:
    url = f"{site.own}/?speaks=tools"
    transport = WebMcpTransport(url, browser=browser)

    async def leave() -> None:
        assert transport.page is not None
        await transport.page.goto(f"{site.other}/?speaks=tools")

    async with connect(url, transport=transport, config=settings(site, site.own), store="memory:") as app:
        await app.call("take", {"password": "${SECRET:CRM}"})
        assert site.heard == {site.own: [{"password": CANARY}]}
        site.meanwhile = leave
        with pytest.raises(UsageError, match="may not be sent to http://localhost") as refused:
            await app.call("take", {"password": "${SECRET:CRM}"})
        assert refused.value.code == "PERMISSION_DENIED"
        await app.call("take", {"password": "none"})  # it is the page that is there
    assert site.told_elsewhere == [{"password": "none"}] and CANARY not in str(refused.value.as_dict())


async def test_every_secret_of_a_call_must_allow_the_origin_of_its_frame(site: Site, browser: Browser) -> None:
    url = f"{site.own}/?speaks=tools&frame={site.other}/?speaks=tools%26name=_far"
    asked: list[bool] = []

    async def note() -> None:
        asked.append(True)

    site.meanwhile = note
    transport = WebMcpTransport(url, browser=browser)
    async with connect(url, transport=transport, config=settings(site, site.own), store="memory:") as app:
        far = await tool_of(app, "take_far")
        for name, params, refusal in (
            (far, {"password": "${SECRET:CRM}"}, "CRM may not be sent to http://localhost"),
            ("take", {"password": "${SECRET:CRM}", "more": ["${SECRET:OTHER}"]}, "OTHER may not be sent to http://127"),
        ):
            with pytest.raises(UsageError, match=refusal) as refused:
                await app.call(name, params)
            assert refused.value.code == "PERMISSION_DENIED" and site.heard == {}
        assert asked == []  # nothing is read for a document that does not get it
        # The same where the messages arrive.
        for name, origin in ((far, site.own), ("take", site.other)):
            with pytest.raises(UsageError, match="may not be sent to"):
                await transport.request(_call(name, CANARY, origin), timeout=20)
            assert site.heard == {}
        await app.call("take", {"password": "${SECRET:CRM}"})
        assert site.heard == {site.own: [{"password": CANARY}]} and asked == [True]
        await app.call(far, {"password": "${SECRET:OTHER}"})
        call = _call(far, "directly", site.other)
        reply = await transport.request(call, timeout=20)
        assert reply.sender is not None and reply.sender.origin == site.other
        assert (transport.receiver(call) or "").startswith(site.other)
        assert site.told_elsewhere == [{"password": CANARY}, {"password": "directly"}]


def _call(name: str, password: str, *origins: str) -> Message:
    identity = name + "".join(origins)
    payload = {"capability": name, "params": {"password": password}, "options": {"callId": identity}}
    return Message("capabilities/call", payload, id=identity, origins=frozenset(origins))


def _transport(kind: str, site: Site, browser: Browser) -> tuple[str, Transport]:
    if kind == "postmessage":
        url = f"{site.own}/?speaks=messages"
        return url, PostMessageTransport(url, browser=browser)
    url = f"{site.own}/?speaks=abp"
    return url, PlaywrightTransport(url, browser=browser)


@pytest.mark.parametrize("kind", ["playwright", "postmessage"])
async def test_secret_check_uses_receiving_documents_origin(kind: str, site: Site, browser: Browser) -> None:
    _, transport = _transport(kind, site, browser)
    async with transport:
        await transport.request(Message("initialize", {"capabilities": {}}, id="i"), timeout=20)
        with pytest.raises(UsageError, match="may not be sent to http://127") as refused:
            await transport.request(_call("take", CANARY, site.other), timeout=20)
        assert refused.value.code == "PERMISSION_DENIED" and site.heard == {}
        await transport.request(_call("take", CANARY, site.own, site.other), timeout=20)
    assert site.heard == {site.own: [{"password": CANARY}]}


async def test_sandboxed_page_gets_no_secret_of_its_url_origin(site: Site, browser: Browser) -> None:
    """A policy of the server takes a page its origin (``sandbox``), and with it what that origin may have."""
    url = f"{site.own}/?speaks=abp"
    async with AsyncExitStack() as stack:
        page = await (await browser.playwright.new_context()).new_page()
        stack.push_async_callback(page.context.close)

        async def sandboxed(route: Any) -> None:
            headers = {"Content-Security-Policy": "sandbox allow-scripts"}
            await route.fulfill(body=APP, content_type="text/html", headers=headers)

        await page.route(url, sandboxed)
        transport = PlaywrightTransport(url, page=page)
        async with connect(url, transport=transport, config=settings(site, site.own), store="memory:") as app:
            with pytest.raises(UsageError, match="may not be sent to") as refused:
                await app.call("take", {"password": "${SECRET:CRM}"})
    assert refused.value.code == "PERMISSION_DENIED" and site.heard == {}


async def test_secret_answer_is_declined_if_question_has_other_origin(site: Site, browser: Browser) -> None:
    _, transport = _transport("playwright", site, browser)
    async with transport:
        await transport.request(Message("initialize", {"capabilities": {}}, id="i"), timeout=20)
        for origins in ({site.other}, {site.own}):
            payload = {"capability": "ask", "params": {}, "options": {"callId": "c"}}
            await transport.request(Message("capabilities/call", payload, id="c"), timeout=20)
            question = await anext(transport.events())
            answer = {"success": True, "data": CANARY}
            await transport.notify(Message("elicitation/response", answer, id=question.id, origins=frozenset(origins)))
        await transport.request(Message("capabilities/call", {**payload, "capability": "take"}, id="d"), timeout=20)
    assert site.heard[site.own][:2] == [{"success": False, "cancelled": True}, answer]


async def test_page_permission_denied_is_reported_as_app_error(site: Site, browser: Browser) -> None:
    """A page that says that it is denied is an app that refuses, and not the kit."""
    url, transport = _transport("playwright", site, browser)
    async with connect(url, transport=transport, store="memory:") as app:
        page: Any = app.transport
        await page.page.evaluate("""abp.call = async () => ({ success: false,
            error: { code: "PERMISSION_DENIED", message: "no" } })""")
        with pytest.raises(CapabilityError) as failed:
            await app.call("take", {})
    assert isinstance(failed.value, ABPError) and failed.value.code == "PERMISSION_DENIED"
