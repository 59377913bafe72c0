"""Those who call: one object for each way, whose ``call`` makes one call and compares what comes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import aiohttp

from tests.soak.content import Contents, File, sha256_of
from tests.support.mcp_clients import files_of
from transports import ABPError, ArtifactStore, CapabilityError, Session

#: Seconds that a call may take.
TIMEOUT = 10.0
#: Artifacts that a caller leaves in the store; older ones are read, compared and deleted.
_KEPT = 12
_ROWS = [{"month": "Jan", "sales": 80}, {"month": "Feb", "sales": 95}]


class Caller(Protocol):
    """``way`` is the row of the report that its calls are counted in."""

    way: str

    async def call(self) -> None:
        """Make one call. Raises what the kit raises, and ``AssertionError`` for a result that is not right."""


async def forget_oldest(contents: Contents, store: ArtifactStore, most: int = _KEPT) -> None:
    while (oldest := contents.oldest(most)) is not None:
        key, sha256 = oldest
        assert sha256_of(await store.get(key) or b"") == sha256, f"{key} is not what was stored"
        assert await store.delete(key), f"{key} was gone"


class AppCaller:
    """Calls over one session; ``forms`` are the ways in which the app hands over a file (``file.generate``).

    ``on_cut`` is told of each download whose first answer ends early (docs/faults.md 28)."""

    def __init__(
        self,
        way: str,
        app: Session,
        contents: Contents,
        chance: random.Random,
        forms: Sequence[str],
        *,
        on_cut: Callable[[], None] | None,
    ) -> None:
        self.way = way
        self.app = app
        self._contents = contents
        self._chance = chance
        self._forms = forms
        self._on_cut = on_cut

    async def call(self) -> None:
        kind = self._chance.random()
        if kind < 0.1:
            answer = await self.app.call("data.csv", {"rows": _ROWS}, timeout=TIMEOUT)
            assert isinstance(answer.data, dict) and answer.data["rows"] == len(_ROWS), answer.data
            self._contents.share(answer)
        elif kind < 0.2:
            told: list[object] = []
            answer = await self.app.call("job.run", {"steps": 3, "delay": 5}, timeout=TIMEOUT, on_progress=told.append)
            assert isinstance(answer.data, dict) and answer.data["steps"] == 3, answer.data
            self._contents.share(answer)
        else:
            file = self._contents.next(self._chance.random())
            if kind < 0.3 and self._on_cut is not None:
                self._on_cut()
                await self._store("fault.cut_once", {"bytes": file.size}, file)
            else:
                await self._store("file.generate", {"bytes": file.size, "as": self._chance.choice(self._forms)}, file)
        await forget_oldest(self._contents, self.app.store)

    async def _store(self, capability: str, params: dict[str, object], file: File) -> None:
        ref = (await self.app.call(capability, params, timeout=TIMEOUT)).artifact()
        self._contents.stored(file, ref.id, ref.sha256)


class DiskCaller:
    """Calls whose files go to a small disk. While it is to be ``filling``, nothing is deleted."""

    way = "disk"

    def __init__(self, app: Session, contents: Contents) -> None:
        self.app = app
        self.filling = False
        self.full = asyncio.Event()
        self._contents = contents

    async def call(self) -> None:
        may_be_full = self.filling
        if not may_be_full:
            await forget_oldest(self._contents, self.app.store, 2)
        file = self._contents.next(1.0)
        try:
            ref = (await self.app.call("file.generate", {"bytes": file.size}, timeout=TIMEOUT)).artifacts["file"]
        except ABPError as error:
            if error.code == "STORE_FULL":
                assert may_be_full or self.filling, "the disk is full without a reason"
                self.full.set()
            raise
        self._contents.stored(file, ref.id, ref.sha256)


class GalleryCaller:
    """Calls over HTTP to ``abp serve``, as its page makes them."""

    way = "gallery"

    def __init__(
        self, http: aiohttp.ClientSession, url: str, app: str, contents: Contents, chance: random.Random
    ) -> None:
        self._http = http
        self._url = url
        self._app = app
        self._contents = contents
        self._chance = chance

    async def call(self) -> None:
        file = self._contents.next(self._chance.random())
        params = {"bytes": file.size, "as": self._chance.choice(["base64", "url"])}
        body = {"capability": "file.generate", "params": params, "timeout": TIMEOUT}
        record = await self._ask("POST", f"apps/{self._app}/calls", body)
        while record["duration_ms"] is None:
            await asyncio.sleep(0.1)
            record = await self._ask("GET", f"calls/{record['id']}")
        if record["error"] is not None:
            raise CapabilityError(record["error"]["message"], code=record["error"]["code"])
        (key,) = record["artifacts"]
        async with self._http.get(f"{self._url}artifacts/{key}") as answer:
            assert answer.status == 200, (answer.status, await answer.text())
            self._contents.stored(file, key, sha256_of(await answer.read()))
        if (oldest := self._contents.oldest(_KEPT)) is not None:
            async with self._http.get(f"{self._url}artifacts/{oldest[0]}") as answer:
                assert sha256_of(await answer.read()) == oldest[1], f"{oldest[0]} is not what was stored"
            await self._ask("DELETE", f"artifacts/{oldest[0]}")

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        async with self._http.request(method, self._url + path, json=body) as answer:
            document: dict[str, Any] = await answer.json() if answer.content_type == "application/json" else {}
        if "error" in document and "id" not in document:
            raise CapabilityError(document["error"]["message"], code=document["error"]["code"])
        assert answer.status < 300, (answer.status, document)
        return document


class BridgeCaller:
    """Calls of the tools of ``abp mcp``: what an agent does, and the file read back as a resource.

    The file is in two stores: the bridge's own (``there``) and, read back, that of the session.
    """

    way = "bridge"

    def __init__(self, bridge: Session, url: str, there: Contents, contents: Contents, chance: random.Random) -> None:
        self.app = bridge
        self._url = url
        self._there = there
        self._contents = contents
        self._chance = chance
        self._session: str | None = None

    async def call(self) -> None:
        if self._session is None:
            connected = await self._tool("abp_connect", {"url": self._url, "timeout": 30}, 45.0)
            self._session = str(connected["session"])
        file = self._contents.next(self._chance.random() * 0.7)
        self._there.asked.add(file.sha256)
        call = {"capability": "file.generate", "params": {"bytes": file.size, "as": "blob"}, "session": self._session}
        try:
            answer = await self._tool("abp_call", {**call, "timeout": TIMEOUT}, TIMEOUT + 5)
        except ABPError as error:
            if error.code in ("SESSION_INVALID", "NOT_INITIALIZED"):
                self._session = None
            raise
        (made,) = files_of(answer)
        # The reference is short; the content is compared when it is read.
        self._there.stored(file, made["id"], file.sha256)
        ref = (await self.app.call("resources.read", {"uri": made["uri"]}, timeout=TIMEOUT)).artifact()
        self._contents.stored(file, ref.id, ref.sha256)
        await forget_oldest(self._contents, self.app.store)

    async def _tool(self, name: str, arguments: dict[str, object], timeout: float) -> dict[str, Any]:
        """The answer of a tool. The session keeps it as JSON too, which nobody wants here."""
        answer = await self.app.call(name, arguments, timeout=timeout)
        for ref in answer.artifacts.values():
            await self.app.store.delete(ref.id)
        assert isinstance(answer.data, dict), answer.data
        return answer.data
