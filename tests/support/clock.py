"""The clocks of a store, in the hands of a test: time that passes, and a machine's clock that is set."""

from __future__ import annotations

import time

import pytest

from transports.artifacts import _ref as clock


class Clock:
    """Both clocks run on, from where the test has put them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._passed = self._set = 0.0
        wall, elapsed = time.time, clock.elapsed
        patch.setattr(time, "time", lambda: wall() + self._passed + self._set)
        patch.setattr(clock, "elapsed", lambda: elapsed() + self._passed)

    def passes(self, seconds: float) -> None:
        """Some time has passed."""
        self._passed += seconds

    def jumps(self, seconds: float) -> None:
        """Somebody has set the machine's clock."""
        self._set += seconds
