"""Those who call: one object for each way, whose ``call`` makes one call and compares what comes; and the files whose
bytes are known before they are asked for."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from tests.support.mcp_clients import files_of
from transports import ABPError, ArtifactStore, CapabilityError, Result, Session
from webapp_fixture import digest

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


@dataclass
class AppCaller:
    """Calls over one session; ``forms`` are the ways in which the app hands over a file (``file.generate``).

    ``on_cut`` is told of each download whose first answer ends early (docs/faults.md 28)."""

    way: str
    app: Session
    contents: Contents
    chance: random.Random
    forms: Sequence[str]
    on_cut: Callable[[], None] | None

    async def call(self) -> None:
        kind = self.chance.random()
        if kind < 0.1:
            answer = await self.app.call("data.csv", {"rows": _ROWS}, timeout=TIMEOUT)
            assert isinstance(answer.data, dict) and answer.data["rows"] == len(_ROWS), answer.data
            self.contents.share(answer)
        elif kind < 0.2:
            told: list[object] = []
            answer = await self.app.call("job.run", {"steps": 3, "delay": 5}, timeout=TIMEOUT, on_progress=told.append)
            assert isinstance(answer.data, dict) and answer.data["steps"] == 3, answer.data
            self.contents.share(answer)
        else:
            file = self.contents.next(self.chance.random())
            if kind < 0.3 and self.on_cut is not None:
                self.on_cut()
                await self._store("fault.cut_once", {"bytes": file.size}, file)
            else:
                await self._store("file.generate", {"bytes": file.size, "as": self.chance.choice(self.forms)}, file)
        await forget_oldest(self.contents, self.app.store)

    async def _store(self, capability: str, params: dict[str, object], file: File) -> None:
        ref = (await self.app.call(capability, params, timeout=TIMEOUT)).artifact()
        self.contents.stored(file, ref.id, ref.sha256)


@dataclass
class DiskCaller:
    """Calls whose files go to a small disk. While it is to be ``filling``, nothing is deleted."""

    app: Session
    contents: Contents
    filling: bool = False
    full: asyncio.Event = field(default_factory=asyncio.Event)
    way: str = "disk"

    async def call(self) -> None:
        may_be_full = self.filling
        if not may_be_full:
            await forget_oldest(self.contents, self.app.store, 2)
        file = self.contents.next(1.0)
        try:
            ref = (await self.app.call("file.generate", {"bytes": file.size}, timeout=TIMEOUT)).artifacts["file"]
        except ABPError as error:
            if error.code == "STORE_FULL":
                assert may_be_full or self.filling, "the disk is full without a reason"
                self.full.set()
            raise
        self.contents.stored(file, ref.id, ref.sha256)


@dataclass
class GalleryCaller:
    """Calls over HTTP to ``abp serve``, as its page makes them."""

    http: aiohttp.ClientSession
    url: str
    app: str
    contents: Contents
    chance: random.Random
    way: str = "gallery"

    async def call(self) -> None:
        file = self.contents.next(self.chance.random())
        params = {"bytes": file.size, "as": self.chance.choice(["base64", "url"])}
        body = {"capability": "file.generate", "params": params, "timeout": TIMEOUT}
        record = await self._ask("POST", f"apps/{self.app}/calls", body)
        while record["duration_ms"] is None:
            await asyncio.sleep(0.1)
            record = await self._ask("GET", f"calls/{record['id']}")
        if record["error"] is not None:
            raise CapabilityError(record["error"]["message"], code=record["error"]["code"])
        (key,) = record["artifacts"]
        async with self.http.get(f"{self.url}artifacts/{key}") as answer:
            assert answer.status == 200, (answer.status, await answer.text())
            self.contents.stored(file, key, sha256_of(await answer.read()))
        if (oldest := self.contents.oldest(_KEPT)) is not None:
            async with self.http.get(f"{self.url}artifacts/{oldest[0]}") as answer:
                assert sha256_of(await answer.read()) == oldest[1], f"{oldest[0]} is not what was stored"
            await self._ask("DELETE", f"artifacts/{oldest[0]}")

    async def _ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        async with self.http.request(method, self.url + path, json=body) as answer:
            document: dict[str, Any] = await answer.json() if answer.content_type == "application/json" else {}
        if "error" in document and "id" not in document:
            raise CapabilityError(document["error"]["message"], code=document["error"]["code"])
        assert answer.status < 300, (answer.status, document)
        return document


@dataclass
class BridgeCaller:
    """Calls of the tools of ``abp mcp``: what an agent does, and the file read back as a resource.

    The file is in two stores: the bridge's own (``there``) and, read back, that of the session.
    """

    app: Session
    url: str
    there: Contents
    contents: Contents
    chance: random.Random
    session: str | None = None
    way: str = "bridge"

    async def call(self) -> None:
        if self.session is None:
            connected = await self._tool("abp_connect", {"url": self.url, "timeout": 30}, 45.0)
            self.session = str(connected["session"])
        file = self.contents.next(self.chance.random() * 0.7)
        self.there.asked.add(file.sha256)
        call = {"capability": "file.generate", "params": {"bytes": file.size, "as": "blob"}, "session": self.session}
        try:
            answer = await self._tool("abp_call", {**call, "timeout": TIMEOUT}, TIMEOUT + 5)
        except ABPError as error:
            if error.code in ("SESSION_INVALID", "NOT_INITIALIZED"):
                self.session = None
            raise
        (made,) = files_of(answer)
        # The reference is short; the content is compared when it is read.
        self.there.stored(file, made["id"], file.sha256)
        ref = (await self.app.call("resources.read", {"uri": made["uri"]}, timeout=TIMEOUT)).artifact()
        self.contents.stored(file, ref.id, ref.sha256)
        await forget_oldest(self.contents, self.app.store)

    async def _tool(self, name: str, arguments: dict[str, object], timeout: float) -> dict[str, Any]:
        """The answer of a tool. The session keeps it as JSON too, which nobody wants here."""
        answer = await self.app.call(name, arguments, timeout=timeout)
        for ref in answer.artifacts.values():
            await self.app.store.delete(ref.id)
        assert isinstance(answer.data, dict), answer.data
        return answer.data


#: Sizes in bytes that are asked for: inside an answer, by a handle or a download, in several pieces.
_SMALL, _MEDIUM, _LARGE = 10_000, 400_000, 1_500_000


@dataclass(frozen=True, slots=True)
class File:
    """A file that the app can make: its size in bytes and its SHA-256."""

    size: int
    sha256: str


@dataclass
class Contents:
    """The files that one store was asked to keep. No two are alike, so that each put makes one artifact.

    ``asked`` holds the hashes of files whose call has no outcome yet or failed; ``kept`` those that were answered and
    not deleted since, as (id, SHA-256), oldest first; ``answered`` and ``deleted`` count. ``shared`` are artifacts that
    many calls were answered with, and that nobody deletes.
    """

    kept: deque[tuple[str, str]] = field(default_factory=deque)
    shared: set[tuple[str, str]] = field(default_factory=set)
    asked: set[str] = field(default_factory=set)
    answered: int = 0
    deleted: int = 0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def next(self, chance: float) -> File:
        """Another file. ``chance``, from 0 to 1, says whether it is small, medium or large."""
        size = (_SMALL if chance < 0.6 else _MEDIUM if chance < 0.95 else _LARGE) + next(self._numbers)
        file = File(size, digest(size))
        self.asked.add(file.sha256)
        return file

    def stored(self, file: File, artifact_id: str, sha256: str) -> None:
        """The call for a file was answered with an artifact."""
        assert sha256 == file.sha256, f"{artifact_id} is another file than the app made"
        self.asked.discard(sha256)
        self.kept.append((artifact_id, sha256))
        self.answered += 1

    def share(self, answer: Result) -> None:
        """An answer is the same each time, and so are its artifacts, which nobody deletes."""
        self.shared |= {(ref.id, ref.sha256) for ref in answer.artifacts.values()}

    def oldest(self, most: int) -> tuple[str, str] | None:
        """The next one to delete, where more than ``most`` are kept. It counts as deleted."""
        if len(self.kept) <= most:
            return None
        self.deleted += 1
        return self.kept.popleft()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
