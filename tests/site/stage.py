"""The pages of the site, put together in one folder: those of ``docs/``, those beside it, and the notebooks.

On the site there is nothing beside the pages, so a link to a file of the project becomes its text. A picture that is
there for light and for dark is shown in the one that fits. The search finds a page about the project itself by its
title and introduction alone, so that its many words do not stand before what users look for.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tomllib
from functools import partial
from pathlib import Path

from tests.site.error_codes import classes_in_full
from tests.site.notebooks import NOTEBOOKS, execute, page as page_of, read

__all__ = ["ROOT", "project_pages", "stage"]

ROOT = Path(__file__).parents[2]
#: Files beside ``docs/`` that are pages too, and the name of each page.
_BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "VERSIONING.md": "versioning.md",
}
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")
#: A picture for both themes as GitHub wants it, and one for light alone.
_PICTURE = re.compile(r'<picture>\s*<source [^>]*>\s*<img alt="([^"]*)" src="([^"]*)-light\.png"[^>]*>\s*</picture>')
_LIGHT = re.compile(r"!\[([^\]]*)\]\(([^)\s]*)-light\.png\)")
#: A bar in the code of a table, escaped as GitHub wants it; the site would show the backslash.
_BAR_IN_CODE = re.compile(r"`[^`\n]*\\\|[^`\n]*`")
_SECTION = re.compile(r"^##+ .+$", re.MULTILINE)
_INTO_DOCS = re.compile(r"\]\(docs/([^)\s]+)\)")


def stage(folder: Path, *, run: bool = False) -> list[Path]:
    """Write every page into ``folder``, which is made anew, and return their paths.

    With ``run``, notebooks are executed and their pages have outputs."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder)
    shutil.copytree(Path(__file__).parent / "assets", folder / "assets")
    for name, page in _BESIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        text = _INTO_DOCS.sub(r"](\1)", text)
        for other, its_name in _BESIDE.items():
            text = text.replace(f"]({other})", f"]({its_name})")
        (folder / page).write_text(text, encoding="utf-8")
    with (folder / "reference" / "errors.md").open("a", encoding="utf-8") as errors:
        errors.write(classes_in_full())
    for name, page in NOTEBOOKS.items():
        (folder / page).parent.mkdir(exist_ok=True)
        shown = page_of(execute(name) if run else read(name), folder / page)
        (folder / page).write_text(shown, encoding="utf-8")
    pages = sorted(folder.rglob("*.md"))
    about_the_project = project_pages()
    for path in pages:
        page = path.relative_to(folder).as_posix()
        text = _LINK.sub(partial(_inward, page), path.read_text(encoding="utf-8"))
        text = _LIGHT.sub(_both, _PICTURE.sub(_both, text))
        if page in about_the_project:
            text = _SECTION.sub(r"\g<0> { data-search-exclude }", text)
        path.write_text(_BAR_IN_CODE.sub(lambda code: code[0].replace("\\|", "|"), text), encoding="utf-8")
    return pages


def project_pages() -> list[str]:
    """Return the pages about the project itself: those below ``Project`` in the navigation."""
    nav = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    return [page for part in nav for entry in part.get("Project", ()) for page in entry.values()]


def _inward(page: str, link: re.Match[str]) -> str:
    """Return a link of a staged page: as it is if it leads to a file of ``docs/``, to the page of a file beside it, or
    the text of the link."""
    image, text, target, anchor = link.groups()
    from_docs = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    beside = from_docs.removeprefix("../")
    if from_docs != beside and beside in (known := {**_BESIDE, **NOTEBOOKS}):
        up = posixpath.relpath(known[beside], posixpath.dirname(page) or ".")
        return f"{image}[{text}]({up}{anchor or ''})"
    return text if from_docs.startswith("../") else link[0]


def _both(picture: re.Match[str]) -> str:
    """Return a picture twice, of which the theme shows one."""
    return " ".join(f"![{picture[1]}]({picture[2]}-{theme}.png#only-{theme})" for theme in ("light", "dark"))
