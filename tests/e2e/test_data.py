"""Tables of 100 MB in the programs that read tables; and the manifest of a batch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from transports import ArtifactRef, batch
from transports.artifacts import open_store
from transports.batch import Job
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
SIZE = 100_000_000


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def table(tmp_path_factory: pytest.TempPathFactory) -> ArtifactRef:
    """The artifact of a CSV of 100 MB: a header and lines of 40 bytes each."""
    header = f"{'number':>12},{'remainder':>12},{'name':<13}\n"
    lines = (f"{number:12},{number % 997:12},product name_\n" for number in range(SIZE // 40 - 1))
    store = open_store(tmp_path_factory.mktemp("table"))
    ref = await store.put_bytes("".join((header, *lines)).encode(), mime_type="text/csv", filename="table.csv")
    assert ref.size_bytes == SIZE
    return ref


#: Programs; each prints the sum of a column of ``file``, which is open, or of the one at ``path`` in ``files``: the
#: artifact, or a plain file that is given to the program in the same way.
PROGRAMS = {
    "pandas": """
import pandas
print(pandas.read_csv(file).iloc[:, 1].sum())
""",
    "polars": """
import polars
print(polars.read_csv(file).to_series(1).str.strip_chars().cast(int).sum())
""",
    "duckdb": """
import duckdb
duckdb.sql("SET enable_progress_bar = false")
duckdb.register_filesystem(files)
print(duckdb.sql(f"SELECT sum(b) FROM read_csv('{path}') AS t(a, b, c)").fetchall()[0][0])
""",
}
_OPENING = """
import sys
import fsspec
path = sys.argv[1]
files, _ = fsspec.url_to_fs(path)
file = files.open(path)
"""
#: Most memory, as a multiple of the program's own with the plain file (docs/data.md).
ALLOWED = 1.3
_PEAK = "\nimport resource\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"


def run(program: str, path: str, folder: Path) -> tuple[int, int]:
    """What a program in a process of its own summed up, and its peak memory in KiB."""
    script = f"{_OPENING}{PROGRAMS[program]}{_PEAK}"
    done = subprocess.run(
        [sys.executable, "-c", script, path],
        env={**os.environ, "ABP_STORE": folder.as_uri()},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    total, peak = done.stdout.split()
    return int(float(total)), int(peak)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
async def test_csv_of_100_mb_needs_no_more_memory_than_a_plain_file(table: ArtifactRef, program: str) -> None:
    assert table.path is not None
    expected = sum(number % 997 for number in range(SIZE // 40 - 1))
    plain, peak_of_plain = run(program, table.path.as_uri(), table.path.parent)
    total, peak = run(program, table.uri, table.path.parent)
    assert total == plain == expected
    assert peak < peak_of_plain * ALLOWED, f"{peak / peak_of_plain:.2f} times"


@pytest.mark.slow
async def test_run_manifest_opens_in_duckdb(fixture: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb: Any = pytest.importorskip("duckdb")
    jobs = [Job("data.csv", {"rows": [{"a": n}]}, fixture.ws_url, id=f"j{n}") for n in range(3)]
    await batch.run([*jobs, Job("no.such", {}, fixture.ws_url, id="bad")], tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    by_status, failed = re.findall(r"^duckdb\.sql\(\"(SELECT .*run/manifest.*)\"\)$", page, re.MULTILINE)
    assert sorted(duckdb.sql(by_status).fetchall()) == [("failed", 1, None), ("succeeded", 3, 18)]  # "a\r\n0\r\n" each
    ((job, error),) = duckdb.sql(failed).fetchall()
    assert job == "bad" and "no.such" in error
    columns = json.loads((tmp_path / "run" / "manifest.jsonl").read_text().splitlines()[0]).keys()
    assert set(duckdb.sql("FROM 'run/manifest.parquet'").columns) == columns
