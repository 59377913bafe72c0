"""Settings of the bridge, made by its operator; a model cannot change them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from ...errors import UsageError
from ...routing._given_files import FileLimits
from ...routing._guard import MAX_BYTES
from ...session._app_tables import settings_error
from ...session._evidence import checked_evidence
from ...session._settings import ConfigFile, read_config, require_known
from ..shared._apps import adapter_options
from ..shared._listening import base_url

_TABLE = "mcp"
_PREFIX = "ABP_MCP_"
#: Settings of an untrusted file that are accepted, as they can only narrow the permissions of the bridge; numbers must
#: not exceed the default.
_NARROWING = frozenset(
    {
        "headless",
        "allowed_hosts",
        "blocked_hosts",
        "show_tools",
        "hide_tools",
        "inline_data",
        "max_answer_bytes",
        "max_image_bytes",
        "max_total_image_bytes",
        "max_resource_bytes",
        "max_sessions",
        "max_files",
        "max_file_bytes",
        "allowed_types",
        "large_file_threshold_tokens",
        "max_auto_read_size_bytes",
        "enable_file_tools",
        "enable_artifact_resources",
        "isolate_sessions",
        "idle_minutes",
    }
)

_MIB = 1 << 20


def _split_at(separator: str) -> BeforeValidator:
    """Return a validator that splits a text into a list, since an environment variable is a text. Other values stay."""

    def split(value: object) -> object:
        if not isinstance(value, str):
            return value
        return [part.strip() for part in value.split(separator) if part.strip()]

    return BeforeValidator(split)


def _existing_folder(path: Path) -> Path:
    if not path.is_dir():
        raise ValueError(f"{path} is not a folder")
    return path.resolve()


def _checked_scope(scope: str) -> str:
    # A scope is quoted in a header, so it must not have quotes, backslashes or spaces.
    if not re.fullmatch(r"[\x21\x23-\x5b\x5d-\x7e]{1,100}", scope):
        raise ValueError(f"{scope!r} is not a scope (RFC 6749 3.3)")
    return scope


_Texts = Annotated[tuple[str, ...], NoDecode, _split_at(",")]
_Folders = Annotated[tuple[Annotated[Path, AfterValidator(_existing_folder)], ...], NoDecode, _split_at(os.pathsep)]
_Scope = Annotated[str, AfterValidator(_checked_scope)]
_Algorithm = Literal["RS256", "ES256", "EdDSA"]


class Options(BaseSettings):
    """Settings from arguments, ``ABP_MCP_*`` variables and the table ``[mcp]`` of ``abp.toml``, in this order of
    precedence.

    In a variable, lists are separated by commas, except ``apps`` (one per line) and folders (as in ``PATH``). Arguments
    and the table may also have the names of docs/requirements.md R4-10, ``max_file_size_mb`` and
    ``allowed_mime_types``."""

    model_config = SettingsConfigDict(env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, allow_inf_nan=False)

    #: Targets that are connected with the first request of a user.
    apps: Annotated[tuple[str, ...], NoDecode, _split_at("\n")] = ()
    #: Script that makes an app of the one page in ``apps`` (docs/adapters.md).
    adapter: Path | None = None
    #: True to run browsers without a window; if set to either value, a model cannot choose.
    headless: bool | None = None
    #: Number of browsers shared by all sessions of all users, with a context for each session; if unset, each session
    #: starts its own browser.
    browsers: int | None = Field(default=None, gt=0)
    #: Evidence kept of each call besides its answer: ``trace=on-failure,har=on-failure`` (docs/evidence.md).
    evidence: Annotated[str, AfterValidator(checked_evidence)] = ""
    #: Hosts that a model may and may not connect, as patterns: ``*.example.com``, ``127.0.0.1:8000``.
    allowed_hosts: _Texts = ("*",)
    blocked_hosts: _Texts = ()
    #: Tools that clients may and may not see and call, as patterns of their names.
    show_tools: _Texts = ("*",)
    hide_tools: _Texts = ()
    #: Largest result of a tool, in bytes of the whole message, without images.
    max_answer_bytes: int = Field(default=MAX_BYTES, ge=4 * 1024)
    #: False to answer references of files only, also in the place of small data (docs/requirements.md R0-2).
    inline_data: bool = True
    #: Most bytes of each image in a result, and of all images in one result, before base64 (docs/requirements.md R3-5).
    max_image_bytes: int = Field(default=500_000, ge=0)
    max_total_image_bytes: int = Field(default=2_000_000, ge=0)
    #: Largest resource that is read in one piece, in bytes; larger ones are read in ranges.
    max_resource_bytes: int = Field(default=64 << 20, gt=0)
    #: Most apps that one user may have connected at once.
    max_sessions: int = Field(default=8, gt=0)
    #: Limits for files of a call: their number, the size of each in bytes, their MIME types as patterns
    #: (docs/protocol.md 13.2, docs/requirements.md R4-10). Over HTTP the size limit is for all files with their content
    #: in one request together.
    max_files: int = Field(default=16, ge=0)
    max_file_bytes: int = Field(default=100 << 20, ge=0)
    allowed_types: _Texts = ("*/*",)
    #: Tokens (one for every four bytes) from which an artifact is large for a model's context, and the largest text in
    #: bytes that a client may read without asking.
    large_file_threshold_tokens: int = Field(default=10_000, ge=0)
    max_auto_read_size_bytes: int = Field(default=1 << 20, ge=0)
    #: True to have tools for artifacts and `files` of calls; true to list artifacts as resources.
    enable_file_tools: bool = True
    enable_artifact_resources: bool = True
    #: Folders below which a model may name files to send.
    roots: _Folders = ()
    #: Folders below which a model may have artifacts written.
    export_roots: _Folders = ()
    #: True if each session of a client sees only its own artifacts. A session is a connection of an older client; for
    #: stdio, and for newer clients, which have no sessions, it is a run of the bridge.
    isolate_sessions: bool = False
    #: Seconds without progress after which a client that asks for progress gets a heartbeat.
    heartbeat_seconds: float = Field(default=5, gt=0)
    #: Minutes without a request over HTTP after which the apps of a user are disconnected.
    idle_minutes: float = Field(default=60, gt=0)
    #: Bearer tokens over HTTP: ``TOKEN`` or ``USER=TOKEN``, separated by commas.
    token: str | None = Field(default=None, repr=False)
    #: Address of this bridge behind a reverse proxy, such as ``https://abp.example``, without ``/mcp``.
    public_url: Annotated[str, AfterValidator(base_url)] | None = None
    #: Scopes that each signed token needs, and scopes that calls of tools need, by patterns of the tools' names.
    required_scopes: Annotated[tuple[_Scope, ...], NoDecode, _split_at(",")] = ()
    tool_scopes: dict[str, tuple[_Scope, ...]] = {}
    #: Signed tokens (JWT): ``iss``, ``aud`` (by default the address of this bridge, RFC 8707), and the URL or the PEM
    #: file of the issuer's public keys.
    jwt_issuer: str | None = None
    jwt_audience: str | None = None
    jwt_jwks_url: str | None = None
    jwt_key_file: Path | None = None
    jwt_algorithms: Annotated[tuple[_Algorithm, ...], NoDecode, _split_at(",")] = ("RS256", "ES256", "EdDSA")

    #: False if ``allowed_hosts`` comes from an untrusted file, which must not allow private addresses.
    _private_hosts_allowed: bool = PrivateAttr(default=True)

    @model_validator(mode="before")
    @classmethod
    def _rename_documented_settings(cls, settings: dict[str, object]) -> object:
        return _rename_documented(settings)

    @model_validator(mode="after")
    def _require_complete_jwt_settings(self) -> Options:
        keys = [key for key in (self.jwt_jwks_url, self.jwt_key_file) if key]
        has_any = self.jwt_issuer or self.jwt_audience or keys
        is_complete = self.jwt_issuer and len(keys) == 1
        if has_any and not is_complete:
            raise ValueError("jwt_issuer and either jwt_jwks_url or jwt_key_file go together")
        return self

    @model_validator(mode="after")
    def _require_page_for_adapter(self) -> Options:
        adapter_options(self.apps, self.adapter)
        return self

    def shows(self, tool: str, *numbered: str) -> bool:
        """Whether clients may see and call a tool. ``numbered`` is its actual name, which has a number if another tool
        has the name ``tool``. Numbers depend on the order of the apps, so a pattern that hides ``tool`` hides the
        numbered names too."""
        is_shown = any(fnmatchcase(tool, pattern) for pattern in self.show_tools)
        is_hidden = any(fnmatchcase(name, pattern) for name in (tool, *numbered) for pattern in self.hide_tools)
        return is_shown and not is_hidden

    @property
    def private_hosts(self) -> tuple[str, ...]:
        """Patterns of hosts that may have a non-public address, where only public ones are allowed."""
        if not self._private_hosts_allowed:
            return ()
        return self.allowed_hosts

    @property
    def max_request_bytes(self) -> int:
        """Largest request over HTTP in bytes: ``max_file_bytes`` as base64, and 1 MiB for the rest."""
        # Base64 makes 4 characters of 3 bytes, also of the last 1 or 2.
        groups_of_3 = (self.max_file_bytes + 2) // 3
        return groups_of_3 * 4 + _MIB

    @property
    def files(self) -> FileLimits:
        return FileLimits(
            max_file_bytes=self.max_file_bytes,
            allowed_mime_types=self.allowed_types,
            large_file_tokens=self.large_file_threshold_tokens,
            max_auto_read_bytes=self.max_auto_read_size_bytes,
        )

    @classmethod
    def load(cls, *, config: Path | None = None, **options: object) -> Options:
        """Load the settings. ``options`` that are not ``None`` come first, then the environment, then the file
        ``config``, by default ``abp.toml`` in the working folder. An untrusted file may only narrow permissions; its
        other settings are ignored with a warning."""
        require_known(_PREFIX, cls.model_fields)
        config_file = read_config(config)
        from_arguments: dict[str, Any] = {key: value for key, value in options.items() if value is not None}
        # Settings that arguments or variables override are left out, so that their values in the file are not checked.
        from_file: dict[str, Any] = {
            key: value
            for key, value in _settings_in(config_file, cls.model_fields).items()
            if key not in from_arguments and not os.environ.get(_PREFIX + key.upper())
        }
        if not config_file.trusted:
            _remove_widening(from_file, config_file)

        def source_of(key: str) -> str:
            if key in from_file:
                return f"{config_file.path}: {_TABLE}.{key}"
            return _PREFIX + key.upper()

        try:
            bridge_options = cls(**{**from_file, **from_arguments})
        except ValidationError as error:
            raise settings_error(error, source_of) from error
        if not config_file.trusted and "allowed_hosts" in from_file:
            bridge_options._private_hosts_allowed = False
        return bridge_options


def _rename_documented(settings: Mapping[str, object]) -> dict[str, object]:
    """Rename ``max_file_size_mb`` (1 MB is 1,048,576 bytes) and ``allowed_mime_types`` (docs/requirements.md R4-10)."""
    renamed = dict(settings)
    for documented, name in (("max_file_size_mb", "max_file_bytes"), ("allowed_mime_types", "allowed_types")):
        if documented not in settings:
            continue
        if name in settings:
            raise ValueError(f"{documented} and {name} are the same setting; set only one of them")
        renamed[name] = renamed.pop(documented)
        if documented == "max_file_size_mb":
            renamed[name] = _megabytes_to_bytes(renamed[name])
    return renamed


def _megabytes_to_bytes(megabytes: object) -> object:
    """Convert a number. Other values, and very large ones, stay as they are and are refused later."""
    if isinstance(megabytes, bool) or not isinstance(megabytes, int | float) or abs(megabytes) >= _MIB:
        return megabytes
    return int(megabytes * _MIB)


def _remove_widening(settings: dict[str, Any], config_file: ConfigFile) -> None:
    ignored = [key for key, value in settings.items() if not _only_narrows(key, value)]
    config_file.warn_ignored([f"{_TABLE}.{key}" for key in ignored])
    for key in ignored:
        del settings[key]


def _only_narrows(key: str, value: object) -> bool:
    """Whether an untrusted file may have this setting. True also for a value of a wrong type, which is refused
    later."""
    if key not in _NARROWING:
        return False
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    default = Options.model_fields[key].default
    return not isinstance(default, int | float) or not value > default


def _settings_in(config_file: ConfigFile, fields: Mapping[str, object]) -> dict[str, Any]:
    """Read the bridge's table of a file. Relative paths are resolved against the file's folder."""
    file = config_file.path
    if file is None:
        return {}
    try:
        settings: dict[str, Any] = _rename_documented(config_file.table(_TABLE))
    except ValueError as error:
        raise UsageError(f"{file}: {_TABLE}: {error}") from None

    for key in settings.keys() - fields.keys():
        message = f"{file}: {_TABLE}.{key}: unknown"
        similar = difflib.get_close_matches(key, fields, n=1)
        if similar:
            message += f"; did you mean {similar[0]}?"
        raise UsageError(message)

    for key in settings.keys() & {"roots", "export_roots"}:
        if isinstance(settings[key], list):
            settings[key] = [_resolve_path(item, file.parent) for item in settings[key]]
    for key in settings.keys() & {"adapter", "jwt_key_file"}:
        settings[key] = _resolve_path(settings[key], file.parent)
    return settings


def _resolve_path(value: object, folder: Path) -> object:
    if isinstance(value, str):
        return folder / value
    return value
