"""Completion of the ``abp`` command in the shells that people use, installed as they would install it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import TAB, Terminal

pytestmark = pytest.mark.slow  # programs of others

#: An interactive shell that reads no settings but those in its home folder.
SHELLS = {"bash": ["bash", "-i"], "zsh": ["zsh", "-d", "-i"]}


def home(shell: str, folder: Path) -> dict[str, str]:
    """Install completion as a user does, with ``folder`` as home, and return the environment of the next shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"HOME": str(folder), "PATH": path, "TERM": "dumb", "LC_ALL": "C.UTF-8", "PS1": "$ "}
    install = [shell, "-c", "abp --install-completion; true"]  # with nothing after it, a shell gives itself up for it
    ran = subprocess.run(install, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    assert f"{shell} completion installed in {folder}" in ran.stdout
    return environment


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    environment = home(shell, tmp_path)
    with Terminal() as terminal:
        end = terminal.follower
        command = ["setsid", "--ctty", *SHELLS[shell]]
        with subprocess.Popen(command, env=environment, cwd=tmp_path, stdin=end, stdout=end, stderr=end) as process:
            try:
                terminal.press("echo rea''dy\n")
                terminal.wait_for("\nready\n")
                terminal.press(f"abp capabil{TAB}" + TAB * (shell == "zsh"))  # its first TAB only loads the completion
                terminal.wait_for("ities ")  # one shell shows the whole line again, the other what it added
                terminal.press(f"--storage-st{TAB}")
                terminal.wait_for("ate ")
            finally:
                process.kill()


def test_fish_completes_commands_and_options(tmp_path: Path) -> None:
    environment = home("fish", tmp_path)
    ask = ["fish", "-c", "complete -C 'abp capabil'; complete -C 'abp call --storage-st'"]
    ran = subprocess.run(ask, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert [line.split("\t")[0] for line in ran.stdout.splitlines()] == ["capabilities", "--storage-state"]
