"""What is published, built and used as a stranger does. Needs a package registry."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Mapping
from pathlib import Path

import uv

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "minimal_app"
#: A block of a page, and the name of the file that the line before it says it is.
BLOCK = re.compile(r"(?:^`([\w.]+)`\n\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Without a browser and across the layers: what runs on the lowest versions of everything.
CORE = (
    "tests/protocol/binary/test_data.py",
    "tests/session/test_calls.py",
    "tests/protocol/binary/test_detect.py",
    "tests/routing/http/test_discovery.py",
    "tests/routing/http/test_downloads.py",
    "tests/routing/http/test_download_resume.py",
    "tests/protocol/test_envelope.py",
    "tests/test_memory.py",
    "tests/protocol/test_messages.py",
    "tests/protocol/binary/test_params.py",
    "tests/routing/test_router.py",
    "tests/protocol/test_schema.py",
    "tests/session/test_session.py",
    "tests/session/test_settings.py",
    "tests/artifacts/test_contract.py",
    "tests/sync/test_sync.py",
    "tests/websocket/test_transport.py",
    "tests/e2e/test_cli.py",
)


def run(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None, timeout: float = 600) -> str:
    """Its stdout. Raises :class:`RuntimeError` with everything it said if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def built(folder: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, checked as a registry does."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def project() -> dict[str, str]:
    """The table ``[project]`` of pyproject.toml."""
    table: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def contents(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name).decode()


def environment(folder: Path, python: str, *requirements: str | Path) -> Path:
    """A fresh virtual environment with that installed; its ``bin``."""
    run(uv.find_uv_bin(), "venv", "--quiet", "--python", python, folder)
    binaries = folder / "bin"
    run(uv.find_uv_bin(), "pip", "install", "--quiet", "--python", binaries / "python", *requirements)
    return binaries


def demo(binaries: Path, folder: Path) -> str:
    """``abp demo``: the reference app is in the wheel. The line that says that every file is whole."""
    printed = run(binaries / "abp", "demo", "--out", folder / "demo", cwd=folder)
    return next(line for line in printed.splitlines() if line.startswith("each was read again"))


def three_files(binaries: Path, folder: Path) -> str:
    """A project of an app, its tests and a ``pyproject.toml``, tested as its author does. The last line of pytest."""
    project = folder / "project"
    project.mkdir()
    page = (EXAMPLE / "app.html").read_text(encoding="utf-8")
    script = (EXAMPLE / "app.js").read_text(encoding="utf-8")
    page = page.replace('<script src="app.js"></script>', f"<script>\n{script}</script>")
    (project / "app.html").write_text(
        page.replace('<link rel="abp-manifest" href="abp-manifest.json">', ""), encoding="utf-8"
    )
    for name in ("test_app.py", "pyproject.toml"):
        shutil.copyfile(EXAMPLE / name, project / name)
    assert len(list(project.iterdir())) == 3
    run(binaries / "python", "-m", "pytest", "-q", "--abp-update-golden", cwd=project)
    return run(binaries / "python", "-m", "pytest", "-q", cwd=project).strip().splitlines()[-1]


def example_of_views(binaries: Path, folder: Path) -> str:
    """``examples/mcp_app`` tested as its author does, with the installed package. The last line of pytest."""
    copy = shutil.copytree(
        EXAMPLE.with_name("mcp_app"), folder / "mcp_app", ignore=shutil.ignore_patterns("__pycache__")
    )
    return run(binaries / "python", "-m", "pytest", "-q", cwd=copy).strip().splitlines()[-1]


def tutorial(binaries: Path, folder: Path) -> str:
    """``docs/tutorial.md`` followed word for word, but for its environment and ports. All that it printed."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    page = page.replace("python3 -m venv .venv && . .venv/bin/activate\npip install 'abp-transports[test]'\n", "")
    assert "pip install '" not in page  # the environment is there
    for port in re.findall(r"--port (\d+) &|http.server (\d+)", page):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            page = page.replace(port[0] or port[1], str(free.getsockname()[1]))
    script = ["set -e", "trap 'kill $(jobs -p) 2> /dev/null; wait' EXIT"]
    for name, language, text in BLOCK.findall(page):
        if name:
            script.append(f"cat > {name} <<'END OF FILE'\n{text}END OF FILE")
        elif language == "sh":
            script.append(text)
            if serving := re.search(r"(\d{4,5}).* &\n$", text):
                script.append(f"until (: > /dev/tcp/127.0.0.1/{serving[1]}) 2> /dev/null; do sleep 0.1; done")
    path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
    return run("bash", "-c", "\n".join(script), cwd=folder, env={"PATH": path})


def core_on_lowest(folder: Path, wheel: Path) -> str:
    """A core part of the suite on the lowest versions that pyproject.toml allows. The last line of pytest."""
    options = (
        "--quiet",
        "--resolution",
        "lowest-direct",
        "--python-version",
        "3.11",
        "--extra",
        "cloud",
        "--extra",
        "mcp",
    )
    pins = run(uv.find_uv_bin(), "pip", "compile", *options, "--no-header", "--no-annotate", "pyproject.toml")
    (folder / "lowest.txt").write_text(pins, encoding="utf-8")
    binaries = environment(folder / "lowest", "3.11", "--requirement", folder / "lowest.txt", wheel)
    tools = ("pytest-asyncio>=1.0", "hypothesis", "coverage", "uv", "pytest>=8.3")
    run(uv.find_uv_bin(), "pip", "install", "--quiet", "--python", binaries / "python", *tools)
    printed = run(
        *(binaries / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "default"),
        *("--deselect", "tests/e2e/test_cli.py::test_doctor_reports_all_facts_without_secrets"),  # it names all extras
        *CORE,
        timeout=1800,
    )
    return printed.strip().splitlines()[-1]
