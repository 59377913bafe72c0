"""Retention by settings: ``ABP_RETENTION_*``, the table ``[retention]`` of a file, options of the command line."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping

from ..artifacts import Retention
from ..errors import UsageError
from .config_file import ConfigFile
from .settings import settings_error

__all__ = ["BRIDGE_RETENTION", "retention_settings"]

#: What holds for the bridge's own store if nothing is set (docs/requirements.md R2-7.1a): an hour for what the bridge
#: stored itself. The folder is the default of `abp call` too, and its files stay.
BRIDGE_RETENTION = Retention.only(ttl_seconds=3600, keep_unscoped=True)

_PREFIX = "ABP_RETENTION_"
_TABLE = "retention"
_SWITCH = "enabled"


def retention_settings(
    *,
    options: Mapping[str, object] | None = None,
    file: ConfigFile | None = None,
    default: Retention | None = None,
) -> Retention | None:
    """Return the retention that is set, ``None`` for one that keeps everything, or ``default`` if nothing is set.

    ``options`` go before ``ABP_RETENTION_*`` variables, and these before the table ``[retention]`` of ``file``. Only
    what is set is a limit. Raises :class:`~transports.errors.UsageError`, which names the option, the variable or the
    key at fault. The table of a file that is not trusted is ignored: it would have artifacts removed.
    """
    options, file = options or {}, file or ConfigFile()
    table = file.table(_TABLE)
    if not file.trusted:
        file.warn_ignored([f"{_TABLE}.{key}" for key in table])
        table = {}
    if (
        not options
        and not table
        and not any(text and name.upper().startswith(_PREFIX) for name, text in os.environ.items())
    ):
        return default
    from pydantic import ValidationError  # late: most programs set nothing

    from .retention_fields import RetentionFields

    from_file = {key: value for key, value in table.items() if not os.environ.get(_PREFIX + key.upper())}
    sources = {key: f"--retention {key}" for key in options}
    sources = {key: f"{file.path}: {_TABLE}.{key}" for key in from_file} | sources
    for key in sources.keys() - RetentionFields.model_fields.keys():
        close = difflib.get_close_matches(key, RetentionFields.model_fields, n=1)
        raise UsageError(f"{sources[key]}: unknown" + (f"; do you mean {close[0]}?" if close else ""))
    try:
        chosen = RetentionFields(**{**from_file, **options})  # type: ignore[arg-type]
    except ValidationError as error:
        raise settings_error(error, lambda key: sources.get(key, _PREFIX + key.upper())) from error
    given = {key: getattr(chosen, key) for key in chosen.model_fields_set - {_SWITCH}}
    if chosen.enabled is False:
        return None
    if chosen.enabled is None and not given:
        return default
    return Retention(**given) if chosen.enabled else Retention.only(**given)
