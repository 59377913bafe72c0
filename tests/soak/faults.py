"""What is broken during a run: each fault breaks one part, and mends it where nobody else would."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.soak.callers import DiskCaller
from tests.soak.programs import AppServer, Program
from tests.soak.record import Record
from tests.support.object_server import Proxy
from tests.support.processes import processes
from transports import Session

#: Seconds for a stopped browser to be replaced, for a disk to be full, and for a killed program's processes to end.
_REPLACED, _FULL, _GONE = 60.0, 30.0, 30.0


@dataclass
class World:
    record: Record
    chance: random.Random
    server: AppServer
    proxy: Proxy
    gallery: Program
    disk: DiskCaller
    page: Session
    embedded: Session
    stopped: set[psutil.Process]


def _driver(world: World) -> list[psutil.Process]:
    """The driver of the browser that pages and embedded apps share; the bridge has another."""
    drivers = {process.pid for process in processes("driver")}
    return [process for process in psutil.Process().children() if process.pid in drivers]


def _of_browser(kind: str) -> Callable[[World], list[psutil.Process]]:
    return lambda world: [process for driver in _driver(world) for process in processes(kind, driver)]


def _child(words: str) -> Callable[[World], list[psutil.Process]]:
    """The programs that sessions have started, by what their command line ends with."""

    def found(world: World) -> list[psutil.Process]:
        out = []
        for process in psutil.Process().children():
            with suppress(psutil.Error):
                if " ".join(process.cmdline()).endswith(words):
                    out.append(process)
        return out

    return found


_BRIDGE, _MCP = _child("transports.surfaces.cli mcp"), _child("reference.py")
Find = Callable[[World], list[psutil.Process]]


def _kill(find: Find, *, one: bool = False) -> Callable[[World], Awaitable[None]]:
    """SIGKILL to what is found, or to one of it; then whatever it had started must end too."""

    async def fault(world: World) -> None:
        found = find(world)
        victims = [world.chance.choice(found)] if found and one else found
        family = [child for victim in victims for child in _family(victim)]
        for victim in victims:
            with suppress(psutil.Error):
                victim.kill()
        until = world.record.elapsed + _GONE
        while alive := [child for child in family if _alive(child)]:
            if world.record.elapsed > until:
                lines = [f"{child.pid} {child.name()}" for child in alive]
                world.record.problems.append(f"processes outlived the one that started them: {', '.join(lines)}")
                return
            await asyncio.sleep(0.2)

    return fault


def _family(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return process.children(recursive=True)
    return []


def _alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def _stop(find: Find) -> Callable[[World], Awaitable[None]]:
    """SIGSTOP to what is found, and SIGCONT after one to six seconds."""

    async def fault(world: World) -> None:
        found = find(world)
        _suspend(world, found)
        await asyncio.sleep(world.chance.uniform(1, 6))
        thaw(world, found)

    return fault


def _suspend(world: World, found: list[psutil.Process]) -> None:
    for process in found:
        with suppress(psutil.Error):
            process.suspend()
            world.stopped.add(process)


def thaw(world: World, found: list[psutil.Process]) -> None:
    for process in found:
        with suppress(psutil.Error):
            process.resume()
        world.stopped.discard(process)


async def _stop_browser(world: World) -> None:
    """SIGSTOP to the browser, for good: the kit must replace it."""
    found = _of_browser("browser")(world)
    _suspend(world, found)
    until = world.record.elapsed + _REPLACED
    while any(map(_alive, found)) and world.record.elapsed < until:
        await asyncio.sleep(0.5)
    if any(map(_alive, found)):
        world.record.problems.append(f"a stopped browser was there {_REPLACED:.0f} seconds later")
    thaw(world, found)


def _spin(session: str) -> Callable[[World], Awaitable[None]]:
    """A handler of the app never ends."""

    async def fault(world: World) -> None:
        app: Session = getattr(world, session)
        async with world.record.call(session):
            await app.call("fault.spin", timeout=2.0)

    return fault


async def _server_killed(world: World) -> None:
    await world.server.end(signal.SIGKILL)
    await asyncio.sleep(world.chance.uniform(0.2, 2))
    await world.server.start_ready()


async def _cut(world: World) -> None:
    """Connections end in the middle of what the server says next."""
    before = world.proxy.connections
    world.proxy.cut_down = 0
    until = world.record.elapsed + 5
    while world.proxy.connections == before and world.record.elapsed < until:
        await asyncio.sleep(0.02)
    world.proxy.cut_down = None


async def _disk_full(world: World) -> None:
    world.disk.full.clear()
    world.disk.filling = True
    try:
        await asyncio.wait_for(world.disk.full.wait(), _FULL)
        await asyncio.sleep(1)
    except TimeoutError:
        world.record.problems.append(f"the disk was not full after {_FULL:.0f} seconds")
    finally:
        world.disk.filling = False


def _pid(find: Callable[[World], int]) -> Find:
    def found(world: World) -> list[psutil.Process]:
        try:
            return [psutil.Process(find(world))]
        except (psutil.Error, AssertionError):  # it is killed just now
            return []

    return found


#: By name, with the row of docs/faults.md: what a run breaks.
FAULTS: Mapping[str, Callable[[World], Awaitable[None]]] = {
    "browser killed (1)": _kill(_of_browser("browser")),
    "renderer killed (2)": _kill(_of_browser("renderer"), one=True),
    "driver killed (3)": _kill(_driver),
    "browser stopped for good (4)": _stop_browser,
    "page spins (5)": _spin("page"),
    "embedded app spins (5)": _spin("embedded"),
    "connections cut (12)": _cut,
    "disk full (39)": _disk_full,
    "app server killed": _server_killed,
    "app server stopped (15)": _stop(_pid(lambda world: world.server.pid)),
    "MCP server killed": _kill(_MCP),
    "MCP server stopped": _stop(_MCP),
    "bridge killed (6)": _kill(_BRIDGE),
    "bridge stopped": _stop(_BRIDGE),
    "gallery stopped": _stop(_pid(lambda world: world.gallery.pid)),
}
#: A download that the server cuts once; it happens with every tenth call of an app, besides the schedule.
CUT_SHORT = "download cut short (28)"
#: All that a report tells of.
NAMES = (*FAULTS, CUT_SHORT)
