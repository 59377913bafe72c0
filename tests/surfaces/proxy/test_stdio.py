"""``abp proxy`` as a process: its command line, its end, and kills of each part."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.command_line import CommandLine
from tests.support.eventually import eventually
from tests.support.relayed import LARGE

ROOT = Path(__file__).parents[3]
ABP = [sys.executable, "-m", "transports.surfaces.cli", "proxy"]


def environment(folder: Path) -> dict[str, str]:
    ours = {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state"), "ABP_OUTPUT_DIR": str(folder / "out")}
    return {**os.environ, **ours}


def alive(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    found = []
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_proxy_reports_missing_command(abp: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    # A proxy that is started takes the stdin of its process and ends the process, which is that of the tests here.
    monkeypatch.setattr("transports.surfaces.mcp.proxy._duplex.run_stdio", None)
    none = abp("proxy")
    assert none.status == 2 and "abp proxy -- COMMAND" in none.err and none.out == ""
    both = abp("proxy", "--url", "https://mcp.example/mcp", "--", "server")
    assert both.status == 2 and "mutually exclusive" in both.err
    header = abp("proxy", "--header", "X: y", "--", "server")
    assert header.status == 2 and "--url" in header.err
    roots = abp("proxy", "--roots", "/tmp", "--", "server")
    assert roots.status == 2 and "--roots needs --http" in roots.err
    both = abp("proxy", "--roots", "/tmp", "--http", "nowhere:x", "--", "server")
    assert both.status == 2 and "--roots" not in both.err
    missing = abp("proxy", "--", "/no/such/server")
    assert missing.status == 1 and "cannot be started" in missing.err and missing.out == ""


#: A server that is killed while a process that it has started holds its stdout.
_FORKING = """
import json, os, subprocess, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["method"] == "tools/call":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os.write(2, b"child %d\\n" % child.pid)
        os.kill(os.getpid(), 9)
    result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


@pytest.mark.slow
def test_server_exit_ends_proxy_although_child_holds_stdout(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(_FORKING)
    proxy = subprocess.Popen(
        [*ABP, "--", sys.executable, str(server)],
        env=environment(tmp_path), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert proxy.stdin is not None and proxy.stdout is not None and proxy.stderr is not None
    try:
        for identity, method in enumerate(("initialize", "tools/call")):
            message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": {"name": "x"}}
            proxy.stdin.write(json.dumps(message).encode() + b"\n")
            proxy.stdin.flush()
            if method == "initialize":
                assert json.loads(proxy.stdout.readline())["id"] == identity
        assert proxy.wait(60) == 128 + signal.SIGKILL
        (child,) = re.findall(rb"child (\d+)", proxy.stderr.read())
        assert not psutil.pid_exists(int(child)) or not alive([psutil.Process(int(child))])
    finally:
        proxy.kill()
        for pipe in (proxy.stdin, proxy.stdout, proxy.stderr):
            with contextlib.suppress(OSError):
                pipe.close()


@pytest.mark.slow
async def test_signal_to_proxy_also_ends_server(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *ABP, "--", sys.executable, str(LARGE),
        env=environment(tmp_path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n')
    await process.stdout.readline()
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 143
    await eventually(lambda: not alive(below))


@pytest.mark.slow
def test_server_that_ignores_the_end_of_its_input_is_killed(tmp_path: Path) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
    )
    done = subprocess.run(
        [*ABP, "--", sys.executable, "-c", program],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(tmp_path), timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout == ""
