"""The rule that every case of every target keeps, and the inputs that are kept in files."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
#: A door: takes the bytes that come in. It raises an error of ours, or nothing.
Target: TypeAlias = Callable[[bytes], None]

#: Processor time of one case, in seconds.
MAX_SECONDS = 0.05
#: Length of an input: enough for a number of more digits than Python reads.
MAX_BYTES = 8192
#: How often a case that takes too long is tried: the first time it may fill a cache or meet the garbage collector.
_TRIES = 3

_CORPUS = Path(__file__).parent / "corpus"


class Slow(Exception):
    """Raised for a case that takes too much processor time."""


def run_case(target: Target, data: bytes, max_seconds: float = MAX_SECONDS) -> None:
    """Run one case. Raises :class:`Slow`, and whatever the target raises that is no error of ours."""
    from transports.errors import ABPError  # not above: a worker imports the library when its coverage is measured

    for _ in range(_TRIES):
        began = time.process_time()
        with suppress(ABPError):
            target(data)
        took = time.process_time() - began
        if took <= max_seconds:
            return
        gc.collect()
    raise Slow(f"{took:.3f} s of processor time, {max_seconds} are allowed, for {len(data)} bytes")


def result_of(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def read_corpus(name: str) -> list[bytes]:
    """Return the inputs of a target that are kept in the repository, in the order of their names."""
    return [path.read_bytes() for path in sorted((_CORPUS / name).iterdir())]
