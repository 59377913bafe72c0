"""Imports go strictly downward (docs/architecture.md): the table, and the reader that holds the code to it."""

import ast
import graphlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

import transports
from tests.support.rows import each_row

#: Every room of ``transports`` and its rank: a room may import rooms of a lower rank, never its equals. Modules of one
#: room import each other freely, but not in a ring. Each adapter and each surface is a room of its own.
RANKS = {
    "_internal": 0,
    "_internal.lazy": 0,
    "errors": 0,
    "_internal.arguments": 1,
    "_internal.files": 1,
    "_internal.recent": 1,
    "_internal.tasks": 1,
    "_internal.reader_programs": 1,
    "_internal.readers": 1,
    "_internal.notebook": 2,
    "_internal.telemetry": 3,
    "_internal.plugins": 5,
    "_internal.masking": 6,
    "_internal.redaction": 7,
    "_internal.database": 7,
    "protocol": 10,
    "artifacts": 20,
    "base": 30,
    "memory": 40,
    "playwright": 40,
    "websocket": 40,
    "recording": 41,
    "postmessage": 41,
    "mcp": 41,
    "routing": 45,
    "session": 50,
    "batch": 55,
    "sync": 60,
    "__init__": 60,
    "filesystem": 61,
    "testing": 62,
    "surfaces.shared": 64,
    "surfaces": 65,
    "agents": 65,
}
#: Rooms whose parts are rooms: none imports its siblings.
PARTED = ("_internal", "surfaces")
#: The files that may import siblings: the commands that start another surface, or make an address of one.
STARTERS = ("surfaces/cli/_artifacts.py", "surfaces/cli/_serve.py")

ROOT = Path(transports.__file__).parent


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


def test_layer_table_matches_existing_packages() -> None:
    rooms = {room(dotted(path)) for path in sources()}
    assert {name if name in RANKS else name.split(".")[0] for name in rooms} == set(RANKS)


@pytest.mark.requirement("R5-1a")
def test_architecture_doc_matches_folder_listing() -> None:
    text = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(│   |    |)[├└]── ([a-z_]+)(\.py|/) +(\d+)  \S", text, re.MULTILINE)
    drawn: dict[str, int] = {}
    parent = ""
    for indent, name, _, rank in lines:
        parent = parent if indent else name
        drawn[f"{parent}.{name}" if indent else name] = int(rank)
    assert drawn == RANKS
    folders = {name for indent, name, kind, _ in lines if kind == "/" and not indent}
    on_disk = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert folders == on_disk
    assert {name for indent, name, kind, _ in lines if kind == ".py" and not indent} == {
        path.stem for path in ROOT.glob("*.py")
    }


BASE = {"__init__.py": "", "errors.py": "", "base.py": "from .errors import ABPError", "session/__init__.py": ""}
CHECKED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    "


@each_row(
    ("path", "code", "complaint"),
    [
        ("errors.py", "from .session import connect", "errors.py (0) imports session (50)"),
        ("errors.py", "from . import session", "errors.py (0) imports session (50)"),
        ("errors.py", "import transports.session", "errors.py (0) imports session (50)"),
        ("errors.py", "from transports import connect", "errors.py (0) imports __init__ (60)"),
        ("errors.py", "def late():\n    from .base import Transport", "errors.py (0) imports base (30)"),
        ("errors.py", "try:\n    from .base import x\nexcept ImportError: pass", "errors.py (0) imports base (30)"),
        ("errors.py", CHECKED + "from .session import Session", "errors.py (0) imports session (50)"),
        ("errors.py", "from ._internal import lazy", "errors.py (0) imports _internal.lazy (0)"),
        ("artifacts/a.py", "from ..session import connect", "artifacts/a.py (20) imports session (50)"),
        ("memory.py", "from .websocket import a", "memory.py (40) imports websocket (40)"),
        ("surfaces/web.py", "from .cli.params import x", "surfaces/web.py (65) imports surfaces.cli.params (65)"),
        ("surfaces/cli/_params.py", "from ..mcp import x", "surfaces/cli/_params.py (65) imports surfaces.mcp (65)"),
        ("new.py", "", "new.py is not in the table"),
        ("base.py", "from .nowhere import x", "base.py imports nowhere, which is not in the table"),
        ("artifacts/a.py", "from .a import x", "a ring: artifacts.a → artifacts.a"),
        ("artifacts/a.py", CHECKED + "from .a import x", "a ring: artifacts.a → artifacts.a"),
    ],
)
def test_import_check_detects_upward_import(path: str, code: str, complaint: str) -> None:
    files = {
        **BASE,
        **dict.fromkeys(
            ("websocket/__init__.py", "_internal/lazy.py", "surfaces/cli/__init__.py", "surfaces/cli/_params.py"), ""
        ),
    }
    files |= {"surfaces/mcp/__init__.py": "", path: code}
    assert complaint in violations(files)


def test_import_check_detects_two_module_cycle() -> None:
    files = {"artifacts/a.py": "from .b import x", "artifacts/b.py": CHECKED + "from .a import y"}
    assert [line for line in violations({**BASE, **files}) if line.startswith("a ring: ")]


def test_import_check_accepts_allowed_imports() -> None:
    allowed = {
        "artifacts/a.py": "from .b import B\nfrom ..errors import ABPError\nimport os, json",
        "artifacts/b.py": "import transports.errors",
        "session/_session.py": "def make():\n    from ..websocket import B\n    from ..routing import Router",
        "routing/__init__.py": "from ..base import Transport",
        "websocket/__init__.py": "from ..base import Transport\nfrom ..artifacts import a",
        "surfaces/shared/__init__.py": "from ...session import connect",
        "surfaces/cli/__init__.py": "from . import _params\nfrom ..shared import Apps",
        "surfaces/cli/_params.py": "from ...session import connect\nfrom ._output import x",
        "surfaces/cli/_output.py": "",
        "surfaces/cli/_serve.py": "from ..mcp import serve_http",
        "surfaces/mcp/__init__.py": "",
    }
    assert violations({**BASE, **allowed}) == []


def test_sqlite_is_opened_in_one_place() -> None:
    assert [path for path, code in sources().items() if "sqlite3.connect(" in code] == ["_internal/database.py"]


def test_scripts_of_gallery_have_no_circular_imports() -> None:
    folder = Path(transports.__file__).parent / "surfaces/web/page"
    imports = {
        path.name: re.findall(r"(?:from|import\() ?'\./(\w+\.js)'", path.read_text(encoding="utf-8"))
        for path in folder.glob("*.js")
    }
    assert "view.js" in imports["panel.js"] and "dom.js" in imports["app.js"]  # also on demand
    graphlib.TopologicalSorter(imports).prepare()  # raises for a ring
