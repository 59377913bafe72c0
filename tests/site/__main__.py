"""Build the site: stage the pages, let Zensical make HTML of them in its strict mode, and add what models read."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from tests.site.llms import write_llms
from tests.site.stage import ROOT, stage

#: The configuration with what pyproject.toml knows; Zensical reads paths in it from the folder of the file.
_WRITTEN = ROOT / ".zensical.toml"


def configuration(project: dict[str, Any]) -> str:
    """Return the configuration of the site, with version and repository of the ``project`` in the head of each page."""
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    name = f'site_name = "{project["name"]}'
    head = f'{name} {project["version"]}"\n'
    if source := project.get("urls", {}).get("Source"):
        head += f'repo_url = "{source}"\nrepo_name = "{source.split("://")[-1].rstrip("/")}"\n'
    return text.replace(f'{name}"\n', head, 1)


def build() -> int:
    """Build the site and return the exit status: not 0 for a dead link, a missing page or an unknown reference."""
    pages = stage(ROOT / "build" / "docs", run=True)
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    _WRITTEN.write_text(configuration(project), encoding="utf-8")
    try:
        status = subprocess.call([zensical, "build", "--strict", "--clean", "--config-file", _WRITTEN], cwd=ROOT)
    finally:
        _WRITTEN.unlink()
    if status == 0:
        write_llms(pages, ROOT / "site")
        print(f"{len(pages)} pages in site/; open site/index.html")
    return status


if __name__ == "__main__":
    sys.exit(build())
