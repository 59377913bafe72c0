"""A short soak: each fault at least once, and nothing is lost, nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.browser, pytest.mark.starts_early]


@pytest.mark.slow
def test_soak_loses_and_leaks_nothing() -> None:
    """In a process of its own: what other tests of this process hold would be counted."""
    command = [sys.executable, "-m", "tests.soak"]
    # Measuring coverage would take half of its processor time, and shows nothing that no other test reaches.
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        command, cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
