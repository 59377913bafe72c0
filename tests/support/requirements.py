"""The test column and the counts of ``docs/requirements.md``, made from the markers of the tests.

A test says which requirements it shows: ``@pytest.mark.requirement("R2-7.1c", …)``, on a function, a class, a
``pytest.param`` or, for a whole module, in ``pytestmark``. Markers are read from the source, so no test runs::

    python -m tests.support.requirements            # write the page
    python -m tests.support.requirements --check    # say what is wrong with it, and change nothing
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "requirements.md"
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
#: A test with one of these does not always run or may fail, so it shows nothing.
_SHOWS_NOTHING = {"exhaustive", "skip", "xfail"}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Row:
    """One requirement of the page. ``where`` says where it is done, what is missing, or why it differs."""

    def __init__(self, line: str) -> None:
        cells = [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]
        if not 4 <= len(cells) <= 5:
            raise ValueError(f"{cells[0]} has {len(cells)} columns; a '|' within a cell is not possible")
        self.id, self.text, self.status, self.where = cells[:4]

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


def marked(folder: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Return the requirements that the tests of a folder are marked with, each with the names of its tests.

    Raise ValueError for a marker that cannot be read, or that stands on a test that does not always run.
    """
    tests: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for requirement, test in _in_module(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")):
            if test not in tests.setdefault(requirement, []):
                tests[requirement].append(test)
    return tests


def _in_module(name: str, source: str) -> Iterator[tuple[str, str]]:
    if "mark.requirement" not in source:
        return
    tree = ast.parse(source)
    read = 0
    for node, qualified, marks in _marked_nodes(tree, name):
        found = [call for mark in marks for call in ast.walk(mark) if _is_marker(call)]
        read += len(found)
        weak = {each.attr for mark in marks for each in ast.walk(mark) if isinstance(each, ast.Attribute)}
        if found and weak & _SHOWS_NOTHING:
            raise ValueError(f"{qualified} does not always run ({', '.join(sorted(weak & _SHOWS_NOTHING))})")
        for call in found:
            assert isinstance(call, ast.Call)
            if not call.args or call.keywords:
                raise ValueError(f"{name}:{node.lineno}: a marker has requirements and nothing else")
            for argument in call.args:
                if not (isinstance(argument, ast.Constant) and isinstance(argument.value, str)):
                    raise ValueError(f"{name}:{call.lineno}: a requirement is written out as text")
                yield argument.value, qualified
    written = sum(1 for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "requirement")
    if read != written:
        raise ValueError(f"{name}: a marker stands on no test, class or module")


def _marked_nodes(tree: ast.Module, name: str) -> Iterator[tuple[ast.stmt, str, list[ast.expr]]]:
    """Everything that can have marks, with the name that it has on the page and its marks."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets):
            yield node, name, [node.value]
        elif isinstance(node, ast.ClassDef):
            yield node, f"{name}::{node.name}", node.decorator_list
            for inner in node.body:
                if isinstance(inner, Definition) and inner.name.startswith("test"):
                    yield inner, f"{name}::{node.name}::{inner.name}", inner.decorator_list
        elif isinstance(node, Definition) and node.name.startswith("test"):
            yield node, f"{name}::{node.name}", node.decorator_list


def _is_marker(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.requirement"


def render(page: str, tests: Mapping[str, list[str]]) -> str:
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


def faults(page: str, tests: Mapping[str, list[str]]) -> list[str]:
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
        if match and not re.search(rf"\b{match[1]}\b", _code()):
            wrong.append(f"`{match[1]}`")
    return wrong


@functools.cache
def _code() -> str:
    files = [*(ROOT / "transports").rglob("*.py"), *(ROOT / "webapp_fixture").rglob("*.js*"), ROOT / "Makefile"]
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def main() -> int:
    """Write the page, or with ``--check`` only say whether it is as it must be; return an exit status."""
    page, tests = PAGE.read_text(encoding="utf-8"), marked()
    made = render(page, tests)
    wrong = faults(page, tests)
    if "--check" in sys.argv[1:]:
        if made != page:
            wrong.append("docs/requirements.md is out of date: python -m tests.support.requirements")
    else:
        PAGE.write_text(made, encoding="utf-8")
    print("\n".join(wrong) or f"{len(rows(page))} requirements, {len(tests)} with a test")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
