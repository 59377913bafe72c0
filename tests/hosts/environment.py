"""Environments beside ours, made once from pinned requirements and kept below ``build/``.

That of ``penguiflow`` cannot be ours: the host needs version 1 of the MCP SDK, and we need version 2. Our package is
used from the work tree, with ``PYTHONPATH``; what it needs is pinned together with the host
(``requirements/penguiflow.txt``).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
_SECONDS = 600.0
#: What uv says where there is no way to a registry. Anything else, a hash that differs, say, is a failure.
_UNREACHABLE = re.compile(
    r"dns error|Temporary failure in name resolution|Connection refused|Network is unreachable|operation timed out"
    r"|error sending request",
    re.IGNORECASE,
)


class Missing(Exception):
    """What keeps the environment from being made."""


@dataclass(frozen=True, slots=True)
class HostPython:
    """The interpreter of the host's environment."""

    binary: Path
    module: str = "tests.hosts.inside"

    def run(self, *arguments: str, cwd: Path, timeout: float = 240.0, **environment: str) -> Any:
        """Run ``python -m`` with the module there and return the JSON document that it prints. Raises
        :class:`AssertionError` with what it said if it fails."""
        done = subprocess.run(
            [str(self.binary), "-m", self.module, *arguments],
            cwd=cwd,
            env=_environment(cwd, environment),
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return json.loads(done.stdout)


def installed() -> HostPython:
    """The environment with the host, made first if need be. Raises :class:`Missing`."""
    return HostPython(python_of("penguiflow"))


def python_of(name: str) -> Path:
    """The interpreter of the environment that ``requirements/NAME.txt`` pins, made first if need be. Raises
    :class:`Missing`."""
    pins = ROOT / "requirements" / f"{name}.txt"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / "build" / name / f"{version}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        _install(folder, pins)
    return folder / "bin" / "python"


def _install(folder: Path, requirements: Path) -> None:
    """As a whole or not at all: an environment that is found is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    uv = Path(sys.executable).with_name("uv")
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary) / "fresh"
        made = [str(uv), "venv", "--quiet", "--relocatable", "--python", sys.executable, str(fresh)]
        pins = ["--require-hashes", "--no-deps", "--requirements", str(requirements)]
        filled = [str(uv), "pip", "install", "--quiet", "--python", str(fresh / "bin" / "python"), *pins]
        for command in (made, filled):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
            except subprocess.TimeoutExpired as error:
                raise Missing(f"uv did not finish within {_SECONDS:g} s") from error
            if done.returncode and (unreachable := _UNREACHABLE.search(done.stderr)):
                raise Missing(f"uv reaches no registry ({unreachable[0]})")
            if done.returncode:
                raise RuntimeError(f"uv failed:\n{done.stderr}")
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


def _environment(home: Path, more: Mapping[str, str]) -> Mapping[str, str]:
    """Nothing of the user's own is read or written; ``abp`` is the one beside these tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ours = {"HOME": str(home), "ABP_OUTPUT_DIR": str(home / "abp"), "PYTHONPATH": str(ROOT), "PATH": path}
    return {**os.environ, **ours, **more}
