"""The same results through our router and through penguiflow's tool source: the tables of comparison.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hosts.comparison import documented, measure
from tests.hosts.environment import Missing, installed
from tests.support.needs import missing

pytestmark = pytest.mark.hosts


async def test_the_tables_are_true(tmp_path: Path) -> None:
    try:
        host = installed()
    except Missing as error:
        missing("penguiflow", error)
    measured, said = _cells(await measure(host, tmp_path)), _cells(documented())
    assert len(measured) == len(said)
    for row, old in zip(measured, said, strict=True):
        assert row[:-1] == old[:-1] or _close(row[-2], old[-2]), "run python -m tests.hosts.comparison"
        assert _close(row[-1], old[-1]), "run python -m tests.hosts.comparison"
    kinds = [row for row in measured if len(row) == 4 and row[1] == "12"]
    assert len(kinds) == 23 and all(row[2] == "12" for row in kinds), "a file was missed"
    assert [row[2] for row in measured if row[0] == "all kinds"] == ["0"], "a text was taken for a file"


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def _close(one: str, other: str) -> bool:
    """The same words, and numbers that differ as the lengths of ids and the versions of Pillow make them differ."""
    numbers = [[int(found.replace(",", "")) for found in re.findall(r"\d[\d,]*", text)] for text in (one, other)]
    same_words = re.sub(r"\d[\d,]*", "#", one) == re.sub(r"\d[\d,]*", "#", other)
    return same_words and numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=2)
