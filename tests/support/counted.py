"""Calls of functions, counted: time depends on the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest


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


def opened_names(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return a list that gets what :func:`os.open` is asked for from now on."""
    opened: list[object] = []
    real = os.open

    def counted(path: Any, *arguments: Any, **options: Any) -> int:
        opened.append(path)
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", counted)
    return opened
