"""Counts of a proxy: bytes from the server and bytes to the client, for each tool.

* :class:`Stats` — the counts of one run, with its entries in the activity log.
* :func:`read_log`, :func:`table` — the log as counts, and counts as lines of text."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ....artifacts import state_folder
from ....errors import StoreError
from ....privacy import Redactor
from ....protocol import encode_json, iso_utc, plain_line
from ...shared import aligned_rows

logger = logging.getLogger("transports")

#: Most tools that are counted apart; the others are counted together.
_MAX_TOOLS = 1000
#: Most characters of a tool's name, and bytes of the log, of which one older part is kept.
_MAX_NAME, _MAX_LOG = 200, 4 << 20
_OTHERS = "(others)"
#: Seconds of calls that are written to the log together: a write for each took 40 µs, a sixth of a small call.
_INTERVAL = 1.0


@dataclass(slots=True)
class Count:
    """Counts of one tool: its calls, the bytes of the server's answers and of those that the client got, and the
    stored files."""

    calls: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    files: int = 0

    def add(self, received: int, sent: int, files: int) -> None:
        """Count one call."""
        self.calls += 1
        self.bytes_in += received
        self.bytes_out += sent
        self.files += files


class Stats:
    """Counts of one run. Each call becomes a line of the activity log ``log``, within a second or by :meth:`flush`;
    without ``log`` there is none."""

    def __init__(self, server: str, log: Path | None = None) -> None:
        self.tools: dict[str, Count] = {}
        self.server = plain_line(Redactor().text(server), _MAX_NAME)
        self._log = log
        self._unwritten: list[tuple[float, str, str, int, int, int]] = []

    def name(self, server: str) -> None:
        """Call the server by its own name, if it has one."""
        self.server = plain_line(server, _MAX_NAME) or self.server

    def count(self, tool: str, received: int, sent: int, files: int) -> None:
        """Count one call of a tool, or of a method."""
        name = plain_line(tool, _MAX_NAME)
        name = name if name in self.tools or len(self.tools) < _MAX_TOOLS else _OTHERS
        self.tools.setdefault(name, Count()).add(received, sent, files)
        if self._log is None:
            return
        if not self._unwritten:
            asyncio.get_running_loop().call_later(_INTERVAL, self.flush)
        self._unwritten.append((time.time(), self.server, name, received, sent, files))

    def flush(self) -> None:
        """Write the calls that are not in the activity log yet."""
        calls, self._unwritten = self._unwritten, []
        if self._log is None or not calls:
            return
        lines = [
            encode_json(
                {
                    "at": iso_utc(ended),
                    "server": server,
                    "tool": tool,
                    "bytes_in": received,
                    "bytes_out": sent,
                    "files": files,
                }
            )
            + b"\n"
            for ended, server, tool, received, sent, files in calls
        ]
        try:
            _append(self._log, b"".join(lines))
        except OSError as error:
            logger.warning("the activity log %s cannot be written (%s); it ends here", self._log, error.strerror)
            self._log = None

    def as_dict(self) -> dict[str, object]:
        """Return the counts as JSON."""
        return {"server": self.server, "tools": {name: asdict(count) for name, count in self.tools.items()}}


def log_file() -> Path | None:
    """Return the activity log in the user's state folder, or ``None`` if there can be none."""
    try:
        return state_folder("proxy") / "activity.jsonl"
    except OSError:
        return None


def _append(log: Path, lines: bytes) -> None:
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, lines)  # one write, so that lines of several proxies do not mix
        size = os.fstat(fd).st_size
    finally:
        os.close(fd)
    if size > _MAX_LOG:
        log.replace(log.with_suffix(".1.jsonl"))


def read_log(log: Path) -> dict[str, dict[str, Count]]:
    """Return the counts of the activity log, by server and tool. Raises :class:`~transports.errors.StoreError`."""
    servers: dict[str, dict[str, Count]] = {}
    try:
        for line in _lines(log):
            try:
                entry = json.loads(line)
                tools = servers.setdefault(plain_line(str(entry["server"]), _MAX_NAME), {})
                name = plain_line(str(entry["tool"]), _MAX_NAME)
                tools.setdefault(name, Count()).add(
                    int(entry["bytes_in"]), int(entry["bytes_out"]), int(entry["files"])
                )
            except (ValueError, KeyError, TypeError):  # half a line of a full disk
                continue
    except OSError as error:
        raise StoreError(f"the activity log {log} cannot be read: {error.strerror}") from None
    return servers


def _lines(log: Path) -> Iterator[bytes]:
    for file in (log.with_suffix(".1.jsonl"), log):
        if file.exists():
            with file.open("rb") as lines:
                yield from lines


def table(servers: Mapping[str, Mapping[str, Count]]) -> Sequence[str]:
    """Return counts as lines of a table, the tools with the most bytes first."""
    rows: list[tuple[str, ...]] = [("server", "tool", "calls", "bytes in", "bytes to the model", "files")]
    for server, tools in sorted(servers.items()):
        for name, one in sorted(tools.items(), key=lambda item: -item[1].bytes_in):
            rows.append((server, name, *(f"{n:,}" for n in (one.calls, one.bytes_in, one.bytes_out, one.files))))
    return aligned_rows(rows, numbers=range(2, 6))
