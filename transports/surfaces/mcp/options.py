"""What the operator of the bridge decides; a model can change none of it."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ...errors import UsageError
from ...routing import FileLimits
from ...session.settings import settings_error

__all__ = ["Options", "reachable"]

#: What is read in the working folder if no file is named.
_FILE = "abp.toml"
_TABLE = "mcp"
_PREFIX = "ABP_MCP_"
_SCHEMES = ("http://", "https://", "ws://", "wss://")
Texts = Annotated[tuple[str, ...], NoDecode]
Folders = Annotated[tuple[Path, ...], NoDecode]


def reachable(target: str) -> bool:
    """Whether a target is an address. Others run programs and load extensions, which is for the operator to say."""
    return target.lower().startswith(_SCHEMES)


class Options(BaseSettings):
    """Keys of the table ``[mcp]`` in ``abp.toml``; ``ABP_MCP_*`` variables of the same names go before them, and
    arguments before those. Lists are text with commas in variables, except ``apps`` (a line each) and folders (as in
    ``PATH``)."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, allow_inf_nan=False)

    #: Targets that are connected from the start.
    apps: Texts = ()
    #: Whether browsers are seen; where it is set, a model cannot say otherwise.
    headless: bool | None = None
    #: Hosts that a model may connect, and those it may not, as patterns: ``*.example.com``, ``127.0.0.1:8000``.
    allowed_hosts: Texts = ("*",)
    blocked_hosts: Texts = ()
    #: Tools that clients see, and those they do not, as patterns of their names.
    show_tools: Texts = ("*",)
    hide_tools: Texts = ()
    #: Largest answer to a tool, in bytes of the whole message, without images.
    max_answer_bytes: int = Field(default=64 * 1024, ge=4 * 1024)
    #: Most bytes of images in one answer, before base64 (seed 003).
    max_image_bytes: int = Field(default=500_000, ge=0)
    #: Largest resource that is read in one piece, in bytes; beyond it only ranges are.
    max_resource_bytes: int = Field(default=64 << 20, gt=0)
    #: Largest request over HTTP, in bytes.
    max_request_bytes: int = Field(default=64 << 20, gt=0)
    #: Apps that one user may have connected at a time.
    max_sessions: int = Field(default=8, gt=0)
    #: Files that come with one call: how many, the largest in bytes, their types as patterns (seed 004).
    max_files: int = Field(default=16, ge=0)
    max_file_bytes: int = Field(default=100 << 20, ge=0)
    allowed_types: Texts = ("*/*",)
    #: Folders below which a model may name files to send.
    roots: Folders = ()
    #: Folders below which a model may have artifacts written.
    export_roots: Folders = ()
    #: Over HTTP: minutes after which the apps of a user who does nothing are disconnected.
    idle_minutes: float = Field(default=60, gt=0)
    #: Secrets that let clients in over HTTP, ``TOKEN`` or ``USER=TOKEN``, with commas between them.
    token: str | None = Field(default=None, repr=False)
    #: Tokens that somebody else signs: who, for whom, and the keys, of which one kind is given.
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_jwks_url: str | None = None
    jwt_key_file: Path | None = None
    jwt_algorithms: Annotated[tuple[Literal["RS256", "ES256", "EdDSA"], ...], NoDecode] = ("RS256", "ES256", "EdDSA")

    @field_validator("roots", "export_roots", mode="before")
    @classmethod
    def _folders(cls, value: object) -> object:
        return [part for part in value.split(os.pathsep) if part] if isinstance(value, str) else value

    @field_validator("roots", "export_roots")
    @classmethod
    def _real(cls, value: tuple[Path, ...]) -> tuple[Path, ...]:
        for root in value:
            if not root.is_dir():
                raise ValueError(f"there is no folder {root}")
        return tuple(root.resolve() for root in value)

    @field_validator("apps", mode="before")
    @classmethod
    def _lines(cls, value: object) -> object:
        return [line.strip() for line in value.splitlines() if line.strip()] if isinstance(value, str) else value

    @field_validator(
        "allowed_hosts",
        "blocked_hosts",
        "show_tools",
        "hide_tools",
        "allowed_types",
        "jwt_algorithms",
        mode="before",
    )
    @classmethod
    def _parts(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value

    @model_validator(mode="after")
    def _signed(self) -> Options:
        given = [self.jwt_issuer, self.jwt_audience, self.jwt_jwks_url or self.jwt_key_file]
        if any(given) and (not all(given) or (self.jwt_jwks_url and self.jwt_key_file)):
            raise ValueError("jwt_issuer, jwt_audience and either jwt_jwks_url or jwt_key_file go together")
        return self

    def shows(self, tool: str) -> bool:
        """Whether clients see the tool of this name, and may call it."""
        shown = any(fnmatchcase(tool, pattern) for pattern in self.show_tools)
        return shown and not any(fnmatchcase(tool, pattern) for pattern in self.hide_tools)

    @property
    def files(self) -> FileLimits:
        return FileLimits(max_file_bytes=self.max_file_bytes, allowed_mime_types=self.allowed_types)

    @classmethod
    def load(cls, *, config: Path | None = None, **given: object) -> Options:
        """Read ``config`` (or ``abp.toml`` in the working folder, if there is one) and the environment; what is
        ``given`` and not ``None`` goes before them. Raises :class:`~transports.errors.UsageError` that names the key at
        fault, and the file or the variable.

        A file that was only found may have come with somebody else's folder: its apps must be addresses, and its
        folders must be below its own.
        """
        file = config or (Path(_FILE) if Path(_FILE).is_file() else None)
        said = {} if file is None else _read(file, cls.model_fields)
        said = {key: value for key, value in said.items() if not os.environ.get(_PREFIX + key.upper())}
        chosen = {key: value for key, value in given.items() if value is not None}
        try:
            options = cls(**{**said, **chosen})  # type: ignore[arg-type]
        except ValidationError as error:
            raise settings_error(
                error, lambda key: f"{file}: {_TABLE}.{key}" if key in said else _PREFIX + key.upper()
            ) from error
        if config is None and file is not None:
            options._careful(file, said, chosen)
        return options

    def _careful(self, file: Path, said: Mapping[str, object], chosen: Mapping[str, object]) -> None:
        folder = file.resolve().parent
        for key in said.keys() - chosen.keys():
            if key == "apps" and not all(reachable(app) for app in self.apps):
                raise UsageError(
                    f"{file}: {_TABLE}.apps: a file that was only found may name http(s) and ws(s) addresses; "
                    "if you trust it, say --config abp.toml"
                )
            if key in ("roots", "export_roots") and not all(r.is_relative_to(folder) for r in getattr(self, key)):
                raise UsageError(
                    f"{file}: {_TABLE}.{key}: a file that was only found may name folders below its own; "
                    "if you trust it, say --config abp.toml"
                )


def _read(file: Path, known: Mapping[str, object]) -> dict[str, object]:
    """The table of a file; relative folders in it are below the file's."""
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{file} cannot be read: {reason}") from error
    for key in document.keys() - {_TABLE}:
        raise UsageError(f"{file}: {key}: unknown; settings of the bridge stand in the table [{_TABLE}]")
    table = document.get(_TABLE, {})
    if not isinstance(table, dict):
        raise UsageError(f"{file}: {_TABLE}: must be a table, [{_TABLE}]")
    for key in table.keys() - known.keys():
        close = difflib.get_close_matches(key, known, n=1)
        raise UsageError(f"{file}: {_TABLE}.{key}: unknown" + (f"; do you mean {close[0]}?" if close else ""))
    for key in table.keys() & {"roots", "export_roots"}:
        if isinstance(table[key], list):
            table[key] = [file.parent / part if isinstance(part, str) else part for part in table[key]]
    if isinstance(table.get("jwt_key_file"), str):
        table["jwt_key_file"] = file.parent / table["jwt_key_file"]
    return table
