"""The code blocks of the documentation: Python runs against the reference app, commands and data are parsed.

A block that cannot be run says why, in a comment above it: ``<!-- not run: it needs a bucket -->``. Blocks that another
test runs are in ``RUN_BY``.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer.main

import transports
import transports.routing
import transports.sync
from tests.support.rows import each_row
from transports import connect
from transports.surfaces.cli._commands import app as abp
from transports.testing.plugin import serve_fixture_app

ROOT = Path(__file__).parents[1]
PNG = base64.b64encode((ROOT / "webapp_fixture" / "samples" / "picture.png").read_bytes()).decode()
#: Pages, or blocks of a page in one language, that another test runs.
RUN_BY = {
    ("tutorial.md", None): "tests/e2e/test_packaging.py",
    ("write-an-app.md", None): "tests/e2e/test_new_projects.py",
    ("views.md", None): "tests/e2e/test_new_projects.py",
    ("data.md", "python"): "tests/test_filesystem.py",
    ("hosts.md", "python"): "tests/hosts/test_penguiflow.py",
    ("agents.md", "python"): "tests/hosts/test_agents.py",
    ("command-line.md", "console"): "tests/surfaces/cli/test_command_line_page.py",
}
_BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: str
    line: int
    reason: str | None
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(*languages: str) -> Iterator[Block]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        page = path.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(page):
            block = Block(path.name, page.count("\n", 0, found.start(3)), *found.groups())
            if block.language in languages:
                yield block


def is_run_elsewhere(block: Block) -> bool:
    return bool({(block.page, None), (block.page, block.language)} & RUN_BY.keys())


PYTHON = [block for block in blocks("python") if block.reason is None and not is_run_elsewhere(block)]
BATCHES = [block for block in PYTHON if "Pool(" in block.text]


@pytest.fixture(scope="module")
def written_for() -> Iterator[dict[str, str]]:
    """What stands in the pages, and what is taken instead: an app that needs no browser, a whole picture."""
    with serve_fixture_app() as fixture:
        app = fixture.ws_url
        yield {"http://127.0.0.1:8000/": app, "wss://app.example/abp": app, "iVBORw…": PNG}


@pytest.mark.parametrize(
    "block", [pytest.param(block, marks=pytest.mark.slow if block in BATCHES else ()) for block in PYTHON], ids=str
)
async def test_documented_python_block_runs(
    block: Block, written_for: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABP_STORE", "memory:")
    (tmp_path / "tests").mkdir()
    text = block.text
    for written, real in written_for.items():
        text = text.replace(written, real)
    url = written_for["http://127.0.0.1:8000/"]
    async with connect(url) as app:
        result = await app.call("export.pdf", {"html": "<h1>Hi</h1>"})

        async def my_program(opened: transports.Session) -> None:
            assert opened.capabilities

        names: dict[str, Any] = {
            **{name: getattr(transports.routing, name) for name in dir(transports.routing)},
            **{name: getattr(transports, name) for name in dir(transports)},
            "__name__": "__main__",
            "url": url,
            "app": app,
            "result": result,
            "ref": result.artifact(),
            "store": transports.open_store("memory:"),
            "tool_result": {"content": PNG, "mimeType": "image/png", "encoding": "base64"},
            "my_program": my_program,
        }
        code = compile(text, str(block), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            async with asyncio.timeout(60):
                await eval(code, names)
        else:
            await asyncio.to_thread(exec, code, names)


def commands(text: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``abp`` in a block of shell."""
    for line in text.splitlines():
        words = shlex.split(line.removeprefix("$ "), comments=True)
        while "abp" in words:
            words = words[words.index("abp") + 1 :]
            ends = [at for at, word in enumerate(words) if word in ("|", "&", "||", "&&", ";", ">")]
            yield words[: ends[0]] if ends else words


SHELL = [(block, words) for block in blocks("sh", "bash", "console") for words in commands(block.text)]


@cache
def commands_of_abp() -> Any:
    return typer.main.get_command(abp)


@each_row(("block", "words"), SHELL)
def test_documented_command_is_accepted_by_abp(block: Block, words: list[str]) -> None:
    command: Any = commands_of_abp()
    context: Any = None
    while hasattr(command, "get_command"):
        command, words = command.get_command(context, words[0]), words[1:]
    assert command is not None, f"{block}: there is no such command"
    command.make_context("abp", words)  # raises what the command itself would


def test_json_and_toml_code_blocks_parse() -> None:
    read = {"json": json.loads, "toml": tomllib.loads}
    found = [block for block in blocks(*read) if block.reason is None]
    for block in found:
        assert read[block.language](block.text), block
    assert len(found) > 10


def test_every_code_block_runs_or_gives_reason() -> None:
    read = {"python", "sh", "bash", "console", "json", "toml", "text"}
    examples = "".join(path.read_text("utf-8") for path in (ROOT / "examples").rglob("*.js"))
    for block in blocks("js", "html", "css", "yaml"):
        assert block.reason or is_run_elsewhere(block) or block.text in examples, f"{block}: who runs it, or why not?"
    languages = {
        found[2] for path in (ROOT / "docs").rglob("*.md") for found in _BLOCK.finditer(path.read_text("utf-8"))
    }
    assert languages <= read | {"js", "html", "css", "yaml"}
    assert len(PYTHON) > 12 and len(SHELL) > 30
