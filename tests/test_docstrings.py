"""Every public name of the package has a docstring: modules, classes, functions, methods and properties."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import transports

ROOT = Path(transports.__file__).parent

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


@cache
def parsed(source: str) -> ast.Module:
    """The tree of a file, which several tests read."""
    return ast.parse(source)


def undocumented(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The file and the name of everything public without a docstring. A method needs none of its own where a class of
    ours that it overrides documents it; the getter of a property speaks for its setter."""
    trees = {path: parsed(source) for path, source in files.items()}
    classes = {node.name: node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    for path, tree in trees.items():
        if not ast.get_docstring(tree):
            yield path, "the module"
        for node in tree.body:
            if isinstance(node, Definition) and not _is_overload(node):
                yield from ((path, name) for name in _in_definition(node, "", classes))


def _is_overload(node: Definition) -> bool:
    return any(ast.unparse(one).rpartition(".")[2] == "overload" for one in node.decorator_list)


def _in_definition(node: Definition, prefix: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    if node.name.startswith("_"):
        return
    if not ast.get_docstring(node):
        yield prefix + node.name
    if not isinstance(node, ast.ClassDef):
        return
    for inner in node.body:
        if isinstance(inner, ast.ClassDef):
            yield from _in_definition(inner, f"{prefix}{node.name}.", classes)
        elif isinstance(inner, Definition) and not inner.name.startswith("_"):
            decorators = {ast.unparse(one).rpartition(".")[2] for one in inner.decorator_list}
            if not decorators & {"setter", "overload"} and not _documented(node, inner.name, classes, set()):
                yield f"{prefix}{node.name}.{inner.name}"


def _documented(owner: ast.ClassDef, name: str, classes: Mapping[str, ast.ClassDef], seen: set[str]) -> bool:
    """Whether a class documents the method, or a base of it does."""
    seen.add(owner.name)
    for inner in owner.body:
        if isinstance(inner, Definition) and inner.name == name and ast.get_docstring(inner):
            return True
    bases = {base.id for base in map(_plain, owner.bases) if isinstance(base, ast.Name)} - seen
    return any(_documented(classes[base], name, classes, seen) for base in bases if base in classes)


def _plain(base: ast.expr) -> ast.expr:
    """A base without its parameters, as ``Resource`` of ``Resource[Session]``."""
    return base.value if isinstance(base, ast.Subscript) else base


@pytest.mark.load
def test_every_public_name_has_a_docstring() -> None:
    assert list(undocumented(sources())) == []


def test_names_without_a_docstring_are_found() -> None:
    documented = '"""A module."""\nclass Base:\n    """A base."""\n    def run(self):\n        """Run."""\n'
    files = {
        "protocol/binary.py": documented + "    def stop(self): ...\n    @property\n    def size(self): ...\n",
        "http/one.py": (
            '"""One."""\nfrom ..binary.data import Base\nclass Child(Base[int]):\n    def run(self): ...\n'
            "    def walk(self):\n        def inner(): ...\n    def _hidden(self): ...\n"
            "class _Private:\n    def run(self): ...\ndef fetch(): ...\nasync def send(): ...\n"
        ),
        "tasks.py": "def _start(): ...\n",
    }
    assert set(undocumented(files)) == {
        ("protocol/binary.py", "Base.stop"),
        ("protocol/binary.py", "Base.size"),
        ("http/one.py", "Child"),
        ("http/one.py", "Child.walk"),
        ("http/one.py", "fetch"),
        ("http/one.py", "send"),
        ("tasks.py", "the module"),
    }


#: A headline that begins like this is read like a riddle: the thing comes first ("Statistics of a pool.").
RIDDLES = re.compile(r"(What|Which|How|Whether|Who|Whose|Where|When)\b")


def riddles(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The file and the headline of every docstring that begins with a question word, private ones included."""
    for path, source in files.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, Definition | ast.Module) and (text := ast.get_docstring(node)) and RIDDLES.match(text):
                yield path, text.splitlines()[0]


@pytest.mark.load
def test_headlines_begin_with_the_thing() -> None:
    assert list(riddles(sources())) == []


def test_a_headline_that_begins_with_a_question_word_is_seen() -> None:
    code = '"""How it works."""\ndef _x():\n    """Whether it is so."""\ndef y():\n    """Whatever is left."""'
    assert list(riddles({"a.py": code})) == [("a.py", "How it works."), ("a.py", "Whether it is so.")]
