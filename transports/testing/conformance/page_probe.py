"""Inspects ``window.abp`` itself, in a page of its own that no client has prepared."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from ...errors import first_line
from ...protocol.strict_json import decode_json
from .evidence import ProbeStep

if TYPE_CHECKING:
    from playwright.async_api import Page

    from ...browser.page.adapters import Adapter
    from ...browser.process.launch import Browser
    from ...browser.source import StorageState

__all__ = ["UNKNOWN_NAME", "probe_page"]

#: The name of a capability, and of a call, that no app has.
UNKNOWN_NAME = "abp-conformance.nothing"
#: Seconds that each step of the probe has.
_STEP_TIMEOUT = 2.0
_POLL = 0.05


async def probe_page(
    browser: Browser,
    url: str,
    *,
    storage_state: StorageState | None,
    timeout: float,
    long_call: Mapping[str, object] | None,
    adapter: Adapter | None = None,
) -> Mapping[str, ProbeStep]:
    """Return what the steps of ``page_probe.js`` gave in the page at ``url``, by name.

    Three steps are added here: ``ready``, whether the page object was there when the page had loaded; ``reloaded``,
    what ``initialize`` answers after a reload; and ``broke``, why the probe ended early. Steps that could not be made
    are missing. ``timeout`` in seconds is for loading the page. ``long_call`` is a call that runs for a while,
    ``{name, params, timeout, after}`` in milliseconds, to be cancelled ``after`` so long. ``adapter`` comes before the
    page's first script.
    """
    own = browser.context is None
    state: Any = storage_state
    context = browser.context or await browser.playwright.new_context(storage_state=state)
    page = await context.new_page()
    steps: dict[str, ProbeStep] = {}
    options = {"unknownName": UNKNOWN_NAME, "stepTimeout": _STEP_TIMEOUT * 1000}
    try:
        async with asyncio.timeout(timeout + 20 * _STEP_TIMEOUT):
            if adapter is not None:
                await page.add_init_script(adapter.source)
            await page.goto(url, timeout=timeout * 1000)
            steps["ready"] = ProbeStep(await page.evaluate("() => window.abp != null"))
            await _wait_for_page_object(page, timeout)
            steps |= await _run_script(page, {**options, "longCall": long_call})
            await page.reload(timeout=timeout * 1000)
            await _wait_for_page_object(page, timeout)
            steps["reloaded"] = (await _run_script(page, {**options, "longCall": None}))["initialize"]
    except Exception as error:  # noqa: BLE001 - whatever a page does, or Playwright says of it, is a finding
        steps["broke"] = ProbeStep(threw=first_line(error))
    finally:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_STEP_TIMEOUT):
                await (context.close() if own else page.close())
    return steps


async def _wait_for_page_object(page: Page, timeout: float) -> None:
    async with asyncio.timeout(timeout):
        while not await page.evaluate("() => typeof window.abp?.initialize === 'function'"):
            await asyncio.sleep(_POLL)


async def _run_script(page: Page, options: Mapping[str, object]) -> dict[str, ProbeStep]:
    """Run the probe. A page that spins would never answer, so a small question is asked meanwhile, with a limit."""
    running = asyncio.ensure_future(page.evaluate(_script(), options))
    try:
        while not (await asyncio.wait((running,), timeout=_STEP_TIMEOUT))[0]:
            async with asyncio.timeout(_STEP_TIMEOUT):
                await page.evaluate("() => 0")
        return _steps(running.result())
    finally:
        running.cancel()


def _script() -> str:
    return (files(__package__) / "page_probe.js").read_text(encoding="utf-8")


def _steps(text: str) -> dict[str, ProbeStep]:
    steps: Any = decode_json(text)
    return {name: ProbeStep(step.get("value"), step.get("threw")) for name, step in steps.items()}
