"""The description of the distribution: the README, whose links hold where nothing is beside it, and its extras."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from hatch_build import standalone
from transports.surfaces.cli._doctor import _EXTRAS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_links_lead_to_the_address_of_the_project() -> None:
    text = standalone(README, "https://code.example/abp/")
    assert "[views](https://code.example/abp/blob/main/docs/views.md)" in text
    assert 'src="https://code.example/abp/raw/main/docs/images/' in text
    assert 'srcset="https://code.example/abp/raw/main/docs/images/' in text
    assert not re.search(r"\]\((?!https://)", text)


def test_without_an_address_no_link_leads_nowhere() -> None:
    text = standalone(README, None)
    assert "large content becomes links (proxy)" in text and "Read on" not in text and "## Files" in text
    assert not re.search(r"\]\((?!https://)|src(set)?=", text)
    assert standalone("[a](https://a.example) and [b](#part)", None) == "[a](https://a.example) and [b](#part)"


def test_the_doctor_looks_for_every_extra() -> None:
    assert _EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - {"all"}


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}


@pytest.mark.requirement("R5-1e", "R5-1f")
def test_the_packages_of_the_design_are_installed() -> None:
    assert {"playwright", "websockets", "pydantic", "aiohttp"} <= names(PROJECT["dependencies"])
    assert "pytest-playwright" in names(PROJECT["optional-dependencies"]["test"])


@pytest.mark.requirement("R5-1g")
def test_the_folders_of_the_design_hold_programs() -> None:
    for folder in ("transports", "webapp_fixture", "tests", "examples"):
        assert list((ROOT / folder).glob("*.py")), folder
