"""The app of ``docs/write-an-app.md``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import serving
from transports.surfaces.cli import main

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notes")
    assert main(["init", "app", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    command = [sys.executable, "serve.py", "0"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


@pytest.mark.slow
def test_guide_app_passes_conformance_without_findings(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["conformance", address, "--json"])
    document = json.loads(capsys.readouterr().out)
    found = {one["id"]: one["findings"] for one in document["checks"] if one["status"] in ("failed", "warning")}
    assert (status, found, document["skipped"]) == (0, {}, {})
    assert len(document["called"]) == 5 and document["kind"] == "page"
    passed = {one["id"] for one in document["checks"] if one["status"] == "passed"}
    assert passed >= {"cancel.running", "answers.progress", "binary.download", "binary.type", "manifest.agrees"}


@pytest.mark.slow
def test_guide_app_tests_pass(folder: Path) -> None:
    options = ("-p", "no:playwright", "-p", "no:cacheprovider", "-p", "no:asyncio", "-q")
    plugin = ("-p", "no:abp_transports", "-p", "transports.testing.plugin")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugin, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0 and "5 passed" in done.stdout, done.stdout


@pytest.mark.slow
def test_generated_app_tests_pass(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    with serving() as app:
        assert main(["init", "tests", str(folder), "--target", app.ws_url]) == 0
        assert sorted(path.name for path in folder.iterdir()) == ["pyproject.toml", "test_app.py"]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)
    assert "2 passed" in ran.stdout, ran.stdout
