"""Names of a package that are imported when they are first used (PEP 562), so that a start loads only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_names(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the ``__getattr__`` of a package. ``homes`` maps its modules, such as ``_calls`` or ``local._store``, to
    the names that they define."""
    home_of = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found: object = getattr(import_module(f".{home_of[name]}", package), name)
        setattr(sys.modules[package], name, found)  # the next use of the name does not come here
        return found

    return load
