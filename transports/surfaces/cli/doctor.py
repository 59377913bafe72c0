"""``abp doctor``: is everything here that a call needs?"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import version
from typing import Annotated

import typer

from .outcome import out, perform, print_json


def doctor(
    install: Annotated[bool, typer.Option("--install", help="Install a browser if there is none.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")] = False,
) -> int:
    """Say which browser is taken and why, and start it once."""

    async def work() -> int:
        from ...artifacts import open_store
        from ...browser.launch import Browser, find_browser
        from ...errors import ABPError
        from ...settings import Settings

        facts = {
            "abp-transports": version("abp-transports"),
            "playwright": version("playwright"),
            "python": f"{platform.python_version()} on {platform.platform()}",
        }
        problem: ABPError | None = None
        try:
            if install and find_browser() is None:
                _install()
            if choice := find_browser():
                facts["browser"] = f"{choice.path} ({choice.reason})"
            async with Browser() as browser:
                facts["browser version"] = browser.version
                page = await browser.playwright.new_page()
                facts["self-test"] = "ok" if await page.evaluate("() => 6 * 7") == 42 else "wrong answer"
            settings = Settings.load()
            facts["store"] = open_store(settings.store or settings.output_dir).url
        except ABPError as error:
            problem = error
        if as_json:
            rest: dict[str, object] = {} if problem is None else {"error": problem.as_dict()}
            print_json({"success": problem is None, **facts, **rest})
        else:
            for name, fact in facts.items():
                out(f"{name:<16} {fact}")
        if problem is not None:
            sys.stderr.write(f"abp: {problem.message} [{problem.code}]\n")
        return 0 if problem is None else 1

    return perform(work, as_json=as_json)


def _install() -> None:
    """Playwright's own browser; where it cannot be had, the Debian package."""
    ways = [[sys.executable, "-m", "playwright", "install", "chromium"]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        ways += [
            ["apt-get", "update", "-qq"],
            ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"],
        ]
    for way in ways:
        sys.stderr.write(f"abp: {' '.join(way)}\n")
        done = subprocess.run(
            way, stdout=sys.stderr, check=False, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode == 0 and way[0] == sys.executable:
            return
