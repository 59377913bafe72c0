"""``docs/requirements.md`` is what the markers of the tests make of it."""

from typing import Any

import pytest

from tests.support.requirement_mutants import REMOVALS, changes_of, named_in, removal
from tests.support.requirements import PAGE, problems, render, rows, unknown

PAGE_OF_TWO = """| D1 | Not so | Because |

## R9 A document

| source document | done |
|---|--:|

### R9-1 A section

| id | requirement | status | where | test |
|---|---|---|---|---|
| R9-1a | The first | done | a module |  |
| R9-1b | The second | missing |  | `gone.py::test_gone` |
| R9-1c | The third | differs | D1 |  |
| R9-1d | The fourth | done | no test: a document |  |
"""
SHOWN = {"R9-1a": ["a.py::test_one"]}


def test_the_test_column_and_the_counts_are_made_anew() -> None:
    made = render(PAGE_OF_TWO, {"R9-1a": ["a.py::test_one", "a.py::test_two", "b.py", "c.py"]})
    assert "| R9-1a | The first | done | a module | `a.py::test_one`, `a.py::test_two`, `b.py` and 1 more |" in made
    assert "| R9-1b | The second | missing |  |  |" in made
    assert "| R9 A document | 2 | 0 | 1 | 1 | 0 | 4 | 1 |\n| all | 2 | 0 | 1 | 1 | 0 | 4 | 1 |\n\n###" in made
    assert render(made, {"R9-1a": ["a.py::test_one", "a.py::test_two", "b.py", "c.py"]}) == made


@pytest.mark.parametrize(
    ("change", "tests", "fault"),
    [
        (("R9-1b", "R9-1a"), {}, "R9-1a stands there 2 times"),
        (("", ""), {"R9-1z": ["a.py::test_one"]}, "a.py::test_one: there is no requirement R9-1z"),
        (("| missing |", "| finished |"), {}, "R9-1b has the status 'finished'"),
        (("| missing |", "| partly |"), {}, "R9-1b is done partly, and nothing says what is missing"),
        (("| missing |", "| done |"), {}, "R9-1b is done, and neither a test shows it nor does 'where' begin with"),
        (("| missing |", "| differs |"), {}, "R9-1b differs, and '' is no decision of the page"),
        (("| D1 |  |", "| D2 |  |"), {}, "R9-1c differs, and 'D2' is no decision of the page"),
        (("| D1 |  |", "| D2 |  |"), {}, "D1 is the reason of no difference"),
        (("", ""), {"R9-1b": ["a.py::test_one"]}, "R9-1b is missing, and a.py::test_one shows it"),
        (("a module", "tests/a.py"), {}, "R9-1a names a test by hand; mark the test"),
        (("", ""), {"R9-1d": ["a.py::test_one"]}, "R9-1d has a test, and says that it has none"),
    ],
)
def test_a_page_that_is_wrong_is_found(change: tuple[str, str], tests: dict[str, list[str]], fault: str) -> None:
    assert [one for one in problems(PAGE_OF_TWO.replace(*change), SHOWN | tests) if one.startswith(fault)]


def test_a_page_that_is_right_has_no_fault() -> None:
    assert problems(PAGE_OF_TWO, SHOWN) == []


def test_the_page_names_what_is_there() -> None:
    wrong = [f"{row.id}: {name}" for row in rows(PAGE.path.read_text(encoding="utf-8")) for name in unknown(row.where)]
    assert wrong == []


def test_a_name_that_is_not_there_is_found() -> None:
    assert unknown("`routing/`, `artifacts/local`, docs/routing.md, `Router.route`, `none:`, `tools/ls`") == [
        "`tools/ls`"
    ]
    assert unknown("docs/gone.md; `Gone.route`; `no_such_setting`") == ["docs/gone.md", "`Gone`", "`no_such_setting`"]


def test_a_row_with_a_bar_in_a_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="R9-1a has 6 columns"):
        rows(PAGE_OF_TWO.replace("a module", "a module | b"))


SOURCE = '''
class Rule:
    limit = 3

    def of(self, size: int) -> bool:
        """Return whether a size is within the limit."""
        return size < self.limit

    async def pieces(self, text: str) -> AsyncIterator[str]:
        for piece in text.split():
            yield piece

    def cleaned(self, text: str, times: int) -> str:
        return text.strip()

    def close(self) -> None:
        self.limit = 0


def made(rule: Rule) -> Mapping[str, int]:
    return {"limit": rule.limit}
'''


def test_functions_are_emptied() -> None:
    changes = changes_of("transports/a.py", SOURCE)
    assert {one.about.split()[0]: one.new.strip() for one in changes} == {
        "of": "return False",
        "pieces": "return; yield",
        "cleaned": "return text",  # an argument of the right type
        "made": "return {}",
    }
    first = next(one for one in changes if one.about.startswith("of "))
    namespace: dict[str, object] = {}
    exec(first.apply(SOURCE.replace("AsyncIterator[str]", "object")
         .replace("Mapping[str, int]", "object")), namespace)  # fmt: skip
    rule: Any = namespace["Rule"]
    assert rule().of(1) is False and rule.of.__doc__ is not None


def test_code_is_found_by_what_a_row_says() -> None:
    sources = {"transports/room/_a.py": SOURCE, "transports/room/_b.py": "def b(rule):\n    return rule.limit\n"}
    assert named_in("`room/_a`", sources).keys() == {"transports/room/_a.py"}
    assert named_in("`room/`, docs/a.md", sources).keys() == sources.keys()
    assert named_in("`Rule.of`", sources)["transports/room/_a.py"] == {5, 6, 7}
    assert named_in("`limit`", sources) == {"transports/room/_a.py": {3, 6, 7, 17, 21}, "transports/room/_b.py": {2}}
    assert named_in("no code", sources) == {}


def test_what_the_table_of_removals_removes_is_there() -> None:
    known = {row.id for row in rows(PAGE.path.read_text(encoding="utf-8"))}
    for id, (module, old, new) in REMOVALS.items():
        change = removal(module, old, new)
        assert id in known and old in change.old and change.new != change.old
