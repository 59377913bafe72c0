"""Ledgers for tests: in a folder, and in a real PostgreSQL server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batch.planted import World
from tests.support.postgres_server import run_url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the ledger of a new run is."""
    return str(tmp_path / "run") if request.param == "sqlite" else run_url(request.getfixturevalue("postgres"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)
