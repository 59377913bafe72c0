"""The real server of the gallery over a store of its own, the reference app connected: for the browser tests and for
the pictures of the documentation."""

from __future__ import annotations

import asyncio
import math
import struct
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from transports import Browser, Session, Transport, connect
from transports.artifacts import open_store
from transports.session._named_apps import app_entries
from transports.session._settings import read_config
from transports.surfaces.web._access import LIMITS, Limits, Options
from transports.surfaces.web._server import Served, serve
from webapp_fixture import Fixture

TOKEN = "a-token-for-the-gallery"
KEY = "a key that links are signed with, for tests"
PICTURE = (Path(__file__).parents[2] / "webapp_fixture" / "samples" / "picture.png").read_bytes()
#: Seconds for anything that a test waits for.
PATIENCE = 20.0


@dataclass
class Gallery:
    """``app`` is the key of the connected reference app, if there is one. ``http`` has the operator's token."""

    served: Served
    http: aiohttp.ClientSession
    folder: Path
    app: str = ""

    @property
    def url(self) -> str:
        return self.served.url

    @property
    def entry(self) -> str:
        """The address that ``abp serve`` prints."""
        return f"{self.url}#token={TOKEN}"

    async def ask(self, method: str, path: str, *, body: object = None, expect: int = 200) -> dict[str, Any]:
        """A request to the server and its JSON answer."""
        async with self.http.request(method, self.url + path, json=body) as answer:
            assert answer.status == expect, (answer.status, await answer.text())
            return await answer.json() if answer.content_type == "application/json" else {}

    async def upload(self, name: str, mime_type: str, data: bytes) -> dict[str, Any]:
        """Store a file as a person would; its metadata."""
        url = f"{self.url}artifacts?filename={quote(name, safe='')}"
        async with self.http.post(url, data=data, headers={"Content-Type": mime_type}) as answer:
            assert answer.status == 201, await answer.text()
            document = await answer.json()
        return document["artifacts"][0]  # type: ignore[no-any-return]

    async def start(self, capability: str, params: Mapping[str, object]) -> str:
        """Begin a call; its id."""
        body = {"capability": capability, "params": params}
        return str((await self.ask("POST", f"apps/{self.app}/calls", body=body, expect=202))["id"])

    async def call(self, capability: str, /, **params: object) -> dict[str, Any]:
        """A call, when it is over."""
        key = await self.start(capability, params)
        until = time.monotonic() + PATIENCE
        while (record := await self.ask("GET", f"calls/{key}"))["duration_ms"] is None:
            assert time.monotonic() < until, record
            await asyncio.sleep(0.05)
        return record


@asynccontextmanager
async def open_gallery(
    folder: Path,
    browser: Browser,
    fixture: Fixture | None = None,
    *,
    port: int = 0,
    memory: Transport | None = None,
    runs: Sequence[str] = (),
    config: Path | None = None,
    public_url: str | None = None,
    limits: Limits = LIMITS,
) -> AsyncIterator[Gallery]:
    """Serve what is in ``folder``, and batch ``runs``; an app is connected if one is given: the reference app through
    ``browser``, else ``memory``, which is otherwise the app at ``memory:``. ``config`` describes apps by name."""

    def reach(target: str, **options: Any) -> Session:
        if memory is not None and not target.startswith(("http", "mcp")):
            return connect(target, transport=memory, **options)
        return connect(target, **options, config=config, browser=browser if target.startswith("http") else None)

    store, named = open_store(folder), app_entries(read_config(config)) if config else ()
    options = Options(token=TOKEN, key=KEY, public_url=public_url)
    async with serve(store, options, port=port, connect=reach, runs=runs, named=named, limits=limits) as served:
        app = ""
        if fixture:
            app = (await served.apps.connect(fixture.url, {})).key
        elif memory:
            app = (await served.apps.connect("memory:", {})).key
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http:
            yield Gallery(served, http, folder, app)


def tone(seconds: float = 1.0, rate: int = 8000) -> bytes:
    """A WAV file."""
    samples = b"".join(
        struct.pack("<h", int(9000 * math.sin(sample / 5) * (1 - sample / (seconds * rate))))
        for sample in range(int(seconds * rate))
    )
    head = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1, rate, rate * 2, 2,
                       16, b"data", len(samples))  # fmt: skip
    return head + samples
