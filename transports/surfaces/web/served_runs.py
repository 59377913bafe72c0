"""The batch runs that a server shows: where they are, and looking at those that somebody watches."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from ...artifacts import ArtifactRef, ArtifactStore, open_store
from ...batch.ledger import LedgerView, Overview, open_view
from ...errors import ABPError, ArtifactNotFound, UsageError
from ...protocol.urls import redact_url
from ...tasks import cancel_and_wait, in_thread

__all__ = ["Place", "ServedRun", "ServedRuns"]

logger = logging.getLogger("transports")

#: Runs that are shown, the newest of a folder, and folders that are looked into for them.
_MAX_RUNS, _MAX_FOLDERS = 100, 10_000
#: Ledgers that are open at a time, and seconds after which one is closed that nobody asked for.
_MAX_OPEN, _IDLE = 8, 60.0
#: Seconds between two reads of a run that is watched; more if a read takes long.
_INTERVAL, _PAUSE_FACTOR = 1.0, 10


@dataclass(frozen=True, slots=True)
class Place:
    """Where a run is: the ``folder`` of its ledger, or an address without one. ``changed`` is in seconds since 1970."""

    where: str
    name: str
    folder: Path | None = None
    changed: float | None = None

    @property
    def id(self) -> str:
        """What the run is called in addresses."""
        return hashlib.sha256(self.where.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class ServedRun:
    """A run that is shown. Requests in between share what the last read found."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.view: LedgerView = open_view(place.where)
        self.seen: Overview | None = None
        self.used = time.monotonic()
        self._due = 0.0
        self._reading = asyncio.Lock()

    async def overview(self) -> Overview:
        """Return how the run stands, as of a second ago. Raises :class:`~transports.errors.LedgerError`."""
        async with self._reading:
            if self.seen is None or time.monotonic() >= self._due:
                started = time.monotonic()
                self.seen = await self.view.overview()
                took = time.monotonic() - started
                self._due = time.monotonic() + max(_INTERVAL, took * _PAUSE_FACTOR)
            return self.seen


class ServedRuns:
    """The runs at ``places``: a run's folder, a folder of runs, which may come and go, or a ``postgresql://`` address.

    ``on_change`` is called with a run that is watched and its states when they have changed; it may not block. Raises
    :class:`~transports.errors.UsageError` for a folder that is not there, and an address that is none.
    """

    def __init__(self, places: Sequence[str], on_change: Callable[[str, Overview], object]) -> None:
        for place in places:
            if "://" in place:
                open_view(place)
            elif not Path(place).is_dir():
                raise UsageError(f"there is no folder {place}; name a run's folder, or one that runs are in")
        self._given = tuple(place if "://" in place else str(Path(place).absolute()) for place in places)
        self._on_change = on_change
        self._open: dict[str, ServedRun] = {}
        self._stores: dict[str, ArtifactStore] = {}
        self._watching: asyncio.Task[None] | None = None

    @property
    def configured(self) -> bool:
        """Whether the server shows runs at all."""
        return bool(self._given)

    async def places(self) -> list[Place]:
        """Return where the runs are, the newest first, at most 100."""
        return await in_thread(_find_places, self._given)

    async def get(self, run_id: str) -> ServedRun | None:
        """Return the run of this id, which is watched for a minute from now on, or ``None``."""
        if run_id not in self._open:
            place = next((place for place in await self.places() if place.id == run_id), None)
            if place is None:
                return None
            if run_id not in self._open:
                self._open[run_id] = ServedRun(place)
        run = self._open[run_id]
        run.used = time.monotonic()
        if self._watching is None:
            self._watching = asyncio.ensure_future(self._watch())
        if len(self._open) > _MAX_OPEN:
            await self._close(min(self._open, key=lambda key: self._open[key].used))
        return run

    async def artifact(self, artifact_id: str) -> tuple[ArtifactStore, ArtifactRef, str] | None:
        """Return a file of a run whose files are beside its ledger: the store that it is in, and the id of the run;
        ``None`` for no such file."""
        places = await self.places() if self._given else []
        for gone in self._stores.keys() - {place.id for place in places}:
            if store := self._stores.pop(gone, None):  # another request may have closed it
                await store.aclose()
        for place in places:
            if place.folder is None:
                continue
            store = self._stores.get(place.id) or open_store(place.folder / "files")
            self._stores[place.id] = store
            with suppress(ArtifactNotFound):
                return store, await store.stat(artifact_id), place.id
        return None

    async def aclose(self) -> None:
        """Close all ledgers and stores. Idempotent."""
        if self._watching is not None:
            await cancel_and_wait((self._watching,))
        for run_id in tuple(self._open):
            await self._close(run_id)
        stores, self._stores = self._stores, {}
        for store in stores.values():
            await store.aclose()

    async def _close(self, run_id: str) -> None:
        if run := self._open.pop(run_id, None):
            await run.view.aclose()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL)
            for run_id, run in tuple(self._open.items()):
                if self._open.get(run_id) is not run:
                    continue  # it was closed meanwhile
                if time.monotonic() - run.used > _IDLE:
                    await self._close(run_id)
                    continue
                before = run.seen
                try:
                    now = await run.overview()
                except ABPError as error:  # a request for the run gets the error
                    logger.debug("the run %s cannot be looked at: %s", run.place.name, error.message)
                    continue
                if before is None or (before.states, before.cancelled) != (now.states, now.cancelled):
                    self._on_change(run_id, now)


def _find_places(given: Sequence[str]) -> list[Place]:
    found: dict[str, Place] = {}
    for where in given:
        for place in [_address(where)] if "://" in where else _in_folder(Path(where)):
            found.setdefault(place.where, place)
    return sorted(found.values(), key=lambda place: place.changed or time.time(), reverse=True)[:_MAX_RUNS]


def _address(url: str) -> Place:
    run = parse_qs(urlsplit(url).query).get("run", ["default"])[-1]
    return Place(url, f"{run} · {redact_url(url.partition('?')[0])}")


def _in_folder(folder: Path) -> list[Place]:
    """The run of a folder; without one, those of the folders in it."""
    if own := _run_in(folder):
        return [own]
    found: list[Place] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(_MAX_FOLDERS), entries, strict=False):
            if entry.is_dir(follow_symlinks=False) and (place := _run_in(Path(entry.path))):
                found.append(place)
    return found


def _run_in(folder: Path) -> Place | None:
    times = []
    for name in ("ledger.sqlite", "ledger.sqlite-wal"):
        with suppress(OSError):
            times.append((folder / name).stat().st_mtime)
    return Place(str(folder), folder.name, folder, max(times)) if times else None
