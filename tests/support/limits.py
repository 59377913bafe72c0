"""Other limits of a room, for a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest


def change_limits(monkeypatch: pytest.MonkeyPatch, module: Any, **changes: object) -> None:
    """Change some of the ``LIMITS`` of a module until the end of the test."""
    monkeypatch.setattr(module, "LIMITS", replace(module.LIMITS, **changes))
