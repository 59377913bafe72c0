"""All commands as one, and what becomes of their errors."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from . import artifacts, calls, demo, discover, doctor, fixture
from .outcome import begin, failed, out, perform, say, version_of

__all__ = ["app", "run"]

app = typer.Typer(
    name="abp",
    help="Drive browser apps that speak ABP, and keep every binary result as a verified file.",
    epilog="Files go to ABP_OUTPUT_DIR (default: abp-mcp-bridge in the temp folder). Exit status: 0 success, "
    "1 the work failed, 2 bad usage, 130 interrupted. To try it: abp demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(calls.call)
app.command()(calls.capabilities)
app.command()(discover.discover)
app.command()(doctor.doctor)
app.command()(fixture.fixture)
app.command()(demo.demo)
app.add_typer(artifacts.app, name="artifacts")


@app.command()
def mcp(
    apps: Annotated[
        list[str] | None, typer.Option("--app", metavar="TARGET", help="Connect this app from the start (repeatable).")
    ] = None,
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
) -> int:
    """Serve apps as tools of the Model Context Protocol, on stdin and stdout."""

    async def work() -> int:
        from ...artifacts import open_store
        from ...errors import UsageError
        from ...settings import Settings

        try:
            from ..mcp import Bridge, Options, address, serve_http, serve_stdio, users_of
        except ImportError as error:
            raise UsageError(
                f"`abp mcp` needs the MCP SDK ({error}); install it: pip install 'abp-transports[mcp]'"
            ) from error
        settings, options = Settings.load(), Options.load(config=config, apps=apps or None, token=token)
        store = open_store(
            settings.store or settings.output_dir, max_bytes=settings.max_artifact_bytes, audit=settings.audit_log
        )
        if http is None:
            await serve_stdio(Bridge(options, store))
            return 0
        host, port = address(http)
        tokens = options.token or ("" if options.jwt_issuer else secrets.token_urlsafe())
        if tokens and not options.token:
            say(f"clients need this token: {tokens}")
        users = users_of(tokens) if tokens else {}
        await serve_http(Bridge(options, store), host, port, users, lambda url: say(f"serving at {url}"))
        return 0

    return perform(work)


def _version(asked: bool) -> None:
    if asked:
        out(f"abp {version_of('abp-transports')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def run(given: Sequence[str]) -> int:
    """Run one command and return its exit status; an error is one line on stderr and, with ``--json``, a document."""
    begin()
    try:
        command = typer.main.get_command(app)
        with command.make_context("abp", list(given) or ["--help"]) as context:
            status = command.invoke(context)
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        return end.exit_code if given else 2
    except Exception as error:  # noqa: BLE001 - the edge of the program: nobody else would make words of it
        return failed(error, as_json="--json" in given)
