"""What ``abp init``, the README and the page about views tell to do, done as it stands."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import packaging
from tests.support.command_line import CommandLine, serving
from transports.surfaces.cli import main

pytestmark = pytest.mark.browser
#: Programs of a script in the background end with it.
_ENDING = "trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT"


def shell(script: str, folder: Path) -> str:
    """What a script prints whose programs are those of this checkout."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {"PATH": path, "PYTHONPATH": str(packaging.ROOT), "ABP_OUTPUT_DIR": str(folder / "out")}
    return packaging.run("bash", "-ec", script, cwd=folder, env={**env, "PYTEST_ADDOPTS": "-p no:cacheprovider"})


def follow(kind: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Begin a project in ``folder``, whose name has spaces, and run the printed commands, but for the installation and
    the port. Return what they print."""
    monkeypatch.chdir(folder)
    assert main(["init", kind, f"a new {kind}"]) == 0
    commands = re.findall(r"^  (.+)$", capsys.readouterr().out.partition("Next:\n")[2], re.M)
    (install,) = [command for command in commands if command.startswith("pip install ")]
    commands.remove(install)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    return shell("\n".join((_ENDING, *commands)).replace("8001", port), folder)


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


# --- the README -------------------------------------------------------------------------------------------------------


README = (packaging.ROOT / "README.md").read_text(encoding="utf-8")
_TABLE = re.compile(r"^\| You have … \|.*?(?=\n\n)", re.MULTILINE | re.DOTALL)
#: Commands that go on until they are ended, or take long; other tests run them.
_LASTING = ("abp fixture", "abp serve", "abp shell", "abp conformance")


def shell_commands() -> list[str]:
    """Return the lines of the section Shell, and the other calls of the reference app in the table."""
    section = README.partition("## Shell\n\n```sh\n")[2].partition("```")[0]
    lines = [line for line in section.splitlines() if not line.startswith(_LASTING)]
    calls = re.findall(r"`(abp call \w+://127\.0\.0\.1:8000/.*?)`", README)
    assert len(calls) == 3
    return [*lines, *(call for call in calls if not any(line.startswith(call) for line in lines))]


def test_readme_is_short() -> None:
    assert len(README.split()) <= 600
    assert README.count("](") <= 12


def test_docs_index_has_same_table_as_readme() -> None:
    index = (packaging.ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    (here,), (there,) = _TABLE.findall(README), _TABLE.findall(index)
    assert here.replace("](docs/", "](") == there
    assert here.count("\n") - 1 == 9


@pytest.mark.parametrize(
    "in_page", [False, pytest.param(True, marks=[pytest.mark.browser, pytest.mark.slow])], ids=["beside", "in-page"]
)
def test_readme_commands_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], in_page: bool
) -> None:
    """In a page those which only work there; the others over a WebSocket, which other tests show in a page."""
    monkeypatch.chdir(tmp_path)
    abp = CommandLine({"ABP_OUTPUT_DIR": str(tmp_path / "out")}, monkeypatch, capfdbinary)
    with serving() as app:
        for line in shell_commands():
            line = line.replace("127.0.0.1:8000/", app.url.partition("//")[2])
            program, *args = shlex.split(line, comments=True)
            if program != "abp":
                subprocess.run(["bash", "-c", line], check=True)
                continue
            needs_page = not {"generate.qrcode", "postmessage"}.isdisjoint(args)
            if needs_page != in_page:
                continue
            if not in_page:
                args = [app.ws_url if arg == app.url else arg for arg in args]
            ran = abp(*args)
            assert ran.status == 0, (line, ran)
    assert [*(tmp_path / "pictures").glob("*.png")] if in_page else (tmp_path / "run" / "manifest.jsonl").is_file()


# --- the page about views ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_views_page_steps_produce_tested_view(tmp_path: Path) -> None:
    page = (packaging.ROOT / "docs" / "views.md").read_text(encoding="utf-8")
    blocks = packaging.BLOCK.findall(page)
    assert page.count("\n```") == 2 * len(blocks) and {language for _, language, _ in blocks} == {"sh", "python"}
    (install, *scripts) = [text for name, language, text in blocks if language == "sh" and not name]
    assert install.startswith("pip install 'abp-transports[mcp,test]'\n") and "abp init view card" in install
    shell("abp init view .", tmp_path)
    printed = []
    for name, _, text in blocks:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
        elif text in scripts:
            printed.append(shell(text, tmp_path))
            if "test_card.py" in text:
                (tmp_path / "server.py").rename(tmp_path / "server.py.away")  # the recording needs none
            elif "test_recorded.py" in text:
                (tmp_path / "server.py.away").rename(tmp_path / "server.py")
    seen, tested, recorded, pictured, looked, imitated = printed
    assert re.search(r"^  greet +Greet somebody on a card. \[view\]$", seen, re.MULTILINE)
    assert "\nview: Card 1.0 (ui://greeter/card.html)\ntools:\n  shout\n" in seen and seen.endswith(
        "screenshot: card.png\n"
    )
    assert (tmp_path / "card.png").read_bytes().startswith(b"\x89PNG")
    assert "2 passed" in imitated
    assert "1 passed" in tested and "1 passed" in recorded
    assert pictured.count("1 passed") == 2 and (tmp_path / "golden" / "card.png").is_file()
    assert looked.splitlines() == [
        "['greet']",
        "Card ['shout'] {'text': 'Hello, Bo!'}",
        "['download-file', 'size'] card.txt",
    ]
