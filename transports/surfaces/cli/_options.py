"""Shared options of commands: target, connection, credentials, store, its retention, and evidence.

:class:`ConnectionOptions` are options as the parser reads them, :func:`open_app` takes the resulting arguments of
:func:`transports.connect`. :func:`spread_groups` lets commands take such groups of options as one parameter."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer

from ...errors import ConnectFailed, UsageError
from ...playwright._find import RunningBrowser, find_running, require_listener
from ...protocol._plain_text import folder_of, is_page
from ...protocol._times import MAX_TIMEOUT, format_duration, parse_duration
from ...session._settings import Settings, read_config, retention_settings
from ._output import at_terminal, print_note
from ._params import read_text, refuse_file_name

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ...artifacts._retention import Retention
    from ...routing._policy import RoutingConfig
    from ...session._connect import ConnectOptions
    from ...session._session import Session

R = TypeVar("R")


def spread_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Return a command for Typer in which each parameter that is a dataclass is replaced by the fields of this
    dataclass. Every field must have a default."""
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter)
            continue
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            parameter.replace(name=field.name, default=field.default, annotation=hints[field.name])
            for field in fields(group)
        ]

    @wraps(command)
    def run(**values: Any) -> R:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        return command(**values)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def attached_to(attach: bool, cdp_url: str | None) -> str | None:
    """Return the address of the browser that ``--attach`` finds, or ``cdp_url`` without ``--attach``.

    Raises :class:`~transports.errors.UsageError` if there is none, or several and no terminal to ask at."""
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
    """Ask the user for one of several browsers. Raises :class:`~transports.errors.UsageError` without a terminal."""
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
State = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
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
    """Open a session with the app at ``target``, and close it at the end of the block. The arguments are those of
    :func:`transports.connect`, as are the errors.

    The app's questions are asked at the terminal, within the context ``pause``, which stops other output. Without
    a terminal they get the default answer of a session without a handler, which a note on stderr reports."""
    if isinstance(store, str):
        refuse_file_name(store)
    async with AsyncExitStack() as stack:
        # With a browser of the user, connecting does not probe the address first, so this must not either.
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


def local_folder(text: str) -> Path:
    """Return the path of a local folder. Raises :class:`~transports.errors.UsageError` for the address of a store."""
    try:
        return folder_of(text)
    except ValueError as error:
        raise UsageError(str(error)) from None


async def start_driver(target: str, stack: AsyncExitStack) -> None:
    """Start the browser's driver ahead of time, if the target is a page. Errors of the address, such as a port without
    a listener, are left for connecting to report."""
    if not is_page(target):
        return
    from ...playwright._process import driver_ahead

    with suppress(ConnectFailed, ValueError):
        await require_listener(target, ahead=True)
        await stack.enter_async_context(driver_ahead())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Command-line options for the connection to an app."""

    transport: TransportName = "auto"
    browser: BrowserName = None
    headed: Headed = False
    profile: Annotated[
        Path | None, typer.Option("--profile", metavar="DIR", help="Browser profile to use and keep: stays signed in.")
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
        """Return the given options as those of :func:`transports.connect`. ``--attach`` runs an event loop to find the
        browser, so this must not be called in one. Raises :class:`~transports.errors.UsageError` for invalid headers or
        evidence."""
        from ...session._evidence import read_evidence  # late: `abp --help` need not wait for it

        options: dict[str, object] = {
            "transport": self.transport,
            "browser": self.browser,
            "profile": self.profile,
            "storage_state": self.storage_state,
            "cdp_url": attached_to(self.attach, self.cdp_url),
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

    def of_this_command(self) -> dict[str, object]:
        """Return the options by name, without those that ``--detach`` passes on to the server."""
        names = [field.name for field in fields(self) if field.name not in ("transport", "token")]
        return {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}


def headers_of(token: str | None, headers: Sequence[str]) -> dict[str, str] | None:
    """Return the headers of ``--token`` and ``--header``, or ``None`` without any. Values are secrets, so no message
    of a :class:`~transports.errors.UsageError` holds one."""
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
    url: str | None,
    ttl: str | None,
    limits: Sequence[str] | None,
    *,
    config: Path | None,
) -> AsyncIterator[ArtifactStore]:
    """Open the store at ``url`` (default: the settings) with the retention of the options, variables and settings file,
    which is applied while the context lasts. With a retention, a line on stderr says for how long files are kept."""
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
