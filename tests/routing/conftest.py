"""Fixtures of the tests of routing."""

from pathlib import Path

import pytest

from transports import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path)
