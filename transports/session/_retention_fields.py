"""Model of the retention settings: variables ``ABP_RETENTION_*``, table ``[retention]``, options ``--retention``."""

from __future__ import annotations

from typing import Literal

from pydantic import ByteSize, Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from ..protocol._times import parse_duration

_NO_LIMIT = ("none", "off")


class RetentionFields(BaseSettings):
    """Fields of :class:`~transports.Retention` as settings, and ``enabled``.

    ``enabled`` false keeps everything; true gives unset limits the defaults of docs/requirements.md R2-7.1."""

    model_config = SettingsConfigDict(
        env_prefix="ABP_RETENTION_", env_ignore_empty=True, frozen=True, allow_inf_nan=False, extra="forbid"
    )

    enabled: bool | None = None
    ttl_seconds: float | None = Field(default=None, ge=0)
    max_artifact_bytes: ByteSize | None = None
    max_session_bytes: ByteSize | None = None
    max_trace_bytes: ByteSize | None = None
    max_artifacts_per_trace: int | None = Field(default=None, ge=0)
    max_artifacts_per_session: int | None = Field(default=None, ge=0)
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"
    cleanup_on_session_end: bool = False

    @field_validator(
        "max_artifact_bytes",
        "max_session_bytes",
        "max_trace_bytes",
        "max_artifacts_per_trace",
        "max_artifacts_per_session",
        mode="before",
    )
    @classmethod
    def _limit(cls, value: object) -> object:
        return None if isinstance(value, str) and value.strip().lower() in _NO_LIMIT else value

    @field_validator("ttl_seconds", mode="before")
    @classmethod
    def _duration(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        if value.strip().lower() in _NO_LIMIT:
            return None
        seconds = parse_duration(value)
        if seconds is None:
            raise ValueError(f"{value!r} is not a time; give 90s, 30m, 1h, 7d, or none for no limit")
        return seconds
