"""Environments beside ours, made once from pinned requirements and kept below ``build/``.

That of ``penguiflow`` cannot be ours: the host needs version 1 of the MCP SDK, and we need version 2. Our package is
used from the work tree, with ``PYTHONPATH``; what it needs is pinned together with the host
(``requirements/penguiflow.txt``).
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.installed import install_once

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class HostPython:
    """The interpreter of the host's environment."""

    binary: Path
    module: str

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


def python_of(name: str) -> Path:
    """The interpreter of the environment that ``requirements/NAME.txt`` pins, made first if need be. Skips the
    test that runs if that is impossible."""
    pins = ROOT / "requirements" / f"{name}.txt"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / "build" / name / f"{version}-{hashlib.sha256(pins.read_bytes()).hexdigest()[:12]}"
    uv = str(Path(sys.executable).with_name("uv"))
    options = ["--quiet", "--require-hashes", "--no-deps", "--requirements", str(pins)]
    install_once(
        folder,
        lambda fresh: (
            [uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(fresh)],
            [uv, "pip", "install", "--python", str(fresh / "bin" / "python"), *options],
        ),
    )
    return folder / "bin" / "python"


def _environment(home: Path, more: Mapping[str, str]) -> Mapping[str, str]:
    """Nothing of the user's own is read or written; ``abp`` is the one beside these tests."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    ours = {"HOME": str(home), "ABP_OUTPUT_DIR": str(home / "abp"), "PYTHONPATH": str(ROOT), "PATH": path}
    return {**os.environ, **ours, **more}
