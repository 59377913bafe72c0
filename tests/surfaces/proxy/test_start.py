"""What a proxy needs before it relays: its server first, and never the SDK."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine
from tests.support.relayed import HELLO, LARGE
from tests.support.rows import each_row
from tests.surfaces.proxy.test_stdio import environment

#: Runs `abp` without these packages: an import of one raises ImportError.
WITHOUT_SDK = """
import sys
for name in ("mcp", "mcp_types", "jwt", "httpx2", "starlette", "uvicorn", "playwright", "aiohttp", "rich"):
    sys.modules[name] = None
from transports.surfaces.cli import main
sys.exit(main(sys.argv[1:]))
"""
#: Runs `abp` until a process is started, then prints the modules that are loaded.
UNTIL_A_PROCESS = """
import json, os, sys

def stop(event, _):
    if event == "subprocess.Popen":
        print(json.dumps(sorted(sys.modules)), flush=True)
        os._exit(0)

sys.addaudithook(stop)
from transports.surfaces.cli import main
main(sys.argv[1:])
"""


def start_proxy(folder: Path, program: str, *arguments: str) -> subprocess.Popen[str]:
    """``abp proxy`` in a process that runs ``program``."""
    variables = {name: value for name, value in environment(folder).items() if not name.startswith("COVERAGE")}
    return subprocess.Popen(
        [sys.executable, "-c", program, "proxy", *arguments],
        env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.load
def test_stdio_server_is_relayed_without_sdk_and_counted(abp: CommandLine, tmp_path: Path) -> None:
    proxy = start_proxy(tmp_path, WITHOUT_SDK, "--max-inline", "1000", "--", sys.executable, str(LARGE), "--bare")

    def request(method: str, **params: object) -> Any:
        assert proxy.stdin is not None and proxy.stdout is not None
        proxy.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        proxy.stdin.flush()
        return json.loads(proxy.stdout.readline())

    with proxy:
        assert request("initialize", **HELLO)["result"]["serverInfo"]["name"] == "large"
        image = {"type": "image", "data": "@base64:150000", "mimeType": "image/png"}
        given = request("tools/call", name="give", arguments={"result": {"content": [image]}})
        (link,) = given["result"]["content"]
        assert (link["type"], link["mimeType"], link["size"]) == ("resource_link", "image/png", 150_000)
        (listed,) = request("resources/list")["result"]["resources"]
        assert listed["uri"] == link["uri"]
        (content,) = request("resources/read", uri=link["uri"])["result"]["contents"]
        assert len(content["blob"]) == 200_000
        unknown = request("resources/read", uri="artifact://none_000000000000")
        assert unknown["error"]["data"] == {"uri": "artifact://none_000000000000", "code": "ARTIFACT_NOT_FOUND"}
        assert proxy.communicate(timeout=60) == ("", "")
    assert proxy.returncode == 0
    counted = abp("proxy", "--stats", "--json").document["large"]["give"]
    assert counted["calls"] == 1 and counted["bytes_in"] < 1000 and counted["bytes_out"] < 3000
    assert (counted["pictures_in"], counted["pictures_out"]) == (1, 0)
    shown = abp("proxy", "--stats").out
    assert "text bytes to the model" in shown and "give" in shown


@pytest.mark.slow
def test_server_process_starts_before_store_is_loaded(tmp_path: Path) -> None:
    with start_proxy(tmp_path, UNTIL_A_PROCESS, "--", sys.executable, str(LARGE)) as proxy:
        loaded = set(json.loads(proxy.communicate(timeout=120)[0]))
    later = ("artifacts._base", "artifacts.local", "routing._policy", "surfaces.mcp.proxy._duplex")
    assert not loaded & {f"transports.{module}" for module in later}
    assert not loaded & {"mcp", "mcp_types", "httpx2", "playwright", "sqlite3"}


@each_row(
    ("options", "note"),
    [
        (["--ttl", "90s"], "for 90 seconds (--ttl, --retention)"),
        (["--retention", "max_session_bytes=5MB"], "until a session is over its limits (--retention)"),
        (["--retention", "cleanup_strategy=none"], "until they are deleted"),
    ],
    ids=["time", "size", "no-limit"],
)
def test_proxy_prints_file_retention_in_one_line(
    abp: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], note: str
) -> None:
    async def relay_nothing(upstream: object, shared: object) -> int:
        return 0

    monkeypatch.setattr("transports.surfaces.mcp.proxy._duplex.run_stdio", relay_nothing)
    ran = abp("proxy", *options, "--", sys.executable, "-c", "")
    assert ran.err == f"abp: files stay in {(tmp_path / 'out').as_uri()} {note}\n"
    counted = abp("proxy", "--stats", *options, "--", sys.executable, "-c", "")
    assert counted.err.startswith(ran.err) and "text bytes to the model" in counted.err
