"""Browsers that a pool lends to sessions which are not its own. Nothing here starts one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.batch.planted import PAGE, Browser, World
from tests.support.eventually import eventually
from transports import Disconnected, TransportError, UsageError
from transports.artifacts import MemoryStore
from transports.batch import Job, Pool, _pool as leases
from transports.playwright._browser import BrowserLender
from transports.surfaces.shared._apps import pooled


async def test_borrowers_and_calls_share_browsers_and_slots(world: World) -> None:
    async with world.pool(2, 2) as pool:
        assert isinstance(pool, BrowserLender) and not pool.closed
        await pool.call(PAGE, "work")
        async with pool.lend() as one, pool.lend() as two, pool.lend() as three, pool.lend() as four:
            assert {*map(id, (one, two, three, four))} == {*map(id, world.browsers)} and len(world.browsers) == 2
            assert (pool.stats().leased, pool.stats().sessions) == (4, 0)  # the warm session made room
            call = asyncio.ensure_future(pool.call(PAGE, "work"))
            await eventually(lambda: pool.stats().waiting == 1)
        assert (await call).data and pool.stats().leased == 0
    with pytest.raises(UsageError, match="not open"):
        await borrow(pool)
    assert pool.closed and not world.running()


async def borrow(pool: Pool) -> None:
    async with pool.lend():
        pass


async def test_borrowing_from_full_pool_raises_limit_reached(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with world.pool(1, 1) as pool:
        async with pool.lend():
            with monkeypatch.context() as patch:
                patch.setattr(leases, "GRACE", 0.05 - pool._open_timeout)
                with pytest.raises(TransportError, match="are taken") as raised:
                    await borrow(pool)
            assert raised.value.code == "LIMIT_REACHED" and raised.value.retryable
        await borrow(pool)


@pytest.mark.parametrize(("free", "failures", "code"), [(0, 0, "OUT_OF_MEMORY"), (1 << 40, 1, "BROWSER_ERROR")])
async def test_pool_does_not_lend_browser_that_fails_to_start(
    world: World, free: int, failures: int, code: str
) -> None:
    world.set_times(memory_patience=0.05)
    world.free, world.launches_fail = free, failures
    async with world.pool(1, 1) as pool:
        with pytest.raises(TransportError) as raised:
            await borrow(pool)
        assert raised.value.code == code


async def test_dead_browser_is_not_lent_and_replaced_one_outlives_borrowers(world: World) -> None:
    async with world.pool(1, 4, recycle_after=2) as pool, pool.lend():
        world.browsers[0].answers = False
        async with pool.lend() as second:
            assert id(second) == id(world.browsers[1])
        async with pool.lend():  # the second of that browser
            await eventually(lambda: pool.stats().recycled.get("calls"))
            assert [one.draining for one in pool.stats().browsers] == [False, True]
            async with pool.lend() as third:
                assert id(third) == id(world.browsers[2]) and not world.browsers[1].closed
        await eventually(lambda: world.browsers[1].closed)
        assert world.browsers[0].closed and sum(pool.stats().recycled.values()) == 2


async def test_busy_browser_is_still_lent(world: World) -> None:
    async with world.pool(1, 2) as pool, pool.lend() as first:
        world.browsers[0].answers_after = 10.0
        async with pool.lend() as second:
            assert second is first and not pool.stats().recycled


async def test_closing_pool_ends_waiting_and_active_borrowers(world: World) -> None:
    async with world.pool(1, 1) as pool:
        stack = pool.lend()
        await stack.__aenter__()
        waiting = asyncio.ensure_future(pool.lend().__aenter__())
        await eventually(lambda: pool.stats().waiting)
    with pytest.raises(Disconnected, match="closed"):
        await waiting
    await stack.__aexit__(None, None, None)
    assert not world.running()


APPS = """
[apps.docs]
url = "http://app.example/"
storage_state = "state.json"
[apps.shown]
url = "http://app.example/"
headless = false
[apps.plain]
url = "http://app.example/"
transport = "webmcp"
[apps.profile]
url = "http://app.example/"
profile = "p"
[apps.plugin]
url = "http://app.example/"
transport = "of another distribution"
[apps.socket]
url = "ws://app.example/"
"""
NAMES = ["docs", "shown", "plain", "profile", "plugin", "socket", "unknown"]


@pytest.mark.parametrize(("reuse", "sharing"), [("session", ["docs", "plain"]), ("context", ["plain"])])
async def test_named_apps_share_pool_browsers(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reuse: str, sharing: list[str]
) -> None:
    (tmp_path / "team.toml").write_text(APPS)
    monkeypatch.setenv("ABP_CONFIG", str(tmp_path / "team.toml"))

    async def no_context(browser: Browser) -> object:
        return browser

    monkeypatch.setattr(leases, "open_context", no_context)
    async with world.pool(1, 8, reuse=reuse, headless=True, connect=world.connect_in_context) as pool:
        outcomes = {name: await pool.run(Job("work", target=name)) for name in NAMES}
    data = {name: outcome.result.data for name, outcome in outcomes.items() if outcome.result is not None}
    assert data == {name: {"n": None, "browser": 0 if name in sharing else None} for name in NAMES}


class Given(list[dict[str, Any]]):
    """Notes the options with which sessions would be opened."""

    def connect(self, target: str, **options: object) -> Any:
        self.append(options)


async def test_named_apps_share_server_browsers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "team.toml").write_text(APPS)
    given = Given()
    async with pooled(given.connect, 1, MemoryStore(), config=Path("team.toml"), headless=True) as reach:
        for name in NAMES:
            reach(name)
    assert [name for name, options in zip(NAMES, given, strict=True) if "browser" in options] == ["docs", "plain"]


async def test_only_pages_without_browser_options_share_pool() -> None:
    given, store = Given(), MemoryStore()
    async with pooled(given.connect, 1, store, headless=True) as reach:
        reach(PAGE)
        reach(PAGE, transport="postmessage", headless=True)
        reach("ws://a/")
        reach("mcp+stdio:x")
        for wrong in ({"headless": False}, {"browser": "chrome"}):
            with pytest.raises(UsageError, match="leave browser and headless out"):
                reach(PAGE, **wrong)
    pools = [options.pop("browser", None) for options in given]
    assert pools[0] is pools[1] and isinstance(pools[0], BrowserLender) and pools[2:] == [None] * 2
    assert given == [{}, {"transport": "postmessage", "headless": True}, {}, {}]
    async with pooled(given.connect, None, store) as reach:
        assert reach == given.connect
