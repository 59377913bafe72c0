"""The two sides of every comparison: a session of the kit, and a page driven by plain Playwright as documented."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from transports import Browser, PlaywrightTransport, Result, Session, connect

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = ["KEPT", "LENGTH", "Bench", "collect", "delete_whole", "document_client", "keep", "plain_page"]

#: A capability that hands out again what the app made before: its making is part of no figure.
KEPT = "bench.kept"
#: A capability that answers how many bytes it was given, and does nothing with them.
LENGTH = "bench.length"

_KEEP = """async ([kept, length, params]) => {
  const abp = window.abp, call = (abp.benchCall ??= abp.call.bind(abp));
  const answer = params && await call("file.generate", params, {});
  if (answer && !answer.success) throw new Error(JSON.stringify(answer.error));
  abp.call = async (capability, given, options) =>
    capability === kept ? answer
    : capability === length ? { success: true, data: { length: given.file.content.byteLength } }
    : call(capability, given, options);
}"""

# What a client finds documented: a string built by chunks, btoa, and a return value that only text survives.
_DOCUMENTED = """async (capability) => {
  const answer = await window.abp.call(capability, {});
  const bytes = new Uint8Array(answer.data.file.content);
  let binary = "";
  for (let at = 0; at < bytes.length; at += 0x8000) {
    binary += String.fromCharCode.apply(null, bytes.subarray(at, at + 0x8000));
  }
  return btoa(binary);
}"""


async def keep(page: Page, **params: object) -> None:
    """Have the page's app make a file now and hand it out as :data:`KEPT`; add :data:`LENGTH`."""
    await page.evaluate(_KEEP, [KEPT, LENGTH, params or None])


async def document_client(page: Page, target: Path) -> None:
    """Take the kept file as the documented client does."""
    target.write_bytes(base64.b64decode(await page.evaluate(_DOCUMENTED, KEPT)))


async def collect(page: Page) -> None:
    """Have the page collect its garbage."""
    cdp = await page.context.new_cdp_session(page)
    await cdp.send("HeapProfiler.collectGarbage")
    await cdp.detach()


async def delete_whole(app: Session, result: Result, sha256: str) -> None:
    """Delete the one file of a result, which is whole: the same content again would be found, not stored."""
    (ref,) = result.artifacts.values()
    assert ref.sha256 == sha256, "the file is not whole"
    await app.store.delete(ref.id)


@asynccontextmanager
async def plain_page(browser: Browser, url: str) -> AsyncIterator[Page]:
    """A page of the app in a context of its own, initialized, driven by Playwright alone."""
    context = await browser.playwright.new_context()
    try:
        page = await context.new_page()
        await page.goto(url)
        await page.wait_for_function("() => window.abp !== undefined")
        await page.evaluate("() => window.abp.initialize({agent: {name: 'plain', version: '1'}})")
        yield page
    finally:
        await context.close()


@dataclass
class Bench:
    """What all measurements have: one app, a browser unless they need none, a folder for files, and one for what
    several of them use (``shared``, otherwise the same); ``quick`` asks for small sizes."""

    url: str
    own_browser: Browser | None
    folder: Path
    shared: Path
    quick: bool

    @property
    def browser(self) -> Browser:
        assert self.own_browser is not None, "this measurement has no browser: see WITH_BROWSER"
        return self.own_browser

    @asynccontextmanager
    async def session(self, store: str | Path = "none:") -> AsyncIterator[tuple[Session, PlaywrightTransport, Page]]:
        """A session of the kit, its transport, and its page to prepare."""
        transport = PlaywrightTransport(self.url, browser=self.browser)
        known = {*self.browser.playwright.contexts}
        async with connect(self.url, transport=transport, store=store) as app:
            (context,) = {*self.browser.playwright.contexts} - known
            yield app, transport, context.pages[0]
