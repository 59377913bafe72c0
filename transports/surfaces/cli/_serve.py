"""``abp serve`` and ``abp mcp``: the gallery with its artifacts over HTTP, and the MCP bridge over stdio or HTTP."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..._internal.redaction import Redactor
from ...artifacts._ref import Scope
from ...errors import UsageError
from ...session._settings import read_config, trust_found_file
from ..shared._listening import parse_address
from ._options import (
    AdapterFile,
    InlineData,
    Limits,
    OnOff,
    Output,
    Port,
    ServerTokens,
    SharedBrowsers,
    State,
    Ttl,
    open_limited_store,
)
from ._output import note_mcp_client, print_json, print_note, print_text
from ._running import asynchronous, run_async
from ._signals import expect_signal

if TYPE_CHECKING:
    from ...artifacts._base import ArtifactStore
    from ..mcp._options import Options as BridgeOptions
    from ..shared._apps import Connect
    from ..shared._detached import CallLedger
    from ..web._server import Served


def web_variables() -> set[str]:
    """Return the names of the variables that the web server reads."""
    from ..web._options import Options

    return {f"ABP_SERVE_{name.upper()}" for name in Options.model_fields}


def bridge_variables() -> set[str]:
    """Return the names of the variables that the bridge reads. Raises :class:`ImportError` without the MCP SDK."""
    from ..mcp._options import Options

    return {f"ABP_MCP_{name.upper()}" for name in Options.model_fields}


@asynchronous
async def serve(
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
    output: Output = None,
    ttl: Ttl = None,
    limits: Limits = None,
    state: State = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print address and token as one line of JSON.")] = False,
) -> None:
    """Serve artifacts and the gallery over HTTP, until Ctrl-C."""
    from ...artifacts._opening import sweeping  # late, like all that the help does not need
    from ...session._connect import connect
    from ...session._named_apps import app_entries
    from ..shared._apps import adapter_options, pooled
    from ..shared._detached import CallLedger
    from ..web._options import Options
    from ..web._server import serve as serve_web

    connect_options = adapter_options(targets or (), adapter)
    options = Options.load(token=token, browsers=browsers)
    named = app_entries(read_config(config))
    async with (
        open_limited_store(output, ttl, limits, config=config) as store,
        sweeping(store),
        pooled(partial(connect, config=config), options.browsers, store, config=config) as connect_app,
        CallLedger(state) as ledger,
        serve_web(
            store,
            options,
            host=host,
            port=port,
            connect=connect_app,
            runs=runs or (),
            ledger=ledger,
            named=named,
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


def mcp(
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app from the start (repeatable).")
    ] = None,
    adapter: AdapterFile = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings (default: abp.toml here, if it exists).")
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve over HTTP instead; for others than this machine with a public_url.",
        ),
    ] = None,
    token: ServerTokens = None,
    gallery: Annotated[
        bool, typer.Option("--gallery", help="Serve the gallery too; its address is printed on stderr.")
    ] = False,
    browsers: SharedBrowsers = None,
    inline_data: InlineData = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust abp.toml here as it is now, print its settings, and exit.")
    ] = False,
    output: Output = None,
    ttl: Ttl = None,
    limits: Limits = None,
    state: State = None,
) -> int:
    """Serve apps as tools of MCP, on stdin and stdout."""
    if trust:
        return _trust_and_print()

    async def work() -> int:
        from ...artifacts._opening import sweeping
        from ...session._connect import connect
        from ...session._named_apps import app_entries
        from ..shared._apps import pooled
        from ..shared._detached import CallLedger, DetachedCalls

        with _needing_mcp_sdk():
            from ..mcp._bridge import Bridge
            from ..mcp._http import serve_http
            from ..mcp._options import Options
            from ..mcp._stdio import serve_stdio

        options = Options.load(
            config=config,
            apps=apps or None,
            adapter=adapter,
            token=token,
            browsers=browsers,
            inline_data=None if inline_data is None else inline_data is OnOff.ON,
        )
        store = open_limited_store(output, ttl, limits, config=config)
        named = app_entries(read_config(config))
        users: dict[str, str] = {}
        address: tuple[str, int] | None = None
        if http is not None:
            address = parse_address(http, "--http", options.public_url)
            users = _users_of(options)

        sharing_browsers = pooled(
            partial(connect, config=config), options.browsers, store, config=config, headless=options.headless
        )
        async with (
            store,
            sweeping(store),
            CallLedger(state) as ledger,
            sharing_browsers as connect_app,
            AsyncExitStack() as stack,
        ):
            activity, link, connections = None, None, None
            if gallery:
                served = await stack.enter_async_context(_serve_gallery(store, users, connect_app, ledger, named))
                activity, link, connections = served.activity, served.link, served.connections
                calls = served.calls
            else:
                calls = DetachedCalls(ledger)
            stack.push_async_callback(calls.cancel_all)

            expect_signal()
            bridge = Bridge(options, store, connect=connect_app, activity=activity, link=link, calls=calls, named=named)
            if address is None:
                note_mcp_client()
                await serve_stdio(bridge)
                return 0

            def print_address(url: str) -> None:
                if options.public_url:
                    url = f"{options.public_url}/mcp"
                print_note(f"serving at {url}", always=True)

            await serve_http(bridge, *address, users, print_address, connections=connections)
            return 0

    return run_async(work)


@contextmanager
def _needing_mcp_sdk() -> Iterator[None]:
    """Raise :class:`~transports.errors.UsageError` with advice for an import in the block that fails."""
    try:
        yield
    except ImportError as error:
        missing = ""
        if error.name not in (None, "mcp"):
            missing = f", and its package {error.name} is missing"
        raise UsageError(
            f"`abp mcp` needs the MCP SDK{missing}; install it: pip install 'abp-transports[mcp]'"
        ) from error


def _users_of(options: BridgeOptions) -> dict[str, str]:
    """Return the users of the bridge by their tokens. If neither tokens nor JWTs are configured, a new token is
    printed."""
    from ..mcp._access import parse_tokens

    if options.token:
        return parse_tokens(options.token)
    if options.jwt_issuer:
        return {}
    token = secrets.token_urlsafe()
    print_note(f"clients need this token: {token}", always=True)
    return parse_tokens(token)


def _trust_and_print() -> int:
    """Trust the settings file of the working folder as it is now, and print it. The bridge is not started: a
    ``--trust`` left in a client's configuration would otherwise trust every later version of the file."""
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
        for key, value in settings.items():
            # [secrets] names sources (a variable, a file, a command), not values: the user must see them to trust them.
            if table != "secrets":
                value = redactor.field(key, value)
            for line in _setting_lines(f"{table}.{key}", value):
                print_text(f"  {line}")
    return 0


def _setting_lines(name: str, value: object) -> Iterator[str]:
    """Yield lines of settings as a file could have them: a name with dots, and its value."""
    if isinstance(value, Mapping):
        for key, setting in value.items():
            yield from _setting_lines(f"{name}.{key}", setting)
    else:
        yield f"{name} = {json.dumps(value, ensure_ascii=False, default=str)}"


@asynccontextmanager
async def _serve_gallery(
    store: ArtifactStore, users: Mapping[str, str], connect: Connect, ledger: CallLedger, named: Collection[str]
) -> AsyncIterator[Served]:
    """Serve the gallery beside the bridge. Each user of the bridge sees their own artifacts, with the same token."""
    from ..web._options import Options
    from ..web._server import serve as serve_web

    scopes = {token: Scope(user=user) for token, user in users.items()}
    serving = serve_web(store, Options.load(), users=scopes, connect=connect, ledger=ledger, named=named)
    async with serving as served:
        print_note(f"gallery: {served.page}", always=True)
        yield served
