"""A look at ``window.abp`` itself, in a page of its own that no client has prepared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...errors import first_line
from ...protocol.strict_json import decode_json
from .evidence import Step

if TYPE_CHECKING:
    from playwright.async_api import Page

    from ...browser.process.launch import Browser
    from ...browser.source import StorageState

__all__ = ["NONSENSE", "look_at_page"]

#: A capability, and a call, that no app has.
NONSENSE = "abp-conformance.nothing"
_STEP = 2.0
_POLL = 0.05


async def look_at_page(
    browser: Browser,
    url: str,
    *,
    storage_state: StorageState | None,
    timeout: float,
    lasting: Mapping[str, object] | None,
) -> Mapping[str, Step]:
    """What the page object at ``url`` is, and, as ``ready`` and ``reloaded``, whether it was there when the page had
    loaded, and what ``initialize`` answers after a reload. Steps that could not be made are missing. ``lasting`` is a
    call that runs for a while, ``{name, params, timeout, after}`` (ms), to be cancelled ``after`` so long."""
    own = browser.context is None
    state: Any = storage_state
    context = browser.context or await browser.playwright.new_context(storage_state=state)
    page = await context.new_page()
    steps: dict[str, Step] = {}
    looks = {"nonsense": NONSENSE, "step": _STEP * 1000}
    try:
        async with asyncio.timeout(timeout + 20 * _STEP):
            await page.goto(url, timeout=timeout * 1000)
            steps["ready"] = Step(await page.evaluate("() => window.abp != null"))
            await _appeared(page, timeout)
            steps |= await _looked(page, {**looks, "lasting": lasting})
            await page.reload(timeout=timeout * 1000)
            await _appeared(page, timeout)
            steps["reloaded"] = (await _looked(page, {**looks, "lasting": None}))["initialize"]
    except Exception as error:  # noqa: BLE001 - whatever a page does, or Playwright says of it, is a finding
        steps["broke"] = Step(threw=first_line(error))
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_STEP):
                await (context.close() if own else page.close())
    return steps


async def _appeared(page: Page, timeout: float) -> None:
    async with asyncio.timeout(timeout):
        while not await page.evaluate("() => typeof window.abp?.initialize === 'function'"):
            await asyncio.sleep(_POLL)


async def _looked(page: Page, looks: Mapping[str, object]) -> dict[str, Step]:
    """The script's findings. A page that spins would answer nothing, for as long as anybody waits."""
    looking = asyncio.ensure_future(page.evaluate(_script(), looks))
    try:
        while not (await asyncio.wait((looking,), timeout=_STEP))[0]:
            async with asyncio.timeout(_STEP):
                await page.evaluate("() => 0")
        return _read(looking.result())
    finally:
        looking.cancel()


def _script() -> str:
    return (files(__package__) / "probe.js").read_text(encoding="utf-8")


def _read(text: str) -> dict[str, Step]:
    seen: Any = decode_json(text)
    return {name: Step(step.get("value"), step.get("threw")) for name, step in seen.items()}
