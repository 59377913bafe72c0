"""The local store: a folder is replaced by a symlink while an artifact is written or removed. Nothing leaves it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.local_store import PDF, sha
from tests.support.slow import slow_but
from transports.artifacts import LocalStore
from transports.errors import StoreError

#: What a step of the store calls in the system.
CALLS = ("open", "mkdir", "link", "rename", "unlink", "stat", "listdir")
PLACES = ("", ".abp", ".abp/staging", ".abp/blobs", ".abp/meta", ".abp/locks", ".abp/quarantine")


class Swap:
    """Before the system call of one number, moves a folder away and puts a symlink to ``elsewhere`` in its place."""

    def __init__(self, place: Path, elsewhere: Path, step: int) -> None:
        self.place, self.elsewhere, self.step = place, elsewhere, step
        self.away = place.with_name(f"{place.name}.away")
        self.count = 0
        self._rename, self._symlink, self._unlink = os.rename, os.symlink, os.unlink

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for name in CALLS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.count += 1
            if self.count == self.step and self.place.is_dir():
                self._rename(self.place, self.away)
                self._symlink(self.elsewhere, self.place)
            return call(*args, **options)

        return counted

    def undo(self) -> None:
        """Put the folder back, if the store has not made another one."""
        if self.place.is_symlink():
            self._unlink(self.place)
            self._rename(self.away, self.place)


@pytest.mark.load
@pytest.mark.fault(43)
@pytest.mark.parametrize(
    ("job", "place"),
    slow_but(itertools.product(["put", "delete"], PLACES), ("put", ""), ("put", ".abp/meta"), ("delete", ".abp/blobs")),
)
async def test_folder_swapped_for_symlink_at_any_step_is_not_followed(
    job: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    for part in ("", *PLACES):  # the other place looks like a store, so nothing fails for want of a folder
        (elsewhere / part).mkdir(parents=True, exist_ok=True)
    victim = elsewhere / ".abp/meta" / f"artifact_{sha(PDF)[:12]}.json"
    for folder in [elsewhere, *(elsewhere / one for one in PLACES)]:
        for name in ("report.pdf", sha(PDF), victim.name):
            (folder / name).write_bytes(b"somebody else's")
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    steps = 0
    for step in range(1, 500):
        root = tmp_path / f"out{step}"
        store = LocalStore(root)
        ref = await store.put_bytes(PDF, filename="report.pdf")
        if job == "put":
            await store.delete(ref.id)
        swap = Swap(root / place, elsewhere / place, step)
        with monkeypatch.context() as patch:
            swap.install(patch)
            with suppress(StoreError):
                await (store.put_bytes(PDF, filename="report.pdf") if job == "put" else store.delete(ref.id))
        assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before, step
        swap.undo()
        again = await store.put_bytes(PDF, filename="report.pdf")
        assert await store.get(again.id) == PDF
        if swap.count < step:
            steps = step
            break
    assert steps > 10
