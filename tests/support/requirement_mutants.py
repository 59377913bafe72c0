"""Mutation of requirements: ``python -m tests.support.requirements --mutate N``.

For rows of docs/requirements.md by lot, functions of the code that a row is about are emptied, one at a time, and the
tests of the row run. Every change that they do not notice is reported; a row whose tests notice none has tests that do
not show it. The functions are found by themselves: of the code that the row names and its tests reach, those with words
of the row in their names and docstrings, and that the fewest other rows reach. A table (:data:`REMOVALS`) says what to
remove where that is not in the named code.
"""

from __future__ import annotations

import argparse
import ast
import json
import queue
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from coverage import CoverageData

from tests.support.markers import ROOT, Tests
from tests.support.mutation import copy_sources

__all__ = ["REMOVALS", "Change", "Chosen", "changes_of", "main", "named_in", "removal"]

#: Where a statement of the named code is not the behaviour: the module, a text of it, and the text in its place.
REMOVALS: Mapping[str, tuple[str, str, str]] = {
    "R1-2d": ("transports/testing/conformance/checks/_answers.py", "item.size > _LARGE", "item.size > 1 << 60"),
    "R1-9a": ("webapp_fixture/handlers.py", 'text, "encoding": "base64"}', "text}"),
    "R1-13f": ("webapp_fixture/handlers.py", "size > 10 * MEGABYTE", "size > 1 << 60"),
    "R0-11a": ("transports/testing/conformance/checks/_answers.py", "_PATH_LIKE.fullmatch(text) is not None", "False"),
    "R0-9b": ("transports/routing/_result.py", 'f"Output saved to file: {where}" if', '"Output saved to file" if'),
    "R1-5g": ("transports/protocol/_find_content.py", '{"token": token}', "{}"),
    "R2-4.2f": ("transports/session/_resources.py", "not self.policy.enabled or ", ""),
    "R2-4.3a": ("transports/memory.py", "return self._transport.store", "return None"),
    "R2-5.7b": (
        "transports/session/_resources.py",
        '"resources.templates": ("resources/templates/list"',
        '"resources.templates": ("resources/list"',
    ),
    "R2-6.4l": ("transports/session/_session.py", "stack.push_async_callback(self.store.end_session)", "pass"),
    "R3-7c": ("transports/surfaces/shared/_previews.py", " or len(data) > max_bytes", ""),
    "R4-3e": ("transports/surfaces/mcp/_artifacts.py", "*_warnings(ref), ", ""),
    "R4-14d": ("transports/surfaces/mcp/_users.py", "Scope(tenant=session, user=name)", "Scope(tenant=session)"),
}
#: Names a test's context in the coverage data, and keeps the names of tests that do not pass.
_CONFTEST = """
import json
import coverage
import pytest

FAILED = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    if measured := coverage.Coverage.current():
        measured.switch_context(item.nodeid.partition("[")[0])
    return (yield)


def pytest_runtest_logreport(report):
    if report.failed:
        FAILED.add(report.nodeid.partition("[")[0])


def pytest_sessionfinish():
    with open("failed.json", "w") as file:
        json.dump(sorted(FAILED), file)
"""
_COVERAGE = "[run]\nsource = transports\ncore = ctrace\n"
_ARGUMENTS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not exhaustive and not hosts")
#: Seconds for the tests of a row. Tests that hang have noticed the change.
_TIMEOUT = 120
_TRIED = 3
_COMMON = {"the", "and", "are", "that", "its", "return", "for", "with", "has", "have", "not", "one", "can", "raises"}
#: Functions without which nothing that a test looks at changes, mostly.
_LEFT_OUT = re.compile(r"__|audit|close|release|undo|sweep|span|warn|log|repr")
#: What an emptied function returns, by the beginning of its annotation; else ``None``.
_NEUTRAL = {"bool": "False", "str": '""', "int": "0", "float": "0.0", "bytes": 'b""', "list": "[]", "dict": "{}"} | {
    "Sequence": "()",
    "tuple": "()",
    "Mapping": "{}",
    "set": "set()",
    "frozenset": "frozenset()",
    "JSONValue": '""',
}


@dataclass(frozen=True)
class Change:
    """One change of a module: the text of line ``line`` to ``end`` becomes ``new``. ``about`` is the name of the
    function that it is in, with its docstring."""

    module: str
    line: int
    end: int
    old: str
    new: str
    about: str = ""

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.about.splitlines()[0][:100]}  →  {self.new.strip()}"

    def meets(self, lines: Container[int]) -> bool:
        """Return whether one of the lines is changed, or stands just before."""
        return any(line in lines for line in range(self.line - 1, self.end + 1))

    def apply(self, source: str) -> str:
        """Return the source of the module with this change."""
        lines = source.splitlines(keepends=True)
        return "".join((*lines[: self.line - 1], self.new, *lines[self.end :]))


@dataclass
class Chosen:
    """A row of the page that is tried: its tests, the changes, and those of them that no test noticed."""

    id: str
    text: str
    code: str
    tests: Sequence[str]
    changes: Sequence[Change] = ()
    tried: int = 0
    alive: list[Change] = field(default_factory=list)
    note: str = ""


def main(rows: Iterable[tuple[str, str, str]], tests: Tests, arguments: Sequence[str]) -> int:
    """Try rows, given as id, requirement and code, and print what came of it. Return 1 if a row stays green."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.requirements", description=__doc__)
    parser.add_argument("--mutate", type=int, metavar="N", required=True, help="rows by lot")
    parser.add_argument("--seed", type=int, default=1, help="of the lot (%(default)s)")
    parser.add_argument("--rows", nargs="*", default=(), metavar="ID", help="these, besides the lot")
    parser.add_argument("--left-out", nargs="*", default=(), metavar="PREFIX", help="tests that are not run: e2e/")
    parser.add_argument("--jobs", type=int, default=2, help="rows at once (%(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(".mutate"), help="for the copies (%(default)s)")
    options = parser.parse_args(arguments)
    able = [row for row in rows if _run(tests.get(row[0], []), options.left_out)]
    lot = random.Random(options.seed).sample(able, min(options.mutate, len(able)))
    lot += [row for row in able if row[0] in options.rows and row not in lot]
    chosen = [Chosen(*row, _run(tests[row[0]], options.left_out)) for row in lot]
    folder = options.folder / "requirements"
    _choose(chosen, _reached(folder / "measured", chosen), random.Random(options.seed))
    copies: queue.Queue[Path] = queue.Queue()
    for number in range(options.jobs):
        copies.put(_copy(folder / str(number)))
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(_try, row, copies) for row in chosen]):
            print(_verdict(done.result()), flush=True)
    green = [row.id for row in chosen if len(row.alive) == len(row.changes)]
    tried, alive = sum(row.tried for row in chosen), sum(len(row.alive) for row in chosen)
    print(f"{len(chosen)} rows, {tried} changes, {tried - alive} noticed; green: {' '.join(green) or 'none'}")
    return 1 if green else 0


def _run(tests: Iterable[str], left_out: Sequence[str]) -> list[str]:
    return [f"tests/{test}" for test in tests if not test.startswith(tuple(left_out))]


def _copy(folder: Path) -> Path:
    copy_sources(folder)
    (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    (folder / "measured.ini").write_text(_COVERAGE, encoding="utf-8")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def _reached(folder: Path, chosen: Sequence[Chosen]) -> dict[str, dict[str, set[int]]]:
    """Run the tests of all rows once, and return the lines of each module that each test reaches. Tests that do not
    pass are taken out of the rows."""
    _copy(folder)
    tests = sorted({test for row in chosen for test in row.tests})
    _pytest(folder, tests, "-m", "coverage", "run", "--rcfile", "measured.ini", timeout=None)
    failed = json.loads((folder / "failed.json").read_text())
    data = CoverageData(str(folder / ".coverage"))
    data.read()
    reached: dict[str, dict[str, set[int]]] = {}
    for file in data.measured_files():
        module = Path(file).relative_to(folder.resolve()).as_posix()
        for line, contexts in data.contexts_by_lineno(file).items():
            for context in contexts:
                reached.setdefault(context, {}).setdefault(module, set()).add(line)
    for row in chosen:
        row.tests = [test for test in row.tests if test not in failed]
    return reached


def _choose(chosen: Sequence[Chosen], reached: Mapping[str, Mapping[str, set[int]]], luck: random.Random) -> None:
    """Give each row its changes: of the code that it names, what the fewest rows reach."""
    lines = {row.id: _union(reached.get(test, {}) for test in row.tests) for row in chosen}
    often = Counter(place for found in lines.values() for place in found)
    trees = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "transports").rglob("*.py"))}
    sources = {path.relative_to(ROOT).as_posix(): source for path, source in trees.items()}
    changes = {module: changes_of(module, source) for module, source in sources.items()}
    for row in chosen:
        if not row.tests:
            row.note = "none of its tests passes before anything is changed"
            continue
        if row.id in REMOVALS:
            row.changes = [removal(*REMOVALS[row.id])]
            continue
        named = named_in(row.code, sources)
        found = [
            one
            for module, several in changes.items()
            for one in several
            if (one.module, one.line) in lines[row.id] and (not named or one.meets(named.get(module, ())))
        ]
        if not found:
            row.note = "its tests reach nothing of " + ("what it names" if named else "the kit")
        luck.shuffle(found)
        words = _words(f"{row.text} {row.code}")
        found.sort(key=lambda one: (-len(words & _words(one.about)), often[one.module, one.line]))
        row.changes = found[:_TRIED]


def _words(text: str) -> set[str]:
    """Return the first letters of the words of a text, without short words."""
    return {word[:6] for word in re.findall(r"[a-z]{3,}", text.lower())} - _COMMON


def _union(found: Iterable[Mapping[str, set[int]]]) -> set[tuple[str, int]]:
    return {(module, line) for one in found for module, lines in one.items() for line in lines}


def removal(module: str, old: str, new: str) -> Change:
    """Return the change of a module that puts ``new`` in the place of the first ``old``."""
    lines = (ROOT / module).read_text(encoding="utf-8").splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if old in line)
    return Change(module, at + 1, at + 1, lines[at], lines[at].replace(old, new), old)


def named_in(code: str, sources: Mapping[str, str]) -> dict[str, set[int]]:
    """Return the modules that a row's code names, each with the lines it means: of a name those with it, else all."""
    named: dict[str, set[int]] = {}
    for quoted in re.findall(r"`([^`]+)`", code):
        if re.fullmatch(r"[a-z_0-9]+/[a-z_0-9/]*", quoted):
            start = f"transports/{quoted}"
            for module in sources:
                if module == f"{start}.py" or (module.startswith(start.rstrip("/") + "/")):
                    named.setdefault(module, set()).update(range(1, sources[module].count("\n") + 2))
            continue
        word = re.match(r"[\w.]+", quoted)
        if word is None:
            continue
        quoted_name = f'"{word[0]}"'
        whole = any(quoted_name in source for source in sources.values())
        name = word[0] if whole else word[0].rpartition(".")[2]
        for module, source in sources.items():
            if name in source:
                named.setdefault(module, set()).update(_lines_of(source, name))
    return {module: lines for module, lines in named.items() if lines}


def _lines_of(source: str, name: str) -> set[int]:
    """Return the lines of the functions that have the name, or are registered under it, else those with the word."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            registered = any(f"'{name}'" in ast.unparse(one) for one in node.decorator_list)
            if node.name == name or registered:
                return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    word = re.compile(rf"\b{re.escape(name)}\b")
    return {number for number, line in enumerate(source.splitlines(), 1) if word.search(line)}


def changes_of(module: str, source: str) -> list[Change]:
    """Return the changes that empty each function of a module."""
    rows = source.splitlines(keepends=True)
    changes = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _LEFT_OUT.search(node.name):
            documented = ast.get_docstring(node) is not None
            body = node.body[1:] if documented else node.body
            if body and body[0].lineno > node.lineno:
                first, end = body[0].lineno, node.end_lineno or body[0].lineno
                about = f"{node.name.replace('_', ' ')} {ast.get_docstring(node) or ''}"
                new = " " * body[0].col_offset + _emptied(node) + "\n"
                changes.append(Change(module, first, end, "".join(rows[first - 1 : end]), new, about))
    return changes


def _emptied(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the statements of a function that does nothing and returns something of its type, or an argument."""
    if any(isinstance(inner, ast.Yield | ast.YieldFrom) for inner in ast.walk(node)):
        return "return; yield"
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    for argument in node.args.args:
        if argument.annotation is not None and ast.unparse(argument.annotation) == returns:
            return f"return {argument.arg}"
    return f"return {_NEUTRAL.get(re.split(r'[^A-Za-z]', returns)[0], 'None')}"


def _try(row: Chosen, copies: queue.Queue[Path]) -> Chosen:
    """Run the tests of a row with each of its changes, in a copy that no other row uses meanwhile."""
    folder = copies.get()
    try:
        for change in row.changes:
            path = folder / change.module
            source = path.read_text(encoding="utf-8")
            path.write_text(change.apply(source), encoding="utf-8")
            try:
                noticed = _pytest(folder, row.tests, "-B", timeout=_TIMEOUT) != 0
            finally:
                path.write_text(source, encoding="utf-8")
            row.tried += 1
            if not noticed:
                row.alive.append(change)
    finally:
        copies.put(folder)
    return row


def _pytest(folder: Path, tests: Sequence[str], *before: str, timeout: float | None) -> int:
    first = () if timeout is None else ("-x",)
    command = [sys.executable, *before, "-m", "pytest", *_ARGUMENTS, *first, *tests]
    with (folder / "pytest.log").open("a") as log:
        try:
            return subprocess.run(
                command, cwd=folder, stdout=log, stderr=log, timeout=timeout, check=False, stdin=subprocess.DEVNULL
            ).returncode
        except subprocess.TimeoutExpired:
            return 1


def _verdict(row: Chosen) -> str:
    if row.note:
        return f"{row.id}: {row.note}: {row.code}"
    verdict = "GREEN" if len(row.alive) == len(row.changes) else "noticed"
    counts = f"{row.tried - len(row.alive)} of {row.tried} changes"
    return "\n".join([f"{row.id}: {verdict}, {counts}", *(f"    alive: {change}" for change in row.alive)])
