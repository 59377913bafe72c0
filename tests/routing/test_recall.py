"""Undeclared files are found, and nothing else is taken for one."""

import pytest

from tests.support import recall


@pytest.mark.load
@pytest.mark.requirement("R2-3.2a", "R2-3.2b", "R2-4.1d", "R2-6.5a")
@pytest.mark.parametrize("of_each_kind", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_at_least_99_percent_of_files_are_detected_correctly(of_each_kind: int) -> None:
    lines = recall.files(of_each_kind)
    cases = sum(line.cases for line in lines)
    assert cases > 150
    assert len(lines) >= 15
    missed = [(line.kind, line.examples) for line in lines if line.examples]
    assert sum(line.taken for line in lines) >= 0.99 * cases, missed
    assert sum(line.other for line in lines) <= 0.01 * cases


@pytest.mark.slow
@pytest.mark.load
@pytest.mark.requirement("R2-4.2e", "R2-A.g")
def test_plain_text_is_never_taken_for_file() -> None:
    lines = recall.look_alikes()
    assert sum(line.cases for line in lines) > 25_000
    assert [(line.kind, line.taken, line.examples) for line in lines if line.taken] == []
