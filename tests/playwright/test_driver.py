"""The driver of the browsers and how it starts them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from playwright.async_api import Error

from tests.support.local_store import REPOSITORY
from transports import Browser
from transports.errors import BrowserNotFound
from transports.playwright._find import BrowserChoice
from transports.playwright._process import BrowserProcess, start_driver


@pytest.mark.load
async def test_the_end_of_a_driver_is_no_error_that_nobody_retrieved() -> None:
    """Its calls fail, and that is all: Playwright has a future of its own for the end, which nobody awaits."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    playwright, pids = await start_driver()
    psutil.Process(pids[0]).kill()
    with pytest.raises(Error):
        await asyncio.wait_for(playwright.request.new_context(), 15)
    with contextlib.suppress(Exception):
        await asyncio.wait_for(playwright.stop(), 15)
    del playwright
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert logged == []


@pytest.mark.requirement("R6-3l")
@pytest.mark.parametrize(("user", "on"), [(0, False), (1000, True)])
async def test_the_sandbox_is_off_for_root_alone(monkeypatch: pytest.MonkeyPatch, user: int, on: bool) -> None:
    """Playwright switches it off unless it is asked for."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(sys, "platform", "linux")
    launched: dict[str, Any] = {}

    async def launch(**options: Any) -> None:
        launched.update(options)
        raise Error("that is enough")

    process = BrowserProcess()
    process._playwright = SimpleNamespace(chromium=SimpleNamespace(launch=launch))  # type: ignore[assignment]
    with pytest.raises(Error):
        await process.launch(
            BrowserChoice("chromium", "a test"), "chromium", headless=True, slow_mo=0, profile=None, extensions=False
        )
    assert launched["chromium_sandbox"] is on and "--no-sandbox" not in launched["args"]


@pytest.mark.load
@pytest.mark.parametrize(
    "said", ["No usable sandbox! Update your kernel", "Failed to move to new namespace: PID namespaces supported"]
)
async def test_a_sandbox_that_cannot_be_had_is_named(said: str, tmp_path: Path) -> None:
    fake = tmp_path / "chrome"
    fake.write_text(f"#!/bin/sh\necho '{said}' >&2; exit 1\n")
    fake.chmod(0o755)
    with pytest.raises(BrowserNotFound, match="has no sandbox here; allow user namespaces"):
        async with Browser(executable=str(fake)):
            pass


@pytest.mark.load
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 0", r"chrome did not start \(it ended with status 0\); run"),
        (
            "echo 'libnss3.so: no such file' >&2; echo more >&2; exit 127",
            "status 127 and printed: libnss3.so: no such file\\)",
        ),
        ("head -c 5000 /dev/zero | tr '\\0' x >&2; exit 1", "status 1 and printed: x{200}\\)"),
    ],
)
async def test_a_program_that_ends_at_once_is_quoted(script: str, said: str, tmp_path: Path) -> None:
    fake = tmp_path / "chrome"
    fake.write_text(f"#!/bin/sh\n{script}\n")
    fake.chmod(0o755)
    with pytest.raises(BrowserNotFound, match=said) as failed:
        async with Browser(executable=str(fake)):
            pass
    assert "Target page" not in failed.value.message


async def test_a_driver_that_cannot_run_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Node.js lacks a library on a slim system, and ends before it says a word to us."""
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
    with pytest.raises(BrowserNotFound, match=r"driver did not start .*playwright --version"):
        async with Browser():
            pass


#: Starts as root, since the interpreter may lie where only root can read.
_AS_NOBODY = """
import asyncio, os, sys, tempfile
import playwright.async_api, psutil
from tests.support.processes import processes
from transports import Browser

async def main():
    async with Browser() as browser:
        page = await browser.playwright.new_page()
        for process in processes("renderer"):
            print([line for line in open(f"/proc/{process.pid}/status") if line.startswith("Seccomp:")][0].split()[1])

async def nothing():
    process = await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()
    await asyncio.to_thread(int)

asyncio.run(nothing())
os.setgroups([]); os.setgid(65534); os.setuid(65534)
asyncio.run(main())
"""


@pytest.mark.browser
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="starts as root to become somebody else")
def test_the_renderer_of_an_ordinary_user_is_in_the_sandbox() -> None:
    with tempfile.TemporaryDirectory(prefix="sb", dir="/tmp") as folder:
        os.chown(folder, 65534, 65534)
        env = {**os.environ, "HOME": folder, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "XDG_CACHE_HOME": folder}
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY], cwd=REPOSITORY, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"2"}, done.stdout  # filtered by seccomp
