"""A pool over apps in this process and browsers that are only counted, so that each can be made sick."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from transports import CapabilityError, MemoryTransport, Session, connect
from transports.batch import Pool, _fleet as fleet
from transports.errors import BrowserCrashed, BrowserNotFound, ConnectFailed
from transports.testing import Call

PAGE = "http://app.example/"


class Browser:
    """What the pool sees of a browser."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.answers = True
        self.answers_after = 0.0
        self.opened = self.closed = False
        self.resident = 100
        self.callbacks: list[Callable[[object], None]] = []
        self.transports: list[App] = []

    async def __aenter__(self) -> Browser:
        with self.world.launching_one():
            await asyncio.sleep(0.01)
            if self.world.launches_fail:
                self.world.launches_fail -= 1
                raise self.world.launch_error
        self.opened = True
        self.world.browsers.append(self)
        self.world.most_browsers = max(self.world.most_browsers, len(self.world.running()))
        return self

    async def aclose(self) -> None:
        self.alive, self.closed = False, True

    async def responds(self, timeout: float = 3.0) -> bool:
        return self.alive and self.answers and self.answers_after <= timeout

    async def resident_bytes(self) -> int:
        return self.resident

    def on_end(self, callback: Callable[[object], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback) if callback in self.callbacks else None

    async def die(self) -> None:
        """Its calls lose their answers, its sessions their pages."""
        self.alive = False
        for callback in [*self.callbacks]:
            callback(self)
        for transport in self.transports:
            await transport.aclose()


class App(MemoryTransport):
    """One session's way to the app, perhaps in a browser."""

    def __init__(self, world: World, target: str, browser: Browser | None) -> None:
        super().__init__({name: getattr(self, name) for name in ("work", "wait", "refuse", "busy", "stubborn")})
        self.world, self.target, self.browser = world, target, browser

    async def open(self) -> None:
        if self.browser is not None and not self.browser.alive:
            raise BrowserCrashed("the browser ended while the app was opened in it")
        if self.target == "http://nobody.example/":
            raise ConnectFailed("nothing answers")
        await super().open()
        self.world.opened.append(self.target)
        self.world.open_now += 1
        self.world.most_sessions = max(self.world.most_sessions, self.world.open_now)
        if self.browser is not None:
            self.browser.transports.append(self)

    async def aclose(self) -> None:
        if not self._closed:
            self.world.open_now -= 1
        await super().aclose()

    async def work(self, params: Mapping[str, object], call: Call) -> object:
        self.world.running_now += 1
        self.world.most_calls = max(self.world.most_calls, self.world.running_now)
        try:
            await asyncio.sleep(0)
            return {"n": params.get("n"), "browser": self.world.number(self.browser)}
        finally:
            self.world.running_now -= 1

    async def wait(self, params: Mapping[str, object], call: Call) -> object:
        self.world.waiting += 1
        await self.world.go_on.wait()
        return await self.work(params, call)

    async def refuse(self, params: Mapping[str, object], call: Call) -> object:
        raise CapabilityError("not today", code="PERMISSION_DENIED")

    async def busy(self, params: Mapping[str, object], call: Call) -> object:
        """Refuses, with the code of the parameters, before anything has run."""
        self.world.refused += 1
        raise CapabilityError("later", code=str(params["code"]), retryable=True, retry_after=0.0)

    async def stubborn(self, params: Mapping[str, object], call: Call) -> object:
        return None

    async def request(self, message: Any, *, timeout: float) -> Any:
        if message.type == "capabilities/call" and message.payload["capability"] == "stubborn":
            self.world.stuck += 1
            while not self.world.go_on.is_set():  # a driver that knows neither timeouts nor cancellation
                try:
                    await self.world.go_on.wait()
                except asyncio.CancelledError:
                    self.world.ignored += 1
        return await super().request(message, timeout=timeout)


class World:
    """All browsers and apps of a test, and what they were made to do."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.browsers: list[Browser] = []
        self.opened: list[str] = []
        self.go_on = asyncio.Event()
        self.launch_error: Exception = BrowserNotFound("no browser starts today")
        self.launches_fail = self.launching = self.most_launching = 0
        self.waiting = self.stuck = self.ignored = self.open_now = self.most_sessions = self.most_browsers = 0
        self.running_now = self.most_calls = self.refused = 0
        self.free = 1 << 40
        patch.setattr("transports.batch._pool.Browser", lambda **_: Browser(self))
        patch.setattr("transports.batch._pool.free_memory", lambda: self.free)
        self._patch = patch
        self.set_times(tick=0.01, check_interval=0.01)

    def set_times(self, **seconds: float) -> None:
        self._patch.setattr(fleet, "TIMES", replace(fleet.TIMES, **seconds))

    def running(self) -> list[Browser]:
        return [browser for browser in self.browsers if not browser.closed and browser.alive]

    def number(self, browser: Browser | None) -> int | None:
        return None if browser is None else self.browsers.index(browser)

    @contextmanager
    def launching_one(self) -> Iterator[None]:
        self.launching += 1
        self.most_launching = max(self.most_launching, self.launching)
        try:
            yield
        finally:
            self.launching -= 1

    def connect(self, target: str, *, browser: Browser | None = None, **options: Any) -> Session:
        return connect("memory:", transport=App(self, target, browser), **options)

    def connect_in_context(self, target: str, *, context: Browser | None = None, **options: Any) -> Session:
        return self.connect(target, **({"browser": context} if context else {}), **options)

    def pool(self, browsers: int | None = 2, sessions: int = 2, **options: Any) -> Pool:
        return Pool(browsers, sessions, **{"connect": self.connect, "store": "none:", **options})
