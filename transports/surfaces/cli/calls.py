"""``abp call`` and ``abp capabilities``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...protocol.plain_text import plain_line
from .answers import print_result, print_warnings
from .describe import flags_of, print_capability
from .detached import Detach, ServerUrl, start_detached
from .each import call_each, read_each
from .option_groups import spread_groups
from .options import ConnectionOptions, EvidenceText, Json, Output, Target, Timeout
from .output import print_json, print_text, run_async
from .params import ParamOptions, require_folder
from .progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from ...protocol.declarations import AppInfo, Capability


@spread_groups
def call(
    target: Target,
    capability: Annotated[str, typer.Argument(metavar="CAPABILITY", help="Its name, such as export.pdf")],
    *,
    params: ParamOptions,
    each: Annotated[
        Path | None,
        typer.Option(
            "--each",
            metavar="FILE.jsonl",
            help="Call once for each line, an object of parameters, one after the other.",
        ),
    ] = None,
    output: Output = None,
    timeout: Timeout = None,
    options: ConnectionOptions,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record it, to be called again as replay:FILE.")
    ] = None,
    evidence: EvidenceText = "",
    preset: Annotated[
        str | None,
        typer.Option("--preset", metavar="NAME", help="How answers are read: tableau, github, one that is installed."),
    ] = None,
    detach: Detach = False,
    server: ServerUrl = None,
    as_json: Json = False,
    insecure_private_addresses: Annotated[
        bool, typer.Option("--insecure-private-addresses", help="Let downloadUrls lead to private addresses.")
    ] = False,
) -> int:
    """Call one capability; every result becomes a file.

    With --detach a running `abp serve` makes the call (--server, --token), and `abp calls` looks at it."""
    if detach or server:
        refused = {
            "--each": each,
            "--out": output,
            **options.of_this_command(),
            "--record": record,
            "--evidence": evidence,
            "--preset": preset,
            "--insecure-private-addresses": insecure_private_addresses,
            "--server without --detach": not detach,
        }
        return start_detached(
            target,
            capability,
            params=params,
            transport=options.transport,
            timeout=timeout,
            server=server,
            token=options.token,
            as_json=as_json,
            refused=refused,
        )
    connection = options.connection(evidence=evidence)

    def work() -> Coroutine[object, object, int]:
        if insecure_private_addresses:
            os.environ["ABP_ALLOW_PRIVATE_ADDRESSES"] = "1"
        require_folder(record)
        values = params.read()
        return answer(values, None if each is None else read_each(each, values))

    async def answer(values: dict[str, object], lines: list[tuple[int, dict[str, object]]] | None) -> int:
        with ProgressBar(capability) as bar:
            async with connection.open(target, store=output, record=record, routing=preset, pause=bar.pause) as app:
                if lines is not None:
                    return await call_each(app, capability, lines, timeout=timeout, bar=bar, as_json=as_json)
                result = await app.call(capability, values, timeout=timeout, on_progress=bar.on_progress)
        if as_json:
            print_warnings(result)
            print_json(result.as_dict())
        else:
            print_result(result)
        return 0

    return run_async(work)


@spread_groups
def capabilities(
    target: Target,
    name: Annotated[
        str | None, typer.Argument(metavar="[CAPABILITY]", help="Show this one: its parameters, an example.")
    ] = None,
    *,
    options: ConnectionOptions,
    as_json: Json = False,
) -> int:
    """List what an app can do, or show one capability."""
    connection = options.connection()

    async def work() -> int:
        from ...protocol.capabilities import find_capability
        from ...protocol.urls import redact_url

        async with connection.open(target, store="none:") as app:
            known = app.capabilities
            chosen = known.values() if name is None else [find_capability(app.info.name, name, known)]
            if as_json:
                listed = [capability.model_dump(by_alias=True) for capability in chosen]
                print_json(
                    {
                        "success": True,
                        "app": app.info.model_dump(),
                        "transport": app.transport.name,
                        "capabilities": listed,
                    }
                )
                return 0
            if name is None:
                print_capabilities(app.info, known.values())
            else:
                way = [] if options.transport == "auto" else ["--transport", options.transport]
                print_capability(known[name], ["abp", "call", *way, redact_url(target) or target])
        return 0

    return run_async(work)


def print_capabilities(app: AppInfo, capabilities: Collection[Capability]) -> None:
    """Print one line for the app and one for each capability."""
    print_text(plain_line(f"{app.name} {app.version} ({app.id})"))
    names = [plain_line(capability.name) for capability in capabilities]
    width = max(map(len, names), default=0)
    for name, capability in zip(names, capabilities, strict=True):
        print_text(f"  {name:<{width}}  {plain_line(capability.description)}{flags_of(capability)}")
