"""Shared options of commands: parameters of a call, target, connection, credentials, store, its retention, evidence."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import inspect
import json
import math
import re
import shlex
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

from ...errors import ConnectFailed, ProtocolError, UsageError
from ...playwright._find import RunningBrowser, find_running, require_listener
from ...protocol._params import prepare_params, set_path
from ...protocol._plain_text import folder_of, is_page, plain_line
from ...protocol._strict_json import decode_json, decode_user_json
from ...protocol._times import MAX_TIMEOUT, format_duration, parse_duration
from ...protocol.binary import BinaryData
from ...protocol.schema import fits_at
from ...session._settings import Settings, read_config, retention_settings
from ._output import at_terminal, print_note

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ...artifacts._retention import Retention
    from ...routing._policy import RoutingConfig
    from ...session._connect import ConnectOptions
    from ...session._session import Session

R = TypeVar("R")


def spread_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Decorate a command: each parameter that is a dataclass becomes one option for each of its fields, at any depth.
    Fields that are not dataclasses must have defaults."""
    signature = inspect.signature(command, eval_str=True)
    parameters = [option for parameter in signature.parameters.values() for option in _spread_fields(parameter)]

    @wraps(command)
    def run(**values: Any) -> R:
        arguments = {
            name: _gather_value(name, parameter.annotation, values) for name, parameter in signature.parameters.items()
        }
        return command(**arguments)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _spread_fields(parameter: inspect.Parameter) -> Iterator[inspect.Parameter]:
    group = parameter.annotation
    if not is_dataclass(group):
        yield parameter
        return
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        yield from _spread_fields(
            parameter.replace(name=field.name, default=field.default, annotation=hints[field.name])
        )


def _gather_value(name: str, annotation: Any, values: Mapping[str, Any]) -> Any:
    """Return the value of a parameter: an option, or a dataclass that is made of options."""
    if not is_dataclass(annotation):
        return values[name]
    hints = get_type_hints(annotation, include_extras=True)
    return annotation(**{field: _gather_value(field, hint, values) for field, hint in hints.items()})  # type: ignore[operator]


def resolve_cdp_url(attach: bool, cdp_url: str | None) -> str | None:
    """Return the address of the browser that ``--attach`` finds, or ``cdp_url`` without ``--attach``."""
    if not attach:
        return cdp_url

    if cdp_url is not None:
        raise UsageError("--attach and --cdp-url are mutually exclusive")
    browsers = asyncio.run(find_running())
    if not browsers:
        raise UsageError(
            "--attach: none of your browsers runs with remote debugging; start one with --remote-debugging-port=9222 "
            "and its own --user-data-dir, or allow it at chrome://inspect/#remote-debugging"
        )
    if len(browsers) == 1:
        (browser,) = browsers
        print_note(f"attaching to {browser.where}")
        return browser.url
    return _choose_browser(browsers).url


def _choose_browser(browsers: Sequence[RunningBrowser]) -> RunningBrowser:
    choices = [f"{number}  {browser.where} ({browser.url})" for number, browser in enumerate(browsers, 1)]
    if not at_terminal():
        raise UsageError("--attach: several browsers are running; choose one with --cdp-url: " + "; ".join(choices))
    for line in choices:
        print_note(line, always=True)
    while True:
        answer = typer.prompt("Number of the browser to attach to", err=True)
        if str(answer).isdigit() and 1 <= int(answer) <= len(browsers):
            return browsers[int(answer) - 1]


#: Names of the option for the place of the files.
OUT = ("--out", "--store")


def seconds_between(least: float, most: float) -> Callable[[str], float]:
    """Return a reader of times on the command line: seconds, or with a unit (``5s``, ``2m``, ``1h``, ``7d``)."""
    limits = f"{least:g} seconds or more"
    if most < math.inf:
        limits = f"between {least:g} and {most:,} seconds"

    def read_seconds(text: str) -> float:
        seconds: float | None
        try:
            seconds = float(text)
        except ValueError:
            seconds = parse_duration(text)
        if seconds is None or not least <= seconds <= most:
            raise typer.BadParameter(f"must be {limits}, not {text!r}; write 5, 5s, 2m, 1h or 7d")
        return seconds

    return read_seconds


Target = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help="The app: http://127.0.0.1:8000/, ws://127.0.0.1:8000/abp, extension:FOLDER, mcp+stdio:COMMAND, "
        "replay:FILE",
    ),
]
TransportName = Annotated[
    str,
    typer.Option(
        "--transport", metavar="NAME", help="How to reach it: auto, playwright, webmcp, postmessage, websocket, mcp."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON document on stdout.")]
Output = Annotated[
    str | None,
    typer.Option(
        *OUT, metavar="STORE", help="Folder of the files, or s3://bucket/place (default: ABP_STORE, ABP_OUTPUT_DIR)."
    ),
]
BrowserName = Annotated[
    str | None, typer.Option("--browser", metavar="NAME", help="chromium, chrome, msedge, firefox or webkit.")
]
Headed = Annotated[bool, typer.Option("--headed", help="Show the browser's window (default: ABP_HEADLESS).")]
StorageState = Annotated[
    Path | None, typer.Option("--storage-state", metavar="FILE", help="Cookies and storage to begin with (Playwright).")
]
SharedBrowsers = Annotated[
    int | None, typer.Option("--browsers", metavar="N", min=1, help="Share N browsers (default: one for each app).")
]
AdapterFile = Annotated[
    Path | None,
    typer.Option("--adapter", metavar="FILE", help="Script that adds capabilities to a page that speaks no protocol."),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", metavar="TOKEN", help="Bearer token for a WebSocket, an MCP server or a browser; @FILE reads it."
    ),
]
Headers = Annotated[
    list[str] | None,
    typer.Option(
        "--header", metavar="'NAME: VALUE'", help="Header for a WebSocket, an MCP server or a browser; repeatable."
    ),
]
RecordFile = Annotated[
    Path | None, typer.Option("--record", metavar="FILE", help="Record it, to be played again as replay:FILE.")
]
EvidenceText = Annotated[
    str,
    typer.Option(
        "--evidence",
        metavar="KINDS",
        help="Keep more of each call: trace, video, har, console, screenshot, with commas; trace=on-failure.",
    ),
]
Ttl = Annotated[
    str | None,
    typer.Option("--ttl", metavar="TIME", help="Remove artifacts this long after they were stored: 90s, 30m, 1h, 7d."),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--retention",
        metavar="KEY=VALUE",
        help="Another limit, such as max_session_bytes=500MB (repeatable); enabled=false keeps everything.",
    ),
]


def local_folder(text: str) -> Path:
    try:
        return folder_of(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        parser=local_folder,
        help="Folder that keeps detached calls and names of connections over a restart (default: in memory).",
    ),
]


class OnOff(StrEnum):
    ON = "on"
    OFF = "off"


InlineData = Annotated[
    OnOff | None,
    typer.Option("--inline-data", help="off: small data also goes to a file, and only its place is shown."),
]
Detach = Annotated[
    bool, typer.Option("--detach", help="Have a running server make the call, and print its id at once.")
]
ServerTokens = Annotated[
    str | None,
    typer.Option("--token", metavar="[USER=]TOKEN,…", help="Tokens for --http (default: ABP_MCP_TOKEN, or a new one)."),
]
Port = Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")]
ServerUrl = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Address of the server, as `abp serve` prints it.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="TIME",
        parser=seconds_between(0.001, MAX_TIMEOUT),
        help="Time to wait for an answer: seconds, or 5s, 2m, 1h.",
    ),
]


@asynccontextmanager
async def open_app(
    target: str,
    options: ConnectOptions,
    *,
    store: ArtifactStore | Path | str | None = None,
    record: Path | None = None,
    routing: RoutingConfig | str | None = None,
    pause: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> AsyncIterator[Session]:
    """Connect an app. The arguments and the errors are those of :func:`transports.connect`.

    The app's questions are asked at the terminal, within the context ``pause``, which stops other output. Without a
    terminal they get the default answer of a session without a handler, which a note on stderr reports."""
    if isinstance(store, str):
        refuse_file_name(store)
    async with AsyncExitStack() as stack:
        # If the browser is the user's, connecting does not probe the address first, so this must not do it either.
        has_own_browser = bool(options.keys() & {"profile", "cdp_url", "browser_server"})
        if options.get("transport", "auto") == "auto" and not has_own_browser:
            await start_driver(target, stack)

        from ...session._connect import connect  # late: it is imported while the driver starts
        from ._questions import Questions, noting_questions

        can_ask = at_terminal()
        all_options: ConnectOptions = {**options, "store": store, "record": record, "routing": routing}
        if can_ask:
            all_options["on_elicitation"] = Questions(pause).answer
        app = await stack.enter_async_context(connect(target, **all_options))
        if not can_ask:
            await stack.enter_async_context(noting_questions(app))
        yield app


async def start_driver(target: str, stack: AsyncExitStack) -> None:
    """Start a driver before it is needed. For an address with a fault, such as no listener, connecting reports it."""
    if not is_page(target):
        return
    from ...playwright._process import driver_ahead

    with suppress(ConnectFailed, ValueError):
        await require_listener(target)
        await stack.enter_async_context(driver_ahead())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    transport: TransportName = "auto"
    browser: BrowserName = None
    headed: Headed = False
    profile: Annotated[
        Path | None,
        typer.Option(
            "--profile", metavar="DIR", parser=local_folder, help="Browser profile to use and keep: stays signed in."
        ),
    ] = None
    storage_state: StorageState = None
    cdp_url: Annotated[
        str | None, typer.Option("--cdp-url", metavar="URL", help="Attach to a running Chromium: http://127.0.0.1:9222")
    ] = None
    browser_server: Annotated[
        str | None,
        typer.Option("--browser-server", metavar="URL", help="Playwright server that runs the browser: ws://HOST:3000"),
    ] = None
    attach: Annotated[
        bool,
        typer.Option(
            "--attach", help="Attach to your running Chromium with remote debugging; asks if there are several."
        ),
    ] = False
    adapter: AdapterFile = None
    token: Token = None
    header: Headers = None
    accept_compression: Annotated[
        bool,
        typer.Option("--accept-compression", help="Let servers compress downloads, which are decoded as they arrive."),
    ] = False

    def connection(self, *, evidence: str = "") -> ConnectOptions:
        """Return the options of the connection. Not for an event loop: ``--attach`` runs one to find the browser."""
        from ...session._evidence import read_evidence  # late: `abp --help` need not wait for it

        options: dict[str, object] = {
            "transport": self.transport,
            "browser": self.browser,
            "profile": self.profile,
            "storage_state": self.storage_state,
            "cdp_url": resolve_cdp_url(self.attach, self.cdp_url),
            "browser_server": self.browser_server,
            "adapter": self.adapter,
            "headers": headers_of(self.token, self.header or ()),
        }
        options = {name: value for name, value in options.items() if value is not None}
        if self.headed:
            options["headless"] = False
        if evidence:
            options["evidence"] = read_evidence(evidence)
        if self.accept_compression:
            options["accept_compression"] = True
        return cast("ConnectOptions", options)


def headers_of(token: str | None, headers: Sequence[str]) -> dict[str, str] | None:
    """Return the headers of ``--header`` and ``--token``. Their values are secrets, so no message quotes one."""
    values: dict[str, str] = {}
    for header in headers:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise UsageError("a --header is not of the form 'NAME: VALUE', such as 'X-Team: blue'")
        values[name.strip()] = value.strip()
    if token is None:
        return values or None
    if any(name.casefold() == "authorization" for name in values):
        raise UsageError("--token and --header 'Authorization: …' are mutually exclusive")
    return {**values, "Authorization": f"Bearer {read_token(token)}"}


def read_token(token: str) -> str:
    if not token.startswith("@"):
        return token
    return read_text(token, f"--token {token}").strip()


@asynccontextmanager
async def limited_store(
    url: str | None, ttl: str | None, limits: Sequence[str] | None, *, config: Path | None
) -> AsyncIterator[ArtifactStore]:
    """Open the store at ``url`` (default: the settings), and apply its retention while the context lasts."""
    from ...artifacts._opening import sweeping
    from ...session._stores import open_configured_store

    settings = Settings.load()
    retention = retention_settings(options=_retention_options(ttl, limits), file=read_config(config))
    store = open_configured_store(settings, url, retention=retention)
    if store.retention:
        print_note(_retention_note(store.url, store.retention))
    async with store, sweeping(store):
        yield store


def _retention_note(url: str, retention: Retention) -> str:
    if retention.ttl_seconds is not None:
        return f"files stay in {url} for {format_duration(retention.ttl_seconds)} (--ttl, --retention)"
    if retention.counts and retention.cleanup_strategy != "none":
        return f"files stay in {url} until a session is over its limits (--retention)"
    return f"files stay in {url} until they are deleted"


def _retention_options(ttl: str | None, limits: Sequence[str] | None) -> Mapping[str, object]:
    options: dict[str, object] = {}
    for limit in limits or ():
        key, equals, value = limit.partition("=")
        if not equals:
            raise UsageError(f"--retention {limit}: must be KEY=VALUE, such as max_session_bytes=500MB")
        options[key.strip()] = value.strip()
    if ttl is not None:
        options["ttl_seconds"] = ttl
    return options


#: Largest text that is read as parameters, in bytes; larger content must be given as a file.
_MAX_TEXT = 64_000_000
#: Names that mean a file or stdout (``-``), and hardly ever a folder.
_FILE_NAME = re.compile(
    r"-|.*\.(?:bin|csv|docx|gif|gz|html?|jpe?g|jsonl?|md|mp3|mp4|pdf|png|svg|txt|wav|webp|xlsx|xml|zip)", re.IGNORECASE
)


class Params(dict[str, object]):
    """Parameters of a call. ``texts`` has the text of each VALUE that was decoded as JSON, by the path of its KEY."""

    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        super().__init__(values or {})
        self.texts: dict[tuple[str, ...], str] = {}
        #: Paths of the parameters that were set.
        self._paths: set[tuple[str, ...]] = set()

    def set_value(self, key: Sequence[str], value: object) -> None:
        """Set a parameter. Raises :class:`~transports.errors.UsageError` if that would replace one that was set
        before."""
        path = tuple(key)
        for other in self._paths:
            is_same_or_inside = other[: len(path)] == path
            if is_same_or_inside:
                name = ".".join(path)
                problem = "is given twice"
                if other != path:
                    problem = f"would replace {'.'.join(other)!r}"
                raise UsageError(f"{name!r} {problem}; give it once, or a list as JSON: -p '{name}=[1, 2]'")
        self._paths.add(path)
        try:
            set_path(self, path, value)
        except UsageError as error:
            raise UsageError(f"{error.message} with --params") from None

    def set_text(self, key: Sequence[str], text: str, source: str) -> None:
        """Set a parameter to the VALUE of ``KEY=VALUE``: JSON if it is valid, text otherwise. ``@FILE`` stands for the
        content of a file, ``@@`` for a text that begins with ``@``. ``source`` is the option's name in messages."""
        if text.startswith("@@"):
            self.set_value(key, text[1:])
            return
        if text.startswith("@"):
            text = read_text(text, source, "correct the file name, or write @@ for a text that begins with @")
        value = parse_value(text)
        self.set_value(key, value)
        if not isinstance(value, str):
            self.texts[tuple(key)] = text

    def fit_to(self, schema: Mapping[str, object]) -> dict[str, object]:
        """Return the parameters for a capability with this schema. A value that is valid JSON, such as that of
        ``-p phone=12345``, stays a text if the schema takes only a text."""
        params: dict[str, Any] = dict(self)
        if not schema:
            return params
        for path, text in self.texts.items():
            with_text = copy.deepcopy(params)
            set_path(with_text, path, text)
            if not _is_valid_at(schema, params, path) and _is_valid_at(schema, with_text, path):
                params = with_text
        return params


def _is_valid_at(schema: Mapping[str, object], params: dict[str, Any], path: tuple[str, ...]) -> bool:
    prepared, content = prepare_params(params)
    return fits_at(schema, prepared, path, [place.path for place in content])


@dataclass(frozen=True, slots=True)
class ParamOptions:
    params: Annotated[
        str | None, typer.Option("--params", metavar="JSON|@FILE|-", help="Parameters: JSON, a file, or stdin.")
    ] = None
    pairs: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            metavar="KEY=VALUE",
            help="One parameter: JSON, or text where the app takes text; @FILE reads it from a file.",
        ),
    ] = None
    files: Annotated[list[str] | None, typer.Option("--file", metavar="KEY=PATH", help="A file as a parameter.")] = None

    def read(self) -> Params:
        """Read the parameters. A dot in a KEY leads into an object; a KEY overrides ``--params``. May wait for
        stdin."""
        params = Params(None if self.params is None else _read_object(self.params))
        for pair in self.pairs or ():
            key, value = _split_pair(pair, "-p KEY=VALUE", "-p title=Report")
            params.set_text(key, value, f"-p {pair}")
        for pair in self.files or ():
            key, value = _split_pair(pair, "--file KEY=PATH", "--file image=photo.png")
            params.set_value(key, read_file(value, f"--file {pair}"))
        return params


def read_file(path: str, source: str) -> BinaryData:
    """Return a regular file as content: a pipe has no size and cannot be read twice. ``source`` is for messages."""
    file = Path(path)
    if file.exists() and not file.is_file():
        raise UsageError(f"{source}: {path} is not a regular file; name one, or save its content to one first")
    try:
        return BinaryData.from_path(file)
    except UsageError as error:
        raise UsageError(f"{source}: {error.message}") from None


def require_writable_file(file: Path | None) -> None:
    """Refuse a file for the output that cannot be written. This is called before the work, whose result would be
    lost."""
    if file is not None and (file.is_dir() or not file.parent.is_dir()):
        raise UsageError(f"{file} cannot be written: name a file in a folder that exists")


def refuse_file_name(out: str) -> None:
    """Refuse a file as the value of ``--out``, as it is for other programs. A name with a trailing slash is a
    folder."""
    folder = Path(out)
    looks_like_file = _FILE_NAME.fullmatch(folder.name) is not None
    if "://" in out or out.endswith("/") or not looks_like_file:
        return
    # Some texts cannot be a path at all, for instance very long ones.
    with contextlib.suppress(OSError, ValueError):
        if folder.is_dir():
            return
    raise UsageError(
        f"--out {out}: --out takes a folder for the files, not a file; leave it out, and copy the stored file "
        f"with `abp artifacts get NAME {out}`"
    )


def _read_object(text: str) -> dict[str, Any]:
    source, data = _read_json(text)
    fix = "correct it"
    if source == "--params":
        fix = "quote it for the shell: --params '{\"key\": 1}'"
    params = decode_user_json(data, source, fix=fix)
    if not isinstance(params, dict):
        raise UsageError(f"{source} must be a JSON object such as '{{\"key\": 1}}', not {_kind_of(params)}")
    return params


def _read_json(text: str) -> tuple[str, str]:
    """Return the source of the JSON, for messages, and the JSON."""
    if text.startswith("@"):
        source = f"--params {text}"
        return source, read_text(text, source)
    if text != "-":
        return "--params", text

    source = "--params - (stdin)"
    if sys.stdin is None:
        raise UsageError(f"{source}: stdin is closed; use --params @FILE")
    if sys.stdin.isatty():
        print_note("type the parameters as JSON, then Ctrl-D", always=True)
    return source, read_text(text, source)


def read_text(text: str, source: str, fix: str = "correct the file name after @") -> str:
    """Return the text of ``@FILE``, or of stdin for ``-``."""
    try:
        if text == "-":
            data = sys.stdin.buffer.read(_MAX_TEXT + 1)
        else:
            with Path(text[1:]).open("rb") as file:
                data = file.read(_MAX_TEXT + 1)
        if len(data) > _MAX_TEXT:
            raise UsageError(f"{source} is larger than {_MAX_TEXT:,} bytes; give a file with --file KEY=PATH")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{source} is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8, or give a binary "
            "with --file KEY=PATH"
        ) from error
    except (OSError, ValueError) as error:
        # A name with a null character raises ValueError.
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{source}: cannot be read ({reason}); {fix}") from error


def _kind_of(value: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _split_pair(pair: str, form: str, example: str) -> tuple[list[str], str]:
    """Return the steps of the key, and the value. ``form`` and ``example`` stand in the message of an error."""
    key, equals, value = pair.partition("=")
    path = key.split(".")
    if not equals or not all(path):
        advice = ""
        if pair.startswith("@"):
            advice = f"; for all parameters of a file: --params {pair}"
        raise UsageError(f"{pair!r} is not of the form {form}, such as {example}{advice}")
    return path, value


def parse_value(text: str) -> object:
    try:
        return decode_json(text)
    except ProtocolError:
        return text


#: Most characters of a value in an example. The example reads a longer value from a file.
_MAX_EXAMPLE = 2000
#: Backslashes that fish takes for escapes even in single quotes, so that a text of an app could end the quotes and run
#: a command.
_ESCAPES_IN_FISH = re.compile(r"\\(?=[\\']|$)")


def example_words(params: Mapping[str, object]) -> list[str]:
    """Return the words of a command line that give these parameters."""
    if not all(map(_can_be_key, params)):
        return ["--params", shell_word(json_line(params))]

    words = []
    for name, value in params.items():
        if isinstance(value, str) and _can_be_text(value):
            text = value
        else:
            text = json_line(value)
        if len(text) > _MAX_EXAMPLE:
            suffix = "txt" if isinstance(value, str) else "json"
            text = f"@{name}.{suffix}"
        words += ["-p", shell_word(f"{name}={text}")]
    return words


def _can_be_key(name: str) -> bool:
    has_separator = "." in name or "=" in name
    return name != "" and not has_separator and not name.startswith("@") and plain_line(name) == name


def _can_be_text(value: str) -> bool:
    """A text can be the VALUE of ``KEY=VALUE`` if it is one plain line, and neither JSON nor ``@FILE``."""
    is_json = parse_value(value) != value
    return not is_json and not value.startswith("@") and plain_line(value) == value


def json_line(value: object) -> str:
    """Return ``value`` as JSON in a single line, which :func:`plain_line` does not change."""
    text = json.dumps(value, ensure_ascii=False)
    if plain_line(text) == text:
        return text
    # A plain line may lack some characters beyond ASCII, and has no repeated spaces and no DEL, so these are escaped.
    return json.dumps(value).replace("  ", " \\u0020").replace("\x7f", "\\u007f")


def shell_word(text: str) -> str:
    """Return ``text`` as one word of bash, zsh and fish. ``text`` is without control characters."""
    word = shlex.quote(text)
    if _ESCAPES_IN_FISH.search(text):
        # The backslashes are in double quotes, which all three shells read alike.
        word = '"\\\\"'.join(shlex.quote(part) for part in text.split("\\"))
    # zsh expands a word that begins with =.
    if word.startswith("="):
        word = f"'='{word[1:]}"
    return word
