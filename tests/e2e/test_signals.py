"""Signals to ``abp`` at every stage of a call: it ends soon, says so, and leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_cli import Cli, Process
from tests.e2e.test_cli_browser import Site, serving, workbench as workbench
from tests.support.eventually import eventually_blocking

pytestmark = pytest.mark.browser

#: Seconds in which a moment comes, also on a machine that does other things.
PATIENCE = 40.0


@dataclass
class Run:
    """One command in a session of its own, and everything it starts."""

    cli: Cli
    process: Process
    family: dict[int, psutil.Process] = field(default_factory=dict)

    def look(self) -> list[psutil.Process]:
        """The processes of this run so far: its children, and whoever carries its temp folder."""
        with suppress(psutil.Error):
            root = psutil.Process(self.process.pid)
            self.family |= {one.pid: one for one in (root, *root.children(recursive=True))}
        for one in psutil.process_iter():
            if one.pid not in self.family:
                with suppress(psutil.Error, ProcessLookupError):  # os.getsid raises the second once it has ended
                    mine = one.environ().get("TMPDIR", "").startswith(str(self.cli.temp))
                    if mine or os.getsid(one.pid) == self.process.pid:
                        self.family[one.pid] = one
        return list(self.family.values())

    def alive(self) -> list[str]:
        found = []
        for one in self.look():
            with suppress(psutil.Error):
                if one.is_running() and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(one.cmdline())[:200])
        return found

    def children(self, word: str) -> list[psutil.Process]:
        """Children whose command line holds ``word``."""
        with suppress(psutil.Error):
            return [
                one
                for one in psutil.Process(self.process.pid).children(recursive=True)
                if word in " ".join(one.cmdline())
            ]
        return []

    def large(self) -> bool:
        """Whether a file of the answer has begun to come."""
        found = [*self.cli.out.glob(".abp/staging/*"), *self.cli.temp.glob("abp-run-*/**/*")]
        with suppress(OSError):
            return any(path.is_file() and path.stat().st_size > 8 << 20 for path in found)
        return False


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(*args: object, cli: Cli | None = None) -> Run:
        if cli is None:
            folder = tmp_path / f"run{len(runs)}"
            folder.mkdir()
            cli = Cli(folder)
        # A coverage run writes its file behind our last line, and its own end is not ours to guard.
        cli.env = {name: value for name, value in cli.env.items() if not name.startswith("COVERAGE_")}
        runs.append(Run(cli, cli.start("call", *args, "--json", start_new_session=True)))
        return runs[-1]

    yield make
    for run in runs:
        for one in run.look():
            with suppress(psutil.Error):
                one.kill()
        run.process.communicate()
        shutil.rmtree(run.cli.temp, ignore_errors=True)


#: As a terminal sends it, to all of a group, and as another program does; and the other way round.
WAYS = [(signal.SIGINT, True), (signal.SIGTERM, False), (signal.SIGINT, False), (signal.SIGTERM, True)]


def check(run: Run, moment: Callable[[Run], object], number: signal.Signals, group: bool, times: int = 1) -> None:
    eventually_blocking(lambda: moment(run) or run.process.poll() is not None, within=PATIENCE, what="the moment")
    assert run.process.poll() is None, run.process.communicate()
    run.look()
    started = time.monotonic()
    for _ in range(times):
        if group:
            os.killpg(run.process.pid, number)
        else:
            run.process.send_signal(number)
        time.sleep(0.01)
    out, err = run.process.communicate(timeout=30)
    assert time.monotonic() - started < 10
    how = (number.name, "group" if group else "alone", err.decode())
    assert run.process.returncode == 128 + number, how
    assert b"Traceback" not in err and len(err.splitlines()) == 1 and b"[CANCELLED]" in err, how
    document = json.loads(out)
    assert document["cancelled"] is True and document["error"]["code"] == "CANCELLED"
    eventually_blocking(lambda: not run.alive(), within=2, what=f"the end of all processes after {how}")
    assert list(run.cli.temp.iterdir()) == [], how
    assert run.cli.staged() == [] and run.cli.files() == [], how


def check_all(runs: list[Run], moment: Callable[[Run], object]) -> None:
    """The same moment, reached by several commands at once: each gets another signal."""
    with ThreadPoolExecutor(len(runs)) as pool:
        futures = [pool.submit(check, run, moment, *way) for run, way in zip(runs, WAYS, strict=False)]
        for future in futures:
            future.result()


@dataclass(frozen=True)
class Moment:
    """What ``abp call`` is given for the site at ``{url}``, and whether the moment has come for a run."""

    path: str
    come: Callable[[Run, Site], object]


MOMENTS = {
    "the browser's driver starts": Moment("", lambda run, _: run.children("run-driver")),
    "the browser starts": Moment("", lambda run, _: run.children("--headless")),
    "the page loads": Moment("hang", lambda _, site: "/hang" in site.seen),
    "the call is under way": Moment("", lambda _, site: "/called" in site.seen),
}


@pytest.mark.slow
@pytest.mark.fault(8)
@pytest.mark.parametrize("name", MOMENTS)
def test_signal_ends_program_at_any_moment(start: Callable[..., Run], name: str) -> None:
    moment = MOMENTS[name]
    with ExitStack() as stack:
        sites = [stack.enter_context(serving()) for _ in WAYS]
        runs = [start(site.url + moment.path, "wait") for site in sites]
        check_all(runs, lambda run: moment.come(run, sites[runs.index(run)]))


@pytest.mark.slow
@pytest.mark.fault(8)
@pytest.mark.parametrize("way", ["buffer", "url"])
def test_signal_ends_program_during_large_transfer(start: Callable[..., Run], workbench: str, way: str) -> None:
    args = (workbench, "file.generate", "-p", "megabytes=256", "-p", f"as={way}")
    runs = [start(*args) for _ in WAYS[:2]]
    check_all(runs, Run.large)


@pytest.mark.fault(6, 8)
def test_killed_command_ends_its_browser_and_next_one_cleans_up(start: Callable[..., Run], site: Site) -> None:
    """The next one, too, is ended: by signals that are repeated, and change nothing of its end."""
    run = start(site.url, "wait")
    eventually_blocking(lambda: "/called" in site.seen, within=PATIENCE, what="the call")
    assert len(run.look()) > 3
    run.process.kill()
    run.process.communicate()
    eventually_blocking(lambda: not run.alive(), within=3, what="the end of all processes")
    left = [path.name for path in run.cli.temp.iterdir()]
    assert left == [] or all(name.startswith("abp-run-") for name in left)
    assert run.cli.files() == []
    site.seen.clear()
    check(start(site.url, "wait", cli=run.cli), lambda _: "/called" in site.seen, signal.SIGINT, True, times=6)
