"""``abp serve``, ``abp mcp`` and ``abp proxy``: the gallery over HTTP, the MCP bridge, and other MCP servers with their
large content as links.

Each command imports its server when it is called, and :func:`proxy` starts the other server before that."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...errors import UsageError
from ...mcp._servers import Server, parse_server
from ...protocol._strict_json import encode_json
from ...session._settings import read_config, trust_found_file
from ..mcp.proxy._upstream import open_upstream, server_of
from ..shared._listening import Connections, parse_address
from . import expect_signal
from ._options import (
    AdapterFile,
    Headers,
    InlineData,
    Json,
    Limits,
    OnOff,
    Output,
    Port,
    ServerTokens,
    SharedBrowsers,
    State,
    Ttl,
    headers_of,
    limited_store,
    spread_groups,
)
from ._output import aligned_rows, expect_mcp_client, print_json, print_line, print_note, print_text
from ._running import asynchronous, run_async

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ..mcp._bridge import Bridge
    from ..mcp.proxy._exchange import ProxyContext
    from ..mcp.proxy._stats import Count
    from ..shared._detached import Host
    from ..web._server import Served


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepingOptions:
    output: Output = None
    ttl: Ttl = None
    limits: Limits = None
    state: State = None


@contextmanager
def _needing_mcp_sdk(command: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        missing = ""
        if error.name not in (None, "mcp"):
            missing = f", and its package {error.name} is missing"
        raise UsageError(
            f"`{command}` needs the MCP SDK{missing}; install it: pip install 'abp-transports[mcp]'"
        ) from error


# --- abp serve --------------------------------------------------------------------------------------------------------


@spread_groups
@asynchronous
async def serve(
    *,
    targets: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app; may be given several times.")
    ] = None,
    adapter: AdapterFile = None,
    port: Port = 0,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Address to listen on; a token is needed unless it is local.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="T", help="The operator's token (default: ABP_SERVE_TOKEN, or a new one)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="File with a table [retention] (default: abp.toml here)."),
    ] = None,
    browsers: SharedBrowsers = None,
    runs: Annotated[
        list[str] | None,
        typer.Option("--batch", metavar="RUN", help="Show this run, or the runs in this folder (repeatable)."),
    ] = None,
    keeping: KeepingOptions,
    as_json: Annotated[bool, typer.Option("--json", help="Print address and token as one line of JSON.")] = False,
) -> None:
    """Serve artifacts and the gallery over HTTP, until Ctrl-C."""
    from ..shared._apps import adapter_options
    from ..shared._detached import hosting
    from ..web._access import Options
    from ..web._server import serve as serve_web

    connect_options = adapter_options(targets or (), adapter)
    options = Options.load(token=token, browsers=browsers)
    async with (
        limited_store(keeping.output, keeping.ttl, keeping.limits, config=config) as store,
        hosting(store, keeping.state, config=config, browsers=options.browsers) as apps,
        serve_web(
            store,
            options,
            host=host,
            port=port,
            connect=apps.connect,
            runs=runs or (),
            ledger=apps.ledger,
            named=apps.named,
        ) as served,
    ):
        for target in targets or ():
            await served.apps.connect(target, connect_options)
        if as_json:
            print_json({"url": served.url, "token": served.token})
        else:
            print_text(f"Open {served.page}")
            print_text("Ctrl-C ends it.")
        expect_signal()
        await asyncio.Event().wait()


# --- abp mcp ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app from the start (repeatable).")
    ] = None
    adapter: AdapterFile = None
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings (default: abp.toml here, if it exists).")
    ] = None
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve over HTTP instead; for others than this machine with a public_url.",
        ),
    ] = None
    token: ServerTokens = None
    gallery: Annotated[
        bool, typer.Option("--gallery", help="Serve the gallery too; its address is printed on stderr.")
    ] = False
    browsers: SharedBrowsers = None
    inline_data: InlineData = None
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust abp.toml here as it is now, print its settings, and exit.")
    ] = False


@spread_groups
def mcp(*, options: McpOptions, keeping: KeepingOptions) -> None:
    """Serve apps as tools of MCP, on stdin and stdout."""
    if options.trust:
        _trust_and_print()
    else:
        run_async(lambda: _serve_bridge(options, keeping))


async def _serve_bridge(options: McpOptions, keeping: KeepingOptions) -> None:
    with _needing_mcp_sdk("abp mcp"):
        from ..mcp._bridge import Bridge, serve_stdio
        from ..mcp._options import Options
        from ..shared._detached import DetachedCalls, hosting

    settings = Options.load(
        config=options.config,
        apps=options.apps or None,
        adapter=options.adapter,
        token=options.token,
        browsers=options.browsers,
        inline_data=None if options.inline_data is None else options.inline_data is OnOff.ON,
    )
    address: tuple[str, int] | None = None
    users: dict[str, str] = {}
    if options.http is not None:
        address = parse_address(options.http, "--http", settings.public_url)
        # With signed tokens, secret tokens are optional.
        if settings.token or not settings.jwt_issuer:
            with _needing_mcp_sdk("abp mcp"):
                users = _parse_tokens(settings.token)

    async with (
        limited_store(keeping.output, keeping.ttl, keeping.limits, config=options.config) as store,
        hosting(
            store, keeping.state, config=options.config, browsers=settings.browsers, headless=settings.headless
        ) as apps,
        AsyncExitStack() as stack,
    ):
        make_bridge = partial(Bridge, settings, store, connect=apps.connect, named=apps.named)
        connections: Connections | None = None
        if options.gallery:
            served = await stack.enter_async_context(_serve_gallery(store, apps, users))
            connections = served.connections
            calls = served.calls
            bridge = make_bridge(activity=served.activity, link=served.link, calls=calls)
        else:
            calls = DetachedCalls(apps.ledger)
            bridge = make_bridge(calls=calls)
        stack.push_async_callback(calls.cancel_all)

        expect_signal()
        if address is None:
            expect_mcp_client()
            await serve_stdio(bridge)
        else:
            await _serve_bridge_http(bridge, address, users, settings.public_url, connections)


async def _serve_bridge_http(
    bridge: Bridge,
    address: tuple[str, int],
    users: Mapping[str, str],
    public_url: str | None,
    connections: Connections | None,
) -> None:
    with _needing_mcp_sdk("abp mcp"):
        from ..mcp._http import serve_http  # late: stdin and stdout need no web server

    public_address = f"{public_url}/mcp" if public_url else ""
    await serve_http(
        bridge, *address, users, lambda url: _print_address(public_address or url), connections=connections
    )


def _parse_tokens(tokens: str | None) -> dict[str, str]:
    """Return the users by their tokens. Without ``tokens``, make a new token and print it."""
    from ..mcp._http import parse_tokens

    if not tokens:
        tokens = secrets.token_urlsafe()
        print_note(f"clients need this token: {tokens}", always=True)
    return parse_tokens(tokens)


def _print_address(url: str) -> None:
    print_note(f"serving at {url}", always=True)


def _trust_and_print() -> None:
    """Trust abp.toml and print its settings. The bridge is not started: a ``--trust`` that is left in a client's
    settings would trust every later version of the file."""
    from ..._internal.redaction import Redactor
    from ...session._named_apps import app_entries
    from ..mcp._options import Options

    candidate = Path("abp.toml")
    # A file that cannot work is not trusted.
    if candidate.is_file():
        Options.load(config=candidate)
        app_entries(read_config(candidate))
    file = trust_found_file()
    redactor = Redactor()
    print_text(f"Trusted as long as it stays as it is: {file.path}")
    for table, settings in sorted((file.tables or {}).items()):
        # [secrets] has no values, but names their sources (a variable, a file, a command), which the user must see.
        shown_settings = settings if table == "secrets" else redactor.redact_tree(settings)
        for line in _setting_lines(table, shown_settings):
            print_text(f"  {line}")


def _setting_lines(name: str, value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, setting in value.items():
            yield from _setting_lines(f"{name}.{key}", setting)
    else:
        yield f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


@asynccontextmanager
async def _serve_gallery(store: ArtifactStore, apps: Host, users: Mapping[str, str]) -> AsyncIterator[Served]:
    """Serve the gallery beside the bridge. With the token of the bridge, each user sees only their artifacts there."""
    from ...artifacts._ref import Scope
    from ..web._access import Options
    from ..web._server import serve as serve_web

    scopes = {token: Scope(user=user) for token, user in users.items()}
    serving = serve_web(store, Options.load(), users=scopes, connect=apps.connect, ledger=apps.ledger, named=apps.named)
    async with serving as served:
        print_note(f"gallery: {served.page}", always=True)
        yield served


# --- abp proxy --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyOptions:
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The server is behind this address instead.")
    ] = None
    header: Headers = None
    max_inline: Annotated[
        int,
        typer.Option("--max-inline", metavar="BYTES", min=0, help="Largest value that stays in an answer."),
    ] = 64 * 1024
    output: Output = None
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP instead of stdin and stdout."),
    ] = None
    token: ServerTokens = None
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Rules for files in answers: tableau, github, or a plug-in."),
    ] = None
    json_previews: Annotated[
        bool, typer.Option("--json-previews", help="Shorten a long JSON text to JSON, without words after it.")
    ] = False
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--roots",
            metavar="FOLDER",
            help="Folder whose files clients over HTTP may send to the server, if they share it (several times).",
            show_default=False,
        ),
    ] = None
    stats: Annotated[
        bool,
        typer.Option(
            "--stats",
            help="Print bytes and pictures by tool: of this run at its end; without a server, of all runs.",
        ),
    ] = False
    ttl: Ttl = None
    limits: Limits = None
    as_json: Json = False


@spread_groups
@asynchronous
async def proxy(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND…", help="Command of the server, after --.", show_default=False),
    ] = None,
    *,
    options: ProxyOptions,
) -> int:
    """Run another MCP server, with its large content as links."""
    server = _find_server(command or (), options.url, options.header)
    if server is None:
        if not options.stats:
            raise UsageError("name the server: abp proxy -- COMMAND …, or abp proxy --url https://…/mcp")
        _print_all_stats(as_json=options.as_json)
        return 0
    if options.roots and options.http is None:
        raise UsageError("--roots needs --http; over stdin and stdout, the client's own roots are used")
    if options.http is None:
        return await _proxy_stdio(server, options)
    await _proxy_http(server, options, options.http)
    return 0


def _find_server(command: Sequence[str], url: str | None, header: Sequence[str] | None) -> Server | None:
    if command and url is not None:
        raise UsageError("a command and --url are mutually exclusive")
    if url is not None:
        return parse_server(f"mcp+{url}", headers_of(None, header or ()))
    if header:
        raise UsageError("--header is for --url; give a server that is started environment variables")
    if not command:
        return None
    return server_of(command)


async def _proxy_stdio(server: Server, options: ProxyOptions) -> int:
    expect_mcp_client()
    with _needing_mcp_sdk("abp proxy --url"):
        upstream = await open_upstream(server)
    async with aclosing(upstream):
        from ..mcp.proxy._duplex import run_stdio  # late, as all of the proxy: it is imported while the server starts

        async with _open_shared(server, options, roots=None) as shared:
            return await run_stdio(upstream, shared)


async def _proxy_http(server: Server, options: ProxyOptions, http: str) -> None:
    async with _open_shared(server, options, roots=options.roots or ()) as shared:
        with _needing_mcp_sdk("abp proxy --http"):
            from ..mcp.proxy._serving import serve_proxy

        address = parse_address(http, "--http", None)
        users = _parse_tokens(options.token or os.environ.get("ABP_MCP_TOKEN"))
        await serve_proxy(server, shared, address, users, _print_address)


@asynccontextmanager
async def _open_shared(
    server: Server, options: ProxyOptions, *, roots: Sequence[Path] | None
) -> AsyncIterator[ProxyContext]:
    """Open the store, and yield the context that all exchanges of a proxy share. With ``--stats``, print its statistics
    at the end."""
    from ..mcp.proxy._exchange import proxy_of

    async with limited_store(options.output, options.ttl, options.limits, config=None) as store:
        shared = proxy_of(
            server,
            store,
            max_inline=options.max_inline,
            preset=options.preset,
            json_previews=options.json_previews,
            roots=roots,
        )
        try:
            yield shared
        finally:
            if options.stats:
                tools = {shared.stats.server: shared.stats.tools}
                _print_stats(shared.stats.as_dict(), tools, as_json=options.as_json, out=print_line)


def _print_all_stats(*, as_json: bool) -> None:
    from ..mcp.proxy._stats import log_file, read_log

    log = log_file()
    servers = {} if log is None else read_log(log)
    document = {server: {tool: asdict(count) for tool, count in tools.items()} for server, tools in servers.items()}
    _print_stats(document, servers, as_json=as_json, out=print_text)


def _print_stats(
    document: object, servers: Mapping[str, Mapping[str, Count]], *, as_json: bool, out: Callable[[str], None]
) -> None:
    from ..mcp.proxy._stats import table_rows

    if as_json:
        out(encode_json(document).decode())
        return
    rows = table_rows(servers)
    for line in aligned_rows(rows, numbers=range(2, len(rows[0]))):
        out(line)
