"""``abp proxy``: another MCP server, with its large content as links."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.lazy import needing
from ...errors import UsageError
from ...protocol._strict_json import encode_json
from ..shared._listening import parse_address
from ._options import Headers, Json, Limits, Output, ServerTokens, Ttl, headers_of, open_limited_store
from ._output import aligned_rows, note_mcp_client, print_line, print_note, print_text
from ._running import asynchronous

if TYPE_CHECKING:
    from ...mcp._servers import Server
    from ..mcp.proxy._stats import Count
    from ..mcp.proxy._upstream import Upstream


@asynchronous
async def proxy(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND…", help="Command of the server, after --.", show_default=False),
    ] = None,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="The server is behind this address instead.")
    ] = None,
    header: Headers = None,
    max_inline: Annotated[
        int,
        typer.Option("--max-inline", metavar="BYTES", min=0, help="Largest value that stays in an answer."),
    ] = 64 * 1024,
    output: Output = None,
    http: Annotated[
        str | None,
        typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP instead of stdin and stdout."),
    ] = None,
    token: ServerTokens = None,
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="Rules for files in answers: tableau, github, or a plug-in."),
    ] = None,
    json_previews: Annotated[
        bool, typer.Option("--json-previews", help="Shorten a long JSON text to JSON, without words after it.")
    ] = False,
    roots: Annotated[
        list[Path] | None,
        typer.Option(
            "--roots",
            metavar="FOLDER",
            help="Folder whose files clients over HTTP may send to the server, if they share it (several times).",
            show_default=False,
        ),
    ] = None,
    stats: Annotated[
        bool,
        typer.Option(
            "--stats",
            help="Print bytes and pictures by tool: of this run at its end; without a server, of all runs.",
        ),
    ] = False,
    ttl: Ttl = None,
    limits: Limits = None,
    as_json: Json = False,
) -> int:
    """Run another MCP server, with its large content as links."""
    server = _find_server(command or (), url, header)
    if server is None:
        if not stats:
            raise UsageError("name the server: abp proxy -- COMMAND …, or abp proxy --url https://…/mcp")
        return _print_all_stats(as_json=as_json)
    if roots and http is None:
        raise UsageError("--roots needs --http; over stdin and stdout, the client's own roots are used")
    async with AsyncExitStack() as stack:
        upstream = None
        if http is None:
            upstream = await stack.enter_async_context(aclosing(await _open_server(server)))
        # All of this is imported while the server starts.
        from ...artifacts._opening import sweeping
        from ...routing._policy import ABP, named_preset
        from ..mcp.proxy._duplex import run_stdio
        from ..mcp.proxy._exchange import Shared
        from ..mcp.proxy._rewriting import ProxyOptions
        from ..mcp.proxy._stats import Stats, log_file

        policy = named_preset(preset) if preset else ABP
        options = ProxyOptions(max_inline, policy, json_previews)
        counted = Stats(str(server), log_file())
        store = open_limited_store(output, ttl, limits, config=None)
        await stack.enter_async_context(store)
        await stack.enter_async_context(sweeping(store))
        try:
            if upstream is not None:
                note_mcp_client()
                return await run_stdio(upstream, Shared(store, options, counted, roots=None))
            assert http is not None
            address, users = _address_and_users(http, token)
            from ..mcp.proxy._serving import serve_proxy  # late: it needs the SDK

            shared = Shared(store, options, counted, roots=roots or ())
            await serve_proxy(server, shared, address, users, _print_address)
            return 0
        finally:
            if stats:
                _print_stats(counted.as_dict(), {counted.server: counted.tools}, as_json=as_json, out=print_line)


@contextmanager
def _needing_mcp_sdk(option: str) -> Iterator[None]:
    """Raise :class:`~transports.errors.UsageError`, which names ``option``, if a block cannot import the MCP SDK."""
    try:
        with needing("the MCP SDK", "mcp"):
            yield
    except ImportError as error:
        raise UsageError(f"`abp proxy {option}`: {error}") from error


async def _open_server(server: Server) -> Upstream:
    from ..mcp.proxy._upstream import open_upstream

    with _needing_mcp_sdk("--url"):
        return await open_upstream(server)


def _address_and_users(http: str, token: str | None) -> tuple[tuple[str, int], Mapping[str, str]]:
    """Return the address to listen on, and the users by their tokens. A new token is printed."""
    with _needing_mcp_sdk("--http"):
        from ..mcp._access import parse_tokens

    address = parse_address(http, "--http", None)
    tokens = token or os.environ.get("ABP_MCP_TOKEN")
    if not tokens:
        tokens = secrets.token_urlsafe()
        print_note(f"clients need this token: {tokens}", always=True)
    return address, parse_tokens(tokens)


def _print_address(url: str) -> None:
    print_note(f"serving at {url}", always=True)


def _find_server(command: Sequence[str], url: str | None, header: Sequence[str] | None) -> Server | None:
    """Return the server of a command or an address, or ``None`` without both."""
    from ...mcp._servers import parse_server
    from ..mcp.proxy._upstream import server_of

    if command and url is not None:
        raise UsageError("a command and --url are mutually exclusive")
    if url is not None:
        return parse_server(f"mcp+{url}", headers_of(None, header or ()))
    if header:
        raise UsageError("--header is for --url; give a server that is started environment variables")
    if not command:
        return None
    return server_of(command)


def _print_all_stats(*, as_json: bool) -> int:
    """Print the statistics of all runs of the proxy, and return the exit status."""
    from ..mcp.proxy._stats import log_file, read_log

    log = log_file()
    servers = {} if log is None else read_log(log)
    document = {server: {tool: asdict(count) for tool, count in tools.items()} for server, tools in servers.items()}
    _print_stats(document, servers, as_json=as_json, out=print_text)
    return 0


def _print_stats(
    document: object, servers: Mapping[str, Mapping[str, Count]], *, as_json: bool, out: Callable[[str], None]
) -> None:
    """Print statistics by server and tool with ``out``: as a table, or their JSON ``document``."""
    from ..mcp.proxy._stats import table_rows

    if as_json:
        out(encode_json(document).decode())
        return
    rows = table_rows(servers)
    for line in aligned_rows(rows, numbers=range(2, len(rows[0]))):
        out(line)
