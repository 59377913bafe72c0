"""The scripts that run in other people's pages use nothing that these pages can replace."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.page_scripts import SCRIPTS, problems_of
from transports import Browser

pytestmark = pytest.mark.browser

#: The names of all members of the prototypes of all globals.
_MEMBERS = """() => {
  const names = new Set();
  const owners = [Object.getPrototypeOf(Uint8Array.prototype), Object.getPrototypeOf([].values())];
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    try { owners.push(globalThis[name].prototype); } catch { /* no storage here */ }
  }
  for (const owner of owners) {
    for (const key of owner ? Reflect.ownKeys(owner) : []) if (typeof key === "string") names.add(key);
  }
  names.delete("constructor");
  return [...names];
}"""


@pytest.fixture(scope="module")
def members() -> frozenset[str]:
    """The members of natives in a real page."""

    async def look() -> frozenset[str]:
        async with Browser() as browser:
            page = await (await browser.playwright.new_context()).new_page()
            return frozenset(await page.evaluate(_MEMBERS))

    return asyncio.run(look())


#: What a page can replace, in scripts, and what is said of it.
_PLANTED = {
    "new globalThis.Map()": "the global globalThis",
    "() => parseInt('1')": "the global parseInt",
    "({ Date })": "the global Date",
    "(items) => items.map((item) => item)": "the method map of items",
    "(text) => text?.trim()": "the method trim of text",
    "() => document.body": "document.body",
    "() => window.performance": "window.performance",
    "({ body }) => body": "the member body in a pattern",
    "(form) => form.action": "the member action of form",
    "(items) => { for (const item of items) item; }": "for … of or for … in",
    "(items) => [...items]": "spread of a list",
    "(work, items) => work(...items)": "spread of a list",
    "(pair) => { const [first] = pair; return first; }": "a pattern of a list",
    "(value, Kind) => value instanceof Kind": "instanceof",
    "(owner) => defineProperty(owner, 'name', { value: 1 })": "options of defineProperty with a prototype",
    "(Event) => new Event('click', { bubbles: true })": "options of Event with a prototype",
    "async () => wait(1)": "a promise returned by an async function without await, of wait",
    "{ let Inner = 1; } () => Inner": "the global Inner",
}


def test_page_scripts_use_no_replaceable_builtins(members: frozenset[str]) -> None:
    problems = [problem for path in SCRIPTS for problem in problems_of(path.name, path.read_text("utf-8"), members)]
    assert [str(problem) for problem in problems] == []
    for planted, reason in _PLANTED.items():
        script = f"(natives) => {{ const {{ defineProperty, wait }} = natives; const a = {{}}; {planted} }}"
        if "; } ()" not in planted:
            script = f"(natives) => {{ const {{ defineProperty, wait }} = natives; return {planted}; }}"
        assert reason in [problem.reason for problem in problems_of("codec.js", script, members)], planted
