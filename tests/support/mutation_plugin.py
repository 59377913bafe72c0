"""A pytest plugin for :mod:`.mutation`: notes how long each test takes, and runs chosen tests in a chosen order."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from pathlib import Path

import pytest

#: The file of a list of node ids.
CHOSEN = "MUTATION_CHOSEN"
#: The file for the seconds of each node id.
SECONDS = "MUTATION_SECONDS"

_seconds: defaultdict[str, float] = defaultdict(float)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHOSEN in os.environ:
        chosen = json.loads(Path(os.environ[CHOSEN]).read_bytes())
        places = {node_id: place for place, node_id in enumerate(chosen)}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Workers of xdist report to the process that started them.
    if SECONDS in os.environ and not hasattr(session.config, "workerinput"):
        Path(os.environ[SECONDS]).write_text(json.dumps(_seconds))
