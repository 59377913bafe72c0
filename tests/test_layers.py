"""Imports go strictly downward (docs/architecture.md): the table, and the reader that holds the code to it."""

import ast
import graphlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import transports

#: Every module and package of ``transports``: a module may import what stands lower, never its equals. The tens are
#: the layer, the units order those within one layer that build on each other. Modules of one package import each other
#: freely, but not in circles; each adapter and each surface is a unit by itself.
LAYERS = {
    "errors": 0,
    "media": 0,
    "settings": 1,
    "binary": 10,
    "detect": 11,
    "messages": 12,
    "params": 12,
    "runs": 13,
    "envelope": 14,
    "backoff": 20,
    "base": 20,
    "callbacks": 20,
    "elicitation": 20,
    "events": 20,
    "capabilities": 21,
    "pending": 20,
    "plugins": 21,
    "schema": 20,
    "artifacts": 30,
    "browser": 30,
    "download": 31,
    "discovery": 32,
    "recording": 33,
    "adapters": 40,
    "routing": 50,
    "inbox": 51,
    "introduction": 51,
    "calls": 52,
    "resources": 52,
    "session": 53,
    "targets": 54,
    "apps": 55,
    "activity": 56,
    "sync": 60,
    "__init__": 60,
    "testing": 62,
    "surfaces": 65,
}
SIBLINGS = ("adapters", "surfaces")
#: The one file that may import its siblings: every command is registered there.
REGISTRY = "surfaces/cli/commands.py"

ROOT = Path(transports.__file__).parent


def sources() -> dict[str, str]:
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in ROOT.rglob("*.py")}


def dotted(path: str) -> str:
    """``artifacts/local.py`` → ``artifacts.local``; a package goes by its name, ours by ``""``."""
    return path.removesuffix(".py").removesuffix("__init__").replace("/", ".").rstrip(".")


def unit(module: str) -> str:
    """What the rules are about: a module at the top, a package, an adapter, a surface."""
    steps = module.split(".")
    return ".".join(steps[:2] if steps[0] in SIBLINGS else steps[:1]) or "__init__"


def imports(path: str, code: str, modules: set[str]) -> Iterator[str]:
    """Our own modules that a file imports, wherever in it; not those that only a type checker sees."""
    package = ["transports", *path.split("/")[:-1]]
    waiting: list[ast.AST] = [ast.parse(code)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
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
        rank = LAYERS.get(unit(module).split(".")[0])
        if rank is None:
            found.append(f"{path} is not in the table")
            continue
        for target in imports(path, code, modules):
            edges.setdefault(module, set()).add(target)
            theirs = LAYERS.get(unit(target).split(".")[0])
            if theirs is None:
                found.append(f"{path} imports {target}, which is not in the table")
            elif path == REGISTRY and target.startswith("surfaces."):
                continue
            elif unit(target) != unit(module) and theirs >= rank:
                found.append(f"{path} (L{rank // 10}) imports {target} (L{theirs // 10})")
    try:
        graphlib.TopologicalSorter(edges).prepare()
    except graphlib.CycleError as error:
        found.append(f"a circle: {' → '.join(error.args[1])}")
    return found


def test_imports_go_strictly_downward() -> None:
    assert violations(sources()) == []


def test_the_table_names_nothing_that_is_gone() -> None:
    assert {unit(dotted(path)).split(".")[0] for path in sources()} == set(LAYERS)


BASE = {"__init__.py": "", "errors.py": "", "base.py": "from .errors import ABPError", "session.py": ""}


@pytest.mark.parametrize(
    ("path", "code", "complaint"),
    [
        ("errors.py", "from .session import connect", "errors.py (L0) imports session (L5)"),
        ("errors.py", "from . import session", "errors.py (L0) imports session (L5)"),
        ("errors.py", "import transports.session", "errors.py (L0) imports session (L5)"),
        ("errors.py", "from transports import session", "errors.py (L0) imports session (L5)"),
        ("errors.py", "from transports import connect", "errors.py (L0) imports  (L6)"),
        ("errors.py", "def late():\n    from .base import Transport", "errors.py (L0) imports base (L2)"),
        ("errors.py", "try:\n    from .base import x\nexcept ImportError: pass", "errors.py (L0) imports base (L2)"),
        ("callbacks.py", "from .base import Transport", "callbacks.py (L2) imports base (L2)"),
        ("artifacts/local.py", "from ..session import connect", "artifacts/local.py (L3) imports session (L5)"),
        ("artifacts/__init__.py", "from ..session import x", "artifacts/__init__.py (L3) imports session (L5)"),
        ("adapters/a.py", "from .b import B", "adapters/a.py (L4) imports adapters.b (L4)"),
        ("adapters/a.py", "from . import b", "adapters/a.py (L4) imports adapters.b (L4)"),
        ("surfaces/web.py", "from .cli.params import x", "surfaces/web.py (L6) imports surfaces.cli.params (L6)"),
        ("surfaces/web.py", "from .mcp import x", "surfaces/web.py (L6) imports surfaces.mcp (L6)"),
        ("surfaces/cli/params.py", "from ..mcp import x", "surfaces/cli/params.py (L6) imports surfaces.mcp (L6)"),
        ("new.py", "", "new.py is not in the table"),
        ("session.py", "from .nowhere import x", "session.py imports nowhere, which is not in the table"),
        ("artifacts/a.py", "from .a import x", "a circle: artifacts.a → artifacts.a"),
        (
            "errors.py",
            "import typing\nif typing.TYPE_CHECKING: pass\nelse:\n    from .base import x",
            "errors.py (L0) imports base (L2)",
        ),
    ],
)
def test_the_reader_sees_an_import_that_goes_up(path: str, code: str, complaint: str) -> None:
    files = {**BASE, **dict.fromkeys(("adapters/b.py", "surfaces/cli/__init__.py", "surfaces/cli/params.py"), "")}
    files |= {"surfaces/mcp/__init__.py": "", path: code}
    assert complaint in violations(files)


def test_the_reader_lets_pass_what_is_allowed() -> None:
    allowed = {
        "errors.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .session import Session",
        "artifacts/a.py": "from .b import B\nfrom ..errors import ABPError\nimport os, json",
        "artifacts/b.py": "import transports.errors",
        "session.py": "def make():\n    from .adapters.b import B\n    from .routing import Router",
        "routing/__init__.py": "from ..base import Transport",
        "adapters/__init__.py": "",
        "adapters/b.py": "from ..base import Transport\nfrom ..artifacts import a",
        "surfaces/cli/__init__.py": "from . import params",
        "surfaces/cli/params.py": "from ...session import connect",
        "surfaces/cli/commands.py": "from ..mcp import serve",
        "surfaces/mcp/__init__.py": "",
    }
    assert violations({**BASE, **allowed}) == []
