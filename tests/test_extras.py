"""Packages of extras that are missing: each error names the extra that installs them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

_TABLE = """
from transports import BinaryData, MemoryTransport
from transports.sync import connect

async def export(params, call):
    return BinaryData(b"a,b\\n1,2\\n", "text/csv", 8, "a.csv")

with connect("memory:", transport=MemoryTransport({"x": export}), store="memory:") as app:
    app.call("x").table()
"""
_GOLDEN = """
from pathlib import Path
from transports.testing import Golden
Path("golden").write_bytes({0!r})
Golden(Path("."), test="test", update=None, output=Path("report")).check({0!r} + b"x", "golden")
"""


def command(*args: str) -> str:
    return f"import sys; from transports.surfaces.cli import main; sys.exit(main({list(args)!r}))"


@pytest.mark.load
def test_outdated_package_error_names_extra() -> None:
    program = "import sys, types; sys.modules['mcp'] = types.ModuleType('mcp'); sys.modules['mcp'].__path__ = []\n"
    program += "import transports\ntransports.connect('mcp+stdio:x')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert "pip install 'abp-transports[mcp]'" in ran.stderr.splitlines()[-1]


#: Programs by the package that is missing, with the extra that each needs.
_PROGRAMS = {
    "fsspec": [("import transports.filesystem", "data")],
    "pyarrow": [(_TABLE, "data"), (command("batch", "run", "jobs.parquet", "--out", "run"), "parquet")],
    "pytest": [("import transports.testing.contract", "test")],
    "PIL": [(_GOLDEN.format(b"GIF89a"), "test")],
    "pypdfium2": [(_GOLDEN.format(b"%PDF-1.4"), "test")],
    "obstore": [("from transports import open_store; open_store('s3://a/b')", "cloud")],
    "psycopg": [("from transports import open_store; open_store('s3://a/b?index=postgresql://a/b')", "postgres")],
    "ray": [(command("batch", "run", "jobs.jsonl", "--out", "run", "--engine", "ray"), "ray")],
    "jwt": [(command("mcp", "--http", "127.0.0.1:0"), "mcp")],
    "mcp": [
        ("from transports import View", "mcp"),
        ("from transports import ViewRequest", "mcp"),
        ("from transports.sync import View", "mcp"),
        ("from transports.mcp import MCPTransport", "mcp"),
        ("from transports.surfaces.mcp import Bridge", "mcp"),
        ("from transports import connect; connect('mcp+stdio:x')", "mcp"),
        (command("mcp"), "mcp"),
        (command("proxy", "--url", "http://127.0.0.1:9/mcp"), "mcp"),
        (command("view", "mcp+stdio:x", "tool"), "mcp"),
        (command("conformance", "mcp+stdio:x"), "mcp"),
    ],
}
#: Runs each program after the other; prints a line of ``=`` after each.
_RUN = """
import json, sys, traceback
sys.modules[sys.argv[1]] = None
for program in json.loads(sys.argv[2]):
    try:
        exec(program, {})
    except SystemExit as end:
        assert end.code
    except Exception:
        traceback.print_exc()
    else:
        print("it ran", file=sys.stderr)
    print("=", file=sys.stderr)
"""


@pytest.mark.load
@pytest.mark.parametrize("package", _PROGRAMS)
def test_missing_package_error_names_extra(package: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"capability": "x", "target": "http://127.0.0.1:9/"}\n')
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1")
    programs = [program for program, _ in _PROGRAMS[package]]
    ran = subprocess.run(
        [sys.executable, "-c", _RUN, package, json.dumps(programs)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    said = ran.stderr.split("=\n")[:-1]
    for (program, extra), errors in zip(_PROGRAMS[package], said, strict=True):
        assert f"pip install 'abp-transports[{extra}]'" in errors.splitlines()[-1], (program, errors)
