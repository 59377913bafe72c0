"""The documentation site: it holds every page and every public name, and nothing in it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, TimeoutError, sync_playwright

from tests.site.__main__ import configuration
from tests.site.commands import commands_page
from tests.site.error_codes import classes_in_full, codes_of_single_errors, errors_page
from tests.site.made import MADE
from tests.site.notebooks import NOTEBOOKS
from tests.site.stage import project_pages, stage
from transports.playwright._find import find_browser
from transports.session._settings import Settings

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


def leaves(nav: list[dict[str, Any]]) -> Iterator[str]:
    for entry in nav:
        for below in entry.values():
            yield from [below] if isinstance(below, str) else leaves(below)


def test_the_navigation_names_every_page_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    made = {"changelog.md", "conduct.md", "contributing.md", "reporting.md", "versioning.md", *NOTEBOOKS.values()}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} | made
    assert Counter(leaves(project["nav"])) == Counter(pages)


def test_every_public_name_has_one_place_in_the_reference() -> None:
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


def test_the_settings_are_those_of_the_code() -> None:
    page = (REFERENCE / "settings.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1:3] for row in page.splitlines() if row.startswith("| `")]
    defaults = {name: default.strip(" `") for names, default in rows for name in re.findall(r"`(ABP_\w+)`", names)}
    assert {f"ABP_{field.name.upper()}" for field in fields(Settings)} <= defaults.keys()
    for field in fields(Settings):
        said = defaults[f"ABP_{field.name.upper()}"]
        if said.isdigit() or said in ("true", "false"):
            assert said == str(field.default).lower(), field.name


@pytest.mark.load
def test_the_reference_has_every_command_and_every_code() -> None:
    commands, codes = commands_page(), errors_page()
    assert {"abp call", "abp mcp", "abp artifacts list", "abp init app"} <= set(
        re.findall(r"^##+ (.+)$", commands, re.M)
    )
    assert "| `--timeout TIME` | Time to wait" in commands and "| `SIZE_MISMATCH` | `SizeMismatch`" in codes


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+\.(?:md|png|svg))(?:#[^)\s]*)?\)")


def test_each_link_between_pages_is_a_link_on_the_site_and_leads_to_a_file(tmp_path: Path) -> None:
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


def test_no_link_of_a_page_is_shown_as_a_path(tmp_path: Path) -> None:
    """What reads ``[../stores.md](../stores.md)`` is a path of the project, which a reader of the site has not."""
    for path in (ROOT / "docs").rglob("*.md"):
        assert re.findall(r"\[\.\./[^\]]*\]\(", path.read_text(encoding="utf-8")) == [], path.name
    for path in stage(tmp_path / "docs"):
        assert re.findall(r"\[(?:docs/)?[\w-]+\.md[^\]]*\]\(", path.read_text(encoding="utf-8")) == [], path.name


@pytest.mark.load
def test_the_page_of_errors_has_every_code_that_the_code_has() -> None:
    page, single = errors_page(), codes_of_single_errors()
    wanted = {
        "UNKNOWN_CAPABILITY",
        "CANCELLED",
        "ADDRESS_UNAVAILABLE",
        "INVALID_ANSWER",
        "CALL_NOT_FOUND",
        "LIMIT_REACHED",
    }
    assert wanted <= single.keys()
    shown = re.findall(r"^\| `([A-Z_]+)` \|", page, re.MULTILINE)
    assert set(single) <= set(shown) and len(shown) == len(set(shown))


@pytest.mark.load
def test_every_error_on_its_page_has_a_next_step() -> None:
    tables = re.findall(r"^\|.+\n\|[-|]+\n(?:\|.+\n)+", errors_page(), re.MULTILINE)
    assert len(tables) == 2
    for table in tables:
        header, _, *rows = ([cell.strip() for cell in row.strip("|").split(" | ")] for row in table.splitlines())
        assert header == ["code", "raised as", "what to do"]
        assert [row for row in rows if len(row) != len(header) or not row[-1]] == []


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, as `make docs` builds it."""
    done = subprocess.run([sys.executable, "-m", "tests.site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "open site/index.html" in done.stdout
    return ROOT / "site"


@pytest.mark.slow
def test_the_site_is_built_and_nothing_in_it_leads_nowhere(site: Path) -> None:
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
def test_the_site_asks_no_other_host_and_can_be_searched(site: Path, way: str) -> None:
    """Over HTTP, and opened as a file, in light and dark and on a phone."""
    asked: list[str] = []
    with served(site) as address, opened_browser() as browser:
        base = address if way == "http" else site.as_uri()
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


#: Questions of users, and the page that answers each.
QUESTIONS = {
    "why is my view blank": "views",
    "use my own page": "browsers",
    "how do I upload a file": "sessions",
    "save all files to a folder": "sessions",
    "headers for login": "browsers",
    "How can I log in once and stay signed in?": "browsers",
    "show the browser window": "browsers",
    "attach to a running chrome": "browsers",
    "run in docker": "container",
    "how long are files kept": "stores",
    "where are my files?": "stores",
    "delete old files": "stores",
    "wrong size error": "reference/errors",
    "the disk is full": "troubleshooting",
    "port is already in use": "troubleshooting",
    "browser not found": "troubleshooting",
    "How do I install a browser?": "tutorial",
    "test without a browser": "testing",
    "run many calls at once": "batch",
    "retrying failed jobs": "batch",
    "change the timeout": "sessions",
    "take a screenshot": "sessions",
    "debug a failed call": "evidence",
    "open a CSV in pandas": "data",
    "use with Claude Desktop": "mcp",
    "use with Cursor": "mcp",
    "use S3": "stores",
    "use in CI": "testing",
    "download is blocked because the address is private": "troubleshooting",
    "which python versions": "compatibility",
    "MCP server returns huge base64": "proxy",
    "does it run on windows": "compatibility",
    "mutation testing": "mutation",
}


@pytest.mark.slow
@pytest.mark.browser
def test_a_question_finds_its_page_and_pages_about_the_project_come_last(site: Path) -> None:
    about_the_project = {page.removesuffix(".md") for page in project_pages()}
    assert {"architecture", "changelog", "fuzzing", "mutation", "performance", "requirements"} <= about_the_project
    missed, too_early = {}, {}
    with served(site) as address, opened_browser() as browser:
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        field = page.locator("input[aria-label=Search]")
        field.wait_for(state="attached")
        page.keyboard.press("/")
        for question, answer in QUESTIONS.items():
            field.fill("")
            page.get_by_role("option").first.wait_for(state="detached")
            field.fill(question)
            with suppress(TimeoutError):  # a question without an answer has no results
                page.get_by_role("option").first.wait_for(timeout=5000)
            links = page.get_by_role("option").evaluate_all("(links) => links.map((link) => link.pathname)")
            pages = [link.strip("/").removesuffix(".html") for link in links]
            if answer not in pages[:3]:
                missed[question] = pages
            of_the_project = [name in about_the_project for name in pages]
            if of_the_project != sorted(of_the_project) and answer not in about_the_project:
                too_early[question] = pages
    assert (missed, too_early) == ({}, {})


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP, and yield its address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@contextmanager
def opened_browser() -> Iterator[Browser]:
    found = find_browser()
    assert found is not None
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=found.path, chromium_sandbox=False)


def test_the_head_links_the_repository_that_pyproject_names() -> None:
    assert "repo_url" not in configuration({"name": "abp-transports", "version": "9.9"})
    about = {"name": "abp-transports", "version": "9.9", "urls": {"Source": "https://code.example/me/kit"}}
    project = tomllib.loads(configuration(about))["project"]
    assert project["site_name"] == "abp-transports 9.9"
    assert (project["repo_url"], project["repo_name"]) == ("https://code.example/me/kit", "code.example/me/kit")
    source = (ROOT / "tests" / "site" / "theme" / "partials" / "source.html").read_text(encoding="utf-8")
    assert "data-md-component" not in source  # which makes the theme ask another host


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_what_is_made_from_the_code_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path](), "python -m tests.site.made"
