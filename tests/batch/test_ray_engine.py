"""The engine on Ray, over actors that are tasks of this process: how many there are, and what becomes of lost ones."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import pytest

from tests.batch.runs import states
from tests.support.eventually import eventually
from transports.batch import Job, Ledger, Outcome, Pool, RunOptions, State, _ray_engine, open_ledger
from transports.batch._batch import WorkReport
from transports.batch._fleet import PoolStats
from transports.batch._ray_engine import Limits, RayCluster, RayEngine
from transports.batch._runner import Rate
from transports.batch.ledger._schema import Counts
from transports.errors import ConnectFailed, Disconnected, LedgerError, UsageError


class Cluster:
    """A cluster whose actors are tasks."""

    elsewhere = False
    advice = "do what is said, and again"
    fate = "starts"
    #: What becomes of actors that are started, in turn; the last one holds for all others.
    fates: ClassVar[list[str]] = ["starts"]
    made: ClassVar[list[Cluster]] = []

    def __init__(self, address: str | None, actors: int) -> None:
        self.address, self.actors = address, actors
        self.running: dict[Any, asyncio.Task[Any]] = {}
        self.options: list[RunOptions] = []
        self.most = 0
        Cluster.made.append(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        assert all(task.done() for task in self.running.values())

    async def is_elsewhere(self) -> bool:
        return self.elsewhere

    async def cores(self) -> int:
        return 4

    async def start_actor(self, kind: type, method: str, *args: Any) -> tuple[Any, Any, Any]:
        actor = kind()
        self.fate = self.fates[min(len(self.options), len(self.fates) - 1)]
        self.options.append(args[-1])
        if self.fate != "starts":
            task = self.running[actor] = asyncio.create_task(asyncio.Event().wait())
            return actor, task, task
        task = self.running[actor] = asyncio.create_task(getattr(actor, method)(*args))
        self.most = max(self.most, len(self.at_work()))
        return actor, asyncio.create_task(actor.started()), task

    async def has_room(self) -> bool:
        return self.fate != "no room"

    async def is_lost(self) -> bool:
        return self.fate == "cluster lost"

    async def reopen(self) -> None:
        self.fate = "starts"
        for task in self.running.values():
            task.cancel()
        await asyncio.wait(self.running.values())

    def at_work(self) -> list[Any]:
        return [actor for actor, task in self.running.items() if not task.done()]

    async def call_without_answer(self, actor: Any, method: str) -> None:
        await getattr(actor, method)()

    async def kill(self, actor: Any) -> None:
        self.running[actor].cancel()
        await asyncio.wait([self.running[actor]])

    async def answered(self, answers: list[Any]) -> list[Any]:
        return [answer for answer in answers if answer.done()]

    async def result(self, answer: Any) -> object:
        return Disconnected("the actor ended") if answer.cancelled() else answer.result()


class Driver:
    """The pool of an actor: each of its jobs waits until the test lets it go."""

    def __init__(self, go_on: asyncio.Event, ran: Counter[object]) -> None:
        self.go_on, self.ran = go_on, ran

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def run(self, job: Job) -> Outcome:
        self.ran[job.params["n"]] += 1
        await self.go_on.wait()
        return Outcome(job, State.SUCCEEDED)

    def stats(self) -> PoolStats:
        return PoolStats((), 0, 0, 0, calls=1, recycled={"crashed": 1})


class Bench:
    """Engines over one ledger."""

    def __init__(self, folder: Path, ledger: Ledger) -> None:
        self.folder, self.ledger = folder, ledger
        self.go_on, self.ran = asyncio.Event(), Counter[object]()
        self.told: list[Counts] = []
        self.pools: list[int] = []

    async def add(self, count: int) -> None:
        """Add jobs, every second one idempotent."""
        jobs = [Job("do", {"n": n}, "memory:", idempotent=n % 2 == 0) for n in range(count)]
        await self.ledger.add(lambda: [jobs], str(count), extend=True)

    async def states(self) -> list[str]:
        return await states(self.ledger)

    def make_pool(self, sessions: int) -> Pool:
        self.pools.append(sessions)
        return Driver(self.go_on, self.ran)  # type: ignore[return-value]

    def engine(self, concurrency: int = 8, browsers: int | None = 1, **options: Any) -> RayEngine:
        shared = options.pop("shared", True)
        run_options = RunOptions(concurrency, **options)
        return RayEngine(
            self.ledger,
            str(self.folder),
            self.make_pool,
            run_options,
            browsers=browsers,
            shared=shared,
            on_counts=self.told.append,
        )

    async def run(self, *args: Any, **options: Any) -> WorkReport:
        return await asyncio.wait_for(self.engine(*args, **options).run(), 15)

    @property
    def cluster(self) -> Cluster:
        return Cluster.made[-1]


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    monkeypatch.setattr(_ray_engine, "RayCluster", Cluster)
    monkeypatch.setattr(_ray_engine, "LIMITS", Limits(look=0.01, check=0.0, start=0.05, room=0.1))
    monkeypatch.setattr(_ray_engine, "backoff_delay", lambda _: 0.0)
    async with open_ledger(tmp_path) as ledger:
        yield Bench(tmp_path, ledger)


async def test_actor_count_follows_backlog_and_limits_are_shared(bench: Bench) -> None:
    await bench.add(7)
    work = asyncio.create_task(bench.run(6, browsers=4, rate=100))
    await eventually(lambda: bench.ran.total() == 6)
    assert [(one.concurrency, one.rate) for one in bench.cluster.options] == [(2, 25), (2, 25), (1, 25), (1, 25)]
    assert sorted(bench.pools) == [1, 1, 2, 2]
    bench.go_on.set()
    report = await work
    assert await bench.states() == ["succeeded"] * 7
    assert (report.calls, report.recycled) == (4, {"crashed": 4})
    assert bench.told[0][State.QUEUED] == 7 and bench.told[-1][State.SUCCEEDED] == 7
    await bench.add(9)  # two jobs are left for four actors of two each: one is enough
    await bench.run(8, browsers=None)
    assert bench.cluster.most == 1


async def test_lost_actor_is_replaced_and_its_jobs_treated_as_lost(bench: Bench) -> None:
    await bench.add(2)
    work = asyncio.create_task(bench.run(2))
    await eventually(lambda: bench.ran.total() == 2)
    (lost,) = bench.cluster.at_work()
    # as if its process had been killed: nothing of it is settled
    lost._engine._runner._running.clear()
    lost._engine._runner._ledger._database.close()
    lost._task.cancel()
    bench.cluster.running[lost].add_done_callback(lambda _: bench.go_on.set())
    await work
    assert bench.ran == {0: 2, 1: 1}
    assert await bench.states() == ["succeeded", "unknown"]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (LedgerError("the ledger is not reached from here"), "^the ledger is not reached from here \\["),
        (Disconnected("the actor ended"), "^the actor ended, as 4 before it; do what is said, and again \\["),
    ],
)
async def test_actors_completing_no_job_end_the_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def no_pool(_: int) -> Pool:
        raise error

    await bench.add(2)
    monkeypatch.setattr(bench, "make_pool", no_pool)
    with pytest.raises(type(error), match=says):
        await bench.run()
    assert len(bench.cluster.options) == 5


@pytest.mark.load
async def test_actors_lost_with_a_machine_count_as_one_loss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made, whole = itertools.count(), bench.make_pool

    def make_pool(sessions: int) -> Pool:
        if next(made) < 6:
            raise Disconnected("the machine is gone")
        return whole(sessions)

    monkeypatch.setattr(bench, "make_pool", make_pool)
    monkeypatch.setattr(_ray_engine, "backoff_delay", lambda _: 0.3)
    bench.go_on.set()
    await bench.add(6)
    report = await bench.run(6, browsers=6)
    assert await bench.states() == ["succeeded"] * 6 and report.recycled["ended"] == 6


@pytest.mark.parametrize("fate", ["no start", "cluster lost"])
async def test_actor_that_fails_to_start_is_replaced(bench: Bench, monkeypatch: pytest.MonkeyPatch, fate: str) -> None:
    monkeypatch.setattr(Cluster, "fates", [fate, "starts"])
    bench.go_on.set()
    await bench.add(3)
    report = await bench.run()
    assert await bench.states() == ["succeeded"] * 3
    assert report.recycled["ended"] == 1 and len(bench.cluster.options) == 2


async def test_full_cluster_ends_run_unless_an_actor_is_working(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "fates", ["no room"])
    await bench.add(2)
    with pytest.raises(ConnectFailed, match=r"no actor found a free CPU on Ray within .* add machines"):
        await bench.run()
    monkeypatch.setattr(Cluster, "fates", ["starts", "no room"])
    work = asyncio.create_task(bench.run(2, browsers=2))
    await eventually(lambda: len(bench.cluster.options) == 2 and len(bench.told) > 20)
    bench.go_on.set()
    await work
    assert await bench.states() == ["succeeded"] * 2


async def test_lost_cluster_head_ends_run_despite_working_actors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def gone(_: Cluster) -> bool:
        if bench.ran.total() < 2:
            return False
        raise ConnectFailed("the head is gone")

    monkeypatch.setattr(Cluster, "is_lost", gone)
    await bench.add(2)
    with pytest.raises(ConnectFailed, match="the head is gone"):
        await bench.run(2)
    assert await bench.states() == ["queued", "unknown"]


async def test_draining_lets_jobs_finish_and_cancelling_settles_them(bench: Bench) -> None:
    await bench.add(6)
    engine = bench.engine(2, browsers=2)
    work = asyncio.create_task(engine.run())
    await eventually(lambda: bench.ran.total() == 2)
    engine.drain()
    await eventually(lambda: all(actor._drained for actor in bench.cluster.at_work()))
    bench.go_on.set()
    await asyncio.wait_for(work, 15)
    assert (await bench.states()).count("queued") == 4
    bench.go_on.clear()
    work = asyncio.create_task(bench.engine(2).run())
    await eventually(lambda: bench.ran.total() == 4)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    stopped = ["succeeded", "succeeded", "queued", "unknown", "queued", "queued"]
    assert await bench.states() == stopped
    # a deadline is one for all actors, also for those that would be started late
    bench.go_on.set()
    await bench.run(deadline=1e-6)
    assert not bench.cluster.options and await bench.states() == stopped
    await bench.run(deadline=60)
    assert "queued" not in await bench.states()


async def test_cluster_run_with_local_folder_is_rejected(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cluster, "elsewhere", True)
    await bench.add(1)
    with pytest.raises(UsageError, match=r"--ledger postgresql://.* --store s3://"):
        await bench.run(shared=False)
    assert not bench.cluster.options


async def test_missing_ray_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    async with open_ledger(tmp_path) as ledger:
        with pytest.raises(UsageError, match=r"pip install 'abp-transports\[ray\]'"):
            RayEngine(ledger, str(tmp_path), lambda _: Pool(), RunOptions())


def install_ray(patch: pytest.MonkeyPatch, **functions: Callable[..., object]) -> None:
    """Have a module in place of Ray, and no cluster in the environment."""
    ray = ModuleType("ray")
    ray.__dict__.update({"init": lambda **_: None} | functions)
    patch.setitem(sys.modules, "ray", ray)
    patch.delenv("RAY_ADDRESS", raising=False)


async def test_ray_clusters_in_one_process_share_one_token(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[str] = []
    install_ray(monkeypatch, init=lambda **_: tokens.append(os.environ["RAY_AUTH_TOKEN"]), shutdown=lambda: None)
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    async with RayCluster(None, 1) as cluster:
        await cluster.reopen()
    async with RayCluster(None, 1):
        pass
    assert len(tokens) == 3 and len({*tokens}) == 1 and len(tokens[0]) == 64
    assert "RAY_AUTH_TOKEN" not in os.environ


@pytest.mark.parametrize(
    ("address", "advice"), [("auto", "look at `ray status`, then run"), (None, "run")], ids=["named", "own"]
)
async def test_lost_cluster_head_error_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str | None, advice: str
) -> None:
    def gone() -> None:
        raise RuntimeError("Failed to connect to GCS")

    here = SimpleNamespace(get_node_id=lambda: "here")
    install_ray(monkeypatch, shutdown=gone, nodes=gone, get_runtime_context=lambda: here)
    says = f"cannot be used: Failed to connect to GCS; {advice} the same command again: it resumes where it stopped \\["
    async with RayCluster(address, 1) as cluster:
        with pytest.raises(ConnectFailed, match=says):
            await cluster.is_lost()


async def test_unresponsive_cluster_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    install_ray(monkeypatch, shutdown=go_on.set, nodes=go_on.wait)
    monkeypatch.setattr(_ray_engine, "LIMITS", Limits(answer=0.05))
    async with RayCluster("auto", 1) as cluster:
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=r"gave no answer within 0.05 s; look at `ray status`, then"):
                await cluster.is_elsewhere()
            monkeypatch.setattr(_ray_engine, "LIMITS", Limits(answer=1000.0))
    assert not go_on.is_set()
    go_on.set()


@pytest.mark.parametrize(("rate", "actors"), [(None, 4), (100.0, 4), (5.0, 2), (1.0, 1), (0.5, 1)])
async def test_actors_start_with_at_most_one_second_of_rate(bench: Bench, rate: float | None, actors: int) -> None:
    shares = bench.engine(rate=rate)._split_options(4)
    assert (len(shares), sum(one.concurrency for one in shares)) == (actors, 8)
    assert sum(one.rate or 0.0 for one in shares) == (rate or 0.0)
    assert rate is None or sum(Rate(one.rate).allowed_starts(100) for one in shares) <= max(2, rate)
