"""The official clients and other packages of npm, as a ``package.json`` pins them: installed once into a folder that
git ignores."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.installed import install_once
from tests.support.needs import missing

_PINS = Path(__file__).with_name("package.json")
_CACHE = Path(__file__).parents[2] / "build" / "mcp-official"
_NEEDED = (22, 19)


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that is new enough, and where its packages are."""

    binary: str
    folder: Path

    def command(self, name: str) -> list[str]:
        """A program of one of the packages."""
        return [self.binary, str(self.folder / "node_modules" / ".bin" / name)]


def installed() -> Node:
    """The clients, installed first if need be. Skips the test that runs if that is impossible."""
    folder = packages(_PINS)
    return Node(_binary(folder), folder)


def packages(pins: Path) -> Path:
    """The folder with the packages that ``pins`` names, installed first if need be. Skips the test that runs if that is
    impossible."""
    npm = shutil.which("npm") or missing("npm", "it is not installed")
    folder = _CACHE / hashlib.sha256(pins.read_bytes()).hexdigest()[:12]

    def commands(fresh: Path) -> Iterator[list[str]]:
        fresh.mkdir()
        shutil.copy(pins, fresh / "package.json")
        # scripts of packages are not run: nothing here needs them
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
        yield [npm, "install", "--prefix", str(fresh), *options]

    install_once(folder, commands)
    return folder


def _binary(folder: Path) -> str:
    carried = next(iter(sorted((folder / "node_modules").glob("node-*/bin/node"))), None)
    binaries = [os.fspath(binary) for binary in (shutil.which("node"), carried) if binary]
    usable = next(filter(_new_enough, binaries), None)
    return usable or missing(f"Node {'.'.join(map(str, _NEEDED))}", "or newer, and npm has none for this machine")


def _new_enough(binary: str) -> bool:
    printed = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30).stdout
    version = re.fullmatch(r"v(\d+)\.(\d+)\..*", printed.strip())
    return version is not None and (int(version[1]), int(version[2])) >= _NEEDED
