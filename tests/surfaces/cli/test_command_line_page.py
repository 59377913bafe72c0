"""The transcripts of docs/command-line.md: what a person types in them is typed, and the same comes out."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import PATIENCE, CommandLine, Terminal
from webapp_fixture import Fixture

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
TRANSCRIPTS = re.findall(r"^```console\n\$ (abp .+)\n((?:.*\n)*?)```$", PAGE, re.MULTILINE)
#: What a line that somebody types begins with.
PROMPTS = ("abp> ", "yes or no [y/N]: ")
#: Makes the terminal the one that Ctrl-C is sent by.
AT_TERMINAL = (
    "import fcntl, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from transports.surfaces.cli import main"
)


def transcript(command: str) -> tuple[list[str], str]:
    """The arguments of the command that the page begins so, and what it shows of it."""
    ((line, shown),) = [found for found in TRANSCRIPTS if found[0].startswith(command)]
    return shlex.split(line)[1:], shown


def type_as_shown(shown: str, terminal: Terminal) -> None:
    for line in shown.splitlines():
        for prompt in PROMPTS:
            if line.startswith(prompt):
                terminal.answer(prompt, line.removeprefix(prompt))
        if line.startswith("^C"):
            terminal.interrupt("cancelled")


def normal(shown: str) -> list[str]:
    """A transcript without what differs from run to run: folders, hashes, and how often Ctrl-C was pressed."""
    shown = re.sub(r": /\S+/", ": …/", shown)
    return re.sub(r"_[0-9a-f]{12,13}\b", "_…", re.sub(r"(\^C)+", "^C", shown)).splitlines()


@pytest.mark.parametrize(
    "command", ["abp call ws://127.0.0.1:8000/abp data.csv", "abp call ws://127.0.0.1:8000/abp files"]
)
def test_cli_call_output_matches_documentation_page(
    abp: CommandLine, workbench: Fixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (name, _, *args), shown = transcript(command)
    ran = abp.at_terminal(
        name, workbench.ws_url, *args, script=lambda terminal: type_as_shown(shown, terminal), stdout=True
    )
    assert ran.status == 0 and normal(ran.err) == normal(shown)


def test_documented_capability_output_matches_cli(abp: CommandLine, workbench: Fixture) -> None:
    (name, url, capability), shown = transcript("abp capabilities")
    assert abp(name, workbench.ws_url, capability).out == shown.replace(url, workbench.ws_url)


@pytest.mark.slow
def test_shell_matches_documentation(workbench: Fixture, tmp_path: Path) -> None:
    (name, _, *args), shown = transcript("abp shell")
    command = [sys.executable, "-c", f"{AT_TERMINAL}; sys.exit(main(sys.argv[1:]))", name, workbench.ws_url, *args]
    (tmp_path / "webapp_fixture").symlink_to(ROOT / "webapp_fixture")
    env = {key: value for key, value in os.environ.items() if not key.startswith("ABP_")}
    env |= {"TERM": "dumb", "XDG_STATE_HOME": str(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    with Terminal() as terminal:
        end = terminal.follower
        process = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdin=end, stdout=end, stderr=end, start_new_session=True
        )
        with process:
            try:
                type_as_shown(shown, terminal)
                status = process.wait(PATIENCE)
            finally:
                process.kill()
    assert status == 0 and normal(terminal.shown) == normal(shown)
