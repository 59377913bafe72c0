"""The stores at the end of a run: as many artifacts as were put, in the index, in the metadata and as content."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.soak.callers import Contents, sha256_of
from tests.support.clock import Clock
from transports.artifacts import LocalStore

_LATER = 7200.0  # seconds; what a killed writer left goes after an hour


@dataclass
class Ledger:
    """Numbers of one store. ``puts`` and ``deletes`` are those that the audit log has, or that were answered.
    ``problems`` is empty if everything fits."""

    name: str
    puts: int
    deletes: int
    index: int = 0
    problems: list[str] = field(default_factory=list)

    def expect(self, fits: bool, problem: str) -> None:
        if not fits:
            self.problems.append(f"{self.name}: {problem}")


def logged(audit: Path) -> tuple[set[str], int, int]:
    """The artifacts that an audit log leaves, and how many were put and deleted."""
    there: set[str] = set()
    puts: set[str] = set()
    deletes = 0
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        if entry["action"] == "put":
            there.add(entry["id"])
            puts.add(entry["id"])
        elif entry["action"] == "delete":
            there.discard(entry["id"])
            deletes += 1
    return there, len(puts), deletes


async def check_store(name: str, root: Path, contents: Contents, *, audit: Path | None, killed: bool) -> Ledger:
    """Compare a store with what it was asked for. ``audit`` is its log, if it has one; ``killed`` says whether writers
    were killed, which may leave content behind that nobody sees and that goes by its age."""
    store = LocalStore(root)
    answered = dict(contents.kept) | dict(contents.shared)
    ledger = Ledger(name, contents.answered + len(contents.shared), contents.deleted)
    expected: set[str] | None = None
    if audit is not None:
        expected, ledger.puts, ledger.deletes = logged(audit)
    if killed:
        with pytest.MonkeyPatch.context() as patch:
            Clock(patch).passes(_LATER)
            await store.gc()
    refs = {ref.id: ref for ref in await store.list()}
    report = await store.fsck()
    for problem in report.problems:
        ledger.problems.append(f"{name}: fsck: {problem}")
    for key, ref in refs.items():
        found = sha256_of(await store.get(ref))
        ledger.expect(found == ref.sha256, f"{key} is not what its metadata says")
        known = answered[key] == found if key in answered else found in contents.asked
        # an answer whose call failed after all is kept as JSON; it has no content that could be known
        ledger.expect(known or ref.mime_type == "application/json", f"nobody asked for {key}")
    ledger.expect(answered.keys() <= refs.keys(), f"answered and not there: {sorted(answered.keys() - refs.keys())}")
    if expected is not None:
        ledger.expect(refs.keys() == expected, f"the audit log differs: {sorted(refs.keys() ^ expected)}")
    with closing(sqlite3.connect(root / ".abp" / "index.sqlite")) as index:
        (ledger.index,) = index.execute("SELECT COUNT(*) FROM artifacts").fetchone()
    numbers = {"index": ledger.index, "metadata": _files(root, "meta"), "content": _files(root, "blobs")}
    for what, number in numbers.items():
        ledger.expect(number == len(refs), f"{number} in {what}, {len(refs)} artifacts")
    ledger.expect(_files(root, "staging") == 0, "files on their way were left")
    await store.aclose()
    return ledger


def _files(root: Path, part: str) -> int:
    return sum(len(names) for _, _, names in os.walk(root / ".abp" / part))
