"""Fixtures of the tests of stores."""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clock import Clock
from tests.support.needs import missing
from transports.artifacts import LocalStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def store(root: Path) -> LocalStore:
    return LocalStore(root)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", place], capture_output=True, text=True)
    if done.returncode:
        missing("a mount", done.stderr.strip())
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)  # lazy: also after a test that leaked a descriptor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def ticking_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the clock is 10 ms after the one before, so that what is stored first is older."""
    readings = itertools.count()
    start = time.time()
    monkeypatch.setattr(time, "time", lambda: start + 0.01 * next(readings))
