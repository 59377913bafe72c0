"""An app that lets a password into everything that can be recorded of a page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.test_utils import TestServer

#: A password that is spelled differently in JSON, in a URL, in a form, in HTML and in base64.
CANARY = 'Canary/7+pass "word" ü&9'
_HTML = """<!doctype html><title>Sign in</title><body><h1>Sign in</h1>
<form><input name=user value=bob><input type=password id=field></form><script>
const call = async (capability, params) => {
  const secret = params.password, field = document.getElementById("field");
  field.value = secret;
  field.setAttribute("value", secret);
  console.log("the user typed " + secret);
  console.log({ password: secret });
  console.warn(btoa(unescape(encodeURIComponent("user:" + secret))));
  document.cookie = "session_token=" + encodeURIComponent(secret);
  const headers = { Authorization: "Bearer " + encodeURIComponent(secret), "X-Api-Key": encodeURIComponent(secret) };
  await fetch("sign-in?token=" + encodeURIComponent(secret), { method: "POST", headers, body: JSON.stringify(params) });
  await fetch("sign-in", { method: "POST", body: new URLSearchParams({ password: secret, user: "bob" }) });
  const form = new FormData();
  form.set("password", secret);
  await fetch("sign-in", { method: "POST", body: form });
  setTimeout(() => { throw new Error("late fault"); });
  await new Promise((resolve) => setTimeout(resolve, 50));
  if (params.work) return { success: true, data: { done: true } };
  return { success: false, error: { code: "DENIED", message: "wrong password" } };
};
window.abp = {
  initialized: true,
  version: "0.1",
  app: { id: "secret.page", name: "Secret page", version: "1" },
  initialize: async () => ({ sessionId: "s", protocolVersion: "0.1",
    app: window.abp.app, capabilities: [{ name: "sign.in" }], features: {} }),
  shutdown: async () => {},
  call,
  listCapabilities: async () => [{ name: "sign.in", available: true }],
};
</script>"""


@asynccontextmanager
async def secret_page() -> AsyncIterator[str]:
    """Serve the app; yields its address."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=_HTML, content_type="text/html")

    async def sign_in(request: web.Request) -> web.Response:
        body = await request.text()
        answer = web.json_response({"token": CANARY, "echo": body})
        answer.set_cookie("login", "x".join(CANARY.split()))
        return answer

    app = web.Application()
    app.add_routes([web.get("/", page), web.post("/sign-in", sign_in)])
    async with TestServer(app) as server:
        yield str(server.make_url("/"))
