"""``abp doctor``: check that everything a call needs is here and works."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from typing import Annotated

import typer

from .options import Json
from .output import asynchronous, print_json, print_note, print_text


@asynchronous
async def doctor(
    install: Annotated[bool, typer.Option("--install", help="Install a browser if there is none.")] = False,
    as_json: Json = False,
) -> int:
    """Say what is here and whether it works: versions, plug-ins, store, ports, browser, and a self-test.

    What it prints is what a report of a problem needs; it holds no secrets. Exit status 1 if anything is missing."""
    from ...browser.process.find import find_browser
    from ...errors import ABPError
    from .checks import CHECKS, Facts  # late: other commands need none of what they look at

    facts: Facts = {}
    problems: list[ABPError] = []
    if install and find_browser() is None:
        await _install()
    for check in CHECKS:
        try:
            await check(facts)
        except ABPError as error:
            problems.append(error)
        except (OSError, TimeoutError) as error:
            problems.append(ABPError(f"the system refused: {error}"))
    if as_json:
        by_key = {name.replace(" ", "_").replace("-", "_"): fact.value for name, fact in facts.items()}
        first: dict[str, object] = {"error": problems[0].as_dict()} if problems else {}
        listed = [{"code": problem.code, "message": problem.message} for problem in problems]
        print_json({"success": not problems, **by_key, "problems": listed, **first})
    else:
        for name, fact in facts.items():
            print_text(f"{name:<16} {fact.text}")
    for problem in problems:
        print_note(f"{problem.message} [{problem.code}]", always=True)
    return 1 if problems else 0


def browser_version() -> str:
    """Return the browser that would be started and its version, as one line."""
    from ...browser.process.find import HOW_TO_INSTALL, find_browser
    from ...errors import ABPError

    try:
        choice = find_browser()
    except ABPError as error:
        return f"browser: {error.message}"
    if choice is None:
        return f"browser: none; {HOW_TO_INSTALL}"
    version = ""
    if sys.platform != "win32":  # there a browser opens a window instead of answering
        with suppress(OSError, subprocess.SubprocessError):
            command = [choice.path, "--version"]
            version = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    return f"browser: {version} ({choice.path})" if version else f"browser: {choice.path}"


async def _install() -> None:
    """Install Playwright's own browser; if that fails, the Debian package."""
    ways = [[[sys.executable, "-m", "playwright", "install", "chromium"]]]
    if shutil.which("apt-get") and os.geteuid() == 0:
        package = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
        ways.append([["apt-get", "update", "-qq"], package])
    for commands in ways:
        if all([await _run(command) for command in commands]):
            return
    print_note("no browser could be installed: what was tried is above", always=True)


async def _run(command: list[str]) -> bool:
    print_note(" ".join(command))
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=2, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    )
    try:
        return await process.wait() == 0
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
