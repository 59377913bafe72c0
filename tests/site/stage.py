"""The pages of the site, put together in one folder: those of ``docs/``, those beside it, and the notebooks.

On the site there is nothing beside the pages, so a link to a file of the project becomes its text, and a link with the
name of a file has the title of its page. A picture that is there for light and for dark is shown in the one that fits.
The search finds a page about the project itself by its title alone, so that its many words do not stand before what
users look for.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import tomllib
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.site.error_codes import classes_in_full
from tests.site.llms import leaves
from tests.site.notebooks import NOTEBOOKS, execute, page as page_of, read

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
#: What stands between the title of a page and its first section.
_INTRODUCTION = re.compile(r"(?<=\n)\n(?:(?!##).*\n)+")
_SECTION = re.compile(r"^##+ .+$", re.MULTILINE)
#: What a link has for a text if it names the file that it leads to.
_FILE_NAME = re.compile(r"^(?:docs/)?[\w-]+\.md\b")
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
            text = _INTRODUCTION.sub(r"\n<div data-search-exclude markdown>\n\g<0>\n</div>\n\n", text, count=1)
        path.write_text(_BAR_IN_CODE.sub(lambda code: code[0].replace("\\|", "|"), text), encoding="utf-8")
    return pages


@cache
def _navigation() -> list[dict[str, Any]]:
    nav: list[dict[str, Any]] = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    return nav


@cache
def _titles() -> Mapping[str, str]:
    """Return the title of each page in the navigation."""
    return {page: title for title, page in leaves(_navigation()) if page is not None}


def project_pages() -> list[str]:
    """Return the pages about the project itself: those below ``Project`` in the navigation."""
    return [page for part in _navigation() for entry in part.get("Project", ()) for page in entry.values()]


def _inward(page: str, link: re.Match[str]) -> str:
    """Return a link of a staged page: to a file of ``docs/``, to the page of a file beside it, or the text of the
    link."""
    image, text, target, anchor = link.groups()
    from_docs = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
    beside = from_docs.removeprefix("../")
    if from_docs != beside:
        from_docs = {**_BESIDE, **NOTEBOOKS}.get(beside, "")
        if not from_docs:
            return text
        target = posixpath.relpath(from_docs, posixpath.dirname(page) or ".")
    text = _FILE_NAME.sub(_titles().get(from_docs, r"\g<0>"), text)
    return f"{image}[{text}]({target}{anchor or ''})"


def _both(picture: re.Match[str]) -> str:
    """Return a picture twice, of which the theme shows one."""
    return " ".join(f"![{picture[1]}]({picture[2]}-{theme}.png#only-{theme})" for theme in ("light", "dark"))
