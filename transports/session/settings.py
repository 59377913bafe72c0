"""Settings from the environment; the first group has the names of the public bridge, so the kit can replace it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ..errors import UsageError

__all__ = ["Settings", "settings_error"]


class Settings(BaseSettings):
    """The ``ABP_*`` variables. Timeouts are milliseconds here, as in the bridge, and seconds everywhere in Python.

    Sizes are bytes. A variable that is empty counts as not set.
    """

    model_config = SettingsConfigDict(env_prefix="ABP_", env_ignore_empty=True, frozen=True, allow_inf_nan=False)

    output_dir: Path | None = None
    headless: bool = True
    browser_timeout: float = Field(default=30_000, gt=0)
    call_timeout: float = Field(default=60_000, gt=0)
    download_timeout: float = Field(default=300_000, gt=0)
    log_level: str = "WARNING"

    max_message_bytes: int = Field(default=100_000_000, gt=0)
    max_artifact_bytes: int = Field(default=1 << 30, gt=0)
    max_session_bytes: int | None = Field(default=None, gt=0)
    min_free_disk: int = Field(default=16 << 20, ge=0)
    allow_private_addresses: bool = False
    store: str | None = None
    durability: Literal["process", "disk"] = "process"
    audit_log: Path | None = None
    search_index: bool = False
    config: Path | None = None

    @field_validator("log_level")
    @classmethod
    def _known_level(cls, value: str) -> str:
        level, known = value.strip().upper(), logging.getLevelNamesMapping()
        if level not in known:
            raise ValueError(f"{value!r} is not a log level; use one of {', '.join(known)}")
        return level

    @classmethod
    def load(cls) -> Settings:
        """Read the environment. Raises :class:`~transports.errors.UsageError` that names the wrong variable."""
        try:
            return cls()
        except ValidationError as error:
            raise settings_error(error, lambda field: f"ABP_{field.upper()}") from None


def settings_error(error: ValidationError, setting: Callable[[str], str]) -> UsageError:
    """Return the error for settings that a model refused. ``setting`` gives what the user knows a field by: the name of
    a variable, or a file and a key. It is not called for a rule that concerns several fields."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = setting(str(first["loc"][0])) if first["loc"] else "the settings"
    return UsageError(f"{where}: {first['msg'].removeprefix('Value error, ')}")
