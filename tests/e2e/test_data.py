"""Tables of 100 MB that an app made, in the programs that read tables; and the manifest of a batch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support.pages import serve_page
from transports import ArtifactRef, Browser, batch, connect
from transports.batch import Job
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

ROOT = Path(__file__).parents[2]
SIZE = 100_000_000
#: A page whose ``table.export`` makes a CSV of ``lines`` lines, each of 40 bytes, with a header of 40.
APP = """
<!doctype html><title>Tables</title><script>
const line = (number) => `${String(number).padStart(12)},${String(number % 997).padStart(12)},${'product name'}_\\n`;
globalThis.abp = {
  async initialize() {
    return { sessionId: 's', protocolVersion: '0.1', app: { id: 'tables', name: 'Tables', version: '1' },
      capabilities: [{ name: 'table.export', available: true }], features: {} };
  },
  async listCapabilities() { return [{ name: 'table.export', description: 'A table' }]; },
  async call(_name, { lines }) {
    const parts = ['number'.padStart(12) + ',' + 'remainder'.padStart(12) + ',' + 'name'.padEnd(13) + '\\n'];
    for (let from = 0; from < lines; from += 10000) {
      let part = '';
      for (let number = from; number < Math.min(lines, from + 10000); number++) part += line(number);
      parts.push(part);
    }
    return { success: true, data: { table: new File(parts, 'table.csv', { type: 'text/csv' }) } };
  },
  async shutdown() {},
};
</script>
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def table(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ArtifactRef]:
    """The artifact of a CSV of 100 MB."""
    folder = tmp_path_factory.mktemp("table")
    async with serve_page(APP) as url:
        async with connect(url, browser=browser, store=folder) as app:
            result = await app.call("table.export", {"lines": SIZE // 40 - 1}, timeout=120)
        ref = result.artifact()
        assert (ref.size_bytes, ref.mime_type, ref.filename) == (SIZE, "text/csv", "table.csv")
        yield ref


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
async def test_table_artifact_opens_at_its_header_row(table: ArtifactRef) -> None:
    with table.open() as file:
        assert file.readline().split() == [b"number,", b"remainder,name"]


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
