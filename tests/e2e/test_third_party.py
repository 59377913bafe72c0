"""A transport of somebody else's, in a package of its own: built, installed, found by its entry point, and put through
the public contract suite by its own tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from transports.testing.contract import BEHAVIOURS

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples" / "third_party_transport"


def run(*command: object, cwd: Path, **env: str) -> str:
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of its source, so that building leaves nothing behind."""
    copy = tmp_path_factory.mktemp("package") / "abp-unix-socket"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return copy


@pytest.fixture(scope="module")
def site(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where it is installed, beside the packages that these tests use."""
    folder = tmp_path_factory.mktemp("site")
    options = ("--target", folder, "--no-deps", "--no-build-isolation", "--offline", "--python", sys.executable)
    run(sys.executable, "-m", "uv", "pip", "install", *options, package, cwd=package)
    return folder


@pytest.mark.slow
def test_installed_third_party_transport_passes_contract_suite(package: Path, site: Path) -> None:
    path = os.pathsep.join((str(site), str(ROOT)))
    printed = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=package, PYTHONPATH=path)
    passed, declared = (int(n) for n in re.findall(r"(\d+) passed, (\d+) xfailed", printed)[0])
    assert passed + declared == len(BEHAVIOURS) + 2 and declared < 10


@pytest.mark.slow
def test_doctor_finds_third_party_transport(site: Path, tmp_path: Path) -> None:
    path = os.pathsep.join((str(site), str(ROOT)))
    printed = run(sys.executable, "-m", "transports.surfaces.cli", "doctor", "--json", cwd=tmp_path, PYTHONPATH=path)
    assert '"name":"abp+unix","distribution":"abp-unix-socket","version":"1.0.0"' in printed
