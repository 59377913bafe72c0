"""``abp resources``: list, read and watch the resources of an MCP server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol._plain_text import plain_line
from ._options import Headers, Json, Output, Timeout, Token, headers_of, open_app
from ._output import MAX_SUMMARY, asynchronous, print_event, print_json, print_rows, print_text

if TYPE_CHECKING:
    from ...session._session import Session


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
) -> int:
    """List the resources of an MCP server, or read some.

    With --watch and --json, each reading is a line of JSON."""
    headers = headers_of(token, header or ())
    store = output if read or watch else "none:"
    async with open_app(target, {"headers": headers}, store=store) as app:
        if read:
            results = [await app.resources.read(uri, timeout=timeout) for uri in read]
            if as_json:
                print_json({"success": True, "results": [result.as_dict() for result in results]})
            else:
                print_text("\n".join(result.summary(max_chars=MAX_SUMMARY) for result in results))
        if watch:
            await _print_changes(app, watch, timeout, as_json)
        if not read and not watch:
            await _print_resources(app, timeout, as_json)
    return 0


async def _print_changes(app: Session, uris: Sequence[str], timeout: float | None, as_json: bool) -> None:
    """Print the resources now and after each change, until the session ends. They are printed after a reconnection too,
    since a notification of a change may have been lost meanwhile."""
    from ...protocol._payloads import Notification
    from ...session._events import ConnectionChanged

    async def show(uri: str, *, fresh: bool) -> None:
        result = await app.resources.read(uri, fresh=fresh, timeout=timeout)
        if as_json:
            print_event({"success": True, "uri": uri, "result": result.as_dict()})
        else:
            print_text(f"{uri}\n{result.summary(max_chars=MAX_SUMMARY)}")

    async with app.events() as events:
        for uri in uris:
            await app.resources.subscribe(uri, timeout=timeout)
            await show(uri, fresh=False)
        async for event in events:
            match event:
                case Notification(event="notifications/resources/updated", data={"uri": str(uri)}) if uri in uris:
                    await show(uri, fresh=True)
                case ConnectionChanged(connected=True):
                    for uri in uris:
                        await show(uri, fresh=True)


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
