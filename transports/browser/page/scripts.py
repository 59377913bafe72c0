"""The scripts of this folder, which run in pages."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["load_script"]


@cache
def load_script(name: str) -> str:
    """Return the text of a script of this folder, such as ``agent.js``."""
    return (files(__package__) / name).read_text(encoding="utf-8")
