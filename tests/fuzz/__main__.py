"""``python -m tests.fuzz``: every target for minutes, on all cores; a table of the cases at the end.

The exit status is 1 if an input made a target raise anything but an error of ours, took more than 50 ms, or took the
process down. Such inputs are printed with their tracebacks, and kept.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .worker import COUNTED

_TARGETS = sorted(path.name for path in (Path(__file__).parent / "corpus").iterdir())
#: Seconds that a worker may take beyond its own: to start, and for the last case.
_GRACE = 120
_WORKER = (sys.executable, "-m", "tests.fuzz.worker")


@dataclass(frozen=True, slots=True)
class _Run:
    target: str
    cases: int
    seconds: float
    edges: int


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz every door by which bytes come in.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(_TARGETS)}; default: all")
    parser.add_argument("--minutes", type=float, default=8, help="for all targets together (default: %(default)s)")
    parser.add_argument("--cases", type=int, default=1_000_000, help="go on below so many cases (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first round (default: the time)")
    parser.add_argument(
        "--folder", type=Path, default=Path(".fuzz"), help="inputs that are kept (default: %(default)s)"
    )
    options = parser.parse_args()
    if unknown := set(options.targets) - {*_TARGETS}:
        parser.error(f"there is no target {', '.join(sorted(unknown))}")
    targets = options.targets or _TARGETS
    seconds = max(options.minutes * 60 * options.jobs / len(targets), 1.0)
    print(f"seed {options.seed}, {options.jobs} processes, {seconds:.0f} s for each of {len(targets)} targets")
    runs: list[_Run] = []
    found: dict[Path, str] = {}
    seed = options.seed
    while not found and sum(run.cases for run in runs) < options.cases:
        with ThreadPoolExecutor(options.jobs) as pool:
            runs += pool.map(partial(_run, seconds=seconds, seed=seed, folder=options.folder), targets)
        found = {file: text for target in targets for file, text in _findings(options.folder / target).items()}
        seed += 1
    for file, text in found.items():
        print("", file, *text.splitlines()[-12:], sep="\n")
    _print_table(targets, runs, Counter(file.parts[-3] for file in found))
    return 1 if found else 0


def _run(target: str, seconds: float, seed: int, folder: Path) -> _Run:
    began = time.monotonic()
    log = folder / f"{target}.log"
    folder.mkdir(exist_ok=True)
    with log.open("wb") as file:
        command = [*_WORKER, target, f"{seconds:.0f}", str(seed), str(folder)]
        status = subprocess.run(
            command, stdout=file, stderr=file, env=_environment(folder / target), timeout=seconds + _GRACE, check=False
        ).returncode
    text = log.read_text(errors="replace")
    counted = re.findall(rf"{COUNTED} (\d+)", text)
    if not counted and not any((folder / target / "found").glob("*")):
        sys.exit(f"the worker of {target} ended with {status}: see {log}")
    edges = re.findall(r"\bcov: (\d+)", text)
    cases = int(counted[-1]) if counted else 0
    return _Run(target, cases, time.monotonic() - began, int(edges[-1]) if edges else 0)


def _environment(folder: Path) -> dict[str, str]:
    """Return the environment of a worker that has its temporary files in ``folder``. It may be killed, and so may this
    process: what it leaves is removed here, before the next one of the target."""
    scratch = folder.absolute() / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    return os.environ | {"TMPDIR": str(scratch)}


def _findings(folder: Path) -> dict[Path, str]:
    """Run what a worker has found again, with nothing that measures coverage; return what fails then too, and how."""
    failed: dict[Path, str] = {}
    for file in sorted((folder / "found").iterdir()):
        try:
            again = subprocess.run(
                [*_WORKER, folder.name, str(file)],
                capture_output=True,
                text=True,
                errors="replace",
                env=_environment(folder),
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            failed[file] = "no end within 60 s"
            continue
        if again.returncode:
            failed[file] = again.stderr.strip() or f"the process ended with {again.returncode}"
        else:
            file.unlink()
    return failed


def _print_table(targets: list[str], runs: list[_Run], found: Counter[str]) -> None:
    print(f"\n{'target':14}{'cases':>12}{'seconds':>9}{'cases/s':>9}{'edges':>7}{'found':>7}")
    cases = seconds = 0.0
    for target in targets:
        runs_of_target = [run for run in runs if run.target == target]
        count, took = sum(run.cases for run in runs_of_target), sum(run.seconds for run in runs_of_target)
        edges = max(run.edges for run in runs_of_target)
        print(f"{target:14}{count:12,}{took:9.0f}{count / took:9,.0f}{edges or '–':>7}{found[target]:7}")
        cases, seconds = cases + count, seconds + took
    print(f"{'all':14}{cases:12,.0f}{seconds:9.0f}{cases / seconds:9,.0f}{'':7}{sum(found.values()):7}")


if __name__ == "__main__":
    sys.exit(_main())
