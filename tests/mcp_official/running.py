"""``abp mcp`` as a process, and what the official clients say of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from tests.mcp_official.app import serve_app
from tests.mcp_official.node import Node
from tests.mcp_official.proxy import proxied
from tests.support.mcp_clients import files_of
from transports.surfaces.mcp._tool_list import FIXED_TOOLS
from webapp_fixture import serve as serve_workbench

#: The last version of each era.
ERAS = ("2025-11-25", "2026-07-28")
_BASELINES = Path(__file__).parent
_ROOT = Path(__file__).parents[2]
_ABP = [sys.executable, "-m", "transports.surfaces.cli", "mcp"]
_TOKEN = "official-0123456789abcdef"
_SECONDS = 240.0
#: What the inspector says of a tool of ours whose schema some models cannot read.
_OURS = re.compile(rf'tool "({"|".join(FIXED_TOOLS)})"')
#: What the inspector gives on to a server that it starts; by itself it gives it nothing of ours.
_PASSED = ("PYTHONPATH", "ABP_OUTPUT_DIR")


async def conformance(node: Node, era: str, folder: Path) -> str:
    """Run all scenarios of an era. Returns what the runner said; raises :class:`AssertionError` if one of them fails
    that ``baseline-ERA.yaml`` does not excuse, or passes although it is excused."""
    baseline = _BASELINES / f"baseline-{era}.yaml"
    options = ["--suite", "all", "--spec-version", era, "--expected-failures", str(baseline), "-o", str(folder / "out")]
    async with serve_app() as app, _bridge(folder, "--app", app) as url, proxied(url, _TOKEN) as proxy:
        status, out, _ = await run([*node.command("conformance"), "server", "--url", proxy, *options], folder)
    assert status == 0, out
    return out


async def inspect_stdio(node: Node, folder: Path) -> list[str]:
    """The inspector starts the bridge for each request. Returns a line for each."""
    async with serve_workbench() as workbench:
        known = _environment(folder)
        passed = [part for name in _PASSED if name in known for part in ("-e", f"{name}={known[name]}")]
        server = [*passed, *_ABP, "--app", workbench.ws_url]
        return await _inspected(node, folder, server, workbench.ws_url, kept=False)


async def inspect_http(node: Node, folder: Path) -> list[str]:
    """The same, with one bridge that is running."""
    async with serve_workbench() as workbench, _bridge(folder, "--app", workbench.ws_url) as url:
        server = [url, "--transport", "http", "--header", f"Authorization: Bearer {_TOKEN}"]
        return await _inspected(node, folder, server, workbench.ws_url, kept=True)


async def _inspected(node: Node, folder: Path, server: Sequence[str], app: str, *, kept: bool) -> list[str]:
    """``kept``: what one request connects is there in the next, so that the session has to be said."""
    lines: list[str] = []

    async def ask(method: str, *options: str) -> Any:
        command = [*node.command("mcp-inspector"), "--cli", *server, "--method", method, *options]
        status, out, errors = await run(command, folder)
        assert status == 0, f"{method} {options}: {errors}{out}"
        assert not _OURS.search(errors), errors
        lines.append(f"{method} {' '.join(options)}: {len(out)} characters")
        return json.loads(out)

    names = {tool["name"] for tool in (await ask("tools/list", "--strict"))["tools"]}
    assert {"abp_connect", "abp_call", "abp_data_csv"} <= names, names
    connected = await ask("tools/call", "--tool-name", "abp_connect", "--tool-arg", f"url={app}")
    assert connected["structuredContent"]["app"]["name"] == "Workbench", connected
    rows = 'params={"rows":[{"a":1,"b":"é"}]}'
    status = await ask("tools/call", "--tool-name", "abp_status")
    session = f"session={status['structuredContent']['sessions'][0]['session']}"
    called = await ask(
        "tools/call", "--tool-name", "abp_call", "--tool-arg", "capability=data.csv", rows, *([session] if kept else [])
    )
    assert not called.get("isError"), called
    (artifact, *_) = files_of(called["structuredContent"])
    assert Path(artifact["path"]).is_relative_to(folder), "another bridge has answered"
    listed = {one["uri"]: one for one in (await ask("resources/list"))["resources"]}
    address = f"artifact://{artifact['id']}"
    assert listed[address]["size"] == artifact["size_bytes"]
    (content,) = (await ask("resources/read", "--uri", address))["contents"]
    assert content["text"].encode() == Path(artifact["path"]).read_bytes()
    templates = (await ask("resources/templates/list"))["resourceTemplates"]
    assert [one["uriTemplate"] for one in templates] == ["artifact://{id}{?offset,length}"]
    return lines


def _bridge(folder: Path, *options: str) -> AbstractAsyncContextManager[str]:
    """The address of ``abp mcp --http``."""
    return serving([*_ABP, "--http", "127.0.0.1:0", *options], _environment(folder, ABP_MCP_TOKEN=_TOKEN))


@asynccontextmanager
async def serving(command: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[str]:
    """The address at which a process says that it is serving. It ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr
    try:
        async with asyncio.timeout(_SECONDS):
            while "serving at" not in (line := (await process.stderr.readline()).decode()):
                assert line, "it has ended"
        reading = asyncio.ensure_future(process.stderr.read())
        yield line.split()[-1]
        reading.cancel()
    finally:
        process.terminate()
        await process.wait()


async def run(command: Sequence[str], folder: Path) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=_environment(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_SECONDS):
            out, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.communicate()
        raise AssertionError(f"{command[1:]} did not end within {_SECONDS:g} s") from None
    assert process.returncode is not None
    return process.returncode, out.decode(), errors.decode()


def _environment(folder: Path, **more: str) -> Mapping[str, str]:
    """The clients keep files in the home folder: give them another. The bridge is the one beside this file."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    ours = {"HOME": str(folder), "ABP_OUTPUT_DIR": str(folder / "artifacts"), "PYTHONPATH": path}
    return {**os.environ, **ours, **more}
