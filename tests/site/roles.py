"""Docstrings as Markdown: ``:class:`~transports.Session``` becomes a link where the site documents it, else its name.

Griffe, which reads the docstrings, loads this as an extension (``zensical.toml``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|mod|exc|data|obj):`([^`]+)`")
_DIRECTIVE = re.compile(r"^::: (\S+)", re.MULTILINE)
_CODE = re.compile(r"::\n\n(?=(?:    .*\n?)+)")
_REFERENCE = Path(__file__).parents[2] / "build" / "docs" / "reference"


class Roles(griffe.Extension):
    """Replaces the roles of Sphinx in every docstring of the package."""

    def __init__(self) -> None:
        super().__init__()
        pages = _REFERENCE.glob("*.md")
        self._documented = {found for page in pages for found in _DIRECTIVE.findall(page.read_text(encoding="utf-8"))}

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite the docstrings of a package that was just read."""
        self._package = pkg
        self._rewrite(pkg)

    def _rewrite(self, obj: griffe.Object) -> None:
        if obj.docstring is not None:
            text = _ROLE.sub(lambda role: self._link(role[1], obj), obj.docstring.value)
            obj.docstring.value = _CODE.sub(":\n\n", text)
        for member in obj.members.values():
            if isinstance(member, griffe.Object):
                self._rewrite(member)

    def _link(self, role: str, obj: griffe.Object) -> str:
        shown, _, target = role.rpartition(" <")
        target = target.removesuffix(">")
        shown = shown or (target.rpartition(".")[2] if target.startswith("~") else target.strip("."))
        for path in self._candidates(target.strip("~."), obj):
            if self._is_documented(path):
                return f"[`{shown}`][{path}]"
        return f"`{shown}`"

    def _candidates(self, target: str, obj: griffe.Object) -> list[str]:
        """Return where the site may document ``target``: as it is, in the object's class, in a public package."""
        near = obj if isinstance(obj, griffe.Class) else obj.parent
        packages = [
            "transports",
            "transports.errors",
            "transports.artifacts",
            "transports.routing",
            "transports.testing",
        ]
        if obj.path.startswith("transports.sync"):
            packages.insert(0, "transports.sync")
        name = target.split(".")[-2:] if "." in target else [target]
        members = [f"{package}.{near.name}.{target}" for package in packages] if near is not None else []
        return [
            target,
            *members,
            *(f"{package}.{'.'.join(part)}" for part in (name, name[-1:]) for package in packages),
        ]

    def _is_documented(self, path: str) -> bool:
        if path in self._documented:
            return True
        owner, _, member = path.rpartition(".")
        if owner not in self._documented:
            return False
        try:
            parent = self._package[owner.removeprefix("transports.")]
            return member in parent.members and not member.startswith("_") and parent.members[member].has_docstring
        except (KeyError, griffe.AliasResolutionError):
            return False
