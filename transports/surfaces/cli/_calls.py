"""``abp call``, ``abp capabilities``, ``abp discover`` and ``abp login``: calls and their printed results, lists of
capabilities, and signing in."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ABPError, UsageError
from ...protocol._capabilities import find_capability
from ...protocol._params import set_path
from ...protocol._plain_text import plain_line, redact_url
from ...protocol._strict_json import json_lines
from ...protocol.binary import BinaryData
from ...protocol.schema import declared_parameters, is_file
from ...session._settings import Settings, read_config, routing_of
from ._options import (
    ConnectionOptions,
    Detach,
    EvidenceText,
    InlineData,
    Json,
    OnOff,
    Output,
    ParamOptions,
    Params,
    RecordFile,
    ServerUrl,
    Target,
    Timeout,
    example_words,
    json_line,
    open_app,
    parse_value,
    require_writable_file,
    shell_word,
    spread_groups,
)
from ._output import (
    LIMITS,
    ProgressBar,
    error_document,
    print_error,
    print_json,
    print_note,
    print_result,
    print_rows,
    print_text,
    print_warnings,
)
from ._running import asynchronous, run_async

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from ...protocol._declarations import AppInfo, Capability
    from ...routing._policy import RoutingConfig
    from ...routing._result import Result
    from ...session._connect import ConnectOptions
    from ...session._session import Session

#: Words for the hints of tools (MCP, WebMCP).
_HINTS = {
    "readOnlyHint": "read-only",
    "destructiveHint": "destructive",
    "consequentialHint": "consequential",
    "untrustedContentHint": "untrusted content",
}


def flags_of(capability: Capability) -> str:
    flags = {
        "unavailable": not capability.available,
        "view": capability.view is not None,
        "experimental": capability.experimental,
        "deprecated": capability.deprecated,
        **{word: capability.annotations.get(hint) is True for hint, word in _HINTS.items()},
    }
    return "".join(f" [{flag}]" for flag, is_set in flags.items() if is_set)


def print_capability(capability: Capability, target: Sequence[str] = ()) -> None:
    """Print a capability with its parameters and an example. The example is a command line with the arguments
    ``target``, or without them a line of ``abp shell``."""
    print_text(f"{plain_line(capability.name)}{flags_of(capability)}")
    if capability.description:
        print_text(plain_line(capability.description))

    rows = list(islice(_parameter_rows(capability.input_schema), LIMITS.parameters + 1))
    if len(rows) > LIMITS.parameters:
        rows[-1] = ("…", "", "", "", "and more")
    if rows:
        head = ("parameter", "type", "needed", "default", "description")
        print_text("")
        print_rows((head, *rows), indent="  ")
    else:
        print_text("It declares no parameters.")

    example = plain_line(_example_call(capability, target))
    print_text(f"\nexample: {example}")


def _parameter_rows(schema: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each declared parameter: path, type, "yes" if it is required, default and description."""
    for path, schema_of_parameter, required in declared_parameters(schema):
        default = ""
        if "default" in schema_of_parameter:
            default = _cut_cell(json.dumps(schema_of_parameter["default"], ensure_ascii=False))
        needed = "yes" if required else ""
        description = str(schema_of_parameter.get("description", ""))
        yield _cut_cell(path), _type_of(schema_of_parameter), needed, default, description


def _cut_cell(text: str) -> str:
    if len(text) <= LIMITS.cell:
        return text
    return text[: LIMITS.cell - 1] + "…"


def _type_of(schema: Mapping[str, Any]) -> str:
    """Return the type of a parameter in words, or the choices of an enum."""
    from ..shared._capability_tools import type_name  # late, as it loads the session

    values = schema.get("enum")
    if isinstance(values, list) and not is_file(schema):
        choices = " | ".join(map(str, values))
        if len(choices) <= LIMITS.choices:
            return choices
        return f"{_cut_cell(choices)} ({len(values)})"
    return _cut_cell(type_name(schema))


def _example_call(capability: Capability, target: Sequence[str]) -> str:
    """Return an example call, with the app's own example of parameters or the smallest valid required parameters."""
    from ...testing.conformance._inputs import CannotGenerate, generated_params

    schema = capability.input_schema
    try:
        params = generated_params(capability.name, schema)[0]
    except CannotGenerate:
        params = {}

    files: dict[str, str] = {}
    values: dict[str, object] = {}
    for name, value in params.items():
        if isinstance(value, BinaryData):
            files[name] = name.upper() + Path(value.filename or "").suffix
        else:
            values[name] = value

    words = [shell_word(word) for word in (*target, capability.name)]
    if target:
        for name, file in files.items():
            words += ["--file", shell_word(f"{name}={file}")]
        words += example_words(values)
    else:
        # A line of `abp shell`.
        words += [f"{name}@{file}" for name, file in files.items()]
        words += [f"{name}={json_line(value)}" for name, value in values.items()]
    return " ".join(words)


def read_each(file: Path) -> list[tuple[int, dict[str, object]]]:
    """Return the number and the parameters of each non-empty line of a JSON Lines file."""
    try:
        with file.open("rb") as lines:
            numbered = [(number, params) for number, _, params in json_lines(lines, f"--each {file}", "of parameters")]
    except OSError as error:
        raise UsageError(f"--each {file}: cannot be read ({error.strerror}); correct the file name") from error
    if not numbered:
        raise UsageError(f"--each {file} has no lines")
    return numbered


def params_for(params: Params, app: Session, capability: str) -> dict[str, object]:
    """Return the parameters of a call, with texts where the capability takes only texts."""
    declaration = app.capabilities.get(capability)
    if declaration is None:
        return params
    return params.fit_to(declaration.input_schema)


def routing_of_options(preset: str | None, options: Sequence[str] | None) -> RoutingConfig | str | None:
    """Return the routing of answers that the options ask for. The options ``KEY=VALUE`` override the preset, or without
    a preset the settings file. A dot in a key leads into a table; a value is JSON, otherwise text."""
    if not options:
        return preset
    from ...routing._policy import RoutingConfig

    table: dict[str, Any] = {}
    for option in options:
        key, equals, text = option.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--routing {option!r} is not of the form KEY=VALUE, such as max_inline_chars=2000")
        set_path(table, key.strip().split("."), parse_value(text))

    if preset is not None:
        config = RoutingConfig({"preset": preset})
    else:
        config = routing_of(read_config())
    return config.with_options(table, "--routing")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    params: ParamOptions
    each: Annotated[
        Path | None,
        typer.Option(
            "--each",
            metavar="FILE.jsonl",
            help="Call once for each line, an object of parameters, one after the other.",
        ),
    ] = None
    output: Output = None
    timeout: Timeout = None
    connection: ConnectionOptions
    record: RecordFile = None
    evidence: EvidenceText = ""
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Routing of answers: tableau, github, or an installed plug-in."),
    ] = None
    routing: Annotated[
        list[str] | None,
        typer.Option(
            "--routing",
            metavar="KEY=VALUE",
            help="A setting of the routing, such as max_inline_chars=2000 or agent.max_bytes=9000 (repeatable).",
        ),
    ] = None
    inline_data: InlineData = None
    detach: Detach = False
    server: ServerUrl = None
    as_json: Json = False
    insecure_private_addresses: Annotated[
        bool, typer.Option("--insecure-private-addresses", help="Let downloadUrls lead to private addresses.")
    ] = False


@spread_groups
def call(
    target: Target,
    capability: Annotated[str, typer.Argument(metavar="CAPABILITY", help="Its name, such as export.pdf")],
    *,
    options: CallOptions,
) -> int:
    """Call one capability; every result becomes a file.

    With --detach a running `abp serve` makes the call (--server, --token); see `abp calls`."""
    if options.detach or options.server:
        _start_detached(target, capability, options)
        return 0
    caller = _Caller(target, capability, options)
    with _allow_private_addresses() if options.insecure_private_addresses else nullcontext():
        return run_async(caller.read_and_call)


class _Caller:
    def __init__(self, target: str, capability: str, options: CallOptions) -> None:
        self._target = target
        self._capability = capability
        self._options = options
        self._connection = options.connection.connection(evidence=options.evidence)
        self._routing = routing_of_options(options.preset, options.routing)
        self._bar = ProgressBar(capability)

    def read_and_call(self) -> Coroutine[object, object, int]:
        """Read the parameters, perhaps from stdin, outside the event loop. The returned coroutine makes the call."""
        require_writable_file(self._options.record)
        params = self._options.params.read()
        if self._options.each is None:
            return self._call_once(params)
        return self._call_each(params, read_each(self._options.each))

    def _open_app(self) -> AbstractAsyncContextManager[Session]:
        return open_app(
            self._target,
            self._connection,
            store=self._options.output,
            record=self._options.record,
            routing=self._routing,
            pause=self._bar.pause,
        )

    async def _call_once(self, params: Params) -> int:
        with self._bar:
            async with self._open_app() as app:
                result = await self._call_capability(app, params_for(params, app, self._capability))
        if self._options.as_json:
            print_warnings(result)
            print_json(result.as_dict())
        else:
            print_result(result)
        return 0

    async def _call_each(self, params: Params, lines: Sequence[tuple[int, dict[str, object]]]) -> int:
        """Call once for each line. After a failed call the other lines are called, unless the session has ended. With
        ``--json`` one document is printed; its ``results`` are as from ``abp call --json``, each with its ``line``."""
        with self._bar:
            async with self._open_app() as app:
                results, failed = await self._call_lines(app, params_for(params, app, self._capability), lines)
                if self._options.as_json:
                    print_json({"success": not failed, "results": results})
                if failed:
                    print_note(f"{failed} of {len(lines)} calls failed", always=True)
        return 1 if failed else 0

    async def _call_lines(
        self, app: Session, common_params: dict[str, object], lines: Sequence[tuple[int, dict[str, object]]]
    ) -> tuple[list[dict[str, object]], int]:
        """Make the calls. Return the documents of the results, and the number of calls that failed."""
        results: list[dict[str, object]] = []
        failed = 0
        for count, (number, line) in enumerate(lines, 1):
            self._bar.set_label(f"{self._capability} {count}/{len(lines)}")
            try:
                result = await self._call_capability(app, common_params | line)
            except ABPError as error:
                failed += 1
                results.append({"line": number, **self._print_failure(number, error)})
                if error.session_survives:
                    continue
                print_note(f"the session has ended; {len(lines) - count} lines were not called", always=True)
                break
            results.append({"line": number, **result.as_dict()})
            self._print_line(number, result)
        return results, failed

    async def _call_capability(self, app: Session, params: dict[str, object]) -> Result:
        result = await app.call(
            self._capability, params, timeout=self._options.timeout, on_progress=self._bar.on_progress
        )
        if self._options.inline_data is OnOff.OFF:
            return result.by_reference()
        return result

    def _print_line(self, number: int, result: Result) -> None:
        with self._bar.pause():
            if self._options.as_json:
                print_warnings(result)
            else:
                print_text(f"line {number}")
                print_result(result)

    def _print_failure(self, number: int, error: ABPError) -> dict[str, object]:
        with self._bar.pause():
            print_error(error, f"line {number}: ")
        return error_document(error)


@contextmanager
def _allow_private_addresses() -> Iterator[None]:
    name = "ABP_ALLOW_PRIVATE_ADDRESSES"
    previous_value = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if previous_value is None:
            del os.environ[name]
        else:
            os.environ[name] = previous_value


def _start_detached(target: str, capability: str, options: CallOptions) -> None:
    """Let a server make the call. It connects to the app itself, so options of the connection are refused."""
    from ._detached import open_server  # late: it loads an HTTP client

    for name, value in _options_of_direct_calls(options).items():
        if value:
            raise UsageError(f"{name} is for a call that this command makes itself; leave it out with --detach")

    # The server cannot read files of this machine, so they are uploaded, and are not among the other parameters.
    params = replace(options.params, files=None).read()
    files = _files_by_path(ParamOptions(files=options.params.files).read())
    server = options.server

    async def start_call() -> None:
        async with open_server(server, options.connection.token or os.environ.get("ABP_SERVE_TOKEN")) as client:
            transport = options.connection.transport
            call = await client.start(target, capability, params, files, transport=transport, timeout=options.timeout)
        if options.as_json:
            print_json({"success": True, "call": call})
        else:
            print_text(str(call["id"]))
            print_note(f"abp calls wait {call['id']} --server {server} prints its result")

    run_async(start_call)


def _options_of_direct_calls(options: CallOptions) -> dict[str, object]:
    """Return the values of the options that a detached call cannot have, by their names."""
    names = [field.name for field in fields(options.connection) if field.name not in ("transport", "token")]
    return {
        "--each": options.each,
        "--out": options.output,
        **{f"--{name.replace('_', '-')}": getattr(options.connection, name) for name in names},
        "--record": options.record,
        "--evidence": options.evidence,
        "--preset": options.preset,
        "--routing": options.routing,
        "--inline-data": options.inline_data,
        "--insecure-private-addresses": options.insecure_private_addresses,
        "--server without --detach": not options.detach,
    }


def _files_by_path(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the files in nested parameters by their paths, such as ``pages.cover``."""
    files: dict[str, Any] = {}
    for key, value in params.items():
        if isinstance(value, dict):
            files |= _files_by_path(value, f"{prefix}{key}.")
        else:
            files[prefix + key] = value
    return files


@spread_groups
def capabilities(
    target: Target,
    name: Annotated[
        str | None, typer.Argument(metavar="[CAPABILITY]", help="Show this one: its parameters, an example.")
    ] = None,
    *,
    options: ConnectionOptions,
    as_json: Json = False,
) -> None:
    """List the capabilities of an app, or show one of them."""
    connection = options.connection()
    run_async(lambda: _show_capabilities(target, name, connection, options.transport, as_json=as_json))


async def _show_capabilities(
    target: str, name: str | None, connection: ConnectOptions, transport: str, *, as_json: bool
) -> None:
    async with open_app(target, connection, store="none:") as app:
        capabilities = [*app.capabilities.values()]
        if name is not None:
            capabilities = [find_capability(app.info.name, name, app.capabilities)]

        if as_json:
            print_json(_capabilities_document(app, capabilities))
        elif name is None:
            print_capabilities(app.info, capabilities)
        else:
            command = ["abp", "call"]
            if transport != "auto":
                command += ["--transport", transport]
            print_capability(capabilities[0], [*command, redact_url(target) or target])


def _capabilities_document(app: Session, chosen: Collection[Capability]) -> dict[str, object]:
    return {
        "success": True,
        "app": app.info.model_dump(exclude_none=True),
        "features": dict(app.features),
        "transport": app.transport.name,
        "capabilities": [capability.model_dump(by_alias=True) for capability in chosen],
    }


def print_capabilities(app: AppInfo, capabilities: Collection[Capability]) -> None:
    words = [app.name]
    # A page with an adapter has no version, and reports 0.
    if app.version and app.version != "0":
        words.append(app.version)
    if app.id:
        words.append(f"({app.id})")
    print_text(" ".join(map(plain_line, words)))
    print_names(capabilities)


def print_names(capabilities: Collection[Capability]) -> None:
    rows = [
        (capability.name, plain_line(capability.description, LIMITS.description) + flags_of(capability))
        for capability in capabilities
    ]
    print_rows(rows, indent="  ")


@asynchronous
async def discover(
    url: Annotated[
        str, typer.Argument(metavar="URL", help="Address of the app's page, such as http://127.0.0.1:8000/")
    ],
    as_json: Json = False,
) -> None:
    """Read an app's manifest without a browser.

    The manifest lists its capabilities."""
    from ...session._manifest import discover

    discovery = await discover(url, allow_private=Settings.load().allow_private_addresses)
    if discovery.reason is not None:
        raise discovery.reason
    manifest = discovery.manifest
    assert manifest is not None
    for warning in discovery.warnings:
        print_note(warning)
    if as_json:
        fields = {"name", "description", "input_schema", "output_schema", "experimental", "deprecated"}
        capabilities = [capability.model_dump(by_alias=True, include=fields) for capability in manifest.capabilities]
        print_json(
            {
                "success": True,
                "app": manifest.app.model_dump(exclude_none=True),
                "abp": manifest.abp,
                "title": discovery.title,
                "page_url": discovery.page_url,
                "manifest_url": discovery.manifest_url,
                "capabilities": capabilities,
                "warnings": list(discovery.warnings),
            }
        )
        return
    print_capabilities(manifest.app, manifest.capabilities)
    print_text(f"ABP {manifest.abp or 'of an unknown version'}, from {redact_url(discovery.manifest_url or '')}")


@asynchronous
async def login(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The app: its table [apps.NAME] in abp.toml.")],
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings (default: abp.toml here).")
    ] = None,
    headless: Annotated[bool, typer.Option("--headless", hidden=True)] = False,
    as_json: Json = False,
) -> None:
    """Sign in to an app in a visible browser, for later calls."""
    from ...session._named_apps import find_app, is_app_name
    from ...session._sign_in import sign_in

    file = read_config(config)
    app = find_app(file, name, None)
    if app is None:
        if not is_app_name(name):
            raise UsageError(
                f"{redact_url(name)!r} is not the name of an app; `abp login` takes the name of a table [apps.NAME] in "
                "the settings file"
            )
        raise UsageError(f"no app is called {name!r} in {file.path or 'abp.toml'}; add it: [apps.{name}] with its url")
    place = await sign_in(app, _wait_for_enter, headless=headless)
    if as_json:
        print_json({"success": True, "app": app.name, "kept": str(place)})
    else:
        print_text(f"Signed in to {app.name}; kept in {place}")


async def _wait_for_enter() -> None:
    """Wait until the user has entered a line. If stdin ends without a line, wait for ever."""
    print_note("sign in, then close the window or press Enter here", always=True)
    loop = asyncio.get_running_loop()
    entered = asyncio.Event()

    def read() -> None:
        if sys.stdin is not None and sys.stdin.readline():
            loop.call_soon_threadsafe(entered.set)

    # A daemon thread does not delay the end of the program.
    threading.Thread(target=read, daemon=True, name="abp-stdin").start()
    await entered.wait()
