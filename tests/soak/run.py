"""One run: how long it takes and what breaks when; everything is opened, makes calls while parts break, is compared and
closed."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias
from unittest import mock

import aiohttp
import psutil

from tests.soak import programs
from tests.soak.callers import AppCaller, BridgeCaller, Caller, Contents, DiskCaller, GalleryCaller
from tests.soak.faults import CUT_SHORT, FAULTS, World, thaw
from tests.soak.ledger import Ledger, check_store
from tests.soak.record import RESULT, Record
from tests.soak.resources import Resources, collect, compare, sample
from tests.support.in_process import in_process
from tests.support.object_server import Proxy
from transports import Browser, Session, WebSocketTransport, connect
from transports.artifacts import LocalStore, Retention, open_store
from transports.mcp._transport import MCPTransport

#: Seconds for a caller to get a result when nothing is broken any more, and for numbers to stay the same.
_SETTLE, _QUIET = 90.0, 30.0
#: Seconds between two looks at the load of the machine.
_EVERY = 2.0


@dataclass
class Outcome:
    """A run that is over. ``before`` and ``after`` were taken in quiet moments after the warm-up and at the end;
    ``nothing`` before anything was opened, ``closed`` when all was closed. ``loads`` are those of the machine."""

    plan: Plan
    record: Record = field(default_factory=Record)
    ledgers: list[Ledger] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    browser: str = ""
    nothing: Resources | None = None
    before: Resources | None = None
    after: Resources | None = None
    closed: Resources | None = None

    @property
    def problems(self) -> list[str]:
        return [*self.record.problems, *(problem for ledger in self.ledgers for problem in ledger.problems)]


async def run(plan: Plan, say: Callable[[str], None], *, memory_slack: int = 0) -> Outcome:
    """Carry out a plan. ``say`` is told what happens; ``memory_slack`` is for :func:`.compare`."""
    outcome = Outcome(plan)
    with _folder() as (folder, temporary):
        outcome.nothing = sample(temporary)
        small = Contents()
        main, there = Contents(), Contents()
        async with AsyncExitStack() as stack:
            limit = stack.enter_context(programs.small_disk(folder / "disk"))
            async with _opened(outcome, folder, main, there, small, limit) as (world, callers):
                soak = _Soak(outcome, world, callers, temporary, say)
                warm_up, rest = plan.schedules(tuple(FAULTS))
                await soak.phase(plan.warm_up, warm_up)
                outcome.before = await soak.quiet()
                await soak.phase(plan.seconds, rest)
                outcome.after = await soak.quiet()
            audit = folder / "audit.jsonl"
            outcome.ledgers = [
                await check_store("main", folder / "store", main, audit=audit, killed=False),
                await check_store("bridge", folder / "bridge", there, audit=None, killed=True),
                await check_store("small disk", folder / "disk" / "store", small, audit=None, killed=False),
            ]
        await asyncio.get_running_loop().shutdown_default_executor()
        collect()
        outcome.closed = sample(temporary)
    outcome.record.check()
    problems = outcome.record.problems
    problems += compare(outcome.before, outcome.after, memory_slack=memory_slack)
    for name in ("processes", "files"):
        if getattr(outcome.closed, name):
            problems.append(f"{getattr(outcome.closed, name)} {name} were left when everything was closed")
    problems += compare(outcome.nothing, outcome.closed, memory_slack=1 << 40)
    return outcome


@contextmanager
def _folder() -> Iterator[tuple[Path, Path]]:
    """A folder for everything, and the one in it for temporary files: its path is short, as the kit wants it."""
    with tempfile.TemporaryDirectory(prefix="soak", dir="/tmp") as name:
        folder = Path(name)
        temporary = folder / "t"
        temporary.mkdir()
        others = {key: "" for key in os.environ if key.startswith("ABP_") and key != "ABP_BROWSER"}
        state = {"TMPDIR": str(temporary), "XDG_STATE_HOME": str(folder / "state")}
        with mock.patch.dict(os.environ, others | state), mock.patch("tempfile.tempdir", None):
            yield folder, temporary


@asynccontextmanager
async def _opened(
    outcome: Outcome, folder: Path, main: Contents, there: Contents, small: Contents, limit: Retention | None
) -> AsyncIterator[tuple[World, Sequence[Caller]]]:
    chance = random.Random(outcome.plan.seed)
    audit = folder / "audit.jsonl"
    async with AsyncExitStack() as stack:
        server = programs.AppServer(folder)
        await server.start_ready()
        stack.push_async_callback(server.end)
        proxy = await stack.enter_async_context(Proxy(server.port))
        socket = f"{proxy.endpoint.replace('http', 'ws', 1)}/abp"
        browser = await stack.enter_async_context(Browser())
        outcome.browser = browser.version
        store = open_store(folder / "store", audit=audit)
        stack.push_async_callback(store.aclose)

        async def opened(session: Session) -> Session:
            return await stack.enter_async_context(session)

        def over_socket() -> Session:
            transport = WebSocketTransport(socket, ping_interval=2, ping_timeout=2)
            return connect(socket, transport=transport, store=store, timeout=60)

        pages = [await opened(connect(server.url, browser=browser, store=store, timeout=60)) for _ in range(2)]
        embedded = await opened(
            connect(f"{server.url}embed", transport="postmessage", browser=browser, store=store, timeout=60)
        )
        sockets = [await opened(over_socket()) for _ in range(2)]
        mcp = await opened(connect("mcp:", transport=MCPTransport(programs.mcp_server()), store=store, timeout=60))
        bridge = MCPTransport(programs.bridge_server(folder / "bridge"))
        agent = await opened(connect("mcp:", transport=bridge, store=store, timeout=60))
        program, url, token = await stack.enter_async_context(
            programs.gallery(folder / "store", socket, audit, folder / "gallery.log")
        )
        http = await stack.enter_async_context(
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {token}"}, timeout=aiohttp.ClientTimeout(total=100)
            )
        )
        async with http.get(f"{url}apps") as answer:
            (app,) = (await answer.json())["apps"]
        disk = LocalStore(folder / "disk" / "store", retention=limit)
        stack.push_async_callback(disk.aclose)
        filler = DiskCaller(await opened(connect("memory:", transport=in_process(), store=disk, timeout=60)), small)

        def cut() -> None:
            outcome.record.faults[CUT_SHORT] += 1

        def caller(way: str, session: Session, *forms: str) -> AppCaller:
            on_cut = cut if "url" in forms else None
            return AppCaller(way, session, main, random.Random(chance.random()), forms, on_cut)

        callers: list[Caller] = [
            *(caller("page", page, "buffer", "blob", "base64", "url") for page in pages),
            caller("embedded", embedded, "buffer", "blob", "base64"),
            *(caller("socket", one, "base64", "url") for one in sockets),
            caller("MCP", mcp, "base64"),
            BridgeCaller(agent, server.url, there, main, random.Random(chance.random())),
            GalleryCaller(http, url, app["session"], main, random.Random(chance.random())),
            filler,
        ]
        world = World(outcome.record, chance, server, proxy, program, filler, pages[0], embedded, set())
        try:
            yield world, callers
        finally:
            thaw(world, list(world.stopped))


@dataclass
class _Soak:
    """The callers at work, and what breaks meanwhile."""

    outcome: Outcome
    world: World
    callers: Sequence[Caller]
    temporary: Path
    say: Callable[[str], None]
    locks: dict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def phase(self, seconds: float, schedule: Schedule) -> None:
        """Call for so many seconds while the schedule is carried out; returns when no call and no fault is open."""
        end = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for caller in self.callers:
                group.create_task(self._work(caller, end))
            group.create_task(self._note_load(end))
            started = time.monotonic()
            for at, name in schedule:
                await asyncio.sleep(max(0.0, started + at - time.monotonic()))
                group.create_task(self._break(name))

    async def _work(self, caller: Caller, end: float) -> None:
        plan, chance = self.outcome.plan, random.Random(caller.way)
        while time.monotonic() < end:
            async with self.outcome.record.call(caller.way):
                await caller.call()
            await asyncio.sleep(plan.pause * chance.uniform(0.3, 1.7))

    async def _break(self, name: str) -> None:
        async with self.locks[name]:
            self.say(f"{self.outcome.record.elapsed:7.1f} s  {name}")
            self.outcome.record.faults[name] += 1
            await FAULTS[name](self.world)

    async def _note_load(self, end: float) -> None:
        while time.monotonic() < end:
            self.outcome.loads.append(psutil.getloadavg()[0])
            await asyncio.sleep(_EVERY)

    async def quiet(self) -> Resources:
        """Return what is held when nothing is broken, every caller has had a result again and the numbers stay."""
        record = self.outcome.record
        thaw(self.world, list(self.world.stopped))
        await asyncio.gather(*map(self._settle, self.callers))
        collect()
        last, until = sample(self.temporary), time.monotonic() + _QUIET
        while time.monotonic() < until:
            await asyncio.sleep(2.0)
            last, before = sample(self.temporary), last
            if last.counts == before.counts:
                break
        self.say(f"{record.elapsed:7.1f} s  quiet: {last}")
        return last

    async def _settle(self, caller: Caller) -> None:
        """Call until there is a result: what was broken is repaired by itself."""
        record, until = self.outcome.record, time.monotonic() + _SETTLE
        before = record.outcomes[caller.way, RESULT]
        while True:
            async with record.call(caller.way):
                await caller.call()
                return
            if time.monotonic() > until:
                outcomes = {name: number for (way, name), number in record.outcomes.items() if way == caller.way}
                record.problems.append(
                    f"{caller.way}: no result within {_SETTLE:.0f} seconds after the last fault; so far {outcomes}, "
                    f"{before} results before"
                )
                return
            await asyncio.sleep(1.0)


#: Seconds from the beginning of a phase, and the name of a fault.
Schedule: TypeAlias = list[tuple[float, str]]

#: Seconds at the beginning and at the end of a phase without a new fault.
_LEAD = 2.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A run: ``warm_up`` seconds in which every fault happens at least once, then ``seconds`` whose beginning and end
    are compared. ``gap`` is the mean time between two faults, ``pause`` between two calls of one caller, in seconds."""

    warm_up: float = 34.0
    seconds: float = 20.0
    gap: float = 1.9
    pause: float = 0.6
    seed: int = 2481  # what takes longest to be repaired, a browser that is stopped for good, comes first

    @classmethod
    def of_minutes(cls, minutes: float, seed: int) -> Plan:
        """Three minutes to warm up; half of the time where there are fewer than six."""
        whole = minutes * 60
        warm_up = min(180.0, whole / 2)
        return cls(warm_up=warm_up, seconds=whole - warm_up, gap=min(8.0, (warm_up - 2 * _LEAD) / 16), seed=seed)

    def schedules(self, faults: Sequence[str]) -> tuple[Schedule, Schedule]:
        """Return what breaks in the warm-up and after it: all faults in random order, again and again."""
        chance = random.Random(self.seed)
        order: list[str] = []

        def phase(seconds: float) -> Schedule:
            found: Schedule = []
            at = _LEAD
            while at < seconds - _LEAD:
                if not order:
                    order.extend(chance.sample(faults, len(faults)))
                found.append((at, order.pop()))
                at += self.gap * chance.uniform(0.6, 1.4)
            return found

        warm_up = phase(self.warm_up)
        missing = [(self.warm_up - _LEAD, name) for name in faults if name not in {name for _, name in warm_up}]
        return warm_up + missing, phase(self.seconds)
