"""The loop of a worker: limits, retries, stopping, and what a whole batch leaves behind."""

from __future__ import annotations

import asyncio
import io
import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.batch.runs import REF, Recorder, jobs, states
from tests.support.eventually import eventually
from tests.support.processor import untraced
from transports.artifacts import LocalStore, Retention, open_store
from transports.artifacts._files import Replacement
from transports.batch._batch import run
from transports.batch._files import export_run
from transports.batch._jobs import Job, Outcome, State
from transports.batch._runner import HostPauses, Rate, Retries, Runner, RunOptions
from transports.batch.ledger._ledger import open_ledger
from transports.batch.ledger._schema import Settlement
from transports.errors import CallTimeout, CapabilityError, LedgerError, UsageError
from transports.routing import Router
from webapp_fixture import serve

PATIENCE = 30.0


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_batch_runs_each_job_once_and_writes_manifest(tmp_path: Path) -> None:
    async def answer(job: Job) -> Outcome:
        if job.params["n"] == 2:
            return Outcome.of_error(job, CapabilityError("no paper", code="NO_PAPER"))
        if job.params["n"] == 3:
            return Outcome.of_error(job, CallTimeout("no answer"))
        if job.params["n"] == 4:
            raise ValueError("a driver that breaks its contract")
        return Outcome(job, State.SUCCEEDED, milliseconds=5.0, artifacts=(REF,))

    status = {"status": "mine", "carried.status": "older"}
    many = [Job("do", {"n": n}, "memory:", id=f"j{n}", carried={"team": n, **status}) for n in range(50)]
    driver = Recorder(answer)
    told: list[Settlement] = []
    report = await run([*many, *many[:5]], tmp_path, pool=driver, on_settled=told.append)
    assert driver.ran == dict.fromkeys(range(50), 1) and driver.most[None] == 8
    assert {one.outcome.job.id for one in told} == {job.id for job in many}
    assert report == json.loads((tmp_path / "report.json").read_text())
    states = {"queued": 0, "leased": 0, "succeeded": 47, "failed": 1, "unknown": 2, "cancelled": 0}
    assert (report["jobs"], report["states"]) == (50, states)
    assert report["codes"] == {"NO_PAPER": 1, "TIMEOUT": 1, "INTERNAL_ERROR": 1}
    assert report["milliseconds"] == {"p50": 5.0, "p90": 5.0, "p95": 5.0, "p99": 5.0}
    manifest = lines(tmp_path / "manifest.jsonl")
    ids = [job.id for job in [*many, *many[:5]]]
    assert [line["id"] for line in manifest] == ids and manifest[50:] == manifest[:5]
    good, bad = manifest[0], manifest[2]
    assert (good["uri"], good["sha256"], good["size_bytes"], good["status"]) == (REF.uri, REF.sha256, 3, "succeeded")
    assert (good["team"], good["carried.status"], good["attempts"]) == (0, "mine", 1)
    assert good["carried.carried.status"] == "older"
    assert (bad["error_code"], bad["error"], bad["uri"]) == ("NO_PAPER", "no paper", None)
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(tmp_path / "manifest.parquet").to_pylist()
    assert [row["id"] for row in table] == ids and table[0]["team"] == 0
    # what failed is an input of its own, and the same batch again runs nothing
    again, second = Recorder(), Recorder()
    await run(tmp_path / "failed.jsonl", tmp_path / "again", pool=again, allow_programs=True)
    assert again.ran == {2: 1} and len(lines(tmp_path / "again" / "manifest.jsonl")) == 2
    assert lines(tmp_path / "again" / "manifest.jsonl")[0]["team"] == 2
    await run([*many, *many[:5]], tmp_path, pool=second)
    assert not second.ran
    with pytest.raises(UsageError, match="another input"):
        await run(jobs(1), tmp_path, pool=second)


def _job(value: Any) -> Job:
    return Job("do", {"value": value}, "memory:")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"capability": "do"}, "must be a Job.* not dict"),
        (_job(b"png"), "give files as files="),
        (_job(Path(__file__)), "give files as files="),
        (_job(io.BytesIO(b"png")), "give files as files="),
        (_job(math.nan), "nan at value is not a JSON value"),
        (_job({1, 2}), "set at value cannot be sent"),
        (Job("do", {}, "memory:", carried={"team": "\ud800"}), "cannot be written as JSON"),
    ],
)
async def test_jobs_that_cannot_be_kept_as_json_are_refused(tmp_path: Path, wrong: Any, message: str) -> None:
    driver = Recorder()
    with pytest.raises(UsageError, match=message):
        await run([*jobs(2), wrong], tmp_path, pool=driver)
    assert not driver.ran


@pytest.mark.parametrize("name", ["on_settled", "on_progress", "on_removal", "on_event"])
async def test_callback_that_nothing_would_await_is_refused(tmp_path: Path, name: str) -> None:
    async def callback(_: object) -> None: ...

    options: dict[str, Any] = {name: callback}
    with pytest.raises(UsageError, match=f"{name}= must be a plain function"):
        if name == "on_removal":
            Retention(**options)
        elif name == "on_event":
            Router(open_store("none:"), **options)
        else:
            await run(jobs(1), tmp_path / "run", pool=Recorder(), **options)
    assert not (tmp_path / "run").exists()


async def test_global_and_per_host_limits_hold_while_host_hangs(tmp_path: Path) -> None:
    hang = asyncio.Event()

    async def answer(job: Job) -> Outcome:
        if job.target == "http://hangs.test/":
            await hang.wait()
        return Outcome(job, State.SUCCEEDED)

    driver = Recorder(answer)
    many = [*jobs(5, "http://hangs.test/"), *jobs(30), *jobs(30, "http://b.test/")]
    options = RunOptions(concurrency=5, per_host=2)
    batch = asyncio.create_task(run(many, tmp_path, pool=driver, options=options))
    await eventually(lambda: driver.ran.total() == 62)
    hang.set()
    await asyncio.wait_for(batch, PATIENCE)
    assert driver.ran.total() == 65
    assert max(driver.most[job.target] for job in many) == 2 and driver.most[None] == 5


@pytest.mark.load
async def test_retryable_jobs_are_resent_and_hosts_paused_as_requested(tmp_path: Path) -> None:
    began: list[float] = []

    async def answer(job: Job) -> Outcome:
        began.append(time.monotonic())
        if len(began) == 1:
            busy = CapabilityError("busy", code="RATE_LIMITED", retryable=True, retry_after=0.3)
            return Outcome.of_error(job, busy, milliseconds=1.0)
        if job.params["n"] == 1 and driver.ran[1] < 4:
            return Outcome.of_error(job, CallTimeout("late"), milliseconds=1.0)
        return Outcome(job, State.SUCCEEDED, milliseconds=1.0)

    driver = Recorder(answer)
    report = await run(jobs(3, idempotent=True), tmp_path, pool=driver, options=RunOptions(concurrency=1))
    assert report["states"]["succeeded"] == 3  # type: ignore[index, call-overload]
    assert driver.ran == {0: 2, 1: 4, 2: 1}
    assert began[1] - began[0] >= 0.3
    assert [line["attempts"] for line in lines(tmp_path / "manifest.jsonl")] == [2, 4, 1]
    assert lines(tmp_path / "manifest.jsonl")[1]["duration_ms"] == 4.0


async def test_run_without_pool_creates_one(tmp_path: Path) -> None:
    async with serve() as app:
        one = Job("data.csv", {"rows": [{"a": 1}]}, app.ws_url)
        report = await run([one], tmp_path / "run", options=RunOptions(concurrency=3))
    assert report["states"]["succeeded"] == 1  # type: ignore[index, call-overload]
    (line,) = lines(tmp_path / "run" / "manifest.jsonl")
    stored = LocalStore(tmp_path / "run" / "files")
    assert (await stored.stat(line["artifacts"][0]["id"])).sha256 == line["sha256"]


async def test_draining_finishes_running_jobs_and_starts_no_more(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def answer(job: Job) -> Outcome:
        await go.wait()
        return Outcome(job, State.SUCCEEDED)

    driver = Recorder(answer)
    async with open_ledger(tmp_path) as ledger:
        await ledger.add(lambda: [jobs(9)], "one")
        runner = Runner(ledger, driver, RunOptions(concurrency=3))
        work = asyncio.create_task(runner.run())
        await eventually(lambda: driver.ran.total() == 3)
        runner.drain()
        go.set()
        await asyncio.wait_for(work, PATIENCE)
        counts = await ledger.counts()
        assert (counts[State.SUCCEEDED], counts[State.QUEUED], counts.total) == (3, 6, 9)
        await Runner(ledger, Recorder(), RunOptions(deadline=1e-6)).run()
        assert (await ledger.counts())[State.SUCCEEDED] == 3
        await Runner(ledger, Recorder(), RunOptions()).run()
        report = await export_run(ledger, tmp_path, {"browsers": {"recycled": {}}})
        assert report["browsers"] == {"recycled": {}} and (await ledger.counts())[State.SUCCEEDED] == 9


async def test_report_has_first_error_of_each_code_and_hints_at_carried_parameters(tmp_path: Path) -> None:
    async def refuse(job: Job) -> Outcome:
        return Outcome.of_error(job, CapabilityError(f"{job.id}: rows, html", code=str(job.params["code"])))

    codes = ["MISSING_PARAM", "NO_PAPER", "MISSING_PARAM"]
    many = [Job("do", {"code": code, "rows": n}, "memory:", id=f"j{n}") for n, code in enumerate(codes)]
    many[2] = replace(many[2], carried={"rows": 5, "html": "<p>", "team": "a"})
    await run(many, tmp_path, pool=Recorder(refuse))
    report = json.loads((tmp_path / "report.json").read_text())
    assert {code: first["error"] for code, first in report["first_errors"].items()} == {
        "MISSING_PARAM": "j0: rows, html",
        "NO_PAPER": "j1: rows, html",
    }
    # the job has a parameter rows
    assert report["hints"] == ["html is carried along, not a parameter; name it params.html if it is one"]


async def test_cancelled_run_settles_its_sent_jobs(tmp_path: Path) -> None:
    async def answer(job: Job) -> Outcome:
        await asyncio.Event().wait()
        raise AssertionError

    driver = Recorder(answer)
    many = [Job("do", {"n": n}, idempotent=n % 2 == 0, target="memory:") for n in range(4)]
    batch = asyncio.create_task(run(many, tmp_path, pool=driver, options=RunOptions(concurrency=4)))
    await eventually(lambda: driver.ran.total() == 4)
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        await batch
    async with open_ledger(tmp_path) as ledger:
        assert await states(ledger) == ["queued", "unknown", "queued", "unknown"]
        assert {row.error_code async for row in ledger.rows()} == {None, "CANCELLED"}


async def test_worker_takes_over_jobs_of_lost_worker(tmp_path: Path) -> None:
    async with open_ledger(tmp_path) as lost, open_ledger(tmp_path) as other:
        await lost.add(lambda: [[*jobs(2), *jobs(5, idempotent=True)[2:]]], "one")
        await lost.lease(9, -1)
        driver = Recorder()
        await asyncio.wait_for(Runner(other, driver, RunOptions()).run(), PATIENCE)
        assert driver.ran == {2: 1, 3: 1, 4: 1}
        counts = await other.counts()
        assert (counts[State.SUCCEEDED], counts[State.UNKNOWN]) == (3, 2)


def test_retries_are_limited_per_job_and_per_run() -> None:
    lost = Outcome.of_error(Job("do", idempotent=True), CallTimeout("late"))
    assert [Retries(2).delay(lost, attempts) is None for attempts in (1, 2, 3)] == [False, False, True]
    budget = Retries(1000)
    assert sum(budget.delay(lost, 1) is not None for _ in range(1000)) < 300
    busy = CapabilityError("busy", code="RATE_LIMITED", retryable=True)
    for wait, again in ((0.0, True), (60.0, True), (1e9, False)):
        busy.retry_after = wait
        delay = budget.delay(Outcome.of_error(Job("do"), busy), 1)
        assert (delay is not None) is again and (delay is None or delay >= wait)
    assert Retries(5).delay(Outcome.of_error(Job("do"), CapabilityError("no")), 1) is None


def test_rejection_counts_as_a_fifth_of_a_retry() -> None:
    lost = Outcome.of_error(Job("do", idempotent=True), CallTimeout("late"))
    busy = CapabilityError("busy", code="RATE_LIMITED", retryable=True, retry_after=0.0)
    refused = Outcome.of_error(Job("do", idempotent=True), busy)
    for refusals, losses in ((0, 3), (4, 3), (5, 2), (14, 1), (15, 0)):
        retries = Retries(3)
        assert all(retries.delay(refused, attempt) is not None for attempt in range(1, refusals + 1))
        delays = [retries.delay(lost, refusals + loss) for loss in range(1, losses + 2)]
        assert [delay is None for delay in delays] == [False] * losses + [True], refusals
        assert not retries._refusals
    retries = Retries(1)

    def refuse(numbers: Iterable[int]) -> None:
        for n in numbers:
            retries.delay(Outcome(Job("do", {"n": n}), State.FAILED, retryable=True, retry_after=0.0), 1)

    with untraced():
        refuse(range(10_000))
    refuse(range(10_000, 10_020))
    assert len(retries._refusals) <= 10_000


async def test_numbers_of_any_size_fit_parquet_manifest(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    carried: list[dict[str, Any]] = [
        {"small": 1, "large": 2**53 + 1, "huge": 2**63, "mixed": 0.5, "both": 2, "odd": True},
        {"small": -2, "large": 1, "huge": 1, "mixed": 2**53 + 1, "both": 0.5, "odd": 1},
    ]
    many = [Job("do", {"n": n}, "memory:", carried=one) for n, one in enumerate(carried)]
    other = tmp_path / ".manifest.parquet"  # of an export that another process makes
    other.write_bytes(b"half")
    await run(many, tmp_path, pool=Recorder())
    table = parquet.read_table(tmp_path / "manifest.parquet").to_pylist()
    assert [{name: row[name] for name in carried[0]} for row in table] == [
        {"small": 1, "large": 2**53 + 1, "huge": str(2**63), "mixed": "0.5", "both": 2.0, "odd": "true"},
        {"small": -2, "large": 1, "huge": "1", "mixed": str(2**53 + 1), "both": 0.5, "odd": "1"},
    ]
    assert other.read_bytes() == b"half"


async def test_killed_export_leftovers_are_removed_but_not_active_ones(tmp_path: Path) -> None:
    being_written = Replacement(tmp_path / "report.json")
    (other,) = tmp_path.iterdir()
    folder = tmp_path / "run"
    folder.mkdir()
    other = other.rename(folder / other.name)
    (folder / ".abp-0123456789abcdef").write_bytes(b"half")
    await run([Job("do", {}, "memory:")], folder, pool=Recorder())
    assert [path for path in folder.iterdir() if path.name.startswith(".abp-")] == [other]
    being_written.close()


async def test_uncreatable_output_folder_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    async with open_ledger(tmp_path / "run") as ledger:
        with pytest.raises(LedgerError, match=r"file/out cannot be made .*--out"):
            await export_run(ledger, tmp_path / "file" / "out")


def test_host_pause_is_not_shortened() -> None:
    pauses = HostPauses()
    pauses.pause("a", 3600)
    pauses.pause("a", 0)
    pauses.pause("b", 0)
    assert pauses.seconds_to_end() > 3000  # not that of one that has ended, which would wake the run again and again
    assert pauses.paused_hosts() == {"a"} and pauses.seconds_to_end() > 3000
    assert HostPauses().seconds_to_end() == math.inf


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"rate": 0}, {"retries": -1}, {"deadline": float("inf")}])
def test_option_out_of_range_is_rejected(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        RunOptions(**options)


def test_slow_start_does_not_give_room_for_another_burst() -> None:
    rate = Rate(20)
    assert rate.allowed_starts(100) == 2
    # The ledger takes its time to lease the jobs.
    time.sleep(0.3)
    rate.record_starts(2)
    assert rate.allowed_starts(100) == 0


async def no_outcome(job: Job) -> Any:
    return None


async def no_exception(job: Job) -> Outcome:
    pytest.fail("the driver fails")


@pytest.mark.parametrize("answer", [no_outcome, no_exception])
async def test_contract_breaking_driver_marks_jobs_unknown_and_run_ends(
    tmp_path: Path, answer: Callable[[Job], Any]
) -> None:
    async with asyncio.timeout(20):
        report = await run(jobs(3), tmp_path, pool=Recorder(answer))
    states: Any = report["states"]
    assert states[State.UNKNOWN] == 3
