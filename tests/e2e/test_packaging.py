"""What is published: the wheel is whole, and works in an environment that has nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import uv
from mcp import Client, StdioServerParameters

from release.bundle import make_bundle
from tests.support import packaging
from webapp_fixture import Fixture

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return packaging.built(tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
def test_wheel_and_sdist_are_complete(published: tuple[Path, Path]) -> None:
    wheel, sdist = published
    names = packaging.contents(wheel)
    needed = {
        *("transports/py.typed", "transports/playwright/js/agent.js"),
        *("transports/testing/plugin.py", "transports/testing/conformance/page_probe.js"),
        *("transports/surfaces/cli/new_app/serve.py.txt", "transports/surfaces/cli/new_app/web/app.js"),
        *("transports/surfaces/cli/new_view/card.html", "transports/surfaces/cli/new_adapter/table.js"),
        "transports/surfaces/cli/new_tests/test_app.py.txt",
        "transports/surfaces/cli/new_config/abp.schema.json",
        *("webapp_fixture/static/index.html", "webapp_fixture/static/breaks.js", "webapp_fixture/capabilities.json"),
    }
    assert needed <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {
        "transports",
        "webapp_fixture",
        "abp_transports",
    }
    assert [name for name in names if name.endswith("entry_points.txt")]
    assert [name for name in names if name.endswith("/share/man/man1/abp.1")]
    description = packaging.read(wheel, next(name for name in names if name.endswith("METADATA")))
    assert "# abp-transports" in description and not re.search(r"\]\((?!https://)|src=\"", description)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "tests/support/packaging.py",
        "examples/minimal_app/app.js",
        "examples/mcp_app/view.html",
        "docs/conformance.md",
        "hatch_build.py",
        "pyproject.toml",
    } <= inside


@pytest.mark.slow
def test_published_package_runs_tutorial_in_fresh_environment(published: tuple[Path, Path], tmp_path: Path) -> None:
    binaries = packaging.environment(tmp_path / "venv", sys.executable, f"{published[0]}[test]")
    assert packaging.three_files(binaries, tmp_path).startswith("2 passed")
    assert packaging.demo(binaries, tmp_path).startswith("each was read again: its size and SHA-256")
    (tmp_path / "tutorial").mkdir()
    printed = packaging.tutorial(binaries, tmp_path / "tutorial")
    assert printed.count("Type: application/pdf") == 1 and printed.count("Type: image/png") == 1
    assert re.search(r"^application/pdf \d+ [0-9a-f]{64}$", printed, re.MULTILINE) and "1 passed" in printed
    page = (packaging.ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    told = re.findall(r"^File saved: /home/ann/(\S+_)\d+\.pdf$", page, re.MULTILINE)
    assert told and [path for path in told if f"File saved: {tmp_path / 'tutorial' / path}" not in printed] == []
    assert (tmp_path / "tutorial" / "tea" / "tea.pdf").read_bytes().startswith(b"%PDF-")
    assert packaging.run(binaries / "abp-transports", "--version") == packaging.run(binaries / "abp", "--version")
    said = packaging.run(
        binaries / "abp", "doctor", "--json", cwd=tmp_path, env={"ABP_OUTPUT_DIR": str(tmp_path / "out")}
    )
    assert '"self_test":{"ok":true' in said and '"mcp":{"distribution":"mcp","version":null}' in said


@pytest.mark.slow
def test_views_example_works_in_fresh_environment(published: tuple[Path, Path], tmp_path: Path) -> None:
    binaries = packaging.environment(tmp_path / "venv", sys.executable, f"{published[0]}[mcp,test]")
    assert packaging.example_of_views(binaries, tmp_path).startswith("4 passed")


@pytest.mark.slow
def test_core_suite_passes_on_lowest_dependency_versions(published: tuple[Path, Path], tmp_path: Path) -> None:
    assert re.match(r"\d+ passed", packaging.core_on_lowest(tmp_path, published[0]))


@pytest.mark.slow
def test_uvx_runs_command_without_installing(published: tuple[Path, Path]) -> None:
    said = packaging.run(
        uv.find_uv_bin(), "tool", "run", "--quiet", "--from", published[0], "abp-transports", "--version"
    )
    assert said.startswith("abp 0.")


@pytest.mark.slow
async def test_bundle_starts_from_its_manifest(published: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    with zipfile.ZipFile(make_bundle(published[0], tmp_path)) as bundle:
        bundle.extractall(folder)
    server = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["server"]["mcp_config"]
    assert server["command"] == "uv" and server["env"] == {"ABP_OUTPUT_DIR": "${user_config.folder}"}
    parameters = StdioServerParameters(
        command=uv.find_uv_bin(),
        args=[arg.replace("${__dirname}", str(folder)) for arg in server["args"]],
        env={**os.environ, "ABP_OUTPUT_DIR": str(tmp_path / "files")},  # uv's own settings among them
    )
    async with Client(parameters) as client:
        tools = {tool.name for tool in (await client.list_tools()).tools}
    assert {"abp_connect", "abp_call"} <= tools


@pytest.mark.slow
@pytest.mark.asyncio(loop_scope="session")
async def test_package_in_zip_file_drives_page(fixture: Fixture, tmp_path: Path) -> None:
    archive = shutil.make_archive(str(tmp_path / "kit"), "zip", packaging.ROOT, "transports")
    program = (
        "import sys, transports; from transports.sync import connect\n"
        "assert '.zip' in transports.__file__\n"
        "with connect(sys.argv[1], store='memory:') as app:\n"
        "    print(app.call('data.csv', {'rows': [{'a': 1}]}).artifact().filename)"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, fixture.url),
        env={**os.environ, "PYTHONPATH": archive},
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0 and printed.strip().endswith(b".csv")


@pytest.mark.slow
def test_registry_entry_matches_version_and_readme() -> None:
    entry = json.loads((packaging.ROOT / "release" / "server.json").read_text(encoding="utf-8"))
    (package,) = entry["packages"]
    version = packaging.project()["version"]
    assert entry["version"] == package["version"] == version and package["identifier"] == packaging.project()["name"]
    assert package["runtimeArguments"][0]["value"].endswith(f"=={version}") and len(entry["description"]) <= 100
    readme = (packaging.ROOT / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"mcp-name: (\S+)", readme) == [entry["name"]]
