"""The file ``abp.toml``, which holds settings in tables: one for each part of the program."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import UsageError
from ..files import read_regular
from ..routing import RoutingConfig
from .settings import Settings
from .trust import is_trusted, trust

__all__ = ["TABLES", "ConfigFile", "read_config", "routing_of", "trust_found_file"]

logger = logging.getLogger("transports")

#: The file in the working folder that is read if no other is named.
_FILE = "abp.toml"
#: Bytes of a file, which many commands read.
_MAX_BYTES = 1 << 20
#: The tables that a file may have.
TABLES = ("apps", "mcp", "retention", "routing", "secrets")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings; without ``path``, none.

    A ``trusted`` one was named by the user, or was found and has the content that the user trusts. Any other file may
    be part of a folder from somebody else, so its settings may only narrow what is allowed without it.
    """

    path: Path | None = None
    trusted: bool = False
    tables: Mapping[str, dict[str, object]] | None = None
    #: What the file holds.
    content: bytes = field(default=b"", repr=False)

    def table(self, name: str) -> dict[str, object]:
        """Return a copy of one table; empty if the file has none of that name."""
        return dict((self.tables or {}).get(name, {}))

    def warn_ignored(self, keys: Collection[str]) -> None:
        """Log that these keys are ignored, and how they are allowed."""
        if keys:
            logger.warning(
                "%s: ignored %s: this file was only found and may be somebody else's; if you trust it, say "
                "`abp mcp --trust` in its folder, or name it with --config %s",
                self.path,
                ", ".join(sorted(keys)),
                self.path,
            )


def read_config(named: Path | None = None) -> ConfigFile:
    """Read the file ``named``, else that of ``ABP_CONFIG``, else ``abp.toml`` in the working folder if there is one.

    Raises :class:`~transports.errors.UsageError` for a file that cannot be read, an unknown table, or a key outside
    the tables.
    """
    named = named or Settings.load().config
    file = named or Path(_FILE)
    if named is None and not file.is_file():
        return ConfigFile()
    import tomllib  # late: most programs have no such file

    try:
        content = read_regular(file, _MAX_BYTES)
        document = tomllib.loads(content.decode())
    except (OSError, ValueError, RecursionError) as error:  # the last for arrays that are nested hundreds of times
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{file} cannot be read: {reason}") from error
    for key, table in document.items():
        if key not in TABLES:
            known = ", ".join(f"[{name}]" for name in TABLES)
            raise UsageError(f"{file}: {key}: unknown; settings stand in the tables {known}")
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {key}: must be a table, [{key}]")
    return ConfigFile(file, named is not None or is_trusted(file, content), document, content)


def trust_found_file() -> ConfigFile:
    """Trust the ``abp.toml`` of the working folder with the content that it has now, and return it.

    Raises :class:`~transports.errors.UsageError` if there is none, and as :func:`read_config`."""
    if not Path(_FILE).is_file():
        raise UsageError(f"--trust: there is no {_FILE} in this folder")
    file = read_config(Path(_FILE))
    trust(Path(_FILE), file.content)
    return file


def routing_of(file: ConfigFile) -> RoutingConfig:
    """Return what the table ``[routing]`` of a file says. Raises :class:`~transports.errors.UsageError`."""
    return RoutingConfig.parse(file.table("routing"), f"{file.path}: routing")
