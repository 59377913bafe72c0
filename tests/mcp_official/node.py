"""The official clients and other packages of npm, as a ``package.json`` pins them: installed once into a folder that
git ignores."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_PINS = Path(__file__).with_name("package.json")
_CACHE = Path(__file__).parents[2] / "build" / "mcp-official"
_NEEDED = (22, 19)
_SECONDS = 300.0
#: What npm says where there is no way to a registry. Anything else, a version that is gone, say, is a failure.
_UNREACHABLE = re.compile(r"\b(ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EHOSTUNREACH)\b")


class Missing(Exception):
    """What this machine lacks to run them."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that is new enough, and where its packages are."""

    binary: str
    folder: Path

    def command(self, name: str) -> list[str]:
        """A program of one of the packages."""
        return [self.binary, str(self.folder / "node_modules" / ".bin" / name)]


def installed() -> Node:
    """The clients, installed first if need be. Raises :class:`Missing`."""
    folder = packages(_PINS)
    return Node(_binary(folder), folder)


def packages(pins: Path) -> Path:
    """The folder with the packages that ``pins`` names, installed first if need be. Raises :class:`Missing`."""
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("npm is not installed")
    folder = _CACHE / hashlib.sha256(pins.read_bytes()).hexdigest()[:12]
    if not folder.exists():
        _install(npm, folder, pins)
    return folder


def _install(npm: str, folder: Path, pins: Path) -> None:
    """As a whole or not at all. Scripts of packages are not run: nothing here needs them."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        fresh = Path(temporary) / "fresh"
        fresh.mkdir()
        shutil.copy(pins, fresh / "package.json")
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        try:
            done = subprocess.run(
                [npm, "install", *options], cwd=fresh, capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired as error:
            raise Missing(f"npm did not finish within {_SECONDS:g} s") from error
        if done.returncode and (unreachable := _UNREACHABLE.search(done.stderr)):
            raise Missing(f"npm reaches no registry ({unreachable[0]})")
        if done.returncode:
            raise RuntimeError(f"npm install failed:\n{done.stderr}")
        try:
            fresh.rename(folder)
        except OSError:
            if not folder.exists():  # else another process was faster
                raise


def _binary(folder: Path) -> str:
    carried = next(iter(sorted((folder / "node_modules").glob("node-*/bin/node"))), None)
    for binary in (shutil.which("node"), carried):
        if binary and _new_enough(os.fspath(binary)):
            return os.fspath(binary)
    raise Missing(f"Node {'.'.join(map(str, _NEEDED))} or newer is needed, and npm has none for this machine")


def _new_enough(binary: str) -> bool:
    printed = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = re.fullmatch(r"v(\d+)\.(\d+)\..*", printed.strip())
    return version is not None and (int(version[1]), int(version[2])) >= _NEEDED
