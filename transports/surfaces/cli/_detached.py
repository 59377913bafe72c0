"""``abp calls`` and ``abp call --detach``: detached calls, which a running `abp serve` makes without this command."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...errors import ABPError, CapabilityError, OutcomeUnknown, UsageError
from ._options import Json
from ._output import asynchronous, print_json, print_note, print_result, print_rows, print_text, run_async
from ._params import ParamOptions

if TYPE_CHECKING:
    from ...routing._result import Result

app = typer.Typer(
    help="List, wait for or cancel detached calls. `abp call --detach` makes one in a running `abp serve`.",
    add_completion=False,
    rich_markup_mode=None,
)

Detach = Annotated[
    bool, typer.Option("--detach", help="Have a running server make the call, and print its id at once.")
]
ServerUrl = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="Address of the server, as `abp serve` prints it.")
]
_Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="T",
        envvar="ABP_SERVE_TOKEN",
        help="The server's token; @FILE reads it (default: ABP_SERVE_TOKEN).",
    ),
]
_Call = Annotated[str, typer.Argument(metavar="CALL", help="Its id, as `abp call --detach` printed it.")]


def start_detached(
    target: str,
    capability: str,
    *,
    params: ParamOptions,
    transport: str,
    timeout: float | None,
    server: str | None,
    token: str | None,
    as_json: bool,
    refused: Mapping[str, object],
) -> int:
    """Run ``abp call --detach``.

    ``refused`` are connection options by name. The server connects to the app, not this command, so a value among them
    raises :class:`~transports.errors.UsageError`."""
    for name, value in refused.items():
        if value:
            raise UsageError(f"{name} is for a call that this command makes itself; leave it out with --detach")
    values, given = replace(params, files=None).read(), _flat(ParamOptions(files=params.files).read())

    async def work() -> int:
        from ._server import open_server

        async with open_server(server, token or os.environ.get("ABP_SERVE_TOKEN")) as opened:
            call = await opened.start(target, capability, values, given, transport=transport, timeout=timeout)
        if as_json:
            print_json({"success": True, "call": call})
        else:
            print_text(str(call["id"]))
            print_note(f"abp calls wait {call['id']} --server {server} prints its result")
        return 0

    return run_async(work)


def _flat(files: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the files in parameters by their paths, with dots between the keys."""
    out: dict[str, Any] = {}
    for key, value in files.items():
        out |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


@app.command("list")
@asynchronous
async def list_calls(server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """List the calls, newest first."""
    from ._server import open_server

    async with open_server(server, token) as opened:
        calls = await opened.calls()
    if as_json:
        print_json({"success": True, "calls": calls})
        return
    print_rows(
        [(call["id"], call["status"], _began(call["started"]), call["capability"], call["app"]) for call in calls]
    )


def _began(started: str) -> str:
    return datetime.fromisoformat(started).astimezone().strftime("%Y-%m-%d %H:%M:%S")


@app.command("wait")
@asynchronous
async def wait(call: _Call, server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """Wait for the end of a call and print its result.

    It is printed as `abp call` would."""
    from ...session._call import CallStatus
    from ._server import open_server

    asked = False
    async with open_server(server, token) as opened:
        while not (status := CallStatus((ended := await opened.wait(call))["status"])).final:
            if status is CallStatus.INPUT_REQUIRED and not asked:
                asked = True
                print_note("the app asks a question; answer it in the gallery", always=True)
    document = ended["result"]
    if status is not CallStatus.COMPLETED:
        raise _error(ended)
    if document is None:
        raise UsageError(f"call {call}: its answer was kept for a day at most and is gone", code="CALL_EXPIRED")
    if as_json:
        print_json(document)
    else:
        print_result(result_of(document))


@app.command("cancel")
@asynchronous
async def cancel(call: _Call, server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """Cancel a call, in the app too. A call that has ended stays as it is."""
    from ._server import open_server

    async with open_server(server, token) as opened:
        record = await opened.cancel(call)
    if as_json:
        print_json({"success": True, "call": record})
    else:
        print_text(f"{record['id']}  {record['status']}")


def _error(call: Mapping[str, Any]) -> ABPError:
    """Return the error of a call without a result."""
    problem = (call["result"] or {}).get("error") or call["error"] or {}
    message = str(problem.get("message") or f"{call['capability']}: {call['status']}")
    code = str(problem.get("code") or "OPERATION_FAILED")
    if call["status"] == "unknown":
        return OutcomeUnknown(message, code=code)
    error = CapabilityError(message, code=code, retryable=problem.get("retryable") is True)
    error.cancelled = call["status"] == "cancelled"
    return error


def result_of(document: Mapping[str, Any]) -> Result:
    """Return the result that a document of ``abp call --json`` describes, as far as it is printed."""
    from ...artifacts._ref import ArtifactRef
    from ...protocol.messages import Effect
    from ...routing._result import Result

    def reference(one: Mapping[str, Any]) -> ArtifactRef:
        said = {name: one[name] for name in ("truncated", "warning", "preview") if name in one}
        named = {name: one[name] for name in ("id", "filename", "mime_type", "size_bytes", "sha256")}
        return ArtifactRef(uri=one["uri"] or "", local_path=one["path"], source=said, **named)

    data = document["data"]
    artifacts = {one["field"]: reference(one) for one in document["artifacts"]}
    inline = frozenset(place for place, ref in artifacts.items() if _holds(data, place, ref.id))
    first = {re.split(r"(?<!\\)\.", place)[0] for place in inline}
    beside = data if isinstance(data, dict) and artifacts.keys() != {""} else {}
    return Result(
        document["capability"],
        data,
        artifacts,
        warnings=tuple(document["warnings"]),
        effects=tuple(Effect(one["kind"], one["call"], one["detail"]) for one in document.get("effects", ())),
        metadata={key: value for key, value in beside.items() if key.replace(".", "\\.") not in first},
        inline_fields=inline,
        evidence={one["kind"]: reference(one) for one in document.get("evidence", ())},
    )


def _holds(data: Any, place: str, artifact_id: str) -> bool:
    """Return whether the reference of an artifact stands at its place in the data."""
    for step in re.split(r"(?<!\\)\.", place) if place else ():
        key = re.sub(r"\\(.)", r"\1", step)
        if isinstance(data, list) and key.isdigit() and int(key) < len(data):
            data = data[int(key)]
        elif isinstance(data, dict) and key in data:
            data = data[key]
        else:
            return False
    return isinstance(data, dict) and data.get("id") == artifact_id
