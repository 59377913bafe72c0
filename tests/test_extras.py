"""Packages of extras that are missing: each error names the extra that installs them."""

from __future__ import annotations

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


@pytest.mark.load
@pytest.mark.parametrize(
    ("package", "program", "extra"),
    [
        ("fsspec", "import transports.filesystem", "data"),
        ("pyarrow", _TABLE, "data"),
        ("pytest", "import transports.testing.contract", "test"),
        ("PIL", _GOLDEN.format(b"GIF89a"), "test"),
        ("pypdfium2", _GOLDEN.format(b"%PDF-1.4"), "test"),
        ("obstore", "from transports import open_store; open_store('s3://a/b')", "cloud"),
        ("psycopg", "from transports import open_store; open_store('s3://a/b?index=postgresql://a/b')", "postgres"),
        ("ray", command("batch", "run", "jobs.jsonl", "--out", "run", "--engine", "ray"), "ray"),
        ("pyarrow", command("batch", "run", "jobs.parquet", "--out", "run"), "parquet"),
        ("mcp", "from transports import View", "mcp"),
        ("mcp", "from transports import ViewRequest", "mcp"),
        ("mcp", "from transports.sync import View", "mcp"),
        ("mcp", "from transports.mcp import MCPTransport", "mcp"),
        ("mcp", "from transports.surfaces.mcp import Bridge", "mcp"),
        ("mcp", "from transports import connect; connect('mcp+stdio:x')", "mcp"),
        ("mcp", command("mcp"), "mcp"),
        ("jwt", command("mcp", "--http", "127.0.0.1:0"), "mcp"),
        ("mcp", command("proxy", "--url", "http://127.0.0.1:9/mcp"), "mcp"),
        ("mcp", command("view", "mcp+stdio:x", "tool"), "mcp"),
        ("mcp", command("conformance", "mcp+stdio:x"), "mcp"),
    ],
)
def test_missing_package_error_names_extra(package: str, program: str, extra: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.jsonl").write_text('{"capability": "x", "target": "http://127.0.0.1:9/"}\n')
    (tmp_path / "jobs.parquet").write_bytes(b"PAR1")
    blocked = f"import sys\nsys.modules[{package!r}] = None\n{program}"
    ran = subprocess.run(
        [sys.executable, "-c", blocked],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert ran.returncode
    assert f"pip install 'abp-transports[{extra}]'" in ran.stderr.splitlines()[-1]
