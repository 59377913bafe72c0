"""Helpers of the tests of the local store: what is in its folders, open files, programs of their own."""

from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PDF = b"%PDF-1.7\n" + b"x" * 100
PNG = b"\x89PNG\r\n\x1a\n" + b"y" * 100
REPOSITORY = Path(__file__).parents[2]


def visible(root: Path) -> list[str]:
    """Return the names that a user sees in the folder."""
    return sorted(path.name for path in root.glob("*") if path.name != ".abp")


def inner(root: Path, *parts: str) -> list[str]:
    """Return the files below a folder of the store itself."""
    folder = root.joinpath(".abp", *parts)
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def assert_empty(root: Path) -> None:
    """No trace of an artifact, and nothing on its way."""
    assert visible(root) == []
    for part in ("blobs", "meta", "staging"):
        assert inner(root, part) == []


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fds() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def run_script(script: str, *arguments: object, timeout: float = 60) -> str:
    """Run a program of its own, for signals, forks and lost privileges, and return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, *map(str, arguments)],
        cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


_PROCESSES = """
import asyncio, os, sys
from contextlib import suppress
from pathlib import Path
from transports.artifacts import LocalStore, Retention, Scope, open_store
from transports.errors import ArtifactNotFound
SCRIPT
gate, go = os.pipe()
pids = []
for number in range(PROCESSES):
    if not (pid := os.fork()):
        os.close(go)
        os.read(gate, 1)  # until all are there
        asyncio.run(main(number))
        os._exit(0)
    pids.append(pid)
os.close(gate)
os.close(go)
sys.exit(any([os.waitpid(pid, 0)[1] for pid in pids]))
"""


def run_processes(count: int, script: str, *arguments: object) -> None:
    """Run the coroutine function ``main(number)`` of a script in so many processes at once. None of them may fail."""
    run_script(_PROCESSES.replace("SCRIPT", script).replace("PROCESSES", str(count)), *arguments)


def fail_when(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, when: Callable[..., object], code: int
) -> None:
    """Let those calls of a function fail, as the system does, for whose arguments ``when`` is true."""
    real = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when(*arguments):
            raise OSError(code, os.strerror(code))
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, call)


def refuse_links(monkeypatch: pytest.MonkeyPatch, code: int = errno.EPERM) -> None:
    """Let every hard link fail, as on a file system without them."""
    fail_when(monkeypatch, os, "link", lambda *_: True, code)
