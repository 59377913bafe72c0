"""What is published: a README whose links hold where nothing is beside it, extras, and what ``python -m release``
writes, builds, checks and signs, in a copy of the project."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hatch_build import standalone
from release.places import project_of, set_address, write_places
from tests.support import packaging
from transports.surfaces.cli._doctor import _EXTRAS

ADDRESS = "https://github.com/somebody/kit"
README = (packaging.ROOT / "README.md").read_text(encoding="utf-8")
#: The files that repeat the version and the address.
COPIES = ("README.md", "CITATION.cff", "zensical.toml", "release/server.json", "release/Containerfile")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project, of these files alone."""
    folder = tmp_path / "project"
    for name in ("pyproject.toml", *COPIES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(packaging.ROOT / name, folder / name)
    return folder


def texts(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_metadata_copies_match_pyproject(copy: Path) -> None:
    """Write them again with ``python -m release``."""
    assert write_places(copy) == []


def test_version_is_defined_in_one_place(copy: Path) -> None:
    version = project_of(copy)["version"]
    path = copy / "pyproject.toml"
    path.write_text(path.read_text().replace(f'version = "{version}"', 'version = "7.8.9"', 1))
    assert sorted(write_places(copy)) == ["CITATION.cff", "release/Containerfile", "release/server.json"]
    repeated = "".join(text for name, text in texts(copy).items() if name != "pyproject.toml")
    assert repeated.count("7.8.9") == 5 and version not in repeated
    assert write_places(copy) == []


def test_release_address_is_defined_once_and_can_be_changed(copy: Path) -> None:
    before = texts(copy)
    for address, site in ((f"{ADDRESS}.git/", "https://kit.example/docs/"), ("https://git.example/a/b", None)):
        set_address(copy, address, site)
        write_places(copy)
    set_address(copy, ADDRESS, "https://kit.example/docs/")
    assert sorted(write_places(copy)) == sorted(before.keys() - {"pyproject.toml"})
    after = texts(copy)
    project = tomllib.loads(after["pyproject.toml"])["project"]
    assert project["urls"] == {
        "Source": ADDRESS,
        "Documentation": "https://kit.example/docs/",
        "Changelog": f"{ADDRESS}/blob/main/CHANGELOG.md",
        "Issues": f"{ADDRESS}/issues",
    }
    assert {**project, "urls": None} == {**tomllib.loads(before["pyproject.toml"])["project"], "urls": None}
    entry = json.loads(after["release/server.json"])
    assert entry["repository"] == {"url": ADDRESS, "source": "github"} and entry["name"] == "io.github.somebody/kit"
    assert re.findall(r"mcp-name: (\S+)", after["README.md"]) == [entry["name"]]
    assert f"[![tests]({ADDRESS}/actions/workflows/test.yml/badge.svg)]" in after["README.md"]
    assert tomllib.loads(after["zensical.toml"])["project"]["site_url"] == "https://kit.example/docs/"
    assert f'image.source="{ADDRESS}"' in after["release/Containerfile"]
    assert after["CITATION.cff"].endswith(f"repository-code: {ADDRESS}\n")
    assert not any("git.example" in text for text in after.values())


@pytest.mark.parametrize(
    "address",
    [
        *("", "kit", "http://github.com/a/b", "https://github.com/a", "https://me:key@github.com/a/b", "git@host:a/b"),
        *("https://github.com/a/b?x=1", "https://github.com/a/b#c", 'https://github.com/a/b"\nx="', "https://h/a/ b"),
    ],
)
def test_invalid_repository_url_changes_nothing(copy: Path, address: str) -> None:
    before = texts(copy)
    with pytest.raises(ValueError, match="address"):
        set_address(copy, address)
    assert texts(copy) == before


@pytest.mark.slow
def test_release_rejects_mismatched_tag_before_building(copy: Path) -> None:
    for path in (*packaging.ROOT.glob("release/*.py"), packaging.ROOT / "CHANGELOG.md"):
        shutil.copyfile(path, copy / path.relative_to(packaging.ROOT))
    version = project_of(copy)["version"]
    changes = copy / "CHANGELOG.md"
    changes.write_text(changes.read_text().replace(f"## {version} — unreleased", f"## {version} — 2027-01-01"))

    def refused(tag: str) -> str:
        packaging.run("git", "init", "--quiet", cwd=copy)
        packaging.run("git", "add", ".", cwd=copy)
        name = ("-c", "user.name=me", "-c", "user.email=me@example.com")
        packaging.run("git", *name, "commit", "--quiet", "--message", tag, cwd=copy)
        packaging.run("git", *name, "-c", "tag.gpgsign=false", "tag", tag, cwd=copy)
        with pytest.raises(RuntimeError) as said:
            packaging.run(sys.executable, "-m", "release", "--out", copy / "dist", cwd=copy)
        assert not (copy / "dist").exists()
        return str(said.value)

    assert f"not done: the commit has the tag v9.9.9, and the version is {version}" in refused("v9.9.9")
    changes.write_text(f"## {version} — unreleased\n")
    assert f"“unreleased” of {version}" in refused(f"v{version}")
    changes.write_text("")
    citation = copy / "CITATION.cff"
    citation.write_text(citation.read_text().replace(f"version: {version}", "version: 0.0.1"))
    packaging.run("git", "tag", "--delete", f"v{version}", cwd=copy)
    assert "CITATION.cff of the tagged commit was not up to date" in refused(f"v{version}")


@pytest.mark.slow
def test_release_is_built_and_signed_by_one_command(tmp_path: Path) -> None:
    """In a repository of its own: built, checked, hashed, signed, and what is left to do."""
    project = tmp_path / "project"
    files = packaging.run("git", "ls-files", "--cached", "--others", "--exclude-standard").split()
    for name in files:
        if not name.startswith("tests/") or name == "tests/support/packaging.py":
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(packaging.ROOT / name, project / name)
    packaging.run("git", "init", "--quiet", cwd=project)
    key = tmp_path / "key"
    packaging.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    said = packaging.run(sys.executable, "-m", "release", "--address", ADDRESS, "--key", key, cwd=project)
    version = project_of(project)["version"]
    dist = project / "dist"
    wheel = f"abp_transports-{version}-py3-none-any.whl"
    names = [wheel, f"abp_transports-{version}.tar.gz", f"abp-transports-{version}.mcpb"]
    assert {path.name for path in dist.iterdir()} == {*names, "SHA256SUMS", "SHA256SUMS.sig"}
    sums = dict(line.split("  ")[::-1] for line in (dist / "SHA256SUMS").read_text().splitlines())
    assert sums == {name: hashlib.sha256((dist / name).read_bytes()).hexdigest() for name in names}
    allowed = tmp_path / "allowed"
    allowed.write_text(f"me {key.with_suffix('.pub').read_text()}")
    verify: list[str | Path] = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-f",
        allowed,
        "-I",
        "me",
        "-n",
        "file",
        "-s",
        dist / "SHA256SUMS.sig",
    ]
    good = subprocess.run(
        verify, input=(dist / "SHA256SUMS").read_bytes(), capture_output=True, check=False, timeout=60
    )
    assert good.returncode == 0, good.stderr
    metadata = packaging.read(dist / wheel, f"abp_transports-{version}.dist-info/METADATA")
    assert f"Project-URL: Source, {ADDRESS}" in metadata and f"]({ADDRESS}/blob/main/docs/" in metadata
    assert "written: README.md" in said and "commit the changed files" in said and "git tag --sign v" in said
    assert "--address" not in said and "--key" not in said  # both were given
    broken = project / "transports" / "surfaces" / "cli" / "__init__.py"
    broken.write_text("raise SystemExit('a wheel whose command does not start')\n")
    with pytest.raises(RuntimeError, match=r"(?s)not done: .*does not start"):
        packaging.run(sys.executable, "-m", "release", cwd=project)


def test_readme_links_point_to_project_url() -> None:
    text = standalone(README, "https://code.example/abp/")
    assert "[views](https://code.example/abp/blob/main/docs/views.md)" in text
    assert 'src="https://code.example/abp/raw/main/docs/images/' in text
    assert 'srcset="https://code.example/abp/raw/main/docs/images/' in text
    assert not re.search(r"\]\((?!https://)", text)


def test_readme_without_project_url_has_no_dead_links() -> None:
    text = standalone(README, None)
    assert "large content becomes links (proxy)" in text and "Read on" not in text and "## Files" in text
    assert not re.search(r"\]\((?!https://)|src(set)?=", text)
    assert standalone("[a](https://a.example) and [b](#part)", None) == "[a](https://a.example) and [b](#part)"


def test_doctor_checks_every_extra() -> None:
    assert _EXTRAS.keys() == project_of(packaging.ROOT)["optional-dependencies"].keys() - {"all"}
