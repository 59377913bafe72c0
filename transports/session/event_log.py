"""The console of an app without a page: what it says while a call runs, in notifications and progress."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..browser.evidence.kinds import EvidenceFile, EvidenceKind
from ..browser.evidence.timed_lines import MAX_CHARS, TimedLines
from ..protocol.secret_values import SecretValues
from ..protocol.secrets import KnownSecrets
from ..tasks import in_thread
from .events import ConnectionChanged, Retrying

if TYPE_CHECKING:
    from .events import Event, EventStreams

__all__ = ["EventLog"]


class EventLog:
    """Collects the events of a session from now until :meth:`end`. ``params`` are those of the call."""

    def __init__(self, streams: EventStreams, params: object, known: KnownSecrets) -> None:
        self._known = known
        self.notes: list[str] = []
        self._streams = streams
        self._params = params
        self._lines = TimedLines("the app said nothing")
        self._folder: Path | None = None
        streams.open.append(self)

    def add(self, event: Event) -> None:
        """Note one event; an :class:`~.events.EventStreams` calls it."""
        self._lines.add(partial(_line, event))

    def wake(self) -> None:
        """Nobody waits for these events."""

    async def end(self, keep: Collection[EvidenceKind]) -> list[EvidenceFile]:
        """Return the log as a file, if the console is to be kept."""
        await asyncio.sleep(0)  # for events that arrived in this turn of the loop
        if self in self._streams.open:
            self._streams.open.remove(self)
        if "console" not in keep:
            return []
        self._folder = Path(tempfile.mkdtemp(prefix="abp-evidence-"))
        path = self._folder / "console.txt"
        await in_thread(self._write, path)
        return [EvidenceFile("console", path, "text/plain", "console.txt")]

    def _write(self, path: Path) -> None:
        """Write the lines without secrets, in a thread: that of many lines takes seconds."""
        secrets = SecretValues(self._known)
        secrets.learn(self._params)
        path.write_text(self._lines.text(secrets), encoding="utf-8", errors="replace")

    def discard(self) -> None:
        """Remove the file."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _line(event: Event) -> str:
    from ..protocol.payloads import Notification, Progress  # late: they load pydantic

    match event:
        case Notification():
            return f"{event.event}: {_beginning(event.data)}"
        case Progress():
            return f"progress: {event.text}"
        case ConnectionChanged():
            return f"connection {'restored' if event.connected else 'lost'}: {event.reason}"
        case Retrying():
            return f"sent again in {event.delay:.1f} s: {event.error.message}"
    return ""


def _beginning(data: object) -> str:
    """Return the beginning of JSON values as JSON; what is cut off is not encoded."""
    pieces: list[str] = []
    room = MAX_CHARS + 1  # so that the line is seen to be cut
    for piece in json.JSONEncoder(ensure_ascii=False, default=str).iterencode(data):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return "".join(pieces)
