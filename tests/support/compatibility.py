"""``make compat``: the rows of docs/compatibility.md that this machine can fill.

Each supported Python that is installed gets a fresh environment with the wheel, in which ``abp demo`` and a project
of three files run. The lowest versions that ``pyproject.toml`` allows run a core of the suite. Each kind of browser
makes a PDF and 4 MB of bytes. Needs a package registry.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.support import packaging
from transports import Browser, connect
from transports.errors import ABPError
from webapp_fixture import serve

__all__ = ["rows"]

_NOT_HERE = "not on this machine"
#: How each kind is asked for: a name of `browser=`, or a program.
_BROWSERS = ("chromium", "chromium-headless-shell", "chrome", "msedge", "firefox", "webkit")
_SIZE = 4_000_000


def rows(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each thing that was tried and what became of it. ``folder`` takes the environments."""
    wheel, _ = packaging.built(folder / "dist")
    pythons = packaging.installed_pythons()
    for version, python in pythons:
        own = folder / version
        own.mkdir()
        binaries = packaging.environment(own / "venv", python, f"{wheel}[test]")
        packaging.demo(binaries, own)
        yield f"Python {version}", f"`abp demo`; a project of three files: {packaging.three_files(binaries, own)}"
    names = ", ".join(packaging.lowest(folder))
    yield f"lowest versions: {names}", packaging.core_on_lowest(folder, wheel, pythons[0][1])
    for name in _BROWSERS:
        yield name, asyncio.run(_browser(name))


async def _browser(name: str) -> str:
    program = shutil.which(name) if name == "chromium-headless-shell" else None
    if name == "chromium-headless-shell" and program is None:
        return _NOT_HERE
    try:
        async with (
            serve() as workbench,
            Browser(executable=program) if program else Browser(name=name) as browser,
            connect(workbench.url, browser=browser, store="memory:") as app,
        ):
            document = (await app.call("export.pdf", {"html": "<h1>Hi</h1>"})).artifact()
            file = (await app.call("file.generate", {"bytes": _SIZE})).artifact()
            version = browser.version
        assert document.mime_type == "application/pdf" and file.size_bytes == _SIZE
    except ABPError as error:
        return _NOT_HERE if "was found on this system" in error.message else f"fails: {error}"
    return f"version {version}: a PDF, and {_SIZE:,} bytes, verified"


if __name__ == "__main__":
    print("| what | result |\n|---|---|")
    with tempfile.TemporaryDirectory(prefix="abp-compat-") as temporary:
        for what, result in rows(Path(temporary)):
            print(f"| {what} | {result} |", flush=True)
