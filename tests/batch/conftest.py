"""Ledgers for tests: in a folder, and in a real PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.postgres_server import postgres_server, run_url


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one server for the processes of the whole run."""
    base = tmp_path_factory.getbasetemp()
    with postgres_server(str(base.parent if "PYTEST_XDIST_WORKER" in os.environ else base)) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.load)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the ledger of a new run is."""
    return str(tmp_path / "run") if request.param == "sqlite" else run_url(request.getfixturevalue("postgres"))
