"""Pages of the documentation whose tests are named by the markers of the tests themselves, so that no page can lie.

A test says what it shows by a marker, ``@pytest.mark.requirement("R2-7.1c", …)`` or ``@pytest.mark.fault(13, …)``, on a
function, a class, a ``pytest.param`` or, for a whole module, in ``pytestmark``. Markers are read from the source, so no
test runs. :mod:`.requirements` and :mod:`.fault_table` are the pages::

    python -m tests.support.requirements            # write the page
    python -m tests.support.requirements --check    # say what is wrong with it, and change nothing
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.needs import PREFIX

__all__ = ["ROOT", "Page", "Tests", "cells"]

ROOT = Path(__file__).parents[2]
#: The names of the tests that are marked with each id.
Tests = Mapping[str, list[str]]
#: A test with one of these does not always run or may fail, so it shows nothing.
_SHOWS_NOTHING = {"exhaustive", "skip", "xfail"}
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Page:
    """A page: ``marker`` is the name of its marker and ``kind`` the type of what the marker holds. ``render`` returns
    the page made anew, ``problems`` what is wrong with it besides."""

    path: Path
    marker: str
    kind: type[str] | type[int]
    render: Callable[[str, Tests], str]
    problems: Callable[[str, Tests], list[str]]

    def marked(self, folder: Path = ROOT / "tests") -> dict[str, list[str]]:
        """Return the ids that the tests of a folder are marked with, each with the names of its tests.

        Raise ValueError for a marker that cannot be read, or that stands on a test that does not always run.
        """
        tests: dict[str, list[str]] = {}
        for path in sorted(folder.rglob("test_*.py")):
            for one, test in self._in_module(path.relative_to(folder).as_posix(), path.read_text(encoding="utf-8")):
                if test not in tests.setdefault(one, []):
                    tests[one].append(test)
        return tests

    def check(self) -> list[str]:
        """Return all that is wrong with the page."""
        page, tests = self.path.read_text(encoding="utf-8"), self.marked()
        old = [] if self.render(page, tests) == page else [f"{self.path.relative_to(ROOT)} is out of date"]
        return old + self.problems(page, tests)

    def main(self) -> int:
        """Write the page, or with ``--check`` only say whether it is as it must be; return an exit status."""
        if "--check" not in sys.argv[1:]:
            page = self.path.read_text(encoding="utf-8")
            self.path.write_text(self.render(page, self.marked()), encoding="utf-8")
        wrong = self.check()
        print("\n".join(wrong) or f"{self.path.relative_to(ROOT)}: {len(self.marked())} rows with a test")
        return 1 if wrong else 0

    def _in_module(self, name: str, source: str) -> Iterator[tuple[str, str]]:
        if f"mark.{self.marker}" not in source:
            return
        tree = ast.parse(source)
        read = 0
        for node, qualified, marks, above in _marked_nodes(tree, name):
            found = [call for mark in marks for call in ast.walk(mark) if self._is_marker(call)]
            read += len(found)
            if found and (weak := _weak([*marks, *above])):
                raise ValueError(f"{qualified} does not always run ({', '.join(sorted(weak))})")
            if found and any(_skips(inner) for inner in getattr(node, "body", [])):
                raise ValueError(f"{qualified} never runs: it skips itself")
            for call in found:
                assert isinstance(call, ast.Call)
                if not call.args or call.keywords:
                    raise ValueError(f"{name}:{node.lineno}: a marker has ids and nothing else")
                for argument in call.args:
                    if not (isinstance(argument, ast.Constant) and type(argument.value) is self.kind):
                        raise ValueError(f"{name}:{call.lineno}: an id is written out, as {self.kind.__name__}")
                    yield str(argument.value), qualified
        name_of = f"pytest.mark.{self.marker}"
        written = sum(isinstance(node, ast.Attribute) and ast.unparse(node) == name_of for node in ast.walk(tree))
        if read != written:
            raise ValueError(f"{name}: a marker stands on no test, class or module")

    def _is_marker(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and ast.unparse(node.func) == f"pytest.mark.{self.marker}"


def cells(line: str) -> list[str]:
    """Return the cells of a table's line."""
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _marked_nodes(tree: ast.Module, name: str) -> Iterator[tuple[ast.stmt, str, list[ast.expr], list[ast.expr]]]:
    """Everything that can have marks: with the name that it has on the page, its marks, and those of what it is in."""
    module = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets)
    ]
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.value in module:
            yield node, name, [node.value], []
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield node, f"{name}::{node.name}", node.decorator_list, module
            for inner in node.body:
                if isinstance(inner, Definition) and inner.name.startswith("test"):
                    above = [*module, *node.decorator_list]
                    yield inner, f"{name}::{node.name}::{inner.name}", inner.decorator_list, above
        elif isinstance(node, Definition) and node.name.startswith("test"):
            yield node, f"{name}::{node.name}", node.decorator_list, module


def _weak(marks: list[ast.expr]) -> set[str]:
    """Return the marks for which a test may not run. Only what it needs (:mod:`.needs`) is a reason for ``skipif``."""
    weak = set()
    for node in (node for mark in marks for node in ast.walk(mark)):
        if isinstance(node, ast.Attribute) and node.attr in _SHOWS_NOTHING:
            weak.add(node.attr)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.skipif":
            reason = next((one.value for one in node.keywords if one.arg == "reason"), None)
            if not (isinstance(reason, ast.Constant) and str(reason.value).startswith(PREFIX)):
                weak.add("skipif")
    return weak


def _skips(node: ast.stmt) -> bool:
    """Return whether a statement ends the test whenever it is reached."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) in ("pytest.skip", "pytest.xfail")
    )
