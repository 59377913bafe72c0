"""Pages that ask to sign in where an app was expected."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.pages import serve_answers
from transports import Browser, PlaywrightTransport, connect
from transports.errors import NotAbpApp
from transports.postmessage._transport import PostMessageTransport

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

FORM = "<!doctype html><title>Hello</title><form><input name=user><input type=password></form>"
#: What a page does 0.6 s after it began, as one does that has asked its server who is there.
LATER = "<script>setTimeout(() => { location.href = %r; }, 600)</script>"
PAGES = {
    "/form": FORM,
    "/scripted": LATER % "/form",
    "/by-name": LATER % "/accounts/sign-in?token=hidden",
    "/accounts/sign-in": "<!doctype html><input name=mail>",
    "/catalog-info": LATER % "/loginfo",
    "/loginfo": "<!doctype html>no form",
}


@pytest_asyncio.fixture(loop_scope="session")
async def site() -> AsyncIterator[str]:
    async def page(request: web.Request) -> web.Response:
        if request.path == "/redirected":
            raise web.HTTPFound("/form")
        return web.Response(text=PAGES[request.path], content_type="text/html")

    async with serve_answers(page) as url:
        yield url.rstrip("/")


async def test_login_page_error_says_how_to_sign_in(browser: Browser, site: str) -> None:
    async def said(path: str, *, embedded: bool = False) -> NotAbpApp:
        url = site + path
        framed = PostMessageTransport(url, browser=browser)
        transport = framed if embedded else PlaywrightTransport(url, browser=browser, grace=1.5)
        with pytest.raises(NotAbpApp) as caught:
            await connect(url, store="none:", transport=transport, timeout=4.0 if embedded else 30.0)
        assert f"the {'embedded ' if embedded else ''}page at {url}" in caught.value.message
        return caught.value

    asking = ["/form", "/scripted", "/by-name"]
    errors = await asyncio.gather(*map(said, asking), said("/redirected", embedded=True), said("/catalog-info"))
    for error, moved in zip(errors[:-1], ["", "/form", "/accounts/sign-in", "/form"], strict=True):
        assert error.code == "PERMISSION_REQUIRED" and error.message.count("sign in: `abp login NAME`") == 1
        assert (f"now at {site}{moved}" in error.message) is bool(moved) and "hidden" not in error.message
    assert errors[-1].code == "NOT_SUPPORTED" and "abp login" not in errors[-1].message
