"""The pool: who gets which session, what becomes of calls, when browsers come and go. Nothing here starts one."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.batch.planted import PAGE, App, Browser, World
from tests.support.cancelling import cancel_after_turns
from tests.support.eventually import eventually
from tests.support.measured import Measured, measuring
from transports import CallTimeout, CapabilityError, Disconnected, TransportError, UsageError
from transports.batch import Endpoint, Job, Outcome, Pool, State, _pool as leases, run
from transports.batch._fleet import HeldSession, Latency, Member, Slots, Source
from transports.batch._pool import free_memory
from transports.errors import BrowserNotFound, ConnectFailed

SOCKET = "ws://app.example/abp"


@pytest.fixture
def measured() -> Iterator[Measured]:
    with measuring() as found:
        yield found


def jobs(count: int, capability: str = "work", target: str = PAGE) -> Iterator[Job]:
    return (Job(capability, {"n": n}, target, id=str(n)) for n in range(count))


async def collect(outcomes: AsyncIterator[Outcome]) -> list[Outcome]:
    return [outcome async for outcome in outcomes]


def data(outcome: Outcome) -> Any:
    assert outcome.result is not None, outcome.error
    return outcome.result.data


# --- calls and sessions -----------------------------------------------------------------------------------------------


async def test_call_puts_files_at_their_places(world: World, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    async with world.pool() as pool:
        result = await pool.call(PAGE, "work", {"n": {"b": 1}}, files={"n.a": tmp_path / "a.txt"})
    assert isinstance(result.data, Mapping) and result.artifacts["n.a"].size_bytes == 5


@pytest.mark.parametrize("target", [PAGE, SOCKET])
async def test_many_jobs_share_few_sessions(world: World, target: str) -> None:
    async with world.pool() as pool:
        assert pool.size == 4
        collected = asyncio.ensure_future(collect(pool.map(jobs(60, "wait", target))))
        await eventually(lambda: world.waiting == 4)  # each session is needed, however long the others take to open
        world.go_on.set()
        outcomes = await collected
        stats = pool.stats()
    assert sorted(int(outcome.job.id or "") for outcome in outcomes) == [*range(60)]
    assert {outcome.state for outcome in outcomes} == {State.SUCCEEDED}
    assert all(data(outcome)["n"] == outcome.job.params["n"] for outcome in outcomes)
    assert len(world.opened) == world.most_sessions == 4 and world.most_calls <= 4
    assert (stats.calls, stats.sessions, stats.leased, stats.waiting, stats.recycled) == (60, 4, 0, 0, {})
    assert len(world.browsers) == len(stats.browsers) == (2 if target == PAGE else 0)
    assert world.most_launching <= 1
    assert not world.running() and world.open_now == 0


@pytest.mark.parametrize(("size", "reuse", "opened"), [((2, 2), "session", 1), ((1, 1), "never", 4)])
async def test_sequential_calls_share_one_browser(world: World, size: tuple[int, int], reuse: str, opened: int) -> None:
    async with world.pool(*size, reuse=reuse) as pool:
        for n in range(4):
            assert (await pool.call(PAGE, "work", {"n": n})).data == {"n": n, "browser": 0}
        assert [browser.calls for browser in pool.stats().browsers] == [4]
    assert world.opened == [PAGE] * opened


@pytest.mark.parametrize(("max_overtaken", "order"), [(30.0, "aab"), (0.0, "baa")])
async def test_call_with_warm_session_overtakes_others_for_limited_time(
    world: World, max_overtaken: float, order: str
) -> None:
    world.set_times(max_overtaken=max_overtaken)
    async with world.pool(1, 1) as pool:
        for target in "aba":  # sessions of other targets make room
            await pool.call(f"http://{target}/", "work")
        assert world.opened == ["http://a/", "http://b/", "http://a/"]
        held = asyncio.ensure_future(pool.call("http://a/", "wait"))
        await eventually(lambda: world.waiting)
        ended: list[str] = []

        async def call(target: str) -> None:
            await pool.call(f"http://{target}/", "work")
            ended.append(target)

        calls = [asyncio.ensure_future(call(target)) for target in "baa"]
        await eventually(lambda: pool.stats().waiting == 3)
        world.go_on.set()
        await asyncio.gather(held, *calls)
        assert "".join(ended) == order


async def test_map_reads_jobs_lazily(world: World) -> None:
    read: list[int] = []

    async def endless() -> AsyncIterator[Job]:
        for n in itertools.count():
            read.append(n)
            yield Job("work", {"n": n}, PAGE)

    async with world.pool(1, 2) as pool:
        outcomes = pool.map(endless())
        taken = [await anext(outcomes) for _ in range(10)]
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(taken) == 10 and len(read) <= 10 + 3 * pool.size
        await outcomes.aclose()
        await eventually(lambda: pool.stats().leased == 0)


def broken() -> Iterator[Job]:
    yield from jobs(0)
    raise UsageError("the iterator's own")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([None], "not NoneType"),
        ([{"capability": "work"}], "not dict"),
        ([Job("work")], "no target"),
        (broken(), "the iterator's own"),
    ],
    ids=["nothing", "mapping", "no-target", "iterator"],
)
async def test_map_ends_with_error_at_first_item_that_it_cannot_run(world: World, wrong: Any, message: str) -> None:
    seen = 0
    async with world.pool() as pool:
        with pytest.raises(UsageError, match=message):
            async for _ in pool.map(itertools.chain(jobs(3), wrong, jobs(50))):
                seen += 1
    assert seen == 3


async def test_leaving_map_loop_early_cancels_its_jobs(world: World) -> None:
    async with world.pool() as pool:
        outcomes = pool.map([*jobs(1), *jobs(3, "wait")])
        assert (await anext(outcomes)).state is State.SUCCEEDED
        await eventually(lambda: world.waiting == 3)
        workers = [task for task in asyncio.all_tasks() if "_run_jobs" in str(task.get_coro())]
        await outcomes.aclose()
        assert len(workers) >= 3 and all(task.done() for task in workers)
        await eventually(lambda: pool.stats().leased == 0)
        assert data(await pool.run(next(jobs(1))))["n"] == 0


async def test_errors_map_to_job_states(world: World) -> None:
    async with world.pool(1, 2) as pool:
        refused = await pool.run(Job("refuse", {}, PAGE))
        assert (refused.state, refused.error_code, refused.error) == (
            State.FAILED, "PERMISSION_DENIED", "refuse: not today",
        )  # fmt: skip
        assert len(world.opened) == 1
        late = await pool.run(Job("wait", {}, PAGE, timeout=0.02))
        assert (late.state, late.error_code) == (State.UNKNOWN, "TIMEOUT")
        await pool.call(PAGE, "work")
        assert world.opened == [PAGE, PAGE]  # the session of the late call was given up
        away = await pool.run(Job("work", {}, "http://nobody.example/"))
        assert (away.state, away.error_code, away.retryable) == (State.FAILED, "TRANSPORT_ERROR", True)
        with pytest.raises(ConnectFailed) as raised:
            await pool.call("http://nobody.example/", "work")
        assert raised.value.sent is False
        with pytest.raises(CapabilityError):
            await pool.call(PAGE, "refuse")
        assert pool.stats().leased == 0
        await pool.call(PAGE, "work")


@pytest.mark.parametrize(("code", "opened"), [("RATE_LIMITED", 1), ("SESSION_EXPIRED", 2)])
async def test_pool_run_sends_job_once_and_reports_it_retryable(world: World, code: str, opened: int) -> None:
    """What repeats jobs counts each attempt. ``map`` has nobody behind it who would send a job again."""
    job = Job("busy", {"code": code}, PAGE)
    async with world.pool(1, 1) as pool:
        outcome = await pool.run(job)
        assert (outcome.state, outcome.retryable, outcome.retry_after) == (State.FAILED, True, 0.0)
        assert world.refused == 1
        await pool.call(PAGE, "work")
        assert len(world.opened) == opened  # an app that has forgotten the session is opened again
        assert [one.error_code async for one in pool.map([job])] == [code]
        assert world.refused == 5


async def test_invalid_pool_options_are_rejected(world: World, tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        {"browsers": 0}, {"sessions": 0}, {"reuse": "always"}, {"recycle_after": 0}, {"max_age": 0},
        {"max_memory": 0}, {"max_slowdown": 1}, {"min_free_memory": -1},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(UsageError):
            Pool(**options)
    for endpoint in ({}, {"cdp_url": "a", "browser_server": "b"}, {"cdp_url": "a", "weight": 0}):
        with pytest.raises(UsageError):
            Endpoint(**endpoint)
    pool = world.pool()
    with pytest.raises(UsageError, match="not open"):
        await pool.call(PAGE, "work")
    with pytest.raises(UsageError, match="not open"):
        await run([Job("work", target=PAGE)], tmp_path / "run", pool=pool)
    assert not (tmp_path / "run").exists()
    async with pool:
        with pytest.raises(UsageError, match="no target"):
            await pool.run(Job("work"))
        with pytest.raises(UsageError, match="at least 1"):
            await anext(pool.map([], concurrency=0))
        with pytest.raises(UsageError, match="a whole number"):
            await anext(pool.map([], concurrency=2.5))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not open"):
        await pool.run(next(jobs(1)))


# --- browsers that end ------------------------------------------------------------------------------------------------


async def test_calls_in_dead_browser_are_unknown_and_others_continue(world: World) -> None:
    async with world.pool(2, 1) as pool:
        running = [asyncio.ensure_future(pool.run(job)) for job in jobs(6, "wait")]
        await eventually(lambda: world.waiting == 2)
        await world.browsers[0].die()
        await eventually(lambda: world.waiting == 3)
        world.go_on.set()
        outcomes = await asyncio.gather(*running)
        assert Counter(outcome.state for outcome in outcomes) == {State.UNKNOWN: 1, State.SUCCEEDED: 5}
        assert {outcome.error_code for outcome in outcomes} == {"DISCONNECTED", None}
        assert pool.stats().recycled == {"ended": 1}
        assert len(world.browsers) == 3 and len(world.running()) == 2
    assert not world.running()


async def test_idle_browser_exit_is_noticed(world: World) -> None:
    world.set_times(check_interval=1000)
    async with world.pool(1, 1) as pool:
        await pool.call(PAGE, "work")
        await world.browsers[0].die()
        assert pool.stats().recycled == {"ended": 1}
        await eventually(lambda: world.browsers[0].closed)


async def test_session_opening_in_dying_browser_is_opened_in_next(world: World) -> None:
    async with world.pool(1, 2) as pool:
        await pool.call(PAGE, "work")
        world.browsers[0].alive = False
        assert (await pool.call("http://other/", "work")).data == {"n": None, "browser": 1}


async def test_session_open_when_browser_ends_is_reopened_in_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, go_on, open_app = asyncio.Event(), asyncio.Event(), App.open

    async def slow(app: App) -> None:
        await open_app(app)
        opening.set()
        await go_on.wait()

    monkeypatch.setattr(App, "open", slow)
    async with world.pool(1, 1) as pool:
        call = asyncio.ensure_future(pool.call(PAGE, "work"))
        await opening.wait()
        world.browsers[0].answers = False
        await eventually(lambda: not pool.stats().sessions)  # its slot was emptied
        go_on.set()
        assert (await call).data == {"n": None, "browser": 1}


@pytest.mark.parametrize("reason", ["unresponsive", "memory", "age", "calls"])
async def test_pool_recycles_browser_for_each_reason(world: World, reason: str, measured: Measured) -> None:
    options: dict[str, dict[str, Any]] = {
        "memory": {"max_memory": 1000},
        "age": {"max_age": 0.2},
        "calls": {"recycle_after": 3},
    }
    async with world.pool(1, 1, **options.get(reason, {})) as pool:
        await pool.call(PAGE, "work")
        if reason == "unresponsive":
            world.browsers[0].answers = False
        world.browsers[0].resident = 1001
        for _ in range(2 if reason == "calls" else 0):
            await pool.call(PAGE, "work")
        await eventually(lambda: pool.stats().recycled.get(reason) == 1 and world.browsers[0].closed)
        world.set_times(check_interval=1000)
        assert data(await pool.run(next(jobs(1))))["browser"] >= 1
        assert Counter(one["reason"] for one in measured.labels("abp.browser.restarts")) == pool.stats().recycled


async def test_a_successor_serves_before_its_predecessor_drains(world: World) -> None:
    async with world.pool(1, 2, recycle_after=2) as pool:
        held = asyncio.ensure_future(pool.call(PAGE, "wait"))
        await eventually(lambda: world.waiting)
        assert (await pool.call(PAGE, "work")).data == {"n": None, "browser": 0}
        await eventually(lambda: pool.stats().recycled == {"calls": 1})
        assert [(one.number, one.draining) for one in pool.stats().browsers] == [(2, False), (1, True)]
        assert not world.browsers[0].closed
        assert (await pool.call(PAGE, "work")).data == {"n": None, "browser": 1}
        world.go_on.set()
        assert (await held).data == {"n": None, "browser": 0}
        await eventually(lambda: world.browsers[0].closed)
        assert len(pool.stats().browsers) == 1


async def test_browser_recycling_does_not_affect_jobs(world: World) -> None:
    async with world.pool(2, 2, recycle_after=10) as pool:
        outcomes = [outcome async for outcome in pool.map(jobs(100))]
        assert {outcome.state for outcome in outcomes} == {State.SUCCEEDED}
        assert pool.stats().recycled["calls"] >= 2  # how many depends on how fast browsers start
    assert world.most_launching == 1 and world.most_browsers <= 2 + 3
    assert not world.running() and world.open_now == 0


async def test_failing_successor_leaves_predecessor_serving(world: World) -> None:
    async with world.pool(1, 1, recycle_after=2) as pool:
        await pool.call(PAGE, "work")
        world.launches_fail = 1
        for _ in range(10):
            assert (await pool.call(PAGE, "work")).data == {"n": None, "browser": 0}
        await eventually(lambda: not world.launches_fail)
        assert (await pool.call(PAGE, "work")).data == {"n": None, "browser": 0}
        assert pool.stats().recycled == {}


@pytest.mark.parametrize(
    ("error", "code"), [(BrowserNotFound("none"), "BROWSER_ERROR"), (OSError("no space left"), "TRANSPORT_ERROR")]
)
async def test_missing_browser_is_reported_to_every_call(world: World, error: Exception, code: str) -> None:
    world.launch_error = error
    world.launches_fail = 1
    async with world.pool() as pool:
        outcomes = await asyncio.gather(*map(pool.run, jobs(3)))
        assert {(one.state, one.error_code, one.retryable) for one in outcomes} == {(State.FAILED, code, True)}
        world.launches_fail = 1
        with pytest.raises(TransportError) as raised:
            await pool.call(PAGE, "work")
        assert raised.value.code == code and raised.value.sent is False
        await pool.call(PAGE, "work")  # after a pause


async def test_call_cancelled_while_getting_slot_releases_it() -> None:
    slots = Slots(lambda: True)
    slots.add(Member(1, Source(Browser, 1, 1), None))  # type: ignore[arg-type]
    slot = await slots.acquire(PAGE)
    waiting = asyncio.create_task(slots.acquire(PAGE))
    await asyncio.sleep(0)
    slots.release(slot)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert slots.leased == 0


@pytest.mark.load
async def test_call_cancelled_twice_releases_its_session(world: World) -> None:
    """The second time while it waits for the end of what runs: as a deadline does beside a run that is stopped."""
    async with world.pool(1, 1) as pool:
        call = asyncio.create_task(pool.call(PAGE, "stubborn"))
        await eventually(lambda: world.stuck)
        call.cancel()
        await eventually(lambda: world.ignored)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        world.go_on.set()
        await eventually(lambda: pool.stats().leased == 0)
        assert (await pool.call(PAGE, "work")).data


@pytest.mark.parametrize(("target", "recycled"), [(PAGE, {"lease": 1}), (SOCKET, {})])
async def test_a_lease_ends_even_if_the_driver_ignores_it(
    world: World, monkeypatch: pytest.MonkeyPatch, target: str, recycled: dict[str, int]
) -> None:
    monkeypatch.setattr("transports._internal.tasks._GRACE", 0.02)
    async with world.pool(1, 1) as pool:
        monkeypatch.setattr(leases, "GRACE", 0.05)
        with pytest.raises(CallTimeout, match="lease"):
            await pool.call(target, "stubborn", timeout=0.01)
        assert world.ignored
        monkeypatch.setattr(leases, "GRACE", 15.0)
        assert (await pool.call(target, "work")).data
        assert pool.stats().recycled == recycled
        world.go_on.set()


async def test_stuck_session_is_named_without_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports._internal.tasks._GRACE", 0.01)
    go_on = asyncio.Event()

    class Deaf:
        async def __aenter__(self) -> None:
            while not go_on.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await go_on.wait()

        async def __aexit__(self, *_: object) -> None: ...

    held = HeldSession("http://user:hidden@app.example/?token=hidden", Deaf())  # type: ignore[arg-type]
    with pytest.raises(ConnectFailed, match=r"app\.example.* did not open") as raised:
        await held.wait_until_open(0.01)
    go_on.set()
    await held.aclose()
    assert "hidden" not in raised.value.message


# --- memory, weights, the end -----------------------------------------------------------------------------------------


async def test_a_new_session_waits_for_memory_and_a_warm_one_does_not(world: World) -> None:
    async with world.pool(2, 2, min_free_memory=1000) as pool:
        held = asyncio.ensure_future(pool.call(PAGE, "wait"))
        await eventually(lambda: world.waiting)
        world.free = 999
        second = asyncio.ensure_future(pool.call(PAGE, "work"))
        await eventually(lambda: pool.stats().waiting)
        await asyncio.sleep(0.05)
        assert len(world.opened) == 1 and not second.done()
        world.free = 1000
        await second
        world.free = 0
        await pool.call(PAGE, "work")
        await pool.call("http://other/", "work")  # in the place of one that is idle
        assert len(world.opened) == 3 and world.most_sessions == 2
        world.go_on.set()
        await held


@pytest.mark.parametrize("target", [PAGE, SOCKET])
async def test_call_without_free_memory_raises_out_of_memory(world: World, target: str) -> None:
    world.set_times(memory_patience=0.05)
    world.free = 0
    async with world.pool() as pool:
        with pytest.raises(TransportError, match="min_free_memory") as raised:
            await pool.call(target, "work")
        assert raised.value.code == "OUT_OF_MEMORY" and raised.value.sent is False
    assert not world.browsers


async def test_endpoints_share_calls_by_weight(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.batch._fleet.Browser", lambda **_: Browser(world))
    ends = [Endpoint(cdp_url="wss://a", weight=3), Endpoint(browser_server="ws://b", sessions=4)]
    async with world.pool(None, 8, endpoints=ends) as pool:
        assert pool.size == 12
        calls = [asyncio.ensure_future(pool.call(PAGE, "wait")) for _ in range(8)]
        await eventually(lambda: len(world.browsers) == 2)
        world.go_on.set()
        await asyncio.gather(*calls)
        world.go_on.clear()
        world.waiting = 0
        calls = [asyncio.ensure_future(pool.call(PAGE, "wait")) for _ in range(8)]
        await eventually(lambda: world.waiting == 8)
        assert sorted(one.leased for one in pool.stats().browsers) == [2, 6]
        world.go_on.set()
        await asyncio.gather(*calls)


async def test_closing_pool_fails_running_and_waiting_calls(world: World) -> None:
    async with world.pool(1, 1) as pool:
        running = asyncio.ensure_future(pool.run(next(jobs(1, "wait"))))
        await eventually(lambda: world.waiting)
        waiting = asyncio.ensure_future(pool.call(PAGE, "work"))
        await eventually(lambda: pool.stats().waiting)
    with pytest.raises(Disconnected) as raised:
        await waiting
    assert raised.value.sent is False
    assert (await running).state is State.UNKNOWN
    assert not world.running() and world.open_now == 0


async def test_closing_that_is_cancelled_closes_everything(world: World) -> None:
    before = asyncio.all_tasks()
    for turns in (1, 3, 10):
        pool = await world.pool(1, 1).__aenter__()
        await pool.call(PAGE, "work")
        assert (await cancel_after_turns(turns, pool.aclose())).cancelled()
        assert not world.running() and world.open_now == 0
        assert asyncio.all_tasks() == before


def test_slowdown_is_measured_per_kind_of_call() -> None:
    latency = Latency()
    for durations, slowdown in (((10, 12), 1.0), ((11, 13), 1.0), ((28, 28), 1.0), ((60, 61), 60.5 / 11)):
        for milliseconds in durations * 50:
            latency.add("work", milliseconds)
            latency.add("longer", 500.0)
        assert latency.slowdown == pytest.approx(slowdown)
    for kind in range(1000):
        latency.add(kind, 1.0)
    assert len(latency._latest) == 64


# --- what nobody expects ----------------------------------------------------------------------------------------------


async def test_cancelled_job_source_ends_outcomes(world: World) -> None:
    async def cancelled() -> AsyncIterator[Job]:
        yield Job("work", {"n": 1}, PAGE)
        raise asyncio.CancelledError

    outcomes: list[Outcome] = []
    with pytest.raises(asyncio.CancelledError):
        async with world.pool() as pool, asyncio.timeout(20):
            async for outcome in pool.map(cancelled(), concurrency=1):
                outcomes.append(outcome)
    assert [outcome.state for outcome in outcomes] == [State.SUCCEEDED]


async def test_waiting_call_gets_error_of_failed_memory_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> object:
        raise KeyError("MemAvailable")

    monkeypatch.setattr("transports.batch._pool.free_memory", free_memory)
    monkeypatch.setattr(psutil, "virtual_memory", failing)
    async with world.pool() as pool, asyncio.timeout(20):
        with pytest.raises(
            TransportError, match=r"the pool cannot open sessions: KeyError\('MemAvailable'\)"
        ) as raised:
            await pool.call(PAGE, "work")
    assert raised.value.sent is False


async def test_browser_checks_continue_after_failed_check(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.pool(1, 1) as pool:
        await pool.call(PAGE, "work")
        (browser,) = world.browsers
        checks: list[int] = []

        async def failing() -> int:
            checks.append(1)
            raise psutil.AccessDenied

        monkeypatch.setattr(browser, "resident_bytes", failing)
        await eventually(lambda: checks)
        browser.answers = False
        await eventually(lambda: browser.closed)
        assert pool.stats().recycled == {"unresponsive": 1}
