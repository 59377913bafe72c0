"""``docs/requirements.md``: its counts, what is wrong with it, and what the page leaves out::

    python -m tests.support.requirements                   # write the counts
    python -m tests.support.requirements --check           # say what is wrong, and change nothing
    python -m tests.support.requirements --show R2-7.1c    # status, code and tests of a row, or of those that begin so

The tests of a row are those with its marker (:mod:`.markers`). The code that a row is about stands in
``requirements.toml`` beside this module, under its id.
"""

from __future__ import annotations

import functools
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.support.markers import ROOT, Page, Tests, cells

__all__ = ["CODE", "PAGE", "problems", "render", "rows", "section", "show", "unknown"]

#: What a row may have as its status, in the order of the table of counts.
STATUSES = ("done", "partly", "missing", "differs", "unchecked")
#: How the code of a row begins where a requirement is met, and no test can show it.
_NO_TEST = "no test: "
_ID = re.compile(r"R\d-[\dA-Z]+(?:\.\d+)*\.?[a-z]")
_DECISION = re.compile(r"^\| (D\d+) \|", re.MULTILINE)
#: Most words of the page, so that a reader gets through it.
_MAX_WORDS = 6000
#: What each row is about, by its id: modules, names, settings and documents.
CODE: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class Row:
    """One requirement of the page. ``note`` is empty for one that is done; else it is the decision that explains a
    difference, or a status and its reason."""

    def __init__(self, line: str) -> None:
        values = cells(line)
        if not 2 <= len(values) <= 3:
            raise ValueError(f"{values[0]} has {len(values)} columns; a '|' within a cell is not possible")
        self.id, self.text, self.note = (*values, "")[:3]

    @property
    def status(self) -> str:
        """The status that the note stands for."""
        if not self.note:
            return "done"
        if re.fullmatch(r"D\d+", self.note):
            return "differs"
        return self.note.partition(":")[0]


def rows(page: str) -> list[Row]:
    """Return the requirements of the page, in its order."""
    return [Row(line) for line in page.splitlines() if _is_row(line)]


def section(id: str) -> str:
    """Return the section that a requirement is in: R2-7.1 of R2-7.1c."""
    return id[:-1].removesuffix(".")


def _is_row(line: str) -> bool:
    return line.startswith("| R") and _ID.fullmatch(cells(line)[0]) is not None


def render(page: str, tests: Tests) -> str:
    """Return the page with its counts made anew; all else stays."""
    requirements = rows(page)
    titles = dict(re.findall(r"^## (R\d) (.+)$", page, re.MULTILINE))
    statuses = [status for status in STATUSES if any(row.status == status for row in requirements)]
    counts = [f"| source document | {' | '.join(statuses)} | all |", f"|---|{'--:|' * (len(statuses) + 1)}"]
    for source, title in (*titles.items(), ("all", "")):
        of_source = [row for row in requirements if source in ("all", row.id.partition("-")[0])]
        of_status = Counter(row.status for row in of_source)
        figures = [*(of_status[status] for status in statuses), len(of_source)]
        counts.append(f"| {f'{source} {title}'.strip()} | {' | '.join(map(str, figures))} |")
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("| source document |"))
    end = next(number for number in range(start, len(lines)) if not lines[number].startswith("|"))
    return "\n".join([*lines[:start], *counts, *lines[end:]]) + "\n"


def problems(page: str, tests: Tests, code: Mapping[str, str] = CODE) -> list[str]:
    """Return what is wrong with the page and with the code of its rows, besides counts that are out of date."""
    requirements = rows(page)
    times = Counter(row.id for row in requirements)
    wrong = [f"{id} stands there {count} times" for id, count in times.items() if count > 1]
    wrong += [f"{', '.join(names)}: there is no requirement {id}" for id, names in tests.items() if id not in times]
    wrong += [f"requirements.toml: there is no requirement {id}" for id in code if id not in times]
    decisions = _DECISION.findall(page)
    for row in requirements:
        wrong += _problems_of(row, tests.get(row.id, []), code.get(row.id, ""), decisions)
    notes = {row.note for row in requirements}
    wrong += [f"{decision} is the reason of no difference" for decision in decisions if decision not in notes]
    if (words := len(page.split())) > _MAX_WORDS:
        wrong.append(f"the page has {words:,} words; {_MAX_WORDS:,} are enough")
    return wrong


def _problems_of(row: Row, tests: list[str], code: str, decisions: list[str]) -> Iterator[str]:
    if row.status not in STATUSES:
        yield f"{row.id} has the status {row.status!r}"
    elif row.status == "done" and not tests and not code.startswith(_NO_TEST):
        yield f"{row.id} is done, and neither a test shows it nor does its code begin with {_NO_TEST!r}"
    elif row.status == "differs" and row.note not in decisions:
        yield f"{row.id} differs, and {row.note!r} is no decision of the page"
    elif row.status in ("partly", "missing") and not row.note.partition(":")[2].strip():
        yield f"{row.id} is {row.status}, and nothing says what is missing"
    elif row.status == "missing" and tests:
        yield f"{row.id} is missing, and {tests[0]} shows it"
    if "tests/" in code:
        yield f"{row.id} names a test by hand; mark the test, @pytest.mark.requirement({row.id!r})"
    if tests and code.startswith(_NO_TEST):
        yield f"{row.id} has a test, and says that it has none"


def unknown(code: str) -> list[str]:
    """Return what the code of a row names that is not there: documents, modules and folders (`routing/presets`), and
    names of the code (`Router.route`, `max_file_bytes`)."""
    wrong = [name for name in re.findall(r"docs/[\w-]+\.md", code) if not (ROOT / name).is_file()]
    for quoted in re.findall(r"`([^`]+)`", code):
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


def show(page: str, tests: Tests, beginnings: Iterable[str]) -> str:
    """Return the rows whose ids begin so, each with its status, its code, the places that cite it, and its tests."""
    lines: list[str] = []
    for row in rows(page):
        if not row.id.startswith(tuple(beginnings)):
            continue
        lines += [f"{row.id}  {row.text}", f"    {row.status}  {row.note}".rstrip()]
        lines += [f"    code   {CODE[row.id]}"] if row.id in CODE else []
        lines += [f"    cited  {place}" for place in _citations().get(row.id, ())]
        lines += [f"    cited  {place} ({section(row.id)})" for place in _citations().get(section(row.id), ())]
        lines += [f"    test   tests/{test}" for test in tests.get(row.id, [])]
    return "\n".join(lines)


@functools.cache
def _citations() -> Mapping[str, list[str]]:
    """Return the lines of code that cite each requirement or section."""
    folders = ("transports", "webapp_fixture", "examples")
    cited = r"docs/requirements\.md R[0-9]-[0-9A-Z]"
    command = ["git", "grep", "-nE", cited, "--", *folders]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    places: dict[str, list[str]] = {}
    for line in found.splitlines():
        path, number, text = line.split(":", 2)
        for id in re.findall(r"docs/requirements\.md (R\d-[\dA-Z]+(?:\.\d+)*\.?[a-z]?)", text):
            places.setdefault(id.rstrip("."), []).append(f"{path}:{number}")
    return places


PAGE = Page(ROOT / "docs" / "requirements.md", "requirement", str, render, problems)

if __name__ == "__main__":
    text = PAGE.path.read_text(encoding="utf-8")
    if "--show" in sys.argv[1:]:
        shown = show(text, PAGE.marked(), sys.argv[sys.argv.index("--show") + 1 :])
        print(shown or "no requirement begins so")
        sys.exit(0 if shown else 1)
    sys.exit(PAGE.main())
