"""HTTP client of a running `abp serve`: connect an app there, start a call, wait for a call, cancel it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

import aiohttp

from ...errors import ABPError, ConnectFailed, ProtocolError, UsageError
from ...protocol._plain_text import is_page, origin_of
from ...protocol._strict_json import decode_json
from ...protocol.binary import BinaryData, LocalFile
from ._options import read_token

#: Timeout of a request in seconds, without its ``wait``, and the largest answer in bytes.
_TIMEOUT, _MAX_ANSWER = 30.0, 16 << 20
#: Seconds that one request waits for the end of a call.
_WAIT = 20


@asynccontextmanager
async def open_server(url: str | None, token: str | None) -> AsyncIterator[Server]:
    """Yield a client of the server at ``url``; ``token`` may be ``@FILE``. Raises
    :class:`~transports.errors.UsageError` without an address or a token."""
    if url is None or not is_page(url) or origin_of(url) is None:
        raise UsageError(
            "name the server with --server, such as http://127.0.0.1:8000/; `abp serve` prints its address"
        )
    if not token:
        raise UsageError("the server wants a token: give --token, or set ABP_SERVE_TOKEN; `abp serve` prints it")
    headers = {"Authorization": f"Bearer {read_token(token)}"}
    async with aiohttp.ClientSession(headers=headers) as http:
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        try:
            yield Server(http, address)
        # another program at the address: its JSON lacks the keys and types that the methods read
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ProtocolError(f"{address} did not answer like an `abp serve` ({error!r})") from None


class Server:
    """Client of one server, with one token. Methods raise errors of the server as :class:`~transports.errors.ABPError`,
    and :class:`~transports.errors.ConnectFailed` if it does not answer."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url

    async def start(
        self, target: str, capability: str, params: Mapping[str, object], files: Mapping[str, BinaryData],
        *, transport: str = "auto", timeout: float | None = None,
    ) -> Mapping[str, Any]:  # fmt: skip
        """Start a call and return its record. ``files`` are uploaded first.

        ``target`` is a session of the server, or the address of an app, which is connected there if necessary."""
        apps = (await self._ask("GET", "/apps"))["apps"]
        app = next((one for one in apps if target == one["session"]), None)
        if app is None:  # `reuse`: the list shows redacted addresses, so only the server can find a connected app
            app = await self._ask("POST", "/apps", json={"url": target, "transport": transport, "reuse": True})
        sent = [{"param": param, "artifact": await self._upload(file)} for param, file in files.items()]
        body = {"capability": capability, "params": params, "files": sent, "timeout": timeout}
        record: Mapping[str, Any] = await self._ask("POST", f"/apps/{quote(app['session'])}/calls", json=body)
        return record

    async def _upload(self, file: BinaryData) -> str:
        assert isinstance(file.content, LocalFile)
        name = quote(file.filename or file.content.path.name)
        with file.content.path.open("rb") as content:
            stored = await self._ask(
                "POST",
                f"/artifacts?filename={name}",
                data=content,
                headers={"Content-Type": file.mime_type or "application/octet-stream"},
            )
        return str(stored["artifacts"][0]["id"])

    async def calls(self) -> list[Mapping[str, Any]]:
        """Return the detached calls, newest first."""
        listed: list[Mapping[str, Any]] = (await self._ask("GET", "/calls?limit=1000"))["calls"]
        return [one for one in listed if one["detached"]]

    async def wait(self, call: str) -> Mapping[str, Any]:
        """Return a call with its ``result`` once it has ended, or its current record after 20 seconds."""
        record: Mapping[str, Any] = await self._ask("GET", f"/calls/{quote(call, safe='')}?wait={_WAIT}", wait=_WAIT)
        return record

    async def cancel(self, call: str) -> Mapping[str, Any]:
        """Cancel a call and return its record."""
        record: Mapping[str, Any] = await self._ask("DELETE", f"/calls/{quote(call, safe='')}")
        return record

    async def _ask(self, method: str, path: str, *, wait: float = 0.0, **more: Any) -> Any:
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_TIMEOUT + wait, sock_connect=_TIMEOUT)
        try:
            async with self._http.request(
                method, self._url + path, timeout=timeout, allow_redirects=False, **more
            ) as answer:
                body = await answer.content.read(_MAX_ANSWER + 1)
                while len(body) <= _MAX_ANSWER and (piece := await answer.content.read(_MAX_ANSWER)):
                    body += piece
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ConnectFailed(
                f"{self._url} does not answer ({type(error).__name__}); does `abp serve` run?"
            ) from None
        document: Any = None
        if len(body) <= _MAX_ANSWER:
            with suppress(ProtocolError):
                document = decode_json(body)
        if isinstance(document, dict) and answer.status < 400:
            return document
        problem = document.get("error") if isinstance(document, dict) else None
        if not isinstance(problem, dict):
            raise ProtocolError(f"{self._url} answered {answer.status} and no JSON object; is it an `abp serve`?")
        if answer.status == 401:
            raise ABPError(
                f"the server refused the token; give the one that `abp serve` printed at {self._url}, with --token or "
                "ABP_SERVE_TOKEN",
                code=str(problem.get("code")),
            )
        raise ABPError(
            str(problem.get("message")), code=str(problem.get("code")), retryable=problem.get("retryable") is True
        )
