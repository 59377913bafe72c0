"""``docs/requirements.md`` agrees with the markers of the tests and with the code that its rows are about."""

import pytest

from tests.support.requirements import CODE, PAGE, problems, render, rows, show, unknown

PAGE_OF_FOUR = """| D1 | Not so, because |

## R9 A document

| source document | done |
|---|--:|

| id | requirement | |
|---|---|---|
| R9-1a | The first
| R9-1b | The second | missing: all of it
| R9-1.2c | The third | D1
| R9-B.a | The fourth
"""
SHOWN = {"R9-1a": ["a.py::test_one"]}
PLACES = {"R9-1a": "a module", "R9-B.a": "no test: a document"}


def test_the_counts_are_made_anew() -> None:
    made = render(PAGE_OF_FOUR, SHOWN)
    assert "| source document | done | missing | differs | all |\n|---|--:|--:|--:|--:|\n" in made
    assert "| R9 A document | 2 | 1 | 1 | 4 |\n| all | 2 | 1 | 1 | 4 |\n\n| id |" in made
    assert render(made, SHOWN) == made


@pytest.mark.parametrize(
    ("change", "tests", "places", "fault"),
    [
        (("R9-1b", "R9-1a"), {}, {}, "R9-1a stands there 2 times"),
        (("", ""), {"R9-1z": ["a.py::test_one"]}, {}, "a.py::test_one: there is no requirement R9-1z"),
        (("", ""), {}, {"R9-1z": "a module"}, "requirements.toml: there is no requirement R9-1z"),
        (("missing: all", "finished: all"), {}, {}, "R9-1b has the status 'finished'"),
        (("missing: all of it", "partly: "), {}, {}, "R9-1b is partly, and nothing says what is missing"),
        (("missing: all of it", "missing"), {}, {}, "R9-1b is missing, and nothing says what is missing"),
        ((" | missing: all of it", ""), {}, {}, "R9-1b is done, and neither a test shows it nor does its code begin"),
        ((" | D1\n", " | D2\n"), {}, {}, "R9-1.2c differs, and 'D2' is no decision of the page"),
        ((" | D1\n", " | D2\n"), {}, {}, "D1 is the reason of no difference"),
        (("", ""), {"R9-1b": ["a.py::test_one"]}, {}, "R9-1b is missing, and a.py::test_one shows it"),
        (("", ""), {}, {"R9-1a": "tests/a.py"}, "R9-1a names a test by hand; mark the test"),
        (("", ""), {"R9-B.a": ["a.py::test_one"]}, {}, "R9-B.a has a test, and says that it has none"),
        (("The first", "one word " * 3000), {}, {}, "the page has 6,050 words; 6,000 are enough"),
    ],
)
def test_a_page_that_is_wrong_is_found(
    change: tuple[str, str], tests: dict[str, list[str]], places: dict[str, str], fault: str
) -> None:
    wrong = problems(PAGE_OF_FOUR.replace(*change), SHOWN | tests, PLACES | places)
    assert [problem for problem in wrong if problem.startswith(fault)], wrong


def test_a_page_that_is_right_has_no_fault() -> None:
    assert problems(PAGE_OF_FOUR, SHOWN, PLACES) == []


def test_rows_name_what_is_there() -> None:
    assert [f"{id}: {name}" for id, code in CODE.items() for name in unknown(code)] == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert unknown("`routing/`, `artifacts/local`, docs/routing.md, `Router.route`, `none:`, `tools/ls`") == [
        "`tools/ls`"
    ]
    assert unknown("docs/gone.md; `Gone.route`; `no_such_setting`") == ["docs/gone.md", "`Gone`", "`no_such_setting`"]


def test_a_row_with_a_bar_in_a_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="R9-1b has 4 columns"):
        rows(PAGE_OF_FOUR.replace("The second", "The second | b"))


def test_a_row_is_shown_with_its_code_its_tests_and_the_lines_that_cite_it() -> None:
    page = PAGE.path.read_text(encoding="utf-8")
    shown = show(page, {"R2-7.1g": ["a.py::test_one"]}, ["R2-7.1g"]).splitlines()
    assert shown[0].startswith("R2-7.1g  ") and shown[1] == "    done"
    assert "    code   `cleanup_strategy`" in shown and "    test   tests/a.py::test_one" in shown
    assert any(line.startswith("    cited  transports/") and line.endswith(" (R2-7.1)") for line in shown)
    assert [line for line in show(page, {}, ["R2-A"]).splitlines() if line.startswith("R2-A.")][-1].startswith("R2-A.g")
    assert show(page, {}, ["R8"]) == ""
