"""Make a bundle of the MCP bridge, which desktop clients install with one click: ``python -m release.bundle``.

A bundle (``.mcpb``) is a ZIP file with a manifest (https://github.com/modelcontextprotocol/mcpb, version 0.4). This one
holds the wheel and a project that depends on it; the client's uv installs what the wheel needs on the first start.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from transports.surfaces.mcp._tool_list import FIXED_TOOLS

from .places import project_of

__all__ = ["make_bundle"]

ROOT = Path(__file__).parents[1]
_EXTRAS = "mcp,images,pdf"
_SERVER = """\
import sys

from transports.surfaces.cli import main

sys.exit(main(["mcp"]))
"""


def make_bundle(wheel: Path, folder: Path) -> Path:
    """Write the bundle of a wheel into a folder and return its path."""
    project = project_of(ROOT)
    path = folder / f"{project['name']}-{project['version']}.mcpb"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as bundle:
        bundle.writestr("manifest.json", json.dumps(_manifest(project), indent=2) + "\n")
        bundle.writestr("pyproject.toml", _project(project, wheel.name))
        bundle.writestr("server.py", _SERVER)
        bundle.write(wheel, wheel.name)
    return path


def _manifest(project: dict[str, Any]) -> dict[str, object]:
    source = project.get("urls", {}).get("Source")
    addresses = {"repository": {"type": "git", "url": source}, "homepage": source} if source else {}
    return {
        **addresses,
        "manifest_version": "0.4",
        "name": project["name"],
        "display_name": "Browser apps (ABP)",
        "version": project["version"],
        "description": project["description"],
        "author": {"name": "The abp-transports authors"},
        "license": project["license"],
        "server": {
            "type": "uv",
            "entry_point": "server.py",
            "mcp_config": {
                "command": "uv",
                "args": ["run", "--quiet", "--directory", "${__dirname}", "server.py"],
                "env": {"ABP_OUTPUT_DIR": "${user_config.folder}"},
            },
        },
        "tools": [{"name": tool.name, "description": tool.description} for tool in FIXED_TOOLS.values()],
        "tools_generated": True,
        "compatibility": {"platforms": ["darwin", "linux", "win32"], "runtimes": {"python": ">=3.11"}},
        "user_config": {
            "folder": {
                "type": "directory",
                "title": "Files",
                "description": "Where the files go that apps produce",
                "default": "${HOME}/abp",
                "required": True,
            }
        },
    }


def _project(project: dict[str, Any], wheel: str) -> str:
    name, version = project["name"], project["version"]
    return f"""\
[project]
name = "{name}-bundle"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["{name}[{_EXTRAS}]"]

[tool.uv]
package = false

[tool.uv.sources]
{name} = {{ path = "{wheel}" }}
"""


def _main() -> None:
    folder = ROOT / "dist"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", temporary, str(ROOT)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        path = make_bundle(next(Path(temporary).glob("*.whl")), folder)
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    _main()
