"""The pages of the site, put together in one folder: those of ``docs/``, and those beside it.

On the site there is nothing beside the pages, so a link to a file of the project becomes its text.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.site.error_codes import classes_in_full

__all__ = ["ROOT", "stage"]

ROOT = Path(__file__).parents[2]
#: Files beside ``docs/`` that are pages too, and the name of each page.
_BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "VERSIONING.md": "versioning.md",
}
_OUTWARD = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)(#[^)\s]*)?\)")
#: A bar in the code of a table, escaped as GitHub wants it; the site would show the backslash.
_BAR_IN_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_INTO_DOCS = re.compile(r"\]\(docs/([^)\s]+)\)")


def stage(folder: Path) -> list[Path]:
    """Write every page into ``folder``, which is made anew, and return their paths."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    for name, page in _BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        text = _INTO_DOCS.sub(r"](\1)", text)
        for other, its_name in _BESIDE.items():
            text = text.replace(f"]({other})", f"]({its_name})")
        (folder / page).write_text(text, encoding="utf-8")
    with (folder / "reference" / "errors.md").open("a", encoding="utf-8") as errors:
        errors.write(classes_in_full())
    pages = sorted(folder.rglob("*.md"))
    for path in pages:
        text = _OUTWARD.sub(_inward, path.read_text(encoding="utf-8"))
        path.write_text(_BAR_IN_CODE.sub(lambda code: code[0].replace("\\|", "|"), text), encoding="utf-8")
    return pages


def _inward(link: re.Match[str]) -> str:
    text, path, anchor = link.groups()
    return f"[{text}]({_BESIDE[path]}{anchor or ''})" if path in _BESIDE else text
