"""The command is killed at any moment, and started again: the sum is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batch.kills import Plan, kill_and_resume


@pytest.mark.slow
@pytest.mark.load
async def test_a_run_that_is_killed_goes_on_and_runs_nothing_twice_that_must_not(tmp_path: Path) -> None:
    done = await kill_and_resume(tmp_path, Plan(jobs=300, kills=4))
    assert done.problems == []
    assert (done.killed, done.starts) == ({"worker": 4}, 5)
