"""Evidence of a page that writes a secret wherever it can, in each spelling that it knows: no file of it, read by any
decoder, has the value."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import WSMsgType, web
from aiohttp.test_utils import TestServer

from tests.support.evidence import echo, failing_app, files_of
from tests.support.slow import slow_but
from tests.support.spelled import JAVASCRIPT, readings
from transports import ArtifactRef, Browser, CapabilityError, Evidence, connect
from transports._internal.masking import KNOWN_SECRETS, KnownSecrets

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

VALUE = 'O\'Hara (7*~!)+"pass/word" ü😀&9'
TYPED = "Typed~'pass' 42!"
_WAYS = ", ".join(f"quietly(() => {way})" for way in JAVASCRIPT.values())
_HTML = failing_app(
    "show",
    "<div id=shown></div>",
    """
const quietly = (work) => { try { return String(work()); } catch { return ''; } };
const ways = (value) => [WAYS];
const quiet = (work) => Promise.resolve().then(work).catch(() => {});
const talk = (texts) => new Promise((resolve) => {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/talk");
  let left = texts.length;
  socket.onopen = () => texts.forEach((text) => socket.send(text));
  socket.onmessage = () => { if (!--left) socket.close(); };
  socket.onclose = socket.onerror = () => resolve();
});""".replace("WAYS", _WAYS),
    """
  const value = params.note, spelled = [value, ...ways(value)], shown = document.getElementById("shown");
  for (const text of spelled) {
    console.log("said " + text + " and on");
    const line = document.createElement("p");
    line.textContent = text;
    line.title = text;
    shown.append(line);
    document.title = text;
    await quiet(() => fetch("echo", { method: "POST", body: text, headers: { "Content-Type": "text/plain" } }));
  }
  console.log({ note: value });
  console.log(value.slice(0, 12));
  console.log(value.slice(12));
  await quiet(() => fetch("echo/" + encodeURIComponent(value) + "/more"));
  await quiet(() => fetch("echo?said=" + escape(value)));
  await quiet(() => fetch("echo", { method: "POST", body: JSON.stringify({ a: [{ b: value }] }) }));
  await quiet(() => fetch("echo", { method: "POST", body: new URLSearchParams({ note: value }) }));
  await talk([...spelled, value.slice(0, 12), value.slice(12), new TextEncoder().encode(value)]);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["a"]));
  link.download = value + ".txt";
  link.click();
  const form = document.createElement("form");
  form.innerHTML = "<input type=password id=field>";
  document.body.append(form);
  window.typing = true;
  await new Promise((resolve) => { window.typed = resolve; });
  if (params.remove) form.remove();
  setTimeout(() => { throw new Error("late " + value); });
  await new Promise((resolve) => setTimeout(resolve, 50));""",
)


@asynccontextmanager
async def spelling_page() -> AsyncIterator[str]:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text=_HTML, content_type="text/html")

    async def talk(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            if message.type == WSMsgType.TEXT:
                await socket.send_str(message.data)
            elif message.type == WSMsgType.BINARY:
                await socket.send_bytes(message.data)
        return socket

    app = web.Application()
    app.add_routes([web.get("/", page), web.route("*", "/echo{rest:.*}", echo), web.get("/talk", talk)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


def texts(ref: ArtifactRef) -> Iterator[tuple[str, str]]:
    """All that a file holds, as texts with names; of a zip each file in it, pictures left out."""
    yield "name", ref.filename
    yield "source", json.dumps(dict(ref.source or {}))
    for name, data in files_of(ref):
        yield "name in the zip", name
        if not name.endswith((".jpeg", ".png")):
            yield name, data.decode("utf-8", "replace")


def shown(ref: ArtifactRef, *secrets: str) -> list[str]:
    """Where one of these values can be read, and how it is spelled there."""
    found = []
    for name, text in texts(ref):
        for line in {*text.splitlines()}:
            if any(secret in one for one in readings(line, 2 if len(line) < 1_000 else 1) for secret in secrets):
                found.append(f"{name}: {line[:300]}")
    return found


@pytest.mark.parametrize("remove", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_secret_spellings_are_not_in_hostile_page_evidence(
    tmp_path: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch, remove: bool
) -> None:
    monkeypatch.setenv("CRM", VALUE)
    evidence = Evidence(trace="on", har="on", console="on")
    page = await browser.playwright.new_page()
    try:
        async with spelling_page() as url:
            (tmp_path / "abp.toml").write_text(f'[secrets.CRM]\nenv = "CRM"\norigins = ["{url.rstrip("/")}"]\n')
            await page.goto(url)
            async with connect(
                url, page=page, config=tmp_path / "abp.toml", store=tmp_path / "out", evidence=evidence
            ) as app:
                call = asyncio.create_task(app.call("show", {"note": "${SECRET:CRM}", "remove": remove}))
                await page.wait_for_function("window.typing")
                await page.locator("#field").fill(TYPED)
                await page.locator("#field").press_sequentially("9x7")
                await page.keyboard.type("1q4")
                await page.keyboard.press("z")
                await page.evaluate("window.typed()")
                with pytest.raises(CapabilityError) as failed:
                    await call
        refs: dict[str, Any] = {**failed.value.evidence}
        assert {*refs} == {"trace", "har", "console"}, failed.value.details
        for kind, ref in refs.items():
            assert not shown(ref, VALUE, TYPED), kind
            for name, text in texts(ref):  # the first of two frames, or lines
                parts = (VALUE[:12], quote(VALUE[:12]))
                cut = [text[max(at - 99, 0) : at + 99] for part in parts if (at := text.find(part)) >= 0]
                assert not cut, (kind, name)
        lines = [json.loads(line) for name, text in texts(refs["trace"]) for line in text.splitlines()
                 if name.endswith(".trace")]  # fmt: skip
        acted = [line["params"] for line in lines if line.get("type") == "before" and "params" in line]
        for typed in ("9x7", "1q4", "z"):
            assert not [one for one in acted if typed in one.values()], acted
    finally:
        KNOWN_SECRETS.forget()
        await page.close()


# --- as encoders of the browser spell values --------------------------------------------------------------------------


ALL_ASCII = "".join(map(chr, range(0x20, 0x7F)))


def values(count: int) -> list[str]:
    """Values of all characters of ASCII, and of others, the same ones each time."""
    chosen = random.Random(31)
    alphabets = [ALL_ASCII, "!'()*~\"<>&%+\\/ ", ALL_ASCII + "äéß€漢😀"]
    drawn = ["".join(chosen.choices(one, k=chosen.randint(8, 30))) for one in alphabets for _ in range(count)]
    # an address of the browser's own loses spaces at its ends, and steps up in paths
    return [ALL_ASCII, 'O\'Hara (7*~!)+"pass/word" ü😀&9', *(one for one in map(str.strip, drawn) if len(one) >= 8)]


@pytest.mark.parametrize("count", slow_but([10, 60], 10))
async def test_secrets_escaped_by_any_javascript_encoder_are_masked(browser: Browser, count: int) -> None:
    given = values(count)
    page = await browser.playwright.new_page()
    try:
        spelled = {
            name: await page.evaluate(f"(values) => values.map((value) => {expression})", given)
            for name, expression in JAVASCRIPT.items()
        }
    finally:
        await page.close()
    shown = []
    for name, texts in spelled.items():
        for value, text in zip(given, texts, strict=True):
            if name == "path of a URL" and ("\\" in value or "/." in f"/{value}"):
                continue  # which an address does not keep
            known = KnownSecrets()
            known.add("CRM", value)
            said = known.mask_text(f"it said {text}.")
            if "${SECRET:CRM}" not in said or value in set(readings(said, 1)):
                shown.append((name, value, text))
    assert not shown
