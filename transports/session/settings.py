"""Settings from the environment; the first group has the names of the public bridge, so the kit can replace it."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UsageError
from ..protocol.durations import MAX_TIMEOUT, is_timeout
from ..protocol.urls import folder_of

if TYPE_CHECKING:
    from pydantic import ValidationError

__all__ = ["Settings", "settings_error"]

_PREFIX = "ABP_"
#: The words for yes and no, in any case of letters.
_FLAGS = {**dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True)} | {
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False)
}


def _flag(text: str) -> bool:
    try:
        return _FLAGS[text.lower()]
    except KeyError:
        raise ValueError(f"{text!r} is not a valid boolean; give true or false") from None


def _milliseconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not is_timeout(number / 1000):
        shown, most = repr(text[:40]), MAX_TIMEOUT * 1000
        raise ValueError(f"{shown} is not a valid number of milliseconds above 0, at most {most:,}")
    return number


def _at_least(least: int) -> Callable[[str], int]:
    def whole(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise ValueError(f"{text!r} is not a valid whole number of {least} or more")
        return number

    return whole


def _known_level(text: str) -> str:
    level, known = text.strip().upper(), logging.getLevelNamesMapping()
    if level not in known:
        raise ValueError(f"{text!r} is not a log level; use one of {', '.join(known)}")
    return level


def _durability(text: str) -> str:
    if text not in ("process", "disk"):
        raise ValueError(f"{text!r} is neither process nor disk")
    return text


#: How the text of each variable is read.
_READERS: Mapping[str, Callable[[str], object]] = {
    "output_dir": folder_of,
    "headless": _flag,
    "browser_timeout": _milliseconds,
    "call_timeout": _milliseconds,
    "download_timeout": _milliseconds,
    "log_level": _known_level,
    "max_message_bytes": _at_least(1),
    "max_artifact_bytes": _at_least(1),
    "max_session_bytes": _at_least(1),
    "min_free_disk": _at_least(0),
    "allow_private_addresses": _flag,
    "store": str,
    "durability": _durability,
    "audit_log": Path,
    "search_index": _flag,
    "config": Path,
    "trace_params": _flag,
    "trace_downloads": _flag,
}


@dataclass(frozen=True, slots=True)
class Settings:
    """The ``ABP_*`` variables. Timeouts are milliseconds here, as in the bridge, and seconds everywhere in Python.

    Sizes are bytes. A variable that is empty counts as not set; the case of its name does not count. No model of
    pydantic's, which would cost every program a third of the time for importing :func:`~transports.connect`.
    """

    output_dir: Path | None = None
    headless: bool = True
    browser_timeout: float = 30_000
    call_timeout: float = 60_000
    download_timeout: float = 300_000
    log_level: str = "WARNING"

    max_message_bytes: int = 100_000_000
    max_artifact_bytes: int = 1 << 30
    max_session_bytes: int | None = None
    min_free_disk: int = 16 << 20
    allow_private_addresses: bool = False
    store: str | None = None
    durability: Literal["process", "disk"] = "process"
    audit_log: Path | None = None
    search_index: bool = False
    config: Path | None = None
    trace_params: bool = False
    trace_downloads: bool = False

    @classmethod
    def load(cls) -> Settings:
        """Read the environment. Raises :class:`~transports.errors.UsageError` that names the wrong variable."""
        given = {name.upper(): text for name, text in os.environ.items() if text and name[:4].upper() == _PREFIX}
        read: dict[str, Any] = {}
        for field, reader in _READERS.items():
            if (text := given.get(variable := _PREFIX + field.upper())) is not None:
                try:
                    read[field] = reader(text)
                except ValueError as error:
                    raise UsageError(f"{variable}: {error}") from None
        return cls(**read)


def settings_error(error: ValidationError, setting: Callable[[str], str]) -> UsageError:
    """Return the error for settings that a model refused. ``setting`` gives what the user knows a field by: the name of
    a variable, or a file and a key. It is not called for a rule that concerns several fields."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = setting(str(first["loc"][0])) if first["loc"] else "the settings"
    return UsageError(f"{where}: {first['msg'].removeprefix('Value error, ')}")
