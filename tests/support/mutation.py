"""Mutation testing: ``python -m tests.support.mutation [ROOM …]`` (``make mutate``).

The code of the last commit is changed in one place, and the tests that reach the place run until one fails. A change
that no test notices is a gap in the tests, or makes no difference. docs/mutation.md has the results.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import psutil
from coverage import CoverageData

from .mutation_plugin import CHOSEN, SECONDS

_ROOT = Path(__file__).parents[2]
#: The clones, the coverage and the times of the tests.
_FOLDER = _ROOT / ".mutate"
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "tests.support.mutation_plugin", "-p", "no:cacheprovider")
#: Seconds of a test too short to be listed, and of what surrounds each test.
_OVERHEAD = 0.02
_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_LOGS = ("logger.", "print", "warnings.warn")


@dataclass(frozen=True)
class Mutant:
    file: str
    """Relative to the checkout."""
    lines: range
    start: int
    """The bytes of the file that are replaced, as :attr:`end`."""
    end: int
    old: str
    new: str

    @property
    def room(self) -> str:
        """The package, or below ``surfaces`` its packages."""
        parts = Path(self.file).parts[1:-1]
        return "/".join(parts[: 2 if parts[:1] == ("surfaces",) else 1]) or "transports"

    def change(self, source: bytes) -> bytes:
        return source[: self.start] + self.new.encode() + source[self.end :]

    def __str__(self) -> str:
        old = " ".join(self.old.split())
        return f"{self.file}:{self.lines.start}: {old[:100]} -> {self.new[:100]}"


@dataclass(frozen=True)
class Reached:
    """Which tests reach each line, and how long they take."""

    tests: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]

    def expected_seconds(self, tests: Sequence[str]) -> float:
        return sum(self.seconds.get(test, 0.0) + _OVERHEAD for test in tests)

    def tests_for(self, mutant: Mutant, budget: float) -> list[str]:
        """The tests that reach a mutant, those of its room first, then the shortest, within a budget of seconds."""
        by_line = self.tests.get(mutant.file, {})
        reaching = {test for line in mutant.lines for test in by_line.get(line, ())}

        def rank(test: str) -> tuple[bool, bool, float]:
            seconds = self.seconds.get(test, 0.0)
            return seconds > 2, not test.startswith(f"tests/{mutant.room}/"), seconds

        chosen = []
        for test in sorted(reaching, key=rank):
            budget -= self.expected_seconds([test])
            if budget < 0:
                break
            chosen.append(test)
        return chosen


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help="packages of transports/; default: all")
    parser.add_argument("--sample", type=int, default=30, help="mutants of each room, by chance (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other mutants (%(default)s)")
    parser.add_argument("--seconds", type=float, default=45, help="of tests for one mutant (%(default)s)")
    parser.add_argument("--jobs", type=int, default=3, help="mutants at once (%(default)s)")
    options = parser.parse_args()

    clones = [_clone_last_commit(_FOLDER / f"{number}") for number in range(options.jobs)]
    mutants = _list_mutants(clones[0])
    rooms = sorted({mutant.room for mutant in mutants})
    if unknown := set(options.rooms) - {*rooms}:
        parser.error(f"unknown room {', '.join(sorted(unknown))}; there are {', '.join(rooms)}")

    print("running the tests once, to learn which reach what …", flush=True)
    reached = _run_with_coverage(clones[0])
    idle: SimpleQueue[Path] = SimpleQueue()
    for clone in clones:
        idle.put(clone)

    def outcome(mutant: Mutant) -> str:
        tests = reached.tests_for(mutant, options.seconds)
        if not tests:
            return "no test reaches"
        folder = idle.get()
        try:
            return "survived" if _passes(folder, mutant, tests, reached.expected_seconds(tests)) else "killed"
        finally:
            idle.put(folder)

    with ThreadPoolExecutor(options.jobs) as threads:
        for room in options.rooms or rooms:
            in_room = [mutant for mutant in mutants if mutant.room == room]
            random.Random(options.seed).shuffle(in_room)
            tried = list(itertools.islice(filter(partial(_compiles, clones[0]), in_room), options.sample))
            outcomes = list(threads.map(outcome, tried))
            killed, unreached = (Counter(outcomes)[name] for name in ("killed", "no test reaches"))
            print(f"\n{room}: {killed} of {len(tried)} killed ({killed / len(tried):.0%}), {unreached} not reached")
            for mutant, result in zip(tried, outcomes, strict=True):
                if result != "killed":
                    print(f"  {result}: {mutant}", flush=True)
    return 0


def _clone_last_commit(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(("git", "clone", "--quiet", _ROOT, folder), check=True)
    return folder


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(folder), **more}


def _run_with_coverage(folder: Path) -> Reached:
    data_file = _FOLDER / "coverage"
    seconds_file = _FOLDER / "seconds.json"
    command = (*_PYTEST, "-n", "5", "--dist", "worksteal", "--cov", "--cov-context=test", "--cov-report=")
    environment = _environment(folder, COVERAGE_FILE=str(data_file), **{SECONDS: str(seconds_file)})
    finished = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if finished.returncode:
        sys.exit(f"the tests fail without any change:\n{finished.stdout[-4000:]}")

    data = CoverageData(str(data_file))
    data.read()
    tests: dict[str, dict[int, list[str]]] = {}
    for file in data.measured_files():
        by_line = data.contexts_by_lineno(file).items()
        # A context is `NODE_ID|PHASE`, and empty where no test runs.
        tests[str(Path(file).relative_to(folder))] = {
            line: sorted({context.rpartition("|")[0] for context in contexts} - {""}) for line, contexts in by_line
        }
    return Reached(tests, json.loads(seconds_file.read_bytes()))


def _passes(folder: Path, mutant: Mutant, tests: Sequence[str], expected_seconds: float) -> bool:
    file = folder / mutant.file
    source = file.read_bytes()
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.TemporaryDirectory() as scratch:
        chosen = Path(scratch) / "chosen.json"
        chosen.write_text(json.dumps(tests))
        environment = _environment(folder, TMPDIR=scratch, **{CHOSEN: str(chosen)})
        file.write_bytes(mutant.change(source))
        try:
            with subprocess.Popen(
                (*_PYTEST, "-p", "no:xdist", "-x", *files),
                cwd=folder,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            ) as process:
                try:
                    return process.wait(30 + 4 * expected_seconds) == 0
                except subprocess.TimeoutExpired:
                    _end_tree(process.pid)
                    return False
        finally:
            file.write_bytes(source)


def _end_tree(pid: int) -> None:
    root = psutil.Process(pid)
    for process in (*root.children(recursive=True), root):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()


def _compiles(folder: Path, mutant: Mutant) -> bool:
    try:
        compile(mutant.change((folder / mutant.file).read_bytes()), mutant.file, "exec")
    except SyntaxError:
        return False
    return True


# --- mutants ----------------------------------------------------------------------------------------------------------


def _list_mutants(folder: Path) -> list[Mutant]:
    files = sorted(folder.glob("transports/**/*.py"))
    return [mutant for file in files for mutant in _mutants_of(file, str(file.relative_to(folder)))]


def _mutants_of(file: Path, name: str) -> Iterator[Mutant]:
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    for node, new in _changes(ast.parse(source), in_function=False):
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        lines = range(node.lineno, node.end_lineno + 1)
        yield Mutant(name, lines, start, end, source[start:end].decode(), new)


def _changes(node: ast.AST, in_function: bool) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Yield each node that is replaced, and its new text."""
    match node:
        # Positions inside f-strings are not exact. What is logged decides nothing.
        case ast.JoinedStr() | ast.Assert():
            return
        case ast.Call(func=function) if ast.unparse(function).startswith(_LOGS):
            return
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.Raise() if in_function:
            yield node, "pass"
            return
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            for statement in node.body:
                yield from _changes(statement, in_function=True)
            return

    if in_function and isinstance(node, ast.expr):
        yield from ((node, text) for text in _changed_expressions(node))
    if in_function and isinstance(node, ast.stmt):
        yield from _changed_statements(node)
    for child in ast.iter_child_nodes(node):
        is_docstring = isinstance(node, ast.Expr) and isinstance(child, ast.Constant)
        is_annotation = isinstance(node, ast.AnnAssign) and child is node.annotation
        if not is_docstring and not is_annotation:
            yield from _changes(child, in_function)


def _changed_expressions(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Compare(left, [operator], [right]):
            yield f"({ast.unparse(ast.Compare(left, [_COMPARISONS[type(operator)]()], [right]))})"
        case ast.BoolOp(operator, values):
            other = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield f"({ast.unparse(ast.BoolOp(other, values))})"
            rest = values[0] if len(values) == 2 else ast.BoolOp(operator, values[:-1])
            yield f"({ast.unparse(rest)})"
        case ast.UnaryOp(ast.Not(), operand):
            yield f"({ast.unparse(operand)})"
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right):
            other_sign = ast.Sub() if isinstance(sign, ast.Add) else ast.Add()
            yield f"({ast.unparse(ast.BinOp(left, other_sign, right))})"
        case ast.Constant(bool(value)):
            yield str(not value)
        case ast.Constant(int(value) | float(value)):
            yield f"({value} + 1)"
        case ast.Constant(str(value)) if value and " " not in value:
            yield repr(f"XX{value}")
        case ast.Call(keywords=keywords):
            for number, keyword in enumerate(keywords):
                if keyword.arg is not None:
                    changed = copy.copy(node)
                    changed.keywords = keywords[:number] + keywords[number + 1 :]
                    yield ast.unparse(changed)


def _changed_statements(node: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    match node:
        case ast.If(test=test) | ast.While(test=test) if isinstance(test, ast.Name | ast.Attribute | ast.Call):
            yield test, f"(not {ast.unparse(test)})"
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
        case ast.Expr(ast.Constant() | ast.Yield() | ast.YieldFrom()):
            pass
        case ast.Expr(ast.Call(func=function)) if ast.unparse(function).startswith(_LOGS):
            pass
        case ast.Expr() | ast.AugAssign() | ast.Assign(targets=[ast.Attribute()]) | ast.Continue() | ast.Break():
            yield node, "pass"


if __name__ == "__main__":
    sys.exit(main())
