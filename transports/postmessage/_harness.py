"""The harness: a page of the kit that embeds an app in an iframe."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from playwright.async_api import Error

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

#: The origin of a harness on another site. ``.localhost`` is a secure context without https, so that http and https
#: apps can both be embedded and keep the features of secure contexts.
HARNESS_ORIGIN = "http://abp-harness.localhost"
#: The port of a harness on the app's own site: a port is part of an origin and not of a site (HTML "same site").
_PORT = 47474
#: The port of the harness of an app that is itself at that port.
_OTHER_PORT = 47475
_HTML = """<!doctype html><meta charset="utf-8"><title>abp-transports harness</title>
<style>html,body{margin:0;height:100%}iframe{border:0;width:100%;height:100%}</style><body>"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-src *"
#: Runs in every frame before the app's first script: ``print`` becomes a message (docs/protocol.md 11.3), since the
#: browser's own would block the frame.
_PRINT_SCRIPT = """if (self !== top) {
  const post = top.postMessage.bind(top);
  self.print = function print() { post({type: "print"}, %r); };
}"""

#: Site of the harness: the app's own, or another one.
HarnessSite: TypeAlias = Literal["same", "other"]


async def open_harness(page: Page, url: str, site: HarnessSite) -> str:
    origin = _origin_beside(url) if site == "same" else HARNESS_ORIGIN
    # https too: the browser upgrades http for hosts with HSTS (RFC 6797)
    address = re.compile(rf"^https?://{re.escape(origin.partition('//')[2])}/$", re.IGNORECASE)
    await page.route(address, _serve_harness)
    await page.goto(f"{origin}/")
    await page.unroute(address)  # interception would slow down the app's own requests
    origin = page.url.removesuffix("/")
    with contextlib.suppress(Error):  # older browsers do not know this permission and never ask for it
        await page.context.grant_permissions(["local-network-access"], origin=origin)
    await page.add_init_script(script=_PRINT_SCRIPT % origin)
    return origin


def _origin_beside(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2].removesuffix(f":{parts.port}")
    port = _OTHER_PORT if parts.port == _PORT else _PORT
    return f"{parts.scheme}://{host}:{port}"


async def _serve_harness(route: Route) -> None:
    # The agent cluster of the site, not of the origin, so that a buffer can move between frames without a copy.
    headers = {"Content-Security-Policy": _POLICY, "Origin-Agent-Cluster": "?0"}
    await route.fulfill(body=_HTML, content_type="text/html; charset=utf-8", headers=headers)
