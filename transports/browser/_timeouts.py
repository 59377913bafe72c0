"""Timeouts for Playwright, which counts milliseconds and writes "no limit" as 0."""

from __future__ import annotations

import math


def playwright_timeout(seconds: float) -> float:
    """Return ``seconds`` in milliseconds, and 0 (Playwright's "no limit") for ``math.inf``."""
    return 0 if math.isinf(seconds) else seconds * 1000
