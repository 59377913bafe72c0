"""Imports go strictly downward, as docs/architecture.md draws them."""

import ast
import graphlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import transports
from tests.support.rows import each_row

#: Rooms whose parts are rooms: none imports its siblings.
PARTED = ("_internal", "surfaces")
#: The files that may import siblings: the commands that start another surface, or make an address of one.
STARTERS = ("surfaces/cli/_artifacts.py", "surfaces/cli/_serve.py")

ROOT = Path(transports.__file__).parent


def drawn() -> dict[str, int]:
    """Every room of ``transports`` and its rank, as docs/architecture.md draws them.

    A room may import rooms of a lower rank, never its equals. Modules of one room import each other freely, but not in
    a ring. Each surface is a room of its own.
    """
    text = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    ranks: dict[str, int] = {}
    parent = ""
    for indent, name, rank in re.findall(r"^(│   |    |)[├└]── ([a-z_]+)(?:\.py|/) +(\d+)  \S", text, re.MULTILINE):
        parent = parent if indent else name
        ranks[f"{parent}.{name}" if indent else name] = int(rank)
    return ranks


RANKS = drawn()


def sources() -> dict[str, str]:
    paths = [*ROOT.rglob("*.py"), *ROOT.rglob("*.pyi")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def dotted(path: str) -> str:
    """``artifacts/local.py`` → ``artifacts.local``; a package goes by its name, ours by ``""``."""
    return path.removesuffix(".pyi").removesuffix(".py").removesuffix("__init__").replace("/", ".").rstrip(".")


def room(module: str) -> str:
    """The room of a module: a module or package at the top, an adapter, a surface."""
    steps = module.split(".")
    return ".".join(steps[:2] if steps[0] in PARTED else steps[:1]) or "__init__"


def rank_of(module: str) -> int | None:
    return RANKS.get(room(module), RANKS.get(room(module).split(".")[0]))


def statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements with those inside them. Expressions, which import nothing, would take twice as long."""
    for node in nodes:
        yield node
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, block, ())
            if isinstance(inner, list):  # the body of a lambda is an expression
                yield from statements(inner)


def imports(path: str, code: str, modules: set[str]) -> Iterator[str]:
    """The modules of ours that a file imports, wherever in it: under ``TYPE_CHECKING`` and in functions too."""
    package = ["transports", *path.split("/")[:-1]]
    for node in statements(ast.parse(code).body):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module or "").split(".")]).rstrip(".")
            inner = [f"{start}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("transports.") in modules else start for name in inner]
        for name in names:
            if name == "transports" or name.startswith("transports."):
                yield name.removeprefix("transports").removeprefix(".")


def violations(files: Mapping[str, str]) -> list[str]:
    """What is wrong with the imports of some files, in words."""
    modules = {dotted(path) for path in files}
    found: list[str] = []
    edges: dict[str, set[str]] = {}
    for path, code in sorted(files.items()):
        module = dotted(path)
        rank = rank_of(module)
        if rank is None:
            found.append(f"{path} is not in the table")
            continue
        for target in imports(path, code, modules):
            if not module.startswith(f"{target}.") and target != "":  # a module may name its own package
                edges.setdefault(module, set()).add(target)
            theirs = rank_of(target)
            if theirs is None:
                found.append(f"{path} imports {target}, which is not in the table")
            elif (path in STARTERS and target.startswith("surfaces.")) or target.startswith(f"{module}."):
                continue
            elif room(target) != room(module) and theirs >= rank:
                found.append(f"{path} ({rank}) imports {target or '__init__'} ({theirs})")
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        found.append(f"a ring: {' → '.join(error.args[1])}")
    return found


@pytest.mark.load
@pytest.mark.requirement("R5-1a")
def test_imports_go_strictly_downward() -> None:
    assert violations(sources()) == []


@pytest.mark.requirement("R5-1a")
def test_architecture_page_draws_every_package() -> None:
    rooms = {room(dotted(path)) for path in sources()}
    assert {name if name in RANKS else name.split(".")[0] for name in rooms} == set(RANKS)


BASE = {"__init__.py": "", "errors.py": "", "base.py": "from .errors import ABPError", "session/__init__.py": ""}
CHECKED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@each_row(
    ("path", "code", "complaint"),
    [
        ("errors.py", "from transports import connect", "errors.py (0) imports __init__ (60)"),
        ("errors.py", "def late():\n    from .base import Transport", "errors.py (0) imports base (30)"),
        ("errors.py", CHECKED + "from .session import Session", "errors.py (0) imports session (50)"),
        ("surfaces/cli.py", "from .mcp import x", "surfaces/cli.py (65) imports surfaces.mcp (65)"),
        ("new.py", "", "new.py is not in the table"),
        ("artifacts/a.py", CHECKED + "from .a import x", "a ring: artifacts.a → artifacts.a"),
    ],
)
def test_import_check_detects_upward_import(path: str, code: str, complaint: str) -> None:
    assert complaint in violations({**BASE, "surfaces/mcp.py": "", path: code})


def test_scripts_of_gallery_have_no_circular_imports() -> None:
    folder = Path(transports.__file__).parent / "surfaces/web/page"
    imports = {
        path.name: re.findall(r"(?:from|import\() ?'\./(\w+\.js)'", path.read_text(encoding="utf-8"))
        for path in folder.glob("*.js")
    }
    assert "view.js" in imports["panel.js"] and "dom.js" in imports["app.js"]  # also on demand
    graphlib.TopologicalSorter(imports).prepare()  # raises for a ring
