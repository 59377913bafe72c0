"""The engine on Ray, over actors that are tasks of this process: how many there are, and what becomes of lost ones."""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, Self

import pytest

from tests.support.eventually import eventually
from transports.batch import Pool, RunOptions, _ray_engine
from transports.batch._jobs import Job, Outcome, State
from transports.batch._ray_engine import Limits, RayCluster, RayEngine
from transports.batch._runner import Rate
from transports.batch.ledger._ledger import open_ledger
from transports.batch.ledger._schema import Counts
from transports.batch.pool._fleet import PoolStats
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

    async def start(self, kind: type, method: str, *args: Any) -> tuple[Any, Any, Any]:
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

    async def tell(self, actor: Any, method: str) -> None:
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
    """An engine over a ledger of so many jobs, every second one idempotent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.go_on, self.ran = asyncio.Event(), Counter[object]()
        self.told: list[Counts] = []
        self.pools: list[int] = []

    def make_pool(self, sessions: int) -> Pool:
        self.pools.append(sessions)
        return Driver(self.go_on, self.ran)  # type: ignore[return-value]

    def engine(self, ledger: Any, options: RunOptions, **more: Any) -> RayEngine:
        return RayEngine(ledger, str(self.folder), self.make_pool, options, on_counts=self.told.append, **more)

    @property
    def cluster(self) -> Cluster:
        return Cluster.made[-1]


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr("transports.batch._ray_engine.RayCluster", Cluster)
    monkeypatch.setattr(_ray_engine, "LIMITS", Limits(look=0.01, check=0.0, start=0.05, room=0.1))
    monkeypatch.setattr("transports.batch._ray_engine.backoff_delay", lambda _: 0.0)
    return Bench(tmp_path)


def jobs(count: int) -> list[Job]:
    return [Job("do", {"n": n}, "memory:", idempotent=n % 2 == 0) for n in range(count)]


async def test_actors_are_as_many_as_the_backlog_asks_for_and_share_the_limits(bench: Bench) -> None:
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(7)], "one")
        engine = bench.engine(ledger, RunOptions(concurrency=6, rate=100), browsers=4)
        work = asyncio.create_task(engine.run())
        await eventually(lambda: bench.ran.total() == 6)
        assert [(one.concurrency, one.rate) for one in bench.cluster.options] == [(2, 25), (2, 25), (1, 25), (1, 25)]
        assert sorted(bench.pools) == [1, 1, 2, 2]
        bench.go_on.set()
        report = await asyncio.wait_for(work, 15)
        assert (await ledger.counts())[State.SUCCEEDED] == 7
        assert (report.calls, report.recycled) == (4, {"crashed": 4})
        assert bench.told[0][State.QUEUED] == 7 and bench.told[-1][State.SUCCEEDED] == 7
        # two jobs are left for four actors of two each: one is enough
        await ledger.add(lambda: [jobs(9)], "two", extend=True)
        await bench.engine(ledger, RunOptions(concurrency=8)).run()
        assert bench.cluster.most == 1


async def test_a_lost_actor_is_replaced_and_its_jobs_are_those_of_any_lost_worker(bench: Bench) -> None:
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(2)], "one")
        engine = bench.engine(ledger, RunOptions(concurrency=2), browsers=1)
        work = asyncio.create_task(engine.run())
        await eventually(lambda: bench.ran.total() == 2)
        (lost,) = bench.cluster.at_work()
        # as if its process had been killed: nothing of it is settled
        lost._engine._runner._running.clear()
        lost._engine._runner._ledger._database.close()
        lost._task.cancel()
        bench.cluster.running[lost].add_done_callback(lambda _: bench.go_on.set())
        await asyncio.wait_for(work, 15)
        assert bench.ran == {0: 2, 1: 1}
        assert [row.state.value async for row in ledger.rows()] == ["succeeded", "unknown"]


async def test_actors_of_which_none_gets_a_job_done_end_the_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(2)], "one")
        for error, says in (
            (LedgerError("the ledger is not reached from here"), "^the ledger is not reached from here \\["),
            (Disconnected("the actor ended"), "^the actor ended, as 4 before it; do what is said, and again \\["),
        ):

            def no_pool(_: int, error: Exception = error) -> Pool:
                raise error

            monkeypatch.setattr(bench, "make_pool", no_pool)
            with pytest.raises(type(error), match=says):
                await asyncio.wait_for(bench.engine(ledger, RunOptions(), browsers=1).run(), 15)
            assert len(bench.cluster.options) == 5


@pytest.mark.load
async def test_actors_that_a_machine_takes_along_are_one_loss(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made, whole = itertools.count(), bench.make_pool

    def make_pool(sessions: int) -> Pool:
        if next(made) < 6:
            raise Disconnected("the machine is gone")
        return whole(sessions)

    monkeypatch.setattr(bench, "make_pool", make_pool)
    monkeypatch.setattr("transports.batch._ray_engine.backoff_delay", lambda _: 0.3)
    bench.go_on.set()
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(6)], "one")
        engine = bench.engine(ledger, RunOptions(concurrency=6), browsers=6)
        report = await asyncio.wait_for(engine.run(), 15)
        assert (await ledger.counts())[State.SUCCEEDED] == report.recycled["ended"] == 6


@pytest.mark.parametrize("fate", ["no start", "cluster lost"])
async def test_what_keeps_an_actor_from_starting_is_replaced(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fate: str
) -> None:
    monkeypatch.setattr(Cluster, "fates", [fate, "starts"])
    bench.go_on.set()
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(3)], "one")
        report = await asyncio.wait_for(bench.engine(ledger, RunOptions(), browsers=1).run(), 15)
        assert (await ledger.counts())[State.SUCCEEDED] == 3
    assert report.recycled["ended"] == 1 and len(bench.cluster.options) == 2


async def test_a_cluster_without_room_ends_the_run_unless_an_actor_works(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "fates", ["no room"])
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(2)], "one")
        with pytest.raises(ConnectFailed, match=r"no actor found a free CPU on Ray within .* add machines"):
            await asyncio.wait_for(bench.engine(ledger, RunOptions(), browsers=1).run(), 15)
        monkeypatch.setattr(Cluster, "fates", ["starts", "no room"])
        work = asyncio.create_task(bench.engine(ledger, RunOptions(concurrency=2), browsers=2).run())
        await eventually(lambda: len(bench.cluster.options) == 2 and len(bench.told) > 20)
        bench.go_on.set()
        await asyncio.wait_for(work, 15)
        assert (await ledger.counts())[State.SUCCEEDED] == 2


async def test_a_head_that_is_gone_ends_the_run_though_its_actors_work(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_: Cluster) -> bool:
        if bench.ran.total() < 2:
            return False
        raise ConnectFailed("the head is gone")

    monkeypatch.setattr(Cluster, "is_lost", gone)
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(2)], "one")
        with pytest.raises(ConnectFailed, match="the head is gone"):
            await asyncio.wait_for(bench.engine(ledger, RunOptions(concurrency=2), browsers=1).run(), 15)
        assert [row.state.value async for row in ledger.rows()] == ["queued", "unknown"]


async def test_draining_lets_jobs_end_and_cancelling_settles_them(bench: Bench) -> None:
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(6)], "one")
        engine = bench.engine(ledger, RunOptions(concurrency=2), browsers=2)
        work = asyncio.create_task(engine.run())
        await eventually(lambda: bench.ran.total() == 2)
        engine.drain()
        await eventually(lambda: all(actor._drained for actor in bench.cluster.at_work()))
        bench.go_on.set()
        await asyncio.wait_for(work, 15)
        assert (await ledger.counts())[State.QUEUED] == 4
        bench.go_on.clear()
        work = asyncio.create_task(bench.engine(ledger, RunOptions(concurrency=2), browsers=1).run())
        await eventually(lambda: bench.ran.total() == 4)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        states = [row.state.value async for row in ledger.rows()]
        assert states == ["succeeded", "succeeded", "queued", "unknown", "queued", "queued"]
        # and a deadline is one for all actors, also for those that are started late
        bench.go_on.set()
        await bench.engine(ledger, RunOptions(deadline=1e-6)).run()
        assert not bench.cluster.options and (await ledger.counts())[State.QUEUED] == 3


async def test_a_run_whose_folder_other_machines_do_not_reach_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "elsewhere", True)
    async with open_ledger(bench.folder) as ledger:
        await ledger.add(lambda: [jobs(1)], "one")
        with pytest.raises(UsageError, match=r"--ledger postgresql://.* --store s3://"):
            await bench.engine(ledger, RunOptions(), shared=False, address="auto").run()
    assert not bench.cluster.options


async def test_without_ray_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    async with open_ledger(tmp_path) as ledger:
        with pytest.raises(UsageError, match=r"pip install 'abp-transports\[ray\]'"):
            RayEngine(ledger, str(tmp_path), lambda _: Pool(), RunOptions())


async def test_clusters_of_one_process_ask_for_the_token_that_ray_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens: list[str] = []
    ray = ModuleType("ray")
    ray.__dict__.update(init=lambda **_: tokens.append(os.environ["RAY_AUTH_TOKEN"]), shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
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
async def test_a_cluster_whose_head_is_gone_is_an_error_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str | None, advice: str
) -> None:
    def gone() -> None:
        raise RuntimeError("Failed to connect to GCS")

    ray = ModuleType("ray")
    ray.__dict__.update(init=lambda **_: None, shutdown=gone, nodes=gone, get_runtime_context=lambda: SimpleNamespace(
        get_node_id=lambda: "here"
    ))  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    says = f"cannot be used: Failed to connect to GCS; {advice} the same command again: it resumes where it stopped \\["
    async with RayCluster(address, 1) as cluster:
        with pytest.raises(ConnectFailed, match=says):
            await cluster.is_lost()


async def test_a_cluster_that_gave_no_answer_is_asked_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    ray = ModuleType("ray")
    ray.__dict__.update(init=lambda **_: None, shutdown=go_on.set, nodes=go_on.wait)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(_ray_engine, "LIMITS", Limits(answer=0.05))
    async with RayCluster("auto", 1) as cluster:
        for _ in range(2):
            with pytest.raises(ConnectFailed, match=r"gave no answer within 0.05 s; look at `ray status`, then"):
                await cluster.is_elsewhere()
            monkeypatch.setattr(_ray_engine, "LIMITS", Limits(answer=1000.0))
    assert not go_on.is_set()
    go_on.set()


@pytest.mark.parametrize(("rate", "actors"), [(None, 4), (100.0, 4), (5.0, 2), (1.0, 1), (0.5, 1)])
async def test_actors_begin_with_no_more_than_a_second_of_the_rate(
    bench: Bench, rate: float | None, actors: int
) -> None:
    shares = bench.engine(None, RunOptions(concurrency=8, rate=rate))._shares(4)
    assert (len(shares), sum(one.concurrency for one in shares)) == (actors, 8)
    assert sum(one.rate or 0.0 for one in shares) == (rate or 0.0)
    assert rate is None or sum(Rate(one.rate).room(100) for one in shares) <= max(2, rate)
