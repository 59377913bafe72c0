"""Build the site: stage the pages, let Zensical make HTML of them in its strict mode, and add what models read."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from tests.site.llms import write_llms
from tests.site.stage import ROOT, stage

__all__ = ["build"]


def build() -> int:
    """Build the site and return the exit status: not 0 for a dead link, a missing page or an unknown reference."""
    pages = stage(ROOT / "build" / "docs")
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    zensical = Path(sys.executable).with_name("zensical")
    status = subprocess.call([zensical, "build", "--strict", "--clean"], cwd=ROOT)
    if status == 0:
        write_llms(pages, ROOT / "site")
        print(f"{len(list((ROOT / 'site').rglob('index.html')))} pages in site/; open site/index.html")
    return status


if __name__ == "__main__":
    sys.exit(build())
