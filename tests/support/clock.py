"""The clock of a store, in the hands of a test: time that passes."""

from __future__ import annotations

import time

import pytest


class Clock:
    """The clock runs on, from where the test has put it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._passed = 0.0
        wall = time.time
        patch.setattr(time, "time", lambda: wall() + self._passed)

    def passes(self, seconds: float) -> None:
        """Some time has passed."""
        self._passed += seconds
