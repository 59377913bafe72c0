"""``make compat``: the rows of docs/compatibility.md that this machine can fill.

Each supported Python that is installed gets a fresh environment with the wheel, in which ``abp demo`` and a project
of three files run. The lowest versions that ``pyproject.toml`` allows run a core of the suite. Each kind of browser
makes a PDF and 4 MB of bytes. The frameworks for agents are resolved beside ours, each in its newest version, and the
table of the page is written anew. Needs a package registry.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.support import packaging
from transports import Browser, connect
from transports.errors import ABPError
from webapp_fixture import serve

__all__ = ["frameworks", "rows"]

PAGE = packaging.ROOT / "docs" / "compatibility.md"
_BEGIN, _END = "<!-- frameworks: make compat -->\n", "<!-- end -->\n"
#: Frameworks for agents, and packages of models' makers.
FRAMEWORKS = (
    "pydantic-ai-slim",
    "langchain",
    "langgraph",
    "openai-agents",
    "openai",
    "anthropic",
    "google-genai",
    "google-adk",
    "crewai",
    "smolagents",
    "llama-index-core",
    "autogen-agentchat",
    "semantic-kernel",
    "strands-agents",
    "agno",
)

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


def frameworks(folder: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield each framework with its newest version that a registry has all parts of, and what becomes of it beside ours
    alone and with the extra ``mcp``. ``folder`` takes the lists of requirements."""
    for name in FRAMEWORKS:
        newest = packaging.resolved(folder, name).get(name)
        if newest is None:
            yield name, "—", "does not resolve by itself", ""
            continue
        pinned = f"{name}=={newest}"
        alone, with_mcp = packaging.resolved(folder, pinned, ours=()), packaging.resolved(folder, pinned, ours=("mcp",))
        yield name, newest, _beside(alone), _beside(with_mcp)


def _beside(versions: Mapping[str, str]) -> str:
    if not versions:
        return "conflict"
    return f"yes, `mcp` {versions['mcp']}" if "mcp" in versions else "yes"


def _write_frameworks(table: str) -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    PAGE.write_text(f"{before}{_BEGIN}{table}{_END}{rest.partition(_END)[2]}", encoding="utf-8")


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
        head = ["| framework | version | beside `abp-transports` | beside `abp-transports[mcp]` |", "|---|---|---|---|"]
        lines = [*head, *(f"| {' | '.join(row)} |" for row in frameworks(Path(temporary)))]
    _write_frameworks("\n".join([*lines, ""]))
    print("\n".join(["", *lines]))
