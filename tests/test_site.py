"""The documentation site: it holds every page and every public name, and nothing in it leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from html import unescape
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.site.commands import commands_page
from tests.site.error_codes import classes_in_full, errors_page
from tests.site.made import MADE
from transports.session import Settings

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
    made = {"changelog.md", "conduct.md", "contributing.md", "reporting.md", "versioning.md"}
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


def test_the_reference_has_every_command_and_every_code() -> None:
    commands, codes = commands_page(), errors_page()
    assert {"abp call", "abp mcp", "abp artifacts list", "abp init app"} <= set(
        re.findall(r"^##+ (.+)$", commands, re.M)
    )
    assert "| `--timeout S` | Seconds to wait" in commands and "| `SIZE_MISMATCH` | `SizeMismatch`" in codes


@pytest.mark.load
def test_the_site_is_built_and_nothing_in_it_leads_nowhere() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.site"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = ROOT / "site"
    assert "SIZE_MISMATCH" in (site / "search.json").read_text(encoding="utf-8")
    call = (site / "reference" / "sessions" / "index.html").read_text(encoding="utf-8")
    assert 'id="transports.Session.call"' in call and ":class:" not in call
    shown = unescape(re.sub(r"<[^>]+>", "", call))
    assert 'transport: str | Transport = "auto",' in shown and "browser_server: str | None = None," in shown
    assert "JSON|@FILE|-" in (site / "reference" / "commands" / "index.html").read_text(encoding="utf-8")
    assert "(sessions.md): " in (site / "llms.txt").read_text(encoding="utf-8")
    assert "# Sessions\n" in (site / "llms-full.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", MADE, ids=lambda path: path.name)
def test_what_is_made_from_the_code_is_up_to_date(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == MADE[path](), "python -m tests.site.made"
