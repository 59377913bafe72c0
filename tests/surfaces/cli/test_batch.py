"""``abp batch``: runs, what they print and leave behind, and how they end."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import PATIENCE, CommandLine, Terminal
from tests.support.eventually import eventually_blocking
from transports.batch import Job, open_ledger
from transports.surfaces.cli import _batch_run
from webapp_fixture import Fixture
from webapp_fixture.websocket import Connection


def write_jobs(path: Path, *jobs: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(job) + "\n" for job in jobs))
    return path


def csv_job(n: int, **more: object) -> dict[str, Any]:
    return {"id": f"j{n}", "capability": "data.csv", "params": {"rows": [{"n": n}]}, **more}


def slow_job(n: int, milliseconds: int) -> dict[str, Any]:
    return {"capability": "job.run", "params": {"steps": 1, "delay": milliseconds, "label": str(n)}}


def events(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def next_steps(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("To ")]


@pytest.mark.load
def test_repeated_batch_command_makes_no_more_files(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_batch_run, "_NOTE_INTERVAL", 0.01)  # of progress, which --json does not print
    path = write_jobs(
        tmp_path / "jobs.jsonl",
        *(csv_job(n, team="blue") for n in range(8)),
        csv_job(3),
        csv_job(4, id="x", team="red"),
    )
    run = ("batch", "run", path, "--out", tmp_path / "run", "--target", workbench.ws_url, "--json")
    first = abp(*run)
    told = events(first.out)
    assert first.status == 0 and "2 of 10 lines are the same jobs as earlier lines" in first.err
    assert [one["event"] for one in told] == ["begun"] + ["ended"] * 8 + ["report"]
    assert told[0]["queued"] == 8 and told[-1]["states"]["succeeded"] == 8 and "recycled" in told[-1]["browsers"]
    manifest = events((tmp_path / "run" / "manifest.jsonl").read_text())
    assert [line["id"] for line in manifest] == [*(f"j{n}" for n in range(8)), "j3", "x"]
    assert (manifest[0]["team"], manifest[-1]["team"], manifest[-1]["key"]) == ("blue", "red", manifest[4]["key"])
    assert len({line["sha256"] for line in manifest}) == 8 and all(line["size_bytes"] for line in manifest)
    assert (told[-1]["lines"], told[-1]["copies"], told[-1]["jobs"]) == (10, 2, 8)
    assert len(list((tmp_path / "run" / "files").glob("*.csv"))) == 8
    again = abp(*run)
    assert again.status == 0 and [one["event"] for one in events(again.out)] == ["begun", "report"]
    assert "nothing to do" not in first.err and "have ended" not in first.err
    assert again.err == "abp: nothing to do: all 8 jobs had ended\n"
    shown = abp("batch", "status", tmp_path / "run")
    assert shown.status == 0 and "succeeded  8\n" in shown.out and "total      8\n" in shown.out
    assert abp("batch", "status", tmp_path / "run", "--json").document["succeeded"] == 8
    named = abp("batch", "export", tmp_path / "run", "--files", tmp_path / "named", "--name", "{id}-{team}-x")
    assert named.status == 0 and f"10 files are in {tmp_path / 'named'}" in named.err
    assert (tmp_path / "named" / "j7-blue-x.csv").read_text() == "n\n7\n", named
    # another input is refused, unless it extends the run
    other = write_jobs(tmp_path / "other.jsonl", csv_job(99))
    refused = abp("batch", "run", other, "--out", tmp_path / "run", "--target", workbench.ws_url)
    assert refused.status == 2 and "--extend" in refused.err
    extended = abp("batch", "run", other, "--out", tmp_path / "run", "--target", workbench.ws_url, "--extend")
    assert extended.status == 0 and "Jobs: 9 succeeded\nLines: 11, of which 2 are the same jobs" in extended.out


@pytest.mark.load
def test_run_without_terminal_prints_progress_periodically(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_batch_run, "_NOTE_INTERVAL", 0.05)
    jobs = (csv_job(1), csv_job(2), slow_job(3, 500), {"capability": "nothing.there"})
    path = write_jobs(tmp_path / "jobs.jsonl", *jobs)
    run = ("batch", "run", path, "--target", workbench.ws_url, "--out")
    ran = abp(*run, tmp_path / "told")
    assert ran.status == 3
    assert "abp: 3 of 4 jobs have ended (1 failed)" in ran.err
    write_jobs(path, slow_job(3, 150))
    assert "have ended" not in abp(*run, tmp_path / "quiet", "-q").err


def test_failed_jobs_are_listed_and_rerun_on_request(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    lines = json.dumps(csv_job(1)) + "\n" + json.dumps({"capability": "no.such", "params": {}, "team": "red"}) + "\n"
    run = ("batch", "run", "-", "--out", tmp_path / "run", "--target", workbench.ws_url)
    first = abp(*run, "--evidence", "trace,console=on-failure", stdin=lines)
    assert first.status == 3, first
    (evidence,) = (tmp_path / "run" / "files").glob("*.console.txt")
    assert evidence.name.startswith("no.such-") and evidence.read_text()
    assert "Jobs: 1 succeeded, 1 failed\nErrors: UNKNOWN_CAPABILITY 1\n" in first.out
    assert f"Failed jobs, as an input: {tmp_path / 'run' / 'failed.jsonl'}" in first.out
    (failed,) = events((tmp_path / "run" / "failed.jsonl").read_text())
    assert failed == {"capability": "no.such", "params": {}, "target": workbench.ws_url, "team": "red"}
    again = abp(*run, "--retry-failed", stdin=lines)
    assert again.status == 3 and "1 job is run again" in again.err
    assert abp("batch", "run", tmp_path / "run" / "failed.jsonl", "--out", tmp_path / "more").status == 3
    exported = abp("batch", "export", tmp_path / "run", "--out", tmp_path / "copy", "--json")
    assert exported.status == 3 and events(exported.out)[0]["codes"] == {"UNKNOWN_CAPABILITY": 1}
    assert (tmp_path / "copy" / "manifest.jsonl").stat().st_size


def test_the_first_error_of_each_code_is_printed(abp: CommandLine, tmp_path: Path) -> None:
    nothing_there = {"target": "ws://127.0.0.1:9/"}
    path = write_jobs(tmp_path / "jobs.jsonl", csv_job(0, **nothing_there), csv_job(1, **nothing_there))
    ran = abp("batch", "run", path, "--out", tmp_path / "run", "--retries", "0")
    assert re.search(
        r"\nErrors: TRANSPORT_ERROR 2\nFirst TRANSPORT_ERROR, job j0: cannot connect to ws://127.0.0.1:9/: .*; "
        r"start the app or correct the address\nManifest: ",
        ran.out,
    ), ran.out


def test_correcting_failed_line_makes_run_succeed(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    """And columns that are no parameters are named, before the run and after it."""
    table, out = tmp_path / "jobs.csv", tmp_path / "run"
    table.write_text("id,capability,html,team\n" + "".join(f"j{n},export.pdf,<p>{n}</p>,a\n" for n in range(3)))
    run = ("batch", "run", table, "--out", out, "--target", workbench.ws_url)
    first = abp(*run)
    assert first.status == 3 and "2 of 3 lines are the same jobs as earlier lines; each job runs once" in first.err
    assert "html is carried along, not a parameter; name it params.html if it is one\n" in first.err
    assert "Jobs: 1 failed\nLines: 3, of which 2 are the same jobs" in first.out
    assert "Hint: html is carried along, not a parameter; name it params.html if it is one\n" in first.out
    assert "Hint: t" not in first.out
    assert next_steps(first.out) == [
        "To run failed jobs again: the same command with --retry-failed, or with a corrected copy of failed.jsonl "
        "and --extend"
    ]
    assert json.loads((out / "report.json").read_text())["copies"] == 2
    failed = events((out / "failed.jsonl").read_text())
    assert [one["id"] for one in failed] == ["j0", "j1", "j2"]
    jobs = [{**one, "capability": "data.csv", "params": {"rows": [{"html": one["html"]}]}} for one in failed]
    corrected = write_jobs(tmp_path / "corrected.jsonl", *jobs)
    second = abp("batch", "run", corrected, "--out", out, "--extend")
    assert second.status == 0 and "3 failed lines are replaced by" in second.err, second
    files = f"abp batch export {out} --files FOLDER"
    assert second.out == f"Jobs: 3 succeeded\nManifest: {out / 'manifest.jsonl'}\nTo get the files: {files}\n"
    manifest = events((out / "manifest.jsonl").read_text())
    assert [(line["id"], line["status"]) for line in manifest] == [(f"j{n}", "succeeded") for n in range(3)]
    assert json.loads((out / "report.json").read_text())["replaced"] == 3
    assert abp(*run).status == 0 and abp("batch", "export", out).status == 0


@pytest.mark.load
def test_worker_resumes_run_but_not_cancelled_one(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "jobs.jsonl", *(csv_job(n) for n in range(4)))
    run = ("batch", "run", path, "--target", workbench.ws_url, "--concurrency", "1", "--out")
    stopped = abp(*run, tmp_path / "run", "--deadline", "0.001")
    assert stopped.status == 3 and next_steps(stopped.out) == ["To resume: the same `abp batch run` command"]
    assert abp("batch", "worker", tmp_path / "run").status == 0
    assert len(list((tmp_path / "run" / "files").glob("*.csv"))) == 4  # where the run keeps them
    abp(*run, tmp_path / "other", "--deadline", "0.001")
    left = abp("batch", "status", tmp_path / "other", "--json").document
    assert left["queued"] + left["succeeded"] == 4
    cancelled = abp("batch", "cancel", tmp_path / "other")
    assert cancelled.status == 0 and cancelled.out == f"Cancelled: {left['queued']} jobs\n"
    assert abp("batch", "worker", tmp_path / "other").status == 3
    exported = abp("batch", "export", tmp_path / "other")
    assert next_steps(exported.out) == ["To run cancelled jobs again: the same command with --retry-failed"]
    assert abp(*run, tmp_path / "other", "--retry-failed").status == 0


@pytest.mark.parametrize(
    ("args", "status", "words"),
    [
        (("run", "gone.jsonl", "--out", "{run}"), 2, "gone.jsonl cannot be read"),
        (("run", "{worse}", "--out", "{run}"), 2, "again [INVALID_PARAMS]\n    line 1 is not JSON ("),
        (("run", "{bad}", "--out", "{run}"), 2, "line 2 is not JSON"),
        (("run", "{bad}", "--out", "{bad}"), 1, "the ledger"),
        (("status", "{run}"), 1, "has no run"),
        (("worker", "mysql://host/db"), 2, "is not a ledger"),
        (("worker", "postgresql://host/db"), 2, "--store URL"),
        (("export", "postgresql://host/db"), 2, "--out DIR"),
    ],
)
def test_impossible_batch_run_says_why(
    abp: CommandLine, tmp_path: Path, args: tuple[str, ...], status: int, words: str
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"capability": "a", "target": "memory:"}\nno job\n')
    worse = tmp_path / "worse.jsonl"
    worse.write_text("no job\n" * 30)
    ran = abp("batch", *(one.format(run=tmp_path / "run", bad=bad, worse=worse) for one in args))
    assert ran.status == status and words in ran.err, ran
    assert "gone.jsonl" not in args or not (tmp_path / "run").exists()
    assert "run" not in args or not (tmp_path / "run" / "manifest.jsonl").exists()
    if "{bad}" in args[1:2] and "{run}" in args:  # what such a run has left may be used
        empty = abp("batch", "status", tmp_path / "run")
        assert empty.status == 1 and "begin it with `abp batch run`, at the same place" in empty.err


@pytest.mark.load
def test_first_signal_drains_jobs_and_second_ends_run(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    """The bar is shown meanwhile, and the same command goes on afterwards."""
    path = write_jobs(tmp_path / "jobs.jsonl", *(slow_job(n, 1000 if n < 2 else 1) for n in range(6)))
    run = ("batch", "run", path, "--out", tmp_path / "run", "--target", workbench.ws_url, "--concurrency", "2")

    def once(terminal: Terminal) -> None:
        terminal.wait_for("browsers and apps are starting")
        wait_for_call(workbench, "job.run")
        interrupt()
        terminal.wait_for("no more jobs are started")

    drained = abp.at_terminal(*run, script=once, term="xterm")
    assert drained.status == 130 and (tmp_path / "run" / "manifest.jsonl").exists()
    counts = abp("batch", "status", tmp_path / "run", "--json").document
    assert counts["leased"] == counts["unknown"] == 0
    assert (counts["succeeded"], counts["queued"]) == (2, 4)
    assert abp(*run).status == 0
    # what never ends is left at the second signal
    stuck = write_jobs(tmp_path / "stuck.jsonl", {"capability": "job.wait", "params": {}})
    stuck_run = ("batch", "run", stuck, "--out", tmp_path / "stuck", "--target", workbench.ws_url)

    def twice(terminal: Terminal) -> None:
        terminal.wait_for("0/1")
        wait_for_call(workbench, "job.wait")
        interrupt()
        terminal.wait_for("no more jobs are started")
        interrupt()

    stopped = abp.at_terminal(*stuck_run, script=twice, term="xterm")
    assert stopped.status == 130
    assert stopped.out.startswith("Jobs: 1 unknown\nErrors: CANCELLED 1\n")
    assert "Unknown jobs may have run, so they are never sent again. If the app shows that they did not," in stopped.out
    assert f"To look at the unknown jobs: abp serve --batch {tmp_path / 'stuck'}\n" in stopped.out
    counts = abp("batch", "status", tmp_path / "stuck", "--json").document
    assert counts["unknown"] == 1
    report = json.loads(abp("batch", "export", tmp_path / "stuck", "--json").out)
    assert "TIMEOUT" not in report["codes"]  # the signal ended it


def interrupt() -> None:
    """Interrupt the command, in the thread that waits for it."""
    main_thread = threading.main_thread().ident
    assert main_thread is not None
    signal.pthread_kill(main_thread, signal.SIGINT)


def wait_for_call(workbench: Fixture, capability: str) -> None:
    """Wait until the app has received a call of a capability and still runs it."""

    def is_running() -> bool:
        connections = [socket for socket in tuple(workbench.sockets) if isinstance(socket, Connection)]
        calls = [call for connection in connections for call in tuple(connection.calls.running.values())]
        return any(call.name == capability for call in calls)

    eventually_blocking(is_running, within=PATIENCE)


def test_cell_starts_program_only_if_allowed(abp: CommandLine, tmp_path: Path) -> None:
    marker, table = tmp_path / "ran", tmp_path / "jobs.csv"
    table.write_text(f"capability,target\ndo,mcp+stdio:touch {marker}\n")
    run = ("batch", "run", table, "--out", tmp_path / "run", "--retries", "0")
    refused = abp(*run)
    assert refused.status == 2 and "line 2: target: 'mcp+stdio:touch …'" in refused.err
    assert "--allow-programs" in refused.err and not marker.exists()
    ledger = asyncio.run(_planted(tmp_path / "theirs", f"mcp+stdio:touch {marker}"))
    for args in (("batch", "worker", ledger), (*run[:3], "--out", ledger, "--extend", "--retry-failed")):
        abp(*args, *(() if args[1] == "worker" else ("--target", "ws://127.0.0.1:9/")))
        assert not marker.exists(), args
    assert abp(*run, "--allow-programs").status == 3 and marker.exists()  # touch is no MCP server


async def _planted(folder: Path, target: str) -> Path:
    """A run whose ledger somebody else wrote."""
    async with open_ledger(folder) as ledger:
        await ledger.add(lambda: [[Job("do", target=target)]], "theirs")
    return folder


def test_batch_sends_line_files_only_from_input_folder(abp: CommandLine, workbench: Fixture, tmp_path: Path) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "a.txt").write_text("mine")
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "input" / "jobs.jsonl"
    run = ("batch", "run", path, "--out", tmp_path / "run", "--target", workbench.ws_url)
    path.write_text('{"capability": "file.digest", "files": {"file": "../secret"}}\n')
    refused = abp(*run)
    assert refused.status == 2 and "line 1: files.file:" in refused.err and "--files-from" in refused.err
    path.write_text('{"capability": "file.digest", "files": {"file": "a.txt"}}\n')
    assert abp(*run).status == 0
    path.write_text(f'{{"capability": "file.digest", "target": "{workbench.ws_url}#", "files": {{"file": "a.txt"}}}}\n')
    other = (*run[:3], "--out", tmp_path / "other")
    assert abp(*other).status == 2
    assert abp(*other, "--files-from", tmp_path / "input").status == 0
