"""The test column and the counts of ``docs/requirements.md``, made from the markers of the tests (:mod:`.markers`)."""

from __future__ import annotations

import functools
import re
import sys
from collections import Counter

from tests.support.markers import ROOT, Page, Tests, cells

__all__ = ["PAGE", "problems", "render", "rows", "unknown"]

#: What a row may have as its status, in the order of the table of counts.
STATUSES = ("done", "partly", "missing", "differs", "unchecked")
#: How "where" begins where a requirement is met, and no test can show it.
_NO_TEST = "no test: "
#: How many tests a row names; the others are counted.
_NAMED = 3
_ID = re.compile(r"R\d-[\dA-Z]+(?:\.\d+)*\.?[a-z]")
_DECISION = re.compile(r"^\| (D\d+) \|", re.MULTILINE)
_HEAD = "| id | requirement | status | where | test |\n|---|---|---|---|---|"
_OLD_HEAD = "| id | requirement | status | where |\n|---|---|---|---|"


class Row:
    """One requirement of the page. ``where`` says where it is done, what is missing, or why it differs."""

    def __init__(self, line: str) -> None:
        found = cells(line)
        if not 4 <= len(found) <= 5:
            raise ValueError(f"{found[0]} has {len(found)} columns; a '|' within a cell is not possible")
        self.id, self.text, self.status, self.where = found[:4]

    def line(self, tests: list[str]) -> str:
        """Return the row with the tests that show its requirement."""
        named = ", ".join(f"`{test}`" for test in tests[:_NAMED])
        more = f" and {len(tests) - _NAMED} more" if len(tests) > _NAMED else ""
        return f"| {self.id} | {self.text} | {self.status} | {self.where} | {named}{more} |"


def rows(page: str) -> list[Row]:
    """Return the requirements of the page, in its order."""
    return [Row(line) for line in page.splitlines() if _is_row(line)]


def _is_row(line: str) -> bool:
    return line.startswith("| R") and _ID.fullmatch(line.split("|")[1].strip()) is not None


def render(page: str, tests: Tests) -> str:
    """Return the page with its test column and its counts made anew; all else stays."""
    page = page.replace(_OLD_HEAD, _HEAD)
    lines = [Row(line).line(tests.get(Row(line).id, [])) if _is_row(line) else line for line in page.splitlines()]
    found = rows(page)
    titles = dict(re.findall(r"^## (R\d) (.+)$", page, re.MULTILINE))
    counts = [f"| source document | {' | '.join(STATUSES)} | all | with a test |", f"|---|{'--:|' * 7}"]
    for source, title in (*titles.items(), ("all", "")):
        own = [row for row in found if source in ("all", row.id.partition("-")[0])]
        of = Counter(row.status for row in own)
        shown = sum(1 for row in own if tests.get(row.id))
        figures = [*(of[status] for status in STATUSES), len(own), shown]
        counts.append(f"| {f'{source} {title}'.strip()} | {' | '.join(map(str, figures))} |")
    start = next(at for at, line in enumerate(lines) if line.startswith("| source document |"))
    end = next(at for at in range(start, len(lines)) if not lines[at].startswith("|"))
    return "\n".join([*lines[:start], *counts, *lines[end:]]) + "\n"


def problems(page: str, tests: Tests) -> list[str]:
    """Return what is wrong with the page, besides a test column that is out of date."""
    found = rows(page)
    known = Counter(row.id for row in found)
    wrong = [f"{id} stands there {count} times" for id, count in known.items() if count > 1]
    wrong += [f"{', '.join(names)}: there is no requirement {id}" for id, names in tests.items() if id not in known]
    decisions = _DECISION.findall(page)
    for row in found:
        shown = bool(tests.get(row.id))
        if row.status not in STATUSES:
            wrong.append(f"{row.id} has the status {row.status!r}")
        elif row.status == "done" and not shown and not row.where.startswith(_NO_TEST):
            wrong.append(f"{row.id} is done, and neither a test shows it nor does 'where' begin with {_NO_TEST!r}")
        elif row.status == "differs" and row.where not in decisions:
            wrong.append(f"{row.id} differs, and {row.where!r} is no decision of the page")
        elif row.status == "partly" and not row.where:
            wrong.append(f"{row.id} is done partly, and nothing says what is missing")
        elif row.status == "missing" and shown:
            wrong.append(f"{row.id} is missing, and {tests[row.id][0]} shows it")
        if "tests/" in row.where:
            wrong.append(f"{row.id} names a test by hand; mark the test, @pytest.mark.requirement({row.id!r})")
        if shown and row.where.startswith(_NO_TEST):
            wrong.append(f"{row.id} has a test, and says that it has none")
    named = {row.where for row in found}
    wrong += [f"{decision} is the reason of no difference" for decision in decisions if decision not in named]
    return wrong


def unknown(where: str) -> list[str]:
    """Return what "where" names that is not there: documents, modules and folders (`routing/presets`), and names of the
    code (`Router.route`, `max_file_bytes`)."""
    wrong = [name for name in re.findall(r"docs/[\w-]+\.md", where) if not (ROOT / name).is_file()]
    for quoted in re.findall(r"`([^`]+)`", where):
        if re.fullmatch(r"(?!resources/)[a-z_0-9]+/[a-z_0-9/]*", quoted):  # resources/list is a method of MCP
            path = ROOT / "transports" / quoted
            if not path.is_dir() and not path.with_suffix(".py").is_file():
                wrong.append(f"`{quoted}`")
            continue
        match = re.match(r"([A-Z]\w+|[a-z]+(?:_[a-z]+)+)(?=$|[.=])", quoted)
        if match and match[1] not in _words():
            wrong.append(f"`{match[1]}`")
    return wrong


@functools.cache
def _words() -> frozenset[str]:
    """Every name in the code, and every word of its texts."""
    files = [*(ROOT / "transports").rglob("*.py"), *(ROOT / "webapp_fixture").rglob("*.js*"), ROOT / "Makefile"]
    return frozenset(word for path in files for word in re.findall(r"\w+", path.read_text(encoding="utf-8")))


PAGE = Page(ROOT / "docs" / "requirements.md", "requirement", str, render, problems)

if __name__ == "__main__":
    if "--mutate" in sys.argv[1:]:
        from tests.support import requirement_mutants

        named = [(row.id, row.text, row.where) for row in rows(PAGE.path.read_text(encoding="utf-8"))]
        sys.exit(requirement_mutants.main(named, PAGE.marked(), sys.argv[1:]))
    sys.exit(PAGE.main())
