"""The documentation site: it holds every page and every public name, and nothing in it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from html import unescape
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.site.__main__ import configuration
from tests.site.error_codes import classes_in_full
from tests.site.llms import leaves
from tests.site.made import MADE
from tests.site.notebooks import NOTEBOOKS
from tests.site.stage import stage
from transports.playwright._find import find_browser
from transports.session._settings import Settings
from transports.testing.plugin import serve_pages

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
#: Packages whose names users import.
PUBLIC = (
    "transports",
    "transports.sync",
    "transports.artifacts",
    "transports.routing",
    "transports.testing",
    "transports.batch",
)


def test_site_navigation_lists_every_page_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    made = {"changelog.md", "conduct.md", "contributing.md", "reporting.md", "versioning.md", *NOTEBOOKS.values()}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} | made
    assert Counter(path for _, path in leaves(project["nav"]) if path) == Counter(pages)


def test_every_public_name_is_in_reference_once() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("*.md")) + classes_in_full()
    documented = Counter(re.findall(r"^::: (\S+)", pages, re.MULTILINE))
    assert set(documented.values()) == {1}
    homes = ("transports", "transports.errors")
    missing = [
        f"{package}.{name}"
        for package in PUBLIC
        for name in import_module(package).__all__
        if not documented.keys() & {f"{home}.{name}" for home in (package, *homes)}
    ]
    assert not missing


def test_settings_page_matches_code() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1:3] for row in page.splitlines() if row.startswith("| `")]
    defaults = {name: default.strip(" `") for names, default in rows for name in re.findall(r"`(ABP_\w+)`", names)}
    assert {f"ABP_{field.name.upper()}" for field in fields(Settings)} <= defaults.keys()
    for field in fields(Settings):
        said = defaults[f"ABP_{field.name.upper()}"]
        if said.isdigit() or said in ("true", "false"):
            assert said == str(field.default).lower(), field.name


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+\.(?:md|png|svg))(?:#[^)\s]*)?\)")


def test_page_links_become_site_links_to_existing_files(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    staged = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in stage(folder)}
    for page, text in staged.items():
        dead = [found[0] for found in LINK.finditer(text) if not (folder / page).parent.joinpath(found[1]).is_file()]
        assert dead == [], page
        source = ROOT / "docs" / page
        for found in LINK.finditer(source.read_text(encoding="utf-8")) if source.is_file() else ():
            if (source.parent / found[1]).resolve().is_relative_to(ROOT / "docs") and found[1].endswith(".md"):
                assert found[0] in text, page
    assert "[Stores](../stores.md)" in staged["reference/settings.md"]


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, as `make docs` builds it."""
    done = subprocess.run([sys.executable, "-m", "tests.site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "open site/index.html" in done.stdout
    return ROOT / "site"


@pytest.mark.slow
def test_built_site_has_no_dead_links(site: Path) -> None:
    assert "SIZE_MISMATCH" in (site / "search.json").read_text(encoding="utf-8")
    call = (site / "reference" / "sessions.html").read_text(encoding="utf-8")
    assert 'id="transports.Session.call"' in call and ":class:" not in call
    shown = unescape(re.sub(r"<[^>]+>", "", call))
    assert 'transport: str | Transport = "auto",' in shown and "browser_server: str | None = None," in shown
    assert "JSON|@FILE|-" in (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert "(sessions.md): " in (site / "llms.txt").read_text(encoding="utf-8")
    assert "# Sessions\n" in (site / "llms-full.txt").read_text(encoding="utf-8")
    for page in NOTEBOOKS.values():
        shown = (site / page).with_suffix(".html").read_text(encoding="utf-8")
        pictures = [name for name in re.findall(r'<img src="([^"]*)"', shown) if name.startswith(Path(page).stem)]
        assert '<div class="output">' in shown and pictures
        assert all((site / page).with_name(name).is_file() for name in pictures)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("way", ["http", "file"])
def test_site_contacts_no_other_host_and_is_searchable(site: Path, way: str) -> None:
    """Over HTTP, and opened as a file, in light and dark and on a phone."""
    asked: list[str] = []
    with serve_pages() as address_of, opened_browser() as browser:
        base = address_of(site / "index.html").removesuffix("/index.html") if way == "http" else site.as_uri()
        looks: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 1280), ("light", 390))
        for scheme, width in looks:
            page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 800})
            page.on("request", lambda request: asked.append(request.url))
            for name in ("notebooks/first-steps", "gallery", "reference/settings", "reference/errors", "index"):
                page.goto(f"{base}/{name}.html")
                assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
            shown = page.locator("article img:visible").evaluate_all("(all) => all.map((one) => one.src)")
            assert [one.rpartition("-")[2] for one in shown] == [scheme]
            assert page.locator(".md-header .md-logo img").evaluate("(logo) => logo.naturalWidth > 0")
            assert f"abp-transports {version('abp-transports')}" in page.locator(".md-header").inner_text()
            broken = "(code) => getComputedStyle(code).wordBreak !== 'normal'"
            assert not any(page.locator("article code").evaluate_all(f"(all) => all.map({broken})"))
        page = browser.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{base}/index.html")
        field = page.locator("input[aria-label=Search]")
        field.wait_for(state="attached")
        page.keyboard.press("/")
        field.press_sequentially("DISCOVERY_FAILED")
        page.get_by_text(re.compile(r"^\d+ results?$")).wait_for()
        assert field.input_value() == "DISCOVERY_FAILED"
    assert [url for url in asked if not url.startswith((base, "data:", "blob:", "about:"))] == []


@contextmanager
def opened_browser() -> Iterator[Browser]:
    found = find_browser()
    assert found is not None
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found.path, chromium_sandbox=False)


def test_site_head_links_repository_from_pyproject() -> None:
    assert "repo_url" not in configuration({"name": "abp-transports", "version": "9.9"})
    about = {"name": "abp-transports", "version": "9.9", "urls": {"Source": "https://code.example/me/kit"}}
    project = tomllib.loads(configuration(about))["project"]
    assert project["site_name"] == "abp-transports 9.9"
    assert (project["repo_url"], project["repo_name"]) == ("https://code.example/me/kit", "code.example/me/kit")
    source = (ROOT / "tests" / "site" / "theme" / "partials" / "source.html").read_text(encoding="utf-8")
    assert "data-md-component" not in source  # which makes the theme ask another host


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_generated_docs_are_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path](), "python -m tests.site.made"
