"""The file ``abp.toml``, which holds settings in tables: one for each part of the program."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..routing import RoutingConfig
from .settings import Settings

__all__ = ["ConfigFile", "read_config", "read_routing"]

#: The file in the working folder that is read if no other is named.
_FILE = "abp.toml"
_TABLES = ("mcp", "retention", "routing")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings; without ``path``, none.

    ``named`` is whether somebody asked for this file. One that was only found may be part of a folder from somebody
    else, so not all of its settings can be taken as they are.
    """

    path: Path | None = None
    named: bool = False
    tables: Mapping[str, dict[str, object]] | None = None

    def table(self, name: str) -> dict[str, object]:
        """Return a copy of one table; empty if the file has none of that name."""
        return dict((self.tables or {}).get(name, {}))


def read_config(named: Path | None = None) -> ConfigFile:
    """Read the file ``named``, else that of ``ABP_CONFIG``, else ``abp.toml`` in the working folder if there is one.

    Raises :class:`~transports.errors.UsageError` for a file that cannot be read, an unknown table, or a key outside
    the tables.
    """
    named = named or Settings.load().config
    file = named or Path(_FILE)
    if named is None and not file.is_file():
        return ConfigFile()
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # the last for arrays that are nested hundreds of times
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{file} cannot be read: {reason}") from error
    for key, table in document.items():
        if key not in _TABLES:
            known = ", ".join(f"[{name}]" for name in _TABLES)
            raise UsageError(f"{file}: {key}: unknown; settings stand in the tables {known}")
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {key}: must be a table, [{key}]")
    return ConfigFile(file, named is not None, document)


def read_routing(named: Path | None = None) -> RoutingConfig:
    """Return what the table ``[routing]`` of the settings file says; nothing without it. Raises as :func:`read_config`,
    and for settings that make no sense."""
    file = read_config(named)
    return RoutingConfig.parse(file.table("routing"), f"{file.path}: routing")
