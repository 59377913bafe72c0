"""Settings: ``ABP_*`` variables, the file ``abp.toml`` and its trust, the retention and routing that they choose.

A user trusts a file together with its content: a changed file must be trusted again."""

from __future__ import annotations

import difflib
import hashlib
import logging
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .. import routing
from .._internal.files import read_regular, user_folder
from ..errors import UsageError
from ..protocol._plain_text import folder_of
from ..protocol._strict_json import parser_limits
from ..protocol._times import MAX_TIMEOUT, is_timeout

if TYPE_CHECKING:
    from ..artifacts._retention import Retention
    from ._app_tables import RetentionFields


logger = logging.getLogger("transports")

_PREFIX = "ABP_"


def _parse_flag(text: str) -> bool:
    word = text.lower()
    if word in ("1", "true", "t", "yes", "y", "on"):
        return True
    if word in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError(f"{text!r} is not a valid boolean; give true or false")


def _parse_milliseconds(text: str) -> float:
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan  # refused below
    if not is_timeout(milliseconds / 1000):
        limit = MAX_TIMEOUT * 1000
        raise ValueError(f"{text[:40]!r} is not a valid number of milliseconds above 0, at most {limit:,}")
    return milliseconds


def _parse_count(text: str, minimum: int = 0) -> int:
    try:
        count = int(text)
    except ValueError:
        count = minimum - 1  # refused below
    if count < minimum:
        raise ValueError(f"{text!r} is not a valid whole number of {minimum} or more")
    return count


def _parse_size(text: str) -> int:
    return _parse_count(text, minimum=1)


def _parse_log_level(text: str) -> str:
    level = text.strip().upper()
    levels = logging.getLevelNamesMapping()
    if level not in levels:
        raise ValueError(f"{text!r} is not a log level; use one of {', '.join(levels)}")
    return level


def _parse_durability(text: str) -> str:
    if text not in ("process", "disk"):
        raise ValueError(f"{text!r} is neither process nor disk")
    return text


def _setting(default: Any, parse: Callable[[str], object]) -> Any:
    """Return a field of :class:`Settings`. ``parse`` reads its variable, and raises ``ValueError``."""
    return field(default=default, metadata={"parse": parse})


@dataclass(frozen=True, slots=True)
class Settings:
    """Values of the ``ABP_*`` variables. Timeouts are milliseconds here, as in the bridge, and sizes are bytes. An
    empty variable counts as not set; the case of names does not matter. The first group has the names of the public
    bridge, so that the kit can replace it."""

    # Not a model of pydantic: importing `transports.connect` would take 160 -> 200 ms, with pydantic-settings 260 ms.

    output_dir: Path | None = _setting(None, folder_of)
    headless: bool = _setting(True, _parse_flag)
    browser_timeout: float = _setting(30_000, _parse_milliseconds)
    call_timeout: float = _setting(60_000, _parse_milliseconds)
    download_timeout: float = _setting(300_000, _parse_milliseconds)
    log_level: str = _setting("WARNING", _parse_log_level)

    max_message_bytes: int = _setting(100_000_000, _parse_size)
    max_artifact_bytes: int = _setting(1 << 30, _parse_size)
    max_session_bytes: int | None = _setting(None, _parse_size)
    min_free_disk: int = _setting(16 << 20, _parse_count)
    allow_private_addresses: bool = _setting(False, _parse_flag)
    accept_compression: bool = _setting(False, _parse_flag)
    store: str | None = _setting(None, str)
    durability: Literal["process", "disk"] = _setting("process", _parse_durability)
    audit_log: Path | None = _setting(None, Path)
    search_index: bool = _setting(False, _parse_flag)
    config: Path | None = _setting(None, Path)
    trace_params: bool = _setting(False, _parse_flag)
    trace_downloads: bool = _setting(False, _parse_flag)

    @classmethod
    def load(cls) -> Settings:
        """Read the variables. Raises :class:`~transports.errors.UsageError` for an invalid value."""
        values: dict[str, Any] = {}
        for name, text in os.environ.items():
            setting = _VARIABLES.get(name.upper())
            if setting is None or not text:
                continue
            try:
                values[setting.name] = setting.metadata["parse"](text)
            except ValueError as error:
                raise UsageError(f"{name.upper()}: {error}") from None
        return cls(**values)


#: Fields of :class:`Settings` by their variables.
_VARIABLES = {_PREFIX + setting.name.upper(): setting for setting in fields(Settings)}


def settings_variables() -> set[str]:
    """Return the names of the variables that every part of the kit reads, with those of the retention."""
    from ._app_tables import RetentionFields

    return {*_VARIABLES, *map(_retention_variable, RetentionFields.model_fields)}


#: Variables that Kubernetes sets for a Service called ``abp-mcp`` or ``abp-serve``.
_KUBERNETES_VARIABLES = re.compile(r"ABP_\w*?_(?:SERVICE_HOST|SERVICE_PORT\w*|PORT|PORT_\d+_(?:TCP|UDP|SCTP)\w*)")


def unknown_variables(read_names: Callable[[], Collection[str]], prefix: str = _PREFIX) -> dict[str, str | None]:
    """Return the variables of the environment that nothing reads, each with the name that was probably meant.

    ``read_names`` returns the names that other parts of the kit read. It is called only if there are such variables."""
    settings_names = {"ABP_BROWSER", *_VARIABLES}
    set_names = [name for name, text in sorted(os.environ.items()) if text and name.upper().startswith(prefix)]
    others = [name for name in set_names if name.upper() not in settings_names]
    others = [name for name in others if not _KUBERNETES_VARIABLES.fullmatch(name)]
    if not others:
        return {}

    all_names = settings_names | {*read_names()}
    unknown: dict[str, str | None] = {}
    for name in others:
        if name.upper() not in all_names:
            similar = difflib.get_close_matches(name.upper(), all_names, n=1, cutoff=0.75)
            unknown[name] = similar[0] if similar else None
    return unknown


def unread_variable_message(name: str, meant: str | None) -> str:
    advice = f"did you mean {meant}?" if meant else "correct it, or unset it"
    return f"{name}: nothing reads this variable; {advice}"


def require_known(prefix: str, names: Collection[str]) -> None:
    """Refuse variables with ``prefix`` that are not in ``names``: a misspelt limit or list of hosts has no effect, and
    leaves open what it was to close."""
    unknown = unknown_variables(lambda: {prefix + name.upper() for name in names}, prefix)
    for name, meant in unknown.items():
        raise UsageError(unread_variable_message(name, meant))


def is_trusted(file: Path, content: bytes) -> bool:
    try:
        return _trust_record(file, content).is_file()
    except OSError:
        return False


def untrusted_file_advice(file: Path | None) -> str:
    """Return why a file of the working folder is not used, and what to do."""
    file = file or Path(_FILE)
    if _was_trusted_before(file):
        return "it has changed since you trusted it; look at it, then run `abp mcp --trust` in its folder again"
    return (
        "you have not trusted the file yet; if it is yours, run `abp mcp --trust` in its folder, or set "
        f"ABP_CONFIG={file} for one command"
    )


def trust(file: Path, content: bytes) -> None:
    """Record that the user trusts ``file`` with this content."""
    from ..artifacts._files import replacing  # late: most programs only read settings

    try:
        record = _trust_record(file, content)
        record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # An incomplete record would count as trust, too.
        with replacing(record) as new:
            new.write(_trust_record_text(file).encode())
    except OSError as error:
        path = error.filename or "the record of trust"
        raise UsageError(f"--trust: {path} cannot be written: {error.strerror}; use --config FILE instead") from error


def _trust_folder() -> Path:
    import platformdirs  # late: only a file that was found needs it

    return user_folder(partial(platformdirs.user_config_path, "abp-transports", appauthor=False)) / "trusted"


def _trust_record(file: Path, content: bytes) -> Path:
    """Return the record that exists if the user trusts a file with this content."""
    name = hashlib.sha256(bytes(file.resolve()) + b"\0" + content).hexdigest()
    return _trust_folder() / name


def _trust_record_text(file: Path) -> str:
    return f"{file.resolve()}\n"


def _was_trusted_before(file: Path) -> bool:
    """Return whether the user has trusted a file with any content."""
    text = _trust_record_text(file)
    with suppress(OSError):
        return any(record.read_text(encoding="utf-8") == text for record in _trust_folder().iterdir())
    return False


#: The file in the working folder that is read if no other is named.
_FILE = "abp.toml"
#: Tables that a file may have.
TABLES = ("apps", "mcp", "retention", "routing", "secrets")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Settings file; without a ``path``, there is none.

    A ``trusted`` file was named by the user, or was found and has a content that the user trusts. Any other file may be
    part of another person's folder, so its settings may only narrow the permissions that hold without it."""

    path: Path | None = None
    trusted: bool = False
    tables: Mapping[str, dict[str, object]] | None = None
    content: bytes = field(default=b"", repr=False)

    def table(self, name: str) -> dict[str, object]:
        return dict((self.tables or {}).get(name, {}))

    def warn_ignored(self, keys: Collection[str]) -> None:
        if keys:
            ignored = ", ".join(sorted(keys))
            logger.warning("%s: ignored %s: %s", self.path, ignored, untrusted_file_advice(self.path))


def read_config(named: Path | None = None) -> ConfigFile:
    """Read the file ``named``, else that of ``ABP_CONFIG``, else ``abp.toml`` in the working folder if it exists."""
    named = named or Settings.load().config
    file = named or Path(_FILE)
    if named is None and not file.is_file():
        return ConfigFile()

    content, tables = _read_tables(file)
    trusted = named is not None or is_trusted(file, content)
    return ConfigFile(file, trusted, tables, content)


def _read_tables(file: Path) -> tuple[bytes, dict[str, Any]]:
    import tomllib  # late: most programs have no such file

    try:
        content = read_regular(file, max_bytes=1 << 20)  # small, since many commands read the file
        with parser_limits():
            document = tomllib.loads(content.decode("utf-8-sig"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{file} cannot be read ({reason})") from error

    for key, table in document.items():
        if key not in TABLES:
            raise UsageError(f"{file}: {key}: unknown; {_unknown_table_advice(key)}")
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {key}: must be a table, [{key}]")
    return content, document


def _unknown_table_advice(key: str) -> str:
    similar = difflib.get_close_matches(key, TABLES, n=1, cutoff=0.7)
    if similar:
        return f"did you mean [{similar[0]}]?"
    return "settings belong in the tables " + ", ".join(f"[{name}]" for name in TABLES)


def trust_found_file() -> ConfigFile:
    """Trust the ``abp.toml`` of the working folder with its current content, and return it."""
    if not Path(_FILE).is_file():
        raise UsageError(f"--trust: no {_FILE} in this folder")
    file = read_config(Path(_FILE))
    trust(Path(_FILE), file.content)
    return file


def routing_of(file: ConfigFile) -> routing.RoutingConfig:
    return routing.RoutingConfig.parse(file.table("routing"), f"{file.path}: routing")


_RETENTION_PREFIX = "ABP_RETENTION_"


def _retention_variable(key: str) -> str:
    return _RETENTION_PREFIX + key.upper()


def retention_settings(
    *, options: Mapping[str, object] | None = None, file: ConfigFile | None = None
) -> Retention | None:
    """Return the retention that the settings choose, or ``None`` to keep everything.

    ``options`` have precedence over ``ABP_RETENTION_*`` variables, and these over the table ``[retention]`` of
    ``file``. The table of a file that is not trusted is ignored, since it could remove artifacts."""
    options = options or {}
    file = file or ConfigFile()
    table = file.table("retention")
    if not file.trusted:
        file.warn_ignored([f"retention.{key}" for key in table])
        table = {}

    variables = {name.upper(): text for name, text in os.environ.items() if text}
    has_variables = any(name.startswith(_RETENTION_PREFIX) for name in variables)
    if not options and not table and not has_variables:
        return None

    from ._app_tables import RetentionFields  # late: most programs set nothing

    names = {key: _retention_variable(key) for key in RetentionFields.model_fields}
    environment = {key: variables[name] for key, name in names.items() if name in variables}
    # A key that a variable overrides is not even checked.
    table = {key: value for key, value in table.items() if _retention_variable(key) not in variables}
    sources = {key: f"{file.path}: retention.{key}" for key in table}
    sources |= {key: f"--retention {key}" for key in options}
    return _retention_of(_read_retention_fields({**table, **environment, **options}, sources))


def _read_retention_fields(values: Mapping[str, object], sources: Mapping[str, str]) -> RetentionFields:
    """Check retention settings. ``sources`` has the name of the option or key of each value not from a variable."""
    from pydantic import ValidationError

    from ._app_tables import RetentionFields, settings_error

    for key in sources.keys() - RetentionFields.model_fields.keys():
        similar = difflib.get_close_matches(key, RetentionFields.model_fields, n=1)
        advice = f"; did you mean {similar[0]}?" if similar else ""
        raise UsageError(f"{sources[key]}: unknown{advice}")
    try:
        return RetentionFields(**values)  # type: ignore[arg-type]
    except ValidationError as error:
        raise settings_error(error, lambda key: sources.get(key, _retention_variable(key))) from error


def _retention_of(fields: RetentionFields) -> Retention | None:
    """Return the retention that the settings ask for. Without ``enabled``, it has only the limits that are set."""
    from ..artifacts._retention import Retention

    limits = {name: getattr(fields, name) for name in fields.model_fields_set - {"enabled"}}
    if fields.enabled:
        return Retention(**limits)
    if fields.enabled is None and limits:
        return Retention.only(**limits)
    return None
