"""Models of the tables ``[apps.NAME]`` and ``[secrets.NAME]`` of ``abp.toml`` (docs/team.md).

:mod:`._apps` and :mod:`._secrets` use them. They are a module of their own because pydantic loads slowly."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator, model_validator

from .._internal.privacy._secrets import placeholders
from ..errors import UsageError
from ..protocol._plain_text import origin_of
from ..protocol._times import MAX_TIMEOUT
from ._evidence import checked_evidence
from ._settings import settings_error

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
SecretName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
#: Settings in which `${SECRET:NAME}` is resolved; other settings are shown in messages, or cannot hold a secret.
_WITH_SECRETS = ("headers", "cdp_url")
_PATHS = ("profile", "storage_state", "adapter")


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: Users that may use the entry: patterns of names. The name of a user is that of its token (``USER=TOKEN``,
    #: ``signed:`` and the ``sub``), or ``local`` over stdio. The command line and Python act for the operator.
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
    def _plain(cls, value: str) -> str:
        if placeholders(value):
            raise ValueError("messages show the address; put the secret into headers")
        return value

    @field_validator("evidence")
    @classmethod
    def _kinds(cls, value: str) -> str:
        return checked_evidence(value)

    @property
    def options(self) -> dict[str, object]:
        """Options of the entry for :func:`transports.connect`, without the target."""
        own = ("url", "users", "scopes", "max_sessions", "evidence")
        return {
            key: one for key in type(self).model_fields if key not in own and (one := getattr(self, key)) is not None
        }


class SecretEntry(_Entry):
    """Entry of one secret: the source of its value, and the origins of apps that may receive it."""

    env: str | None = None
    file: Path | None = None
    #: A program that prints the value, and its arguments.
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    origins: tuple[str, ...] = Field(min_length=1)

    @field_validator("origins")
    @classmethod
    def _are_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        origins = [origin_of(one) for one in value]
        for text, origin in zip(value, origins, strict=True):
            if origin is None or urlsplit(text).path not in ("", "/"):
                raise ValueError(f"{text!r} is not an origin, such as https://app.example or http://127.0.0.1:8000")
        return tuple(filter(None, origins))

    @model_validator(mode="after")
    def _one_source(self) -> SecretEntry:
        if sum(source is not None for source in (self.env, self.file, self.command)) != 1:
            raise ValueError("give one of env, file and command")
        return self


E = TypeVar("E", bound=_Entry)


class AppTables(BaseModel):
    """Apps and secrets of one settings file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    apps: dict[Name, AppEntry] = {}
    secrets: dict[SecretName, SecretEntry] = {}

    @classmethod
    def parse(cls, tables: Mapping[str, object], file: Path) -> AppTables:
        """Read the tables of ``file``. Raises :class:`~transports.errors.UsageError`, which names the key at fault."""
        try:
            read = cls.model_validate({name: tables.get(name, {}) for name in cls.model_fields})
        except ValidationError as error:
            raise _error(error, file) from None
        for name, entry in read.apps.items():
            wanted = placeholders([getattr(entry, key) for key in _WITH_SECRETS])
            for secret in sorted(wanted - read.secrets.keys()):
                raise UsageError(f"{file}: apps.{name}: there is no table [secrets.{secret}]")
        folder = file.absolute().parent
        return cls(
            apps={name: _below(folder, entry, *_PATHS) for name, entry in read.apps.items()},
            secrets={name: _below(folder, entry, "file") for name, entry in read.secrets.items()},
        )


def _below(folder: Path, entry: E, *keys: str) -> E:
    paths = {key: folder / path.expanduser() for key in keys if (path := getattr(entry, key)) is not None}
    return entry.model_copy(update=paths)


def _error(error: ValidationError, file: Path) -> UsageError:
    faults = error.errors(include_url=False, include_input=False)
    unknown = next((fault for fault in faults if fault["type"] == "extra_forbidden"), None)
    if unknown is not None:  # comes before a missing key, which may be this one misspelt
        *place, key = map(str, unknown["loc"])
        known = AppEntry if place[:1] == ["apps"] else SecretEntry
        close = difflib.get_close_matches(key, known.model_fields, n=1)
        hint = f"; do you mean {close[0]}?" if close else f"; there is {', '.join(known.model_fields)}"
        return UsageError(f"{file}: {'.'.join((*place, key))}: unknown{hint}")
    first = faults[0]
    where = ".".join(str(step) for step in first["loc"] if step != "[key]")
    return settings_error(error, lambda _: f"{file}: {where}")
