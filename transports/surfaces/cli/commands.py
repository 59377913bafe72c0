"""The ``abp`` command as a whole: its subcommands, and its errors."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from copy import copy
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import artifacts, batch, bench, calls, conformance, demo, discover, doctor, fixture, init, resources, shell
from .artifact_lookup import Id, find
from .artifact_store import Folder, Json, store_at
from .completion import complete
from .login import login
from .options import AdapterFile
from .output import print_json, print_note, print_text, report_error, run_async, start_output, version_of
from .retention import Limits, Ttl, open_limited_store
from .verbosity import add_options

if TYPE_CHECKING:
    from ...artifacts import ArtifactStore
    from ..shared.apps import Connect
    from ..web import Served

__all__ = ["app", "command_for", "run"]

app = typer.Typer(
    name="abp",
    help="Drive browser apps that speak ABP, and keep every binary result as a verified file.",
    epilog="Files go to ABP_OUTPUT_DIR (default: abp-mcp-bridge in the temp folder). Exit status: 0 success, "
    "1 the work failed, 2 bad usage, 130 interrupted. To try it: abp demo",
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command()(calls.call)
app.command()(calls.capabilities)
app.command()(login)
app.command()(shell.shell)
app.command()(resources.resources)
app.command()(discover.discover)
app.command()(conformance.conformance)
app.command()(bench.bench)
app.command()(doctor.doctor)
app.command()(fixture.fixture)
app.command()(demo.demo)
app.add_typer(artifacts.app, name="artifacts")
app.add_typer(batch.app, name="batch")
app.add_typer(init.app, name="init")


@app.command()
def mcp(
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app from the start (repeatable).")
    ] = None,
    adapter: AdapterFile = None,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", help="Settings (default: abp.toml here, if it exists).")
    ] = None,
    http: Annotated[
        str | None, typer.Option("--http", metavar="HOST:PORT", help="Serve over HTTP instead, on this machine.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token", metavar="[USER=]TOKEN,…", help="Who may use --http (default: ABP_MCP_TOKEN, or a new one)."
        ),
    ] = None,
    gallery: Annotated[
        bool, typer.Option("--gallery", help="Serve the gallery too; its address is printed on stderr.")
    ] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Trust abp.toml here as it is now, say what it sets, and end.")
    ] = False,
    ttl: Ttl = None,
    limits: Limits = None,
) -> int:
    """Serve apps as tools of the Model Context Protocol, on stdin and stdout."""
    if trust:
        return _trust_found_file()

    async def work() -> int:
        from ...artifacts import sweeping
        from ...errors import UsageError
        from ...session.config_file import read_config
        from ...session.connect import connect
        from ...session.named_apps import app_entries
        from ...session.retention import BRIDGE_RETENTION
        from ..shared.listening import parse_address

        try:
            from ..mcp import Bridge, Options, parse_tokens, serve_http, serve_stdio
        except ImportError as error:
            raise UsageError(
                f"`abp mcp` needs the MCP SDK ({error}); install it: pip install 'abp-transports[mcp]'"
            ) from error
        options = Options.load(config=config, apps=apps or None, adapter=adapter, token=token)
        store = open_limited_store(ttl, limits, config=config, own=BRIDGE_RETENTION)
        routed, named = partial(connect, config=config), app_entries(read_config(config))
        users: dict[str, str] = {}
        if http is not None:
            host, port = parse_address(http, "--http")
            tokens = options.token or ("" if options.jwt_issuer else secrets.token_urlsafe())
            if tokens and not options.token:
                print_note(f"clients need this token: {tokens}", always=True)
            users = parse_tokens(tokens) if tokens else {}
        async with store, sweeping(store), AsyncExitStack() as stack:
            shown = _gallery(store, users, routed, named) if gallery else None
            served = await stack.enter_async_context(shown) if shown else None
            activity, link, connections = (
                (served.activity, served.link, served.connections) if served else (None, None, None)
            )
            bridge = Bridge(options, store, connect=routed, activity=activity, link=link, named=named)
            if http is None:
                await serve_stdio(bridge)
            else:
                await serve_http(
                    bridge,
                    host,
                    port,
                    users,
                    lambda url: print_note(f"serving at {options.public_url or url}", always=True),
                    connections=connections,
                )
        return 0

    return run_async(work)


def _trust_found_file() -> int:
    """Trust the settings file of the working folder. Nothing is served: where ``--trust`` stands in a client's settings
    for good, it would trust whatever the file becomes."""
    from ...protocol.redaction import Redactor
    from ...session.config_file import trust_found_file

    file, redactor = trust_found_file(), Redactor()
    print_text(f"Trusted as long as it stays as it is: {file.path}")
    for table, settings in sorted((file.tables or {}).items()):
        for key, value in settings.items():
            # what a secret is read from is what is trusted; the value itself is elsewhere
            shown = value if table == "secrets" else redactor.field(key, value)
            print_text(f"  {table}.{key} = {shown!r}")
    return 0


@asynccontextmanager
async def _gallery(
    store: ArtifactStore, users: Mapping[str, str], connect: Connect, named: Collection[str]
) -> AsyncIterator[Served]:
    """Serve the gallery beside the bridge: each user of the bridge sees their own artifacts, with the same token."""
    from ...artifacts import Scope
    from ..web import Options
    from ..web import serve as serve_web

    scopes = {token: Scope(user=user) for token, user in users.items()}
    async with serve_web(store, Options.load(), users=scopes, connect=connect, named=named) as served:
        print_note(f"gallery: {served.page}", always=True)
        yield served


@app.command()
def serve(
    targets: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app; may be given several times.")
    ] = None,
    adapter: AdapterFile = None,
    port: Annotated[int, typer.Option("--port", metavar="N", min=0, max=65535, help="Port; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Address to listen on; one that others reach needs a token.")
    ] = "127.0.0.1",
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="T", help="The operator's (default: ABP_SERVE_TOKEN, or a new one)."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="File with a table [retention] (default: abp.toml here)."),
    ] = None,
    ttl: Ttl = None,
    limits: Limits = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print address and token as one line of JSON.")] = False,
) -> int:
    """Serve artifacts and the gallery over HTTP, until Ctrl-C."""

    async def work() -> int:
        from ...artifacts import sweeping
        from ...session.config_file import read_config
        from ...session.connect import connect
        from ...session.named_apps import app_entries
        from ..shared.apps import adapter_options
        from ..web import Options
        from ..web import serve as serve_web

        connecting, named = adapter_options(targets or (), adapter), app_entries(read_config(config))
        serving = partial(serve_web, host=host, port=port, connect=partial(connect, config=config))
        async with (
            open_limited_store(ttl, limits, config=config) as store,
            sweeping(store),
            serving(store, Options.load(token=token), named=named) as served,
        ):
            for target in targets or ():
                await served.apps.connect(target, connecting)
            if as_json:
                print_json({"url": served.url, "token": served.token})
            else:
                print_text(f"Open {served.page}")
                print_text("Ctrl-C ends it.")
            await asyncio.Event().wait()
        return 0

    return run_async(work)


@artifacts.app.command("link")
def link(
    artifact_id: Id,
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="How long it opens: 90s, 30m, 1h, 7d; at most 30d.")
    ] = "1h",
    url: Annotated[
        str | None,
        typer.Option("--url", metavar="BASE", help="Address of the server (default: the one that runs here)."),
    ] = None,
    folder: Folder = None,
    as_json: Json = False,
) -> int:
    """Make an address that opens one artifact for a while."""

    async def work() -> int:
        from ..web import make_link

        async with store_at(folder) as store:
            made, until = await make_link(store, (await find(store, artifact_id)).id, expires, url)
        if as_json:
            print_json({"success": True, "url": made, "expires_at": until})
        else:
            print_text(made)
        return 0

    return run_async(work)


def _version(wanted: bool) -> None:
    if wanted:
        print_text(f"abp {version_of('abp-transports')}")
        print_text(doctor.browser_version())
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_version, help="Show the version, and the browser's, and exit."
        ),
    ] = False,
) -> None:
    pass


def command_for(args: Sequence[str]) -> Any:
    """Return the command line as Typer makes it: with the one command that is called, or with all if that is unclear,
    which takes 20 ms longer."""
    return _command(args[0] if args else "")


@cache
def _command(name: str) -> Any:  # a class of the click that Typer brings along
    wanted = copy(app)
    wanted.registered_commands = [
        info for info in app.registered_commands if info.callback and name == (info.name or info.callback.__name__)
    ]
    wanted.registered_groups = []
    made: Any = typer.main.get_command(wanted if wanted.registered_commands else app)
    add_options(made)
    return made


def run(args: Sequence[str]) -> int:
    """Run one command and return its exit status. An error is one line on stderr and, with ``--json``, a document."""
    start_output()
    try:
        if (completed := complete(partial(_command, ""))) is not None:
            return completed
        command = command_for(args)
        with command.make_context("abp", list(args) or ["--help"]) as context:
            status = command.invoke(context)
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        return end.exit_code if args else 2
    except Exception as error:  # noqa: BLE001 - the edge of the program: every error becomes a message
        return report_error(error, as_json="--json" in args)
