"""The description of the distribution: the README, for a place where the files beside it are not.

Hatchling runs this when it builds. With ``Source`` among the project's URLs (``[project.urls]``), links and pictures
lead there. Without it they could lead nowhere: a link becomes its text; pictures and *Read on* are left out.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

#: A link to a file of the project, and the address of a picture.
_LINK = re.compile(r"\[([^\]]+)\]\((?!https?://|#)([^)\s]+)\)")
_GUIDE = re.compile(r"## Read on\n.*?(?=## |\Z)", re.DOTALL)
_PICTURE = re.compile(r"<picture>.*?</picture>\n*", re.DOTALL)
_ADDRESS = re.compile(r'\b(src|srcset)="(?!https?://)([^"]+)"')


def standalone(readme: str, source: str | None) -> str:
    """Return a README whose links hold without the files beside it. ``source`` is the address of the project's files,
    as GitHub and GitLab lay them out."""
    if source is None:
        return _LINK.sub(r"\1", _GUIDE.sub("", _PICTURE.sub("", readme)))
    base = source.rstrip("/")
    readme = _LINK.sub(lambda found: f"[{found[1]}]({base}/blob/main/{found[2]})", readme)
    return _ADDRESS.sub(lambda found: f'{found[1]}="{base}/raw/main/{found[2]}"', readme)


class DescriptionHook(MetadataHookInterface):
    """Adds the description to the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme``, from README.md beside pyproject.toml."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        source = metadata.get("urls", {}).get("Source")
        metadata["readme"] = {"content-type": "text/markdown", "text": standalone(text, source)}
