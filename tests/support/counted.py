"""Calls of functions, counted: time depends on the machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Calls:
    """How many there were."""

    count = 0


@contextmanager
def counted_calls(below: str = "") -> Iterator[Calls]:
    """Count the calls of Python functions in this thread within the block: of all, or of files ``below`` a path."""
    calls, before = Calls(), sys.getprofile()

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls.count += event == "call" and frame.f_code.co_filename.startswith(below)

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
