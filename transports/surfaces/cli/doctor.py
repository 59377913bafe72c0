"""``abp doctor``: is everything here that a call needs?"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from typing import Annotated

import typer

from .outcome import out, perform, print_json, say, version_of


def doctor(
    install: Annotated[bool, typer.Option("--install", help="Install a browser if there is none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")] = False,
) -> int:
    """Say which browser is taken and why, start it once, and try the folder for the files."""

    async def work() -> int:
        from ...errors import ABPError
        from ...plugins import installed

        facts = {
            "abp-transports": version_of("abp-transports"),
            "playwright": version_of("playwright"),
            "python": f"{platform.python_version()} on {platform.platform()}",
        }
        if plugins := ", ".join(f"{plugin.name} ({plugin.distribution})" for plugin in installed()):
            facts["plug-ins"] = plugins
        problems: list[ABPError] = []
        for check in (_store, _browser):
            try:
                await check(facts, install)
            except ABPError as error:
                problems.append(error)
        if as_json:
            named = {name.replace(" ", "_").replace("-", "_"): fact for name, fact in facts.items()}
            first: dict[str, object] = {"error": problems[0].as_dict()} if problems else {}
            print_json({"success": not problems, **named, **first})
        else:
            for name, fact in facts.items():
                out(f"{name:<16} {fact}")
        for problem in problems:
            say(f"{problem.message} [{problem.code}]")
        return 1 if problems else 0

    return perform(work)


async def _store(facts: dict[str, str], _: bool) -> None:
    from ...artifacts import open_store
    from ...settings import Settings

    settings = Settings.load()
    store = open_store(settings.store or settings.output_dir)
    facts["store"] = store.url
    async with store.stage() as staged:  # never committed
        await staged.write(bytes(1 << 20))
    facts["store"] += " (can be written)"


async def _browser(facts: dict[str, str], install: bool) -> None:
    from ...browser.find import find_browser
    from ...browser.launch import Browser
    from ...errors import BrowserNotFound

    if install and find_browser() is None:
        await _install()
    if choice := find_browser():
        facts["browser"] = f"{choice.path} ({choice.reason})"
    async with Browser() as browser:
        facts["browser version"] = browser.version
        page = await browser.playwright.new_page()
        if await page.evaluate("() => 6 * 7") != 42:
            raise BrowserNotFound("the browser runs but does not calculate; name another with ABP_BROWSER")
        facts["self-test"] = "ok"


async def _install() -> None:
    """Playwright's own browser; where it cannot be had, the Debian package."""
    ways = [[[sys.executable, "-m", "playwright", "install", "chromium"]]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        package = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        ways.append([["apt-get", "update", "-qq"], package])
    for commands in ways:
        if all([await _run(command) for command in commands]):
            return
    say("no browser could be installed: what was tried is above")


async def _run(command: list[str]) -> bool:
    say(" ".join(command))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=2, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
