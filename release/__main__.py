"""Make a release, as far as a machine can: ``make release``, or ``python -m release``.

It writes version and address into the files that repeat them, builds the wheel, the sdist and the bundle, checks them,
writes and signs their hashes, and says what is left to do by a person. It publishes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any

from .bundle import make_bundle
from .places import project_of, set_address, write_places

ROOT = Path(__file__).parents[1]
_HASHES = "SHA256SUMS"


class ReleaseError(Exception):
    """Raised when a step failed; nothing after it was done."""


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """Return what a command printed. Raises :class:`ReleaseError` with that if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise ReleaseError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def build(folder: Path) -> list[Path]:
    """Build wheel, sdist and bundle into ``folder``, where older ones of this project are removed, and check them."""
    project = project_of(ROOT)
    folder.mkdir(exist_ok=True)
    prefix = project["name"].replace("-", "_")
    for old in (*folder.glob(f"{prefix}-*"), *folder.glob(f"{project['name']}-*.mcpb"), *folder.glob(f"{_HASHES}*")):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob(f"{prefix}-*.whl"), folder.glob(f"{prefix}-*.tar.gz")
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    check(wheel, project)
    return [wheel, sdist, make_bundle(wheel, folder)]


def check(wheel: Path, project: dict[str, Any]) -> None:
    """Run the command of the wheel, apart from this folder. Raises :class:`ReleaseError` if it is not of this
    version."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode(), headersonly=True)
        archive.extractall(folder)
        # -P: the working folder is not searched; a distribution in the folder comes before an installed one
        env = {**os.environ, "PYTHONPATH": folder}
        said = run(sys.executable, "-P", "-m", "transports.surfaces.cli", "--version", cwd=Path(folder), env=env)
    if metadata["Version"] != project["version"] or f" {project['version']}" not in said:
        raise ReleaseError(f"{wheel.name} says that it is {metadata['Version']}, and its command {said.strip()!r}")


def write_hashes(files: list[Path], key: Path | None) -> list[Path]:
    """Write the hashes of the files, in the form of ``sha256sum``, and sign them if there is a key of SSH."""
    hashes = files[0].with_name(_HASHES)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    hashes.write_text("".join(lines), encoding="utf-8")
    if key is None:
        return [hashes]
    run("ssh-keygen", "-Y", "sign", "-q", "-f", key.absolute(), "-n", "file", hashes)
    return [hashes, hashes.with_name(f"{_HASHES}.sig")]


def check_tag(changed: list[str]) -> None:
    """Raise :class:`ReleaseError` if the commit has the tag of a version and is not ready: the workflow publishes it.

    ``changed`` are the files that had to be written.
    """
    version = project_of(ROOT)["version"]
    tags = [tag for tag in (_git("tag", "--points-at", "HEAD") or "").split() if tag.startswith("v")]
    if not tags:
        return
    if f"v{version}" not in tags:
        raise ReleaseError(f"the commit has the tag {', '.join(tags)}, and the version is {version}")
    if changed:
        raise ReleaseError(f"{', '.join(changed)} of the tagged commit was not up to date: commit it, and tag that")
    if _is_unreleased(version):
        raise ReleaseError(f"CHANGELOG.md of the tagged commit has no date for “unreleased” of {version}")


def _is_unreleased(version: str) -> bool:
    return f"## {version} — unreleased" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def left_to_do(changed: list[str], *, signed: bool) -> list[str]:
    project = project_of(ROOT)
    version, address = project["version"], project.get("urls", {}).get("Source")
    todo = []
    if address is None:
        todo.append(
            "the address of the project is not known, so links and badges are left out: "
            "make release ARGS='--address https://HOST/OWNER/NAME'"
        )
    if _is_unreleased(version):
        todo.append(f"CHANGELOG.md: write the date of today for “unreleased” of {version}")
    if changed or (_git("status", "--porcelain") not in (None, "")):
        todo.append("commit the changed files, and run this again: what is published must be a commit")
    if not signed:
        todo.append(f"the hashes are not signed: --key FILE signs them with an SSH key ({_HASHES}.sig)")
    if _git("tag", "--list", f"v{version}") == "":
        todo.append(
            f"git tag --sign v{version} && git push origin v{version}: the workflow “release” tests, builds, attests "
            "and publishes to PyPI by its own identity (once before: name release.yml and the environment pypi there "
            "as a trusted publisher)"
        )
    todo.append("add the files to the release of the tag, the .mcpb among them")
    todo.append("after PyPI has the version: mcp-publisher publish release/server.json; build and push the image")
    return todo


def _git(*words: str) -> str | None:
    """Return what Git says, ``None`` outside of a repository."""
    try:
        return run("git", *words).strip()
    except (ReleaseError, FileNotFoundError):
        return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m release", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--address", metavar="URL", help="the repository, https://HOST/OWNER/NAME: written everywhere")
    parser.add_argument("--site", metavar="URL", help="the built documentation, with --address")
    parser.add_argument("--key", type=Path, metavar="FILE", help="an SSH key that signs the hashes")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    given = parser.parse_args()
    try:
        if given.address:
            set_address(ROOT, given.address, given.site)
        changed = write_places(ROOT)
        for name in changed:
            say(f"written: {name}")
        check_tag(changed)
        files = build(given.out.absolute())
        files += write_hashes(files, given.key)
    except (ReleaseError, ValueError) as error:
        say(f"not done: {error}")
        return 1
    for path in files:
        say(f"{path.name}  {path.stat().st_size:,} bytes")
    say("\nLeft to do by a person:")
    for number, step in enumerate(left_to_do(changed, signed=given.key is not None), 1):
        say(f"{number}. {step}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
