"""A run in a folder that cannot be written: it is looked at all the same, and nothing in it changes."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from transports.batch import Job, Outcome, State, open_ledger
from transports.batch.ledger._schema import Settlement

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs folders that only others may write")

#: Runs commands as a user who may write nothing. What they import is imported before: it may be root's.
_COMMANDS = """
import asyncio, json, os, sys
from transports.batch.ledger._ledger import open_view
from transports.surfaces.cli import main

async def look(run):
    view = open_view(run)
    try:
        return {state.value: count for state, count in (await view.overview()).states.items()}
    finally:
        await view.aclose()

def work(run, out):
    for args in (["status", run, "--json"], ["export", run, "--out", out, "--json"]):
        print(main(["batch", *args]), flush=True)
    print(json.dumps(asyncio.run(look(run))), flush=True)

warm, warm_out, *places = sys.argv[1:]
work(warm, warm_out)
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for run, out in zip(places[::2], places[1::2]):
    print("---", flush=True)
    work(run, out)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ro", dir="/tmp") as folder:  # below `tmp_path` others see nothing
        Path(folder).chmod(0o755)
        yield Path(folder)
        for path in Path(folder).iterdir():
            path.chmod(0o755)


async def plant(folder: Path) -> None:
    jobs = [Job("do", {"n": n}, "http://127.0.0.1:9/") for n in range(3)]
    async with open_ledger(folder) as ledger:
        await ledger.add(lambda: [jobs], "one")
        (one,) = await ledger.lease(1, 60)
        await ledger.settle([Settlement(one.key, Outcome(one.job, State.SUCCEEDED))])


async def left_over(folder: Path, *, shared_memory: bool) -> None:
    """A run whose last transactions are in the write-ahead log alone, as a process leaves it that is killed."""
    source = folder.with_name(f"source-of-{folder.name}")
    await plant(source)
    with closing(sqlite3.connect(source / "ledger.sqlite", isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute("UPDATE abp_jobs SET state = 'failed' WHERE state = 'succeeded'")
        folder.mkdir()
        for end in ("", "-wal", *(("-shm",) if shared_memory else ())):
            shutil.copy(source / f"ledger.sqlite{end}", folder / f"ledger.sqlite{end}")
    assert (folder / "ledger.sqlite-wal").stat().st_size


def close(folder: Path) -> dict[str, bytes]:
    for path in folder.iterdir():
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    return content(folder)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.slow
async def test_run_in_read_only_folder_is_viewable(place: Path) -> None:
    runs = [place / name for name in ("whole", "left-over", "left-over-without-its-index")]
    await plant(runs[0])
    await left_over(runs[1], shared_memory=True)
    await left_over(runs[2], shared_memory=False)
    await plant(place / "warm")
    outs = [place / f"out-of-{run.name}" for run in runs]
    for out in outs:
        out.mkdir(mode=0o777)
        out.chmod(0o777)
    before = [close(run) for run in runs]
    places = [path for both in zip(runs, outs, strict=True) for path in both]
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, place / "warm", place / "warm-out", *places],
        env={**os.environ, "TMPDIR": str(outs[0])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    _, *printed = done.stdout.split("---\n")
    for run, out, lines, state in zip(runs, outs, printed, ("succeeded", "failed", "failed"), strict=True):
        status, status_code, report, report_code, view = lines.splitlines()
        assert (status_code, report_code) == ("0", "3"), (run.name, done.stderr)
        for text in (status, view):
            counts = json.loads(text)
            assert (counts[state], counts["queued"]) == (1, 2), run.name
        assert json.loads(report)["states"][state] == 1, run.name
        assert {path.name for path in out.iterdir()} >= {"manifest.jsonl", "report.json"}
        assert not list(out.glob("abp-*"))
    assert [content(run) for run in runs] == before
