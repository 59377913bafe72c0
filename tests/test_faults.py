"""``docs/faults.md`` is what the markers of the tests make of it: no row without a test, no marker without a row."""

from __future__ import annotations

import re

import pytest

from tests.support.faults import PAGE, problems, render
from transports.testing.contract import BEHAVIOURS

HEAD = "| # | fault | how it is caused | what must come out | tests | proof |\n|--:|---|---|---|---|---|\n"
COUNT = "0 rows are shown in full, 0 partly, 0 not at all."
PAGE_OF_THREE = f"""{HEAD}| 1 | It dies | SIGKILL | an error | `tests/gone.py::test_gone` |  |
| 2 | It hangs | SIGSTOP | an error |  | partly: not on Sundays |
| 3 | It lies | a lie | an error |  | full |

{COUNT}
"""


def test_tests_proofs_and_the_count_are_made_anew() -> None:
    tests = {"1": ["a.py::test_one", "b.py::test_two"], "2": ["c.py::test_three"]}
    made = render(PAGE_OF_THREE, tests)
    assert made == (
        f"{HEAD}| 1 | It dies | SIGKILL | an error | `tests/a.py::test_one`<br>`tests/b.py::test_two` | full |\n"
        "| 2 | It hangs | SIGSTOP | an error | `tests/c.py::test_three` | partly: not on Sundays |\n"
        "| 3 | It lies | a lie | an error |  | none |\n\n"
        "1 rows are shown in full, 1 partly, 1 not at all.\n"
    )
    assert render(made, tests) == made


@pytest.mark.parametrize(
    ("change", "tests", "problem"),
    [
        (("", ""), {"3": []}, "no test shows 3"),
        (("", ""), {"4": ["a.py::test_one"]}, "a.py::test_one: there is no row 4"),
        (("| 3 |", "| 2 |"), {}, "the rows are not numbered from 1 on"),
        (("| a lie |", "| a | lie |"), {}, "3 has 7 columns, and not 6"),
        ((COUNT, ""), {}, "the count of the rows is missing"),
    ],
)
def test_a_page_that_is_wrong_is_found(change: tuple[str, str], tests: dict[str, list[str]], problem: str) -> None:
    shown = {number: ["a.py::test_one"] for number in "123"} | tests
    shown = {number: names for number, names in shown.items() if names}
    assert problem in problems(PAGE_OF_THREE.replace(*change), shown)


def test_a_page_that_is_right_has_no_problem() -> None:
    assert problems(PAGE_OF_THREE, {number: ["a.py::test_one"] for number in "123"}) == []


def test_the_suite_of_behaviours_is_marked_with_the_rows_that_its_behaviours_cite() -> None:
    cited = {
        number
        for behaviour in BEHAVIOURS
        for rows in re.findall(r"docs/faults\.md ([\d, ]+)", behaviour.source)
        for number in re.findall(r"\d+", rows)
    }
    suite = "e2e/test_behaviour.py::test_behaviour"
    assert cited == {number for number, tests in PAGE.marked().items() if suite in tests}
