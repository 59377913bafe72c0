"""What models read of the site: ``llms.txt``, a list of its pages, and ``llms-full.txt``, all of them (https://llmstxt.org)."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FIRST_PARAGRAPH = re.compile(r"^# .+\n+(?:<div .+>\n+)?((?:[A-Z`].*\n?)+)", re.MULTILINE)


def write_llms(pages: list[Path], site: Path) -> None:
    """Write both files, and beside each page of the site its Markdown."""
    folder = pages[0].parent
    project = tomllib.loads((folder.parents[1] / "zensical.toml").read_text(encoding="utf-8"))["project"]
    index, whole = [f"# {project['site_name']}\n\n> {project['site_description']}\n"], []
    for title, path in leaves(project["nav"]):
        if path is None:
            index.append(f"\n## {title}\n\n")
            continue
        text = (folder / path).read_text(encoding="utf-8")
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / path, site / path)
        paragraph = _FIRST_PARAGRAPH.search(text)
        index.append(f"- [{title}]({path}): {' '.join(paragraph[1].split()) if paragraph else title}\n")
        whole.append(text)
    (site / "llms.txt").write_text("".join(index), encoding="utf-8")
    (site / "llms-full.txt").write_text("\n\n".join(whole), encoding="utf-8")


def leaves(nav: list[dict[str, Any]], depth: int = 0) -> Iterator[tuple[str, str | None]]:
    """Yield the title and the file of each page in a navigation, and of each part of it the title and ``None``."""
    for entry in nav:
        for title, below in entry.items():
            if isinstance(below, str):
                yield title, below
            else:
                if depth == 0:
                    yield title, None
                yield from leaves(below, depth + 1)
