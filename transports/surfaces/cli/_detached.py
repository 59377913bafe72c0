"""``abp calls``: detached calls, which a running `abp serve` makes without this command."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import aiohttp
import typer

from ...artifacts._ref import ArtifactRef
from ...errors import ABPError, CapabilityError, ConnectFailed, OutcomeUnknown, ProtocolError, UsageError
from ...protocol._find_content import Place, find_field
from ...protocol._plain_text import is_page, origin_of
from ...protocol._strict_json import decode_json
from ...protocol.binary import BinaryData, LocalFile
from ...protocol.messages import Effect
from ...routing._result import Result
from ...session._call import CallStatus
from ._options import Json, ServerUrl, read_token
from ._output import print_json, print_note, print_result, print_rows, print_text
from ._running import asynchronous

app = typer.Typer(
    help="List, wait for or cancel detached calls. `abp call --detach` makes one in a running `abp serve`.",
    add_completion=False,
    rich_markup_mode=None,
)

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


@app.command("list")
@asynchronous
async def list_calls(server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """List the calls, newest first."""
    async with open_server(server, token) as client:
        calls = await client.list_detached()
    if as_json:
        print_json({"success": True, "calls": calls})
        return
    rows = []
    for call in calls:
        started = datetime.fromisoformat(call["started"]).astimezone()
        rows.append((call["id"], call["status"], f"{started:%Y-%m-%d %H:%M:%S}", call["capability"], call["app"]))
    print_rows(rows)


@app.command("wait")
@asynchronous
async def wait(call: _Call, server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """Wait for the end of a call and print its result.

    It is printed as `abp call` would."""
    notified = False
    async with open_server(server, token) as client:
        while True:
            record = await client.wait(call)
            status = CallStatus(record["status"])
            if status.final:
                break
            if status is CallStatus.INPUT_REQUIRED and not notified:
                notified = True
                print_note("the app asks a question; answer it in the gallery", always=True)

    document = record["result"]
    if status is not CallStatus.COMPLETED:
        raise _error_of(record)
    if document is None:
        raise UsageError(f"call {call}: its answer has expired; they are kept for a day at most", code="CALL_EXPIRED")
    if as_json:
        print_json(document)
    else:
        print_result(result_of(document))


@app.command("cancel")
@asynchronous
async def cancel(call: _Call, server: ServerUrl = None, token: _Token = None, as_json: Json = False) -> None:
    """Cancel a call, in the app too. A call that has ended stays as it is."""
    async with open_server(server, token) as client:
        record = await client.cancel(call)
    if as_json:
        print_json({"success": True, "call": record})
    else:
        print_text(f"{record['id']}  {record['status']}")


def _error_of(call: Mapping[str, Any]) -> ABPError:
    """Return the error of a call that has not succeeded."""
    result = call["result"] or {}
    problem = result.get("error") or call["error"] or {}
    message = str(problem.get("message") or f"{call['capability']}: {call['status']}")
    code = str(problem.get("code") or "OPERATION_FAILED")
    if call["status"] == "unknown":
        return OutcomeUnknown(message, code=code)
    error = CapabilityError(message, code=code, retryable=problem.get("retryable") is True)
    error.cancelled = call["status"] == "cancelled"
    return error


def result_of(document: Mapping[str, Any]) -> Result:
    """Return the result that a document of ``abp call --json`` describes, with all parts that are printed."""
    data = document["data"]
    artifacts = {stored["field"]: _stored_reference(stored) for stored in document["artifacts"]}
    places: dict[str, Place] = {}
    for field, ref in artifacts.items():
        match find_field(data, field):
            # The data has the reference of this very file there, and not another value of the app.
            case place, {"id": ref.id}:
                places[field] = place

    metadata: Mapping[str, Any] = {}
    is_single_file = artifacts.keys() == {""}
    if isinstance(data, dict) and not is_single_file:
        members_with_files = {place[0] for place in places.values() if place}
        metadata = {key: value for key, value in data.items() if key not in members_with_files}

    effects = document.get("effects", ())
    return Result(
        document["capability"],
        data,
        artifacts,
        warnings=tuple(document["warnings"]),
        effects=tuple(Effect(effect["kind"], effect["call"], effect["detail"]) for effect in effects),
        metadata=metadata,
        inline_fields=frozenset(places),
        evidence={stored["kind"]: _stored_reference(stored) for stored in document.get("evidence", ())},
    )


def _stored_reference(stored: Mapping[str, Any]) -> ArtifactRef:
    source = {name: stored[name] for name in ("truncated", "warning", "preview") if name in stored}
    fields = {name: stored[name] for name in ("id", "filename", "mime_type", "size_bytes", "sha256")}
    return ArtifactRef(uri=stored["uri"] or "", local_path=stored["path"], source=source, **fields)


async def _read_object(response: aiohttp.ClientResponse) -> dict[str, Any] | None:
    """Return the JSON object in a response, or ``None`` if it is anything else or very large."""
    max_bytes = 16 << 20
    body = b""
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > max_bytes:
            return None
    document: Any = None
    with suppress(ProtocolError):
        document = decode_json(body)
    return document if isinstance(document, dict) else None


@asynccontextmanager
async def open_server(url: str | None, token: str | None) -> AsyncIterator[ServerClient]:
    """Open a client of `abp serve` at ``url``. ``token`` may be ``@FILE``."""
    if url is None or not is_page(url) or origin_of(url) is None:
        raise UsageError(
            "name the server with --server, such as http://127.0.0.1:8000/; `abp serve` prints its address"
        )
    if not token:
        raise UsageError("the server requires a token: give --token, or set ABP_SERVE_TOKEN; `abp serve` prints it")
    headers = {"Authorization": f"Bearer {read_token(token)}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        try:
            yield ServerClient(http, address)
        # The JSON of another program at the address lacks the keys and types that the methods read.
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"{address} did not answer like an `abp serve` ({error!r})") from None


class ServerClient:
    """A client of `abp serve`. It raises the errors that the server answers, or ``ConnectFailed`` without an answer."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def start(
        self,
        target: str,
        capability: str,
        params: Mapping[str, object],
        files: Mapping[str, BinaryData],
        *,
        transport: str = "auto",
        timeout: float | None = None,
    ) -> Mapping[str, Any]:
        """Upload the files, then start a call. ``target`` is a session of the server, or the address of an app."""
        answer = await self._request("GET", "/apps")
        sessions = [app["session"] for app in answer["apps"]]
        session = target
        if session not in sessions:
            # The list has redacted addresses, so that only the server can find an app that is connected already.
            app = await self._request("POST", "/apps", json={"url": target, "transport": transport, "reuse": True})
            session = app["session"]

        uploads = [{"param": param, "artifact": await self._upload(file)} for param, file in files.items()]
        body = {"capability": capability, "params": params, "files": uploads, "timeout": timeout}
        return await self._request("POST", f"/apps/{quote(session)}/calls", json=body)

    async def _upload(self, file: BinaryData) -> str:
        assert isinstance(file.content, LocalFile)
        name = quote(file.filename or file.content.path.name)
        with file.content.path.open("rb") as content:
            answer = await self._request(
                "POST",
                f"/artifacts?filename={name}",
                data=content,
                headers={"Content-Type": file.mime_type or "application/octet-stream"},
            )
        return str(answer["artifacts"][0]["id"])

    async def list_detached(self) -> list[Mapping[str, Any]]:
        answer = await self._request("GET", "/calls?limit=1000")
        return [call for call in answer["calls"] if call["detached"]]

    async def wait(self, call: str) -> Mapping[str, Any]:
        """Return a call with its ``result`` once it has ended, or its current record after 20 seconds."""
        max_seconds = 20
        return await self._request("GET", f"/calls/{quote(call, safe='')}?wait={max_seconds}", wait=max_seconds)

    async def cancel(self, call: str) -> Mapping[str, Any]:
        return await self._request("DELETE", f"/calls/{quote(call, safe='')}")

    async def _request(self, method: str, path: str, *, wait: float = 0.0, **options: Any) -> dict[str, Any]:
        """Send a request and return the JSON object of the answer. Add ``wait`` seconds to the timeout."""
        max_seconds = 30.0
        timeout = aiohttp.ClientTimeout(total=None, sock_read=max_seconds + wait, sock_connect=max_seconds)
        try:
            async with self._http.request(
                method, self._url + path, timeout=timeout, allow_redirects=False, **options
            ) as response:
                document = await _read_object(response)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ConnectFailed(
                f"{self._url} does not answer ({type(error).__name__}); is `abp serve` running?"
            ) from None

        if document is not None and response.status < 400:
            return document
        problem = document.get("error") if document is not None else None
        if not isinstance(problem, dict):
            raise ProtocolError(f"{self._url} answered {response.status} and no JSON object; is it an `abp serve`?")
        raise self._refusal(response.status, problem)

    def _refusal(self, status: int, problem: Mapping[str, Any]) -> ABPError:
        """Return the error that the server has answered. ``problem`` is the member ``error`` of its JSON."""
        code = str(problem.get("code"))
        if status == 401:
            return ABPError(
                f"the server refused the token; give the one that `abp serve` printed at {self._url}, with --token or "
                "ABP_SERVE_TOKEN",
                code=code,
            )
        return ABPError(str(problem.get("message")), code=code, retryable=problem.get("retryable") is True)
