"""Mutation testing of the rooms that decide: ``python -m tests.support.mutation [ROOM …]`` (``make mutate``).

mutmut changes the functions of a room, one place at a time, and runs the tests of the room that reach the place: a
change that no test notices is a gap. Numbers outside of functions, which mutmut leaves alone, are made one larger and
one smaller here: a bound needs a case at it and a case beyond it. docs/mutation.md has the results.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[2]
#: Rooms, or modules of one, and the tests that need no browser and little time.
_ROOMS: dict[str, tuple[str, Sequence[str]]] = {
    "protocol": (
        "transports/protocol/*",
        ("tests/protocol", "tests/routing/test_layers.py", "tests/routing/test_recall.py"),
    ),
    "redaction": (
        "transports/_internal/redaction.py",
        ("tests/protocol/test_redaction.py", "tests/protocol/test_secret_values.py"),
    ),
    "masking": (
        "transports/_internal/masking.py",
        ("tests/protocol/test_spellings.py", "tests/protocol/test_secret_values.py"),
    ),
    "routing": ("transports/routing/*", ("tests/routing",)),
    "session": (
        "transports/session/*",
        ("tests/session", "tests/routing/http/test_discovery.py", "tests/routing/http/test_page_head.py", "tests/mcp"),
    ),
    "websocket": ("transports/websocket/*", ("tests/websocket", "tests/protocol/test_envelope.py")),
    "http": ("transports/routing/http/*", ("tests/routing/http",)),
    "artifacts": (
        "transports/artifacts/*",
        [
            f"tests/artifacts/test_{name}.py"
            for name in (
                *("bounds", "contract", "durability", "export", "finding"),
                *("local", "local_damage", "metadata", "none", "open_store", "races", "strays", "words"),
            )
        ],
    ),
}
_COPIED = (
    "transports",
    "webapp_fixture",
    "tests",
    "docs",
    "examples",
    "README.md",
    "Makefile",
    "hatch_build.py",
    "conftest.py",
)
#: Plugins that a run of one test after another does not need.
_ARGUMENTS = (
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-m", "not hosts and not slow"),
    # mutmut calls each function through another one, which tests of the number of calls and of short times notice
    *("--ignore", "tests/session/test_small_calls.py", "--ignore", "tests/session/test_long_turns.py"),
    *("-k", "not makes_no_per_row_call"),
)
_CONFIG = """
[tool.mutmut]
source_paths = ["transports"]
only_mutate = [{source!r}]
also_copy = {copied}
pytest_add_cli_args = {arguments}
pytest_add_cli_args_test_selection = {tests}
do_not_mutate_patterns = ['logger\\.', 'logging\\.', '\\blog\\.info']
do_not_mutate = {left_out}
use_git_change_detection = false
track_dependencies = false
"""
#: Parts of the rooms whose tests need a server, or other libraries: a mutant would take too long.
_LEFT_OUT = ("transports/artifacts/objects/*", "transports/artifacts/_hosts.py")
#: mutmut names tests on pytest's command line, which not all values of parameters fit: they get numbers. Tests of a
#: store in a bucket are left out with the code for it.
_CONFTEST = """
from _pytest.python import IdMaker

IdMaker.make_unique_parameterset_ids = lambda self: [str(n) for n, _ in enumerate(self.parametersets)]


def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if not hasattr(item, "callspec") or item.callspec.params.get("kind") != "object"]
"""
#: Exit codes of mutmut's workers where no test failed: all passed, or there was none.
_ALIVE = (0, 5, 33)
#: Exit codes of mutmut's workers that took 15 times as long as without a change, and 15 seconds more.
_TOO_LATE = (-24, 24, 36, 152, 255)
#: For the copies.
_FOLDER = Path(".mutate")
_PROCESSES = "2"
#: Seconds for the tests of a room with another number.
_BOUND_TIMEOUT = 600


def main() -> int:
    """Run what the command line says, and print the mutants that no test noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(_ROOMS)}; default: all")
    parser.add_argument("--sample", type=int, default=200, help="mutants of a room, by chance; 0: all (%(default)s)")
    parser.add_argument("--bounds", action="store_true", help="only the numbers outside of functions")
    options = parser.parse_args()
    if unknown := set(options.rooms) - _ROOMS.keys():
        parser.error(f"there is no room {', '.join(sorted(unknown))}")
    for room in options.rooms or _ROOMS:
        copy = _copied(_FOLDER / room, room)
        if not options.bounds:
            _run_mutmut(copy, room, options.sample)
        _try_bounds(copy, room)
    return 0


def _copied(folder: Path, room: str) -> Path:
    """Return a copy of the sources with the settings for one room. The mutants of an earlier run are dropped."""
    copy_sources(folder)
    (folder / "conftest.py").write_text(_CONFTEST, encoding="utf-8")
    source_pattern, tests = _ROOMS[room]
    config = _CONFIG.format(
        source=source_pattern,
        copied=json.dumps([name for name in _COPIED if name not in ("transports", "tests")]),
        arguments=json.dumps(_ARGUMENTS),
        tests=json.dumps(tests),
        left_out=json.dumps(_LEFT_OUT),
    )
    settings = (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (folder / "pyproject.toml").write_text(settings + config, encoding="utf-8")
    return folder


def copy_sources(folder: Path) -> None:
    """Copy what the tests need to a folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    for name in _COPIED:
        source = _ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / name)


def _run_mutmut(copy: Path, room: str, sample: int) -> None:
    # The first run makes the mutants and learns which test reaches which; then there are names to choose from.
    _mutmut(copy, "run", "--max-children", _PROCESSES, "nothing")
    names = [name for name, _ in _results(copy)]
    if not names:
        sys.exit(f"mutmut made no mutants of {room}: see {copy / 'mutmut.log'}")
    chosen = sorted(random.Random(1).sample(names, sample)) if 0 < sample < len(names) else names
    _mutmut(copy, "run", "--max-children", _PROCESSES, *chosen)
    codes = {name: code for name, code in _results(copy) if name in {*chosen}}
    if None in codes.values():
        sys.exit(f"mutmut did not run: see {copy / 'mutmut.log'}")
    alive = {name: _mutmut(copy, "show", name) for name, code in codes.items() if code in _ALIVE}
    wording = {name for name, diff in alive.items() if _is_wording(diff)}
    tried = f"{room}: {len(names):,} mutants, {len(wording)} of the wording of messages left out"
    _print_result(tried, len(codes) - len(wording), len(alive) - len(wording))
    for name, code in codes.items():
        if code in _TOO_LATE:
            print(f"killed by the time limit, for which a busy machine is enough: {name}")
    for name in alive.keys() - wording:
        print("\n", "no test reaches it: " * (codes[name] != 0), alive[name].strip(), sep="")


def _is_wording(diff: str) -> bool:
    """Whether all that a mutant changes is the case of a text in words, or ``XX`` around it."""
    old, new = ([line[1:] for line in diff.splitlines() if line[:1] == sign and line[:3] != sign * 3] for sign in "-+")
    return (
        len(old) == len(new) == 1
        and new[0].replace("XX", "").lower() == old[0].lower()
        and re.search(r"\"[^\"]* [^\"]*\"", old[0]) is not None
    )


def _mutmut(copy: Path, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mutmut", *args], cwd=copy, capture_output=True, text=True, errors="replace", check=False
    )
    with (copy / "mutmut.log").open("a") as log:
        log.write(f"$ mutmut {' '.join(args)[:200]}\n{done.stdout}{done.stderr}")
    return done.stdout


def _results(copy: Path) -> Iterator[tuple[str, int | None]]:
    for file in sorted((copy / "mutants").rglob("*.meta")):
        yield from json.loads(file.read_bytes())["exit_code_by_key"].items()


def _print_result(what: str, tried: int, survived: int) -> None:
    share = (tried - survived) / tried if tried else 1.0
    print(f"{what}, {tried:,} tried, {tried - survived:,} killed ({share:.1%})", flush=True)


# --- bounds -----------------------------------------------------------------------------------------------------------


def _try_bounds(copy: Path, room: str) -> None:
    """Run the tests of a room with each number outside of its functions one larger, and one smaller."""
    pattern, tests = _ROOMS[room]
    tried, survived = 0, []
    for file in sorted(copy.glob(pattern.replace("/*", "/**/*.py"))):
        if any(file.match(f"*/{left_out}") for left_out in _LEFT_OUT):
            continue
        source = file.read_text(encoding="utf-8")
        for line, what, changed in _other_numbers(source):
            file.write_text(changed, encoding="utf-8")
            tried += 1
            if _passes(copy, tests):
                survived.append(f"{file.relative_to(copy)}:{line}: {what}")
        file.write_text(source, encoding="utf-8")
    _print_result(f"{room}: numbers outside of functions", tried, len(survived))
    print(*survived, sep="\n")


def _other_numbers(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield each change: its line, its description, and the source with it."""
    lines = source.splitlines(keepends=True)
    statements = ast.parse(source).body
    members = [member for node in statements if isinstance(node, ast.ClassDef) for member in node.body]
    assigned = [node.value for node in statements + members if isinstance(node, ast.Assign | ast.AnnAssign)]
    several = [value.elts if isinstance(value, ast.Tuple) else [value] for value in assigned if value is not None]
    for value in itertools.chain(*several):
        if not _is_number(value):
            continue
        old = ast.get_source_segment(source, value)
        assert value.end_lineno == value.lineno
        row, start, end = value.lineno - 1, value.col_offset, value.end_col_offset
        for sign in "+-":
            line = lines[row].encode()
            new = line[:start] + f"({old}) {sign} 1".encode() + line[end:]
            yield value.lineno, new.decode().strip(), "".join((*lines[:row], new.decode(), *lines[row + 1 :]))


def _is_number(node: ast.expr) -> bool:
    """Whether an expression is made of numbers alone."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ast.BinOp(left=left, right=right):
            return _is_number(left) and _is_number(right)
        case _:
            return False


def _passes(copy: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", *_ARGUMENTS, *tests]
    try:
        return not subprocess.run(
            command, cwd=copy, capture_output=True, timeout=_BOUND_TIMEOUT, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return False


if __name__ == "__main__":
    sys.exit(main())
