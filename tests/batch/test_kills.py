"""The command is killed at any moment, and started again: the sum is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.batch.kills import Plan, kill_and_resume


@pytest.mark.slow
@pytest.mark.load
async def test_killed_run_resumes_and_does_not_repeat_non_idempotent_jobs(tmp_path: Path) -> None:
    done = await kill_and_resume(tmp_path, Plan(jobs=300, kills=4))
    assert done.problems == []
    assert (done.killed, done.starts) == ({"worker": 4}, 5)
