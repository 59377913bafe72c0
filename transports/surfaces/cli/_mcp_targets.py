"""``abp view`` and ``abp resources``: the views and the resources of an MCP server."""

from __future__ import annotations

import re
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
import typer.core

from ...errors import ABPError
from ...protocol._capabilities import find_capability
from ...protocol._payloads import Notification
from ...protocol._plain_text import plain_line
from ...session._events import ConnectionChanged
from ._calls import params_for, print_names
from ._options import (
    ConnectionOptions,
    Headers,
    Json,
    Output,
    ParamOptions,
    Params,
    RecordFile,
    Target,
    Timeout,
    Token,
    headers_of,
    json_line,
    open_app,
    require_writable_file,
    spread_groups,
)
from ._output import (
    LIMITS,
    ProgressBar,
    error_document,
    print_error,
    print_event,
    print_json,
    print_note,
    print_result,
    print_rows,
    print_text,
    print_warnings,
)
from ._running import asynchronous, run_async

if TYPE_CHECKING:
    from ...routing._result import Result
    from ...session._connect import ConnectOptions
    from ...session._session import Session
    from ...session._views import View, ViewOptions

#: Key of the context for the order of the options: a parser collects the values of each option by itself.
_ORDER = "transports.view.order"


class Theme(StrEnum):
    LIGHT = "light"
    DARK = "dark"


class Csp(StrEnum):
    DECLARED = "declared"
    SPEC = "spec"
    LOOSE = "loose"


class OrderedCommand(typer.core.TyperCommand):
    """Command that notes the order of its options, since each ``-p`` belongs to the ``--call`` before it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta[_ORDER] = [param.name for param in order]
        return super().parse_args(ctx, args)


def _read_size(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})x(\d{1,4})", text, re.IGNORECASE)
    if match is None or not int(match[1]) or not int(match[2]):
        raise typer.BadParameter(f"{text!r} is not a size in pixels of the form WIDTHxHEIGHT, such as 900x700")
    return int(match[1]), int(match[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class HostOptions:
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Host to imitate: spec, claude, chatgpt, goose, basic-host, or the file of a profile.",
        ),
    ] = None
    theme: Annotated[Theme, typer.Option("--theme", help="Colours that the host has.")] = Theme.LIGHT
    locale: Annotated[
        str | None, typer.Option("--locale", metavar="TAG", help="Language of the host, such as de-DE.")
    ] = None
    size: Annotated[
        Any,
        typer.Option("--size", metavar="WxH", parser=_read_size, help="Size in pixels (default: 900x700)."),
    ] = None
    csp: Annotated[
        Csp,
        typer.Option("--csp", help="Policy of the view: its server's, that of the specification, or hardly any."),
    ] = Csp.DECLARED

    def view_options(self, timeout: float | None) -> ViewOptions:
        options: dict[str, object] = {
            "host": self.host,
            "locale": self.locale,
            "size": self.size,
            "timeout": timeout,
        }
        options = {name: value for name, value in options.items() if value is not None}
        return cast("ViewOptions", {**options, "theme": self.theme.value, "csp": self.csp.value})


app = typer.Typer(add_completion=False, rich_markup_mode=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenViewOptions:
    params: ParamOptions
    calls: Annotated[
        list[str] | None,
        typer.Option(
            "--call",
            metavar="TOOL",
            help="Call this tool of the view, with the -p and --file that follow it (repeatable, in this order).",
        ),
    ] = None
    screenshot: Annotated[
        Path | None, typer.Option("--screenshot", metavar="FILE", help="Also write a picture of the view, a PNG.")
    ] = None
    host: HostOptions
    output: Output = None
    timeout: Timeout = None
    connection: ConnectionOptions
    record: RecordFile = None
    as_json: Json = False


@app.command(cls=OrderedCommand)
@spread_groups
def view(
    ctx: typer.Context,
    target: Target,
    tool: Annotated[
        str, typer.Argument(metavar="TOOL", help="A tool with a view; `abp capabilities TARGET` marks it.")
    ],
    *,
    options: OpenViewOptions,
) -> int:
    """Open the view of an MCP server's tool, and call its tools.

    Every result becomes a file.
    Prints the result of the tool, the tools of the view, what the view asked of its host, and why it stays blank."""
    connection = options.connection.connection()

    def read_and_open() -> Coroutine[object, object, int]:
        require_writable_file(options.screenshot)
        require_writable_file(options.record)
        tool_options, *call_options = _params_in_order(ctx.meta[_ORDER], options.params)
        call_params = [params.read() for params in call_options]
        calls = list(zip(options.calls or (), call_params, strict=True))
        return _open_and_call(target, tool, options, connection, tool_options.read(), calls)

    return run_async(read_and_open)


async def _open_and_call(
    target: str,
    tool: str,
    options: OpenViewOptions,
    connection: ConnectOptions,
    tool_params: Params,
    calls: Sequence[tuple[str, Params]],
) -> int:
    """Call the tool, open its view, make the ``calls`` in it, and print all that came of it."""
    with ProgressBar(tool) as bar:
        async with open_app(target, connection, store=options.output, record=options.record, pause=bar.pause) as app:
            view_uri = find_capability(app.info.name, tool, app.capabilities).view
            params = params_for(tool_params, app, tool)
            async with app.open_view(tool, params, **options.host.view_options(options.timeout)) as open_view:
                outcomes = await _call_in_order(open_view, calls, options.timeout, bar)
                document = await _document_of(open_view, view_uri, outcomes)
                if options.screenshot is not None:
                    picture = await open_view.screenshot()
                    await app.save(picture.artifact(), options.screenshot)
                    document["screenshot"] = str(options.screenshot)
                with bar.pause():
                    _print_outcome(open_view, document, outcomes, as_json=options.as_json)
    return 0 if document["success"] else 1


def _params_in_order(order: Sequence[str], options: ParamOptions) -> list[ParamOptions]:
    """Return the parameters of the tool, then those of each ``--call``: the options that follow it.

    ``order`` has the name of each option on the command line: of ``-p a=1 --call x --file b=c -p d=2`` it is ``pairs``,
    ``calls``, ``files``, ``pairs``."""
    all_pairs = iter(options.pairs or ())
    all_files = iter(options.files or ())
    # These lists belong to the last element of `in_order`, and are filled below.
    pairs: list[str] = []
    files: list[str] = []
    in_order = [ParamOptions(options.params, pairs, files)]
    for name in order:
        match name:
            case "calls":
                pairs = []
                files = []
                in_order.append(ParamOptions(None, pairs, files))
            case "pairs":
                pairs.append(next(all_pairs))
            case "files":
                files.append(next(all_files))
    return in_order


@dataclass(frozen=True, slots=True)
class _ToolOutcome:
    tool: str
    outcome: Result | ABPError

    def as_dict(self) -> dict[str, object]:
        if isinstance(self.outcome, ABPError):
            return {"capability": self.tool, **error_document(self.outcome)}
        return self.outcome.as_dict()


async def _call_in_order(
    view: View, calls: Sequence[tuple[str, Params]], timeout: float | None, bar: ProgressBar
) -> list[_ToolOutcome]:
    """Make the calls, one after the other. After a failed call the others are made, unless the view has gone."""
    outcomes: list[_ToolOutcome] = []
    for name, params in calls:
        bar.set_label(name)
        try:
            result = await view.call(name, params_for(params, view, name), timeout=timeout)
            outcomes.append(_ToolOutcome(name, result))
        except ABPError as error:
            outcomes.append(_ToolOutcome(name, error))
            if not error.session_survives:
                break
    return outcomes


async def _document_of(view: View, uri: str | None, outcomes: Sequence[_ToolOutcome]) -> dict[str, Any]:
    from ...mcp.views._diagnosis import is_blank

    blank = await is_blank(view.frame)
    calls = [outcome.as_dict() for outcome in outcomes]
    return {
        "success": all(call["success"] for call in calls),
        "result": view.result.as_dict(),
        "view": {"name": view.info.name, "version": view.info.version, "uri": uri, "blank": blank},
        "tools": [capability.model_dump(by_alias=True) for capability in view.capabilities.values()],
        "calls": calls,
        "requests": [
            {"kind": request.kind, "params": request.params, "answer": request.answer, "call": request.call}
            for request in view.requests
        ],
        "model_context": view.model_context,
        "files": [file.as_dict() for file in view.files],
        "violations": list(view.violations),
        "warnings": list(view.warnings),
        "screenshot": None,
    }


def _print_outcome(view: View, document: dict[str, Any], outcomes: Sequence[_ToolOutcome], *, as_json: bool) -> None:
    if as_json:
        print_warnings(view.result)
    else:
        print_result(view.result)
        _print_view(view, document["view"]["uri"], outcomes)
        if document["screenshot"] is not None:
            print_text(f"screenshot: {document['screenshot']}")

    for call in outcomes:
        if isinstance(call.outcome, ABPError):
            print_error(call.outcome)
        elif as_json:
            print_warnings(call.outcome)
    for warning in document["warnings"]:
        print_note(f"warning: {warning}")
    for violation in document["violations"]:
        print_note(f"forbidden: {violation}")
    if document["view"]["blank"]:
        print_note(f"the view shows nothing: {_why_blank(view)}", always=True)

    if as_json:
        print_json(document)


def _why_blank(view: View) -> str:
    from ...mcp.views._transport import ViewTransport

    assert isinstance(view.transport, ViewTransport)
    reason, remedy = view.transport.diagnosis.why_blank
    if remedy:
        return f"{reason}; {remedy}"
    return reason


def _print_view(view: View, uri: str, outcomes: Sequence[_ToolOutcome]) -> None:
    print_text(f"\n{plain_line(f'view: {view.info.name} {view.info.version} ({uri})')}")
    if view.capabilities:
        print_text("tools:")
        print_names(view.capabilities.values())
    for call in outcomes:
        print_text(f"\n{plain_line(call.tool)}")
        if not isinstance(call.outcome, ABPError):
            print_result(call.outcome)
    if view.requests:
        print_text("\nrequests:")
        for line in _request_lines(view):
            print_text(line)
    for file in view.files:
        print_text(f"File saved: {file.local_path or file.uri}")


def _request_lines(view: View) -> Iterator[str]:
    requests = view.requests
    for request in requests[: LIMITS.requests]:
        yield f"  {request.kind}  {plain_line(json_line(dict(request.params)), LIMITS.request_params)}"
    if len(requests) > LIMITS.requests:
        yield f"  … and {len(requests) - LIMITS.requests} more"


@asynchronous
async def resources(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The server: mcp+stdio:COMMAND, mcp+https://…, mcp:FILE#NAME")
    ],
    read: Annotated[
        list[str] | None, typer.Option("--read", metavar="URI", help="Read this one; may be given again.")
    ] = None,
    watch: Annotated[
        list[str] | None,
        typer.Option("--watch", metavar="URI", help="Read this one now and whenever it changes, until Ctrl-C."),
    ] = None,
    output: Output = None,
    timeout: Timeout = None,
    token: Token = None,
    header: Headers = None,
    as_json: Json = False,
) -> None:
    """List the resources of an MCP server, or read some.

    With --watch and --json, each reading is a line of JSON."""
    headers = headers_of(token, header or ())
    store = output if read or watch else "none:"
    async with open_app(target, {"headers": headers}, store=store) as app:
        if read:
            await _print_contents(app, read, timeout, as_json)
        if watch:
            await _print_changes(app, watch, timeout, as_json)
        if not read and not watch:
            await _print_resources(app, timeout, as_json)


async def _print_contents(app: Session, uris: Sequence[str], timeout: float | None, as_json: bool) -> None:
    results = [await app.resources.read(uri, timeout=timeout) for uri in uris]
    if as_json:
        print_json({"success": True, "results": [result.as_dict() for result in results]})
    else:
        print_text("\n".join(result.summary(max_chars=LIMITS.summary) for result in results))


async def _print_changes(app: Session, uris: Sequence[str], timeout: float | None, as_json: bool) -> None:
    """Print the resources now, after each change, and after a reconnection, since a notification may have been lost."""
    async with app.events() as events:
        for uri in uris:
            await app.resources.subscribe(uri, timeout=timeout)
            await _print_resource(app, uri, timeout, as_json, fresh=False)
        async for event in events:
            for uri in _changed_uris(event, uris):
                await _print_resource(app, uri, timeout, as_json, fresh=True)


def _changed_uris(event: object, uris: Sequence[str]) -> Sequence[str]:
    """Return the URIs to read again after an event."""
    match event:
        case Notification(event="notifications/resources/updated", data={"uri": str(uri)}) if uri in uris:
            return [uri]
        case ConnectionChanged(connected=True):
            return uris
    return []


async def _print_resource(app: Session, uri: str, timeout: float | None, as_json: bool, *, fresh: bool) -> None:
    result = await app.resources.read(uri, fresh=fresh, timeout=timeout)
    if as_json:
        print_event({"success": True, "uri": uri, "result": result.as_dict()})
    else:
        print_text(f"{uri}\n{result.summary(max_chars=LIMITS.summary)}")


async def _print_resources(app: Session, timeout: float | None, as_json: bool) -> None:
    resources = await app.resources.list(timeout=timeout)
    templates = await app.resources.templates(timeout=timeout)
    if as_json:
        print_json(
            {
                "success": True,
                "app": app.info.model_dump(exclude_none=True),
                "resources": [resource.model_dump(by_alias=True) for resource in resources],
                "templates": [template.model_dump(by_alias=True) for template in templates],
            }
        )
        return
    print_text(
        f"{plain_line(app.info.name)} has {len(resources)} resources and {len(templates)} templates of addresses"
    )
    rows = []
    for resource in resources:
        size = "" if resource.size is None else f"{resource.size:,} bytes"
        rows.append((resource.uri, resource.mime_type or "", size, resource.title or resource.name))
    rows += [(template.uri_template, template.mime_type or "", "", template.name) for template in templates]
    print_rows(rows, numbers=(2,))
