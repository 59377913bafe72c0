"""Models of the tables ``[apps.NAME]``, ``[secrets.NAME]`` and ``[retention]`` of ``abp.toml`` (docs/team.md).

They are a module of their own because pydantic loads slowly."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ByteSize,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from .._internal.files import expand_home
from .._internal.masking import placeholders
from ..errors import UsageError
from ..protocol._plain_text import origin_of
from ..protocol._times import MAX_TIMEOUT, parse_duration
from ._evidence import checked_evidence

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: Users that may use the entry: patterns of names. A user has the name of its token (``USER=TOKEN``, or ``signed:``
    #: and the ``sub``), or ``local`` over stdio. The command line and Python act for the operator.
    users: tuple[str, ...] = ("*",)

    def is_for(self, user: str | None) -> bool:
        """Return whether this user may use the entry; ``None`` is the operator."""
        return user is None or any(fnmatchcase(user, pattern) for pattern in self.users)


class AppEntry(_Entry):
    """Entry of one app: its target, its options for :func:`transports.connect`, and its users.

    Paths are relative to the file. ``headers`` and ``cdp_url`` may hold ``${SECRET:NAME}``."""

    #: The target: an address, or anything that ``connect`` takes.
    url: str = Field(min_length=1, max_length=4096)
    transport: str = "auto"
    browser: str | None = None
    headless: bool | None = None
    #: A browser profile that stays signed in; one browser at a time can use it.
    profile: Path | None = None
    #: Initial cookies and storage; ``abp login NAME`` writes the file.
    storage_state: Path | None = None
    cdp_url: str | None = Field(default=None, repr=False)
    adapter: Path | None = None
    headers: dict[str, str] | None = Field(default=None, repr=False)
    #: Seconds for connecting, and for calls without a timeout of their own.
    timeout: float | None = Field(default=None, gt=0, le=MAX_TIMEOUT, strict=True)
    #: Limit of concurrent sessions with the app in this process, for all users together.
    max_sessions: int | None = Field(default=None, gt=0)
    #: Evidence that is kept of each call besides its answer: ``trace=on-failure,console`` (docs/evidence.md).
    evidence: str = ""
    #: OAuth scopes that a signed token needs for the app (docs/team.md).
    scopes: tuple[str, ...] = ()

    @field_validator("url")
    @classmethod
    def _require_no_secret(cls, value: str) -> str:
        if placeholders(value):
            raise ValueError("messages show the address; put the secret into headers")
        return value

    @field_validator("evidence")
    @classmethod
    def _check_evidence(cls, value: str) -> str:
        return checked_evidence(value)

    @property
    def options(self) -> dict[str, object]:
        """The options for :func:`transports.connect` that the entry sets."""
        not_for_connect = {"url", "users", "scopes", "max_sessions", "evidence"}
        options = {key: getattr(self, key) for key in type(self).model_fields if key not in not_for_connect}
        return {key: value for key, value in options.items() if value is not None}


class SecretEntry(_Entry):
    """Entry of one secret: the source of its value, and the origins of apps that may receive it."""

    env: str | None = None
    file: Path | None = None
    #: A program that prints the value, and its arguments.
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    origins: tuple[str, ...] = Field(min_length=1)

    @field_validator("origins")
    @classmethod
    def _normalise_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        origins = []
        for text in value:
            origin = origin_of(text)
            if origin is None or urlsplit(text).path not in ("", "/"):
                raise ValueError(f"{text!r} is not an origin, such as https://app.example or http://127.0.0.1:8000")
            origins.append(origin)
        return tuple(origins)

    @model_validator(mode="after")
    def _require_one_source(self) -> SecretEntry:
        if sum(source is not None for source in (self.env, self.file, self.command)) != 1:
            raise ValueError("set exactly one of env, file and command")
        return self


E = TypeVar("E", bound=_Entry)


class AppTables(BaseModel):
    """Apps and secrets of one settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    apps: dict[Name, AppEntry] = {}
    secrets: dict[SecretName, SecretEntry] = {}

    @classmethod
    def parse(cls, tables: Mapping[str, object], file: Path) -> AppTables:
        """Check the tables of ``file``, and make their paths absolute."""
        try:
            tables_as_written = cls.model_validate({name: tables.get(name, {}) for name in cls.model_fields})
        except ValidationError as error:
            raise _table_error(error, file) from None

        for name, entry in tables_as_written.apps.items():
            # Only these two settings may hold secrets.
            secrets = placeholders([entry.headers, entry.cdp_url])
            for secret in sorted(secrets - tables_as_written.secrets.keys()):
                raise UsageError(f"{file}: apps.{name}: no table [secrets.{secret}]")

        folder = file.absolute().parent
        return cls(
            apps={name: _resolve_paths(folder, entry) for name, entry in tables_as_written.apps.items()},
            secrets={name: _resolve_paths(folder, entry) for name, entry in tables_as_written.secrets.items()},
        )


def _resolve_paths(folder: Path, entry: E) -> E:
    paths = {key: folder / expand_home(value) for key, value in entry if isinstance(value, Path)}
    return entry.model_copy(update=paths)


def _table_error(error: ValidationError, file: Path) -> UsageError:
    """Return the error for the first fault of the tables, with the name of its key."""
    faults = error.errors(include_url=False, include_input=False)

    # Report an unknown key before a missing key: the unknown one may be the missing one, misspelt.
    for fault in faults:
        if fault["type"] != "extra_forbidden":
            continue
        *table, key = map(str, fault["loc"])
        entry_model = AppEntry if table[:1] == ["apps"] else SecretEntry
        keys = entry_model.model_fields
        similar = difflib.get_close_matches(key, keys, n=1)
        hint = f"did you mean {similar[0]}?" if similar else f"use one of {', '.join(keys)}"
        return UsageError(f"{file}: {'.'.join((*table, key))}: unknown; {hint}")

    first = faults[0]
    where = ".".join(str(step) for step in first["loc"] if step != "[key]")
    return settings_error(error, lambda _: f"{file}: {where}")


def settings_error(error: ValidationError, setting: Callable[[str], str]) -> UsageError:
    """Return the error for the first fault of a model's values; ``setting`` returns the user's name of a field."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = setting(str(first["loc"][0])) if first["loc"] else "the settings"
    return UsageError(f"{where}: {first['msg'].removeprefix('Value error, ')}")


class RetentionFields(BaseModel):
    """Fields of :class:`~transports.Retention` as settings, and ``enabled``.

    ``enabled`` false keeps everything; true gives unset limits the defaults of docs/requirements.md R2-7.1."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    enabled: bool | None = None
    ttl_seconds: float | None = Field(default=None, ge=0)
    max_artifact_bytes: ByteSize | None = None
    max_session_bytes: ByteSize | None = None
    max_trace_bytes: ByteSize | None = None
    max_artifacts_per_trace: int | None = Field(default=None, ge=0)
    max_artifacts_per_session: int | None = Field(default=None, ge=0)
    cleanup_strategy: Literal["lru", "fifo", "none"] = "lru"
    cleanup_on_session_end: bool = False

    @field_validator("ttl_seconds", mode="before")
    @classmethod
    def _read_duration(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        seconds = parse_duration(value)
        if seconds is None:
            raise ValueError(f"{value!r} is not a time; use 90s, 30m, 1h, 7d, or none for no limit")
        return seconds

    @field_validator(  # runs before _read_duration: pydantic begins with the validator that is defined last
        "ttl_seconds",
        "max_artifact_bytes",
        "max_session_bytes",
        "max_trace_bytes",
        "max_artifacts_per_trace",
        "max_artifacts_per_session",
        mode="before",
    )
    @classmethod
    def _read_no_limit(cls, value: object) -> object:
        if isinstance(value, str) and value.strip().lower() in ("none", "off"):
            return None
        return value
