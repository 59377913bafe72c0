"""The description of the distribution: the README, whose links hold where nothing is beside it, and its extras."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from hatch_build import standalone
from transports.surfaces.cli._doctor import _EXTRAS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_readme_links_point_to_project_url() -> None:
    text = standalone(README, "https://code.example/abp/")
    assert "[views](https://code.example/abp/blob/main/docs/views.md)" in text
    assert 'src="https://code.example/abp/raw/main/docs/images/' in text
    assert 'srcset="https://code.example/abp/raw/main/docs/images/' in text
    assert not re.search(r"\]\((?!https://)", text)


def test_readme_without_project_url_has_no_dead_links() -> None:
    text = standalone(README, None)
    assert "large content becomes links (proxy)" in text and "Read on" not in text and "## Files" in text
    assert not re.search(r"\]\((?!https://)|src(set)?=", text)
    assert standalone("[a](https://a.example) and [b](#part)", None) == "[a](https://a.example) and [b](#part)"


def test_doctor_checks_every_extra() -> None:
    assert _EXTRAS.keys() == PROJECT["optional-dependencies"].keys() - {"all"}
