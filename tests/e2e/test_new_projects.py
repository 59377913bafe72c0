"""What ``abp init`` tells to do next, done as it stands in a folder with spaces."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import packaging
from tests.support.command_line import serving
from transports.surfaces.cli import main

pytestmark = pytest.mark.browser
#: Programs of a script in the background end with it.
_ENDING = "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT"


def follow(kind: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Begin a project in ``folder`` and run the printed commands, but for the installation and the port. Return what
    they print."""
    monkeypatch.chdir(folder)
    assert main(["init", kind, f"a new {kind}"]) == 0
    commands = re.findall(r"^  (.+)$", capsys.readouterr().out.partition("Next:\n")[2], re.M)
    (install,) = [command for command in commands if command.startswith("pip install ")]
    commands.remove(install)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    script = "\n".join(("set -e", _ENDING, *commands)).replace("8001", port)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": str(packaging.ROOT), "ABP_OUTPUT_DIR": str(folder / "out")}
    return packaging.run("bash", "-c", script, cwd=folder, env={**env, "PYTEST_ADDOPTS": "-p no:cacheprovider"})


CONFORMANT = r"(?m)^conformant: \d+ passed, 0 failed, 0 warnings"
#: Checks that only an app with files, progress and cancelling passes.
PASSED = ("cancel.running", "answers.progress", "binary.download", "binary.type", "manifest.agrees")
#: What the commands of each kind of project print.
PRINTED = {
    "app": ("5 passed", "Type: application/pdf", CONFORMANT, *(f"ok +{check}" for check in PASSED)),
    "view": ("1 passed", r'{"text": "Hello, Ada!"}', r"view: Card 1.0 \(ui://greeter/card.html\)", CONFORMANT),
    "adapter": ("1 passed", "Type: text/csv", 'Metadata: {"rows":3}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["app", "view", "adapter"])
def test_new_project_passes_its_printed_steps(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = follow(kind, tmp_path, capsys, monkeypatch)
    assert [text for text in PRINTED[kind] if not re.search(text, printed)] == [], printed
    if kind == "view":
        assert (tmp_path / "a new view" / "card.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_generated_tests_of_running_app_pass(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    with serving() as app:
        assert main(["init", "tests", str(folder), "--target", app.ws_url]) == 0
        assert sorted(path.name for path in folder.iterdir()) == ["pyproject.toml", "test_app.py"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "2 passed" in ran.stdout, ran.stdout
