"""What this process and those below it hold: compared at a quiet moment early in a run, and at its end."""

from __future__ import annotations

import gc
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import psutil

#: Largest growth that is no leak, and what small numbers may vary by: a browser starts a process more or less, the pool
#: of threads fills up late.
_GROWTH = 1.10
_SLACK = {"processes": 2, "descriptors": 6, "threads": 3, "files": 2, "memory": 0}


@dataclass(frozen=True, slots=True)
class Resources:
    """``processes`` below this one, and of this one itself open ``descriptors``, ``threads``, temporary ``files`` and
    ``memory`` (resident, in bytes). Files of browser profiles, whose number is the browser's own affair, are not
    counted."""

    processes: int
    descriptors: int
    threads: int
    files: int
    memory: int

    @property
    def counts(self) -> tuple[int, ...]:
        return astuple(self)[:-1]


def sample(temporary: Path) -> Resources:
    """Count now. ``temporary`` is the folder for temporary files of this process and those below it."""
    this = psutil.Process()
    return Resources(
        processes=len(this.children(recursive=True)),
        descriptors=this.num_fds(),
        threads=this.num_threads(),
        files=sum(1 for _ in _files(temporary)),
        memory=this.memory_info().rss,
    )


def collect() -> None:
    """Let go of what is garbage, so that it is not counted."""
    for _ in range(3):
        gc.collect()


def _files(folder: Path) -> list[Path]:
    out: list[Path] = []
    try:
        for path in folder.iterdir():
            profile = "profile" in path.name or path.name.startswith((".org.chromium", "org.chromium"))
            out += [path, *(_files(path) if path.is_dir() and not path.is_symlink() and not profile else ())]
    except OSError:  # removed meanwhile
        pass
    return out


def compare(before: Resources, after: Resources, *, memory_slack: int = 0) -> list[str]:
    """Return what has grown by more than a tenth; ``memory_slack`` bytes are no growth."""
    slack = _SLACK | {"memory": memory_slack}
    found = []
    for name in (one.name for one in fields(Resources)):
        old, new = getattr(before, name), getattr(after, name)
        if new > max(old * _GROWTH, old + slack[name]):
            found.append(f"{name} grew from {old:,} to {new:,}")
    return found
