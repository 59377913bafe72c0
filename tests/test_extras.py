"""Packages of extras that are missing: each error names the extra that installs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_GOLDEN = """
from pathlib import Path
from transports.testing import Golden
Path("golden").write_bytes({0!r})
Golden(Path("."), test="test", update=None, output=Path("report")).check({0!r} + b"x", "golden")
"""


def command(*args: str) -> str:
    return f"import sys; from transports.surfaces.cli import main; sys.exit(main({list(args)!r}))"


_OUTDATED = """
import sys, types
sys.modules["mcp"] = types.ModuleType("mcp")
sys.modules["mcp"].__path__ = []
import transports
transports.connect("mcp+stdio:x")
"""
_BRIDGE = "abp: `abp mcp` needs the MCP SDK, and its package jwt is missing; install it: pip install"
#: Programs by the package that is missing, with the extra that each needs, and how its message begins.
_PROGRAMS: dict[str, list[tuple[str, ...]]] = {
    "fsspec": [("import transports.filesystem", "data")],
    "pyarrow": [(command("batch", "run", "jobs.parquet", "--out", "run"), "parquet")],
    "pytest": [("import transports.testing.contract", "test")],
    "PIL": [(_GOLDEN.format(b"GIF89a"), "test")],
    "pypdfium2": [(_GOLDEN.format(b"%PDF-1.4"), "test")],
    "obstore": [("from transports import open_store; open_store('s3://a/b')", "cloud")],
    "psycopg": [("from transports import open_store; open_store('s3://a/b?index=postgresql://a/b')", "postgres")],
    "ray": [(command("batch", "run", "jobs.jsonl", "--out", "run", "--engine", "ray"), "ray")],
    "jwt": [(command("mcp", "--http", "127.0.0.1:0"), "mcp", _BRIDGE)],
    "mcp": [
        ("from transports import View", "mcp"),
        ("from transports import ViewRequest", "mcp"),
        ("from transports.sync import View", "mcp"),
        ("from transports.mcp import MCPTransport", "mcp"),
        ("from transports.surfaces.mcp import Bridge", "mcp"),
        ("from transports import connect; connect('mcp+stdio:x')", "mcp"),
        (command("mcp"), "mcp"),
        (command("proxy", "--url", "http://127.0.0.1:9/mcp"), "mcp", "abp: `abp proxy --url` needs the MCP SDK"),
        (command("proxy", "--http", "127.0.0.1:0", "--", "cat"), "mcp", "abp: `abp proxy --http` needs the MCP SDK"),
        (command("view", "mcp+stdio:x", "tool"), "mcp"),
        (command("conformance", "mcp+stdio:x"), "mcp"),
        (_OUTDATED, "mcp"),
    ],
}
#: Runs the programs of each package, one after the other, in a process where it is missing; prints what each program
#: says. What all need is imported once.
_RUN = """
import contextlib, io, json, os, sys, traceback
import pydantic, transports.surfaces.cli._calls, transports.sync

def said(program):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        try:
            exec(program, {})
        except SystemExit as end:
            assert end.code == 2
        except Exception:
            traceback.print_exc()
        else:
            return "it ran"
    return errors.getvalue()

for package, programs in json.load(sys.stdin).items():
    sys.stdout.flush()
    if not (child := os.fork()):
        assert package not in sys.modules, package
        sys.modules[package] = None
        sys.stdin = open(os.devnull)
        print(json.dumps([package, [said(program) for program in programs]]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, package
"""


@pytest.mark.slow
def test_missing_package_error_names_extra(tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"capability": "x", "target": "http://127.0.0.1:9/"}\n')
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1")
    programs = {package: [program for program, *_ in rows] for package, rows in _PROGRAMS.items()}
    ran = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps(programs),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    said = dict(map(json.loads, ran.stdout.splitlines()))
    assert said.keys() == _PROGRAMS.keys()
    for package, rows in _PROGRAMS.items():
        for (program, extra, *beginning), errors in zip(rows, said[package], strict=True):
            last = errors.splitlines()[-1]
            assert f"pip install 'abp-transports[{extra}]'" in last, (program, errors)
            assert last.startswith(tuple(beginning) or ""), (program, errors)
