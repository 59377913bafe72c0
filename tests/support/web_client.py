"""A server in this process, and clients for it: aiohttp's, and one that sends what it is given."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from transports import MemoryTransport, Session, connect
from transports.artifacts import ArtifactRef, ArtifactStore
from transports.memory import Handler
from transports.surfaces.web._access import LIMITS, Limits, Options
from transports.surfaces.web._server import Served, serve

TOKEN = "the-operator's-own-token"


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, headers in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])


class Web:
    """A running server and a client with one token."""

    def __init__(self, served: Served, store: ArtifactStore, http: aiohttp.ClientSession, token: str = TOKEN) -> None:
        self.served = served
        self.store = store
        self.token = token
        self._http = http
        self.netloc = urlsplit(served.url).netloc

    def with_token(self, token: str) -> "Web":
        return Web(self.served, self.store, self._http, token)

    async def ask(self, method: str, path: str, *, json: object = None, token: bool = True, **more: Any) -> Answer:
        """One request; ``path`` may be a whole address."""
        headers = {"Authorization": f"Bearer {self.token}"} if token else {}
        headers |= more.pop("headers", {})
        url = path if "://" in path else self.served.url.rstrip("/") + path
        if json is not None:
            more["json"] = json
        async with self._http.request(method, url, headers=headers, allow_redirects=False, **more) as answer:
            response_headers = {name.lower(): value for name, value in answer.headers.items()}
            return Answer(answer.status, response_headers, await answer.read())

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.ask("GET", path, **more)

    async def post(self, path: str, json: object = None, **more: Any) -> Answer:
        return await self.ask("POST", path, json=json, **more)

    async def connect(self) -> str:
        """Connect the app; its session."""
        return (await self.served.apps.connect("memory:", {})).key

    async def guest(self, **owner: object) -> "Web":
        """A client with a token for a scope."""
        made = await self.post("/tokens", owner)
        assert made.status == 201, made
        return self.with_token(made.json["token"])

    async def raw(self, head: str, body: bytes = b"", *, token: bool = True) -> Answer:
        """What a server answers to this very head (lines, without the empty one). ``HOST`` stands for its own name."""
        reader, writer = await asyncio.open_connection(*self.netloc.rsplit(":", 1))
        try:
            head = head.replace("HOST", self.netloc).replace("\n", "\r\n")
            access = f"Authorization: Bearer {self.token}\r\n" if token else ""
            writer.write(f"{head}\r\n{access}Connection: close\r\n\r\n".encode("utf-8", "surrogateescape") + body)
            await writer.drain()
            async with asyncio.timeout(10):
                data = await reader.read()
        finally:
            writer.close()
        top, _, rest = data.partition(b"\r\n\r\n")
        status, *lines = top.decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        return Answer(int(status.split()[1]), headers, rest)

    def listen(self, last: int | str | None = None) -> "Listening":
        """The events from now on, or after one."""
        return Listening(self, last)


class Listening:
    """One client of ``/events``."""

    def __init__(self, web: Web, last: int | str | None) -> None:
        self._web = web
        self._headers = {"Authorization": f"Bearer {web.token}"}
        if last is not None:
            self._headers["Last-Event-ID"] = str(last)
        self._passed_over: list[tuple[int, str, Any]] = []

    async def __aenter__(self) -> Self:
        timeout = aiohttp.ClientTimeout(total=None)
        self._answer = await self._web._http.get(
            f"{self._web.served.url}events", headers=self._headers, timeout=timeout
        )
        assert self._answer.status == 200, await self._answer.text()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.close()

    async def next(self) -> tuple[int, str, Any]:
        """Id, name and data of the next event."""
        fields: dict[str, str] = {}
        async with asyncio.timeout(10):
            while line := (await self._answer.content.readline()).decode():
                if line != "\n":
                    name, _, value = line.rstrip("\n").partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    return int(fields["id"]), fields["event"], json.loads(fields["data"])
                else:
                    fields = {}
        raise EOFError

    async def until(self, name: str, **fields: object) -> tuple[int, str, Any]:
        """The next event of that name with these values.

        Also one that an earlier wait passed over: a stored artifact may be reported before or after the end of its
        call."""

        def matches(event: tuple[int, str, Any]) -> bool:
            return event[1] == name and fields.items() <= event[2].items()

        for position, event in enumerate(self._passed_over):
            if matches(event):
                return self._passed_over.pop(position)
        while not matches(event := await self.next()):
            self._passed_over.append(event)
        return event


def _transport(app: Mapping[str, Handler] | MemoryTransport | Callable[[], MemoryTransport] | None) -> MemoryTransport:
    if callable(app):
        return app()
    return app if isinstance(app, MemoryTransport) else MemoryTransport(app or {})


@asynccontextmanager
async def running(
    store: ArtifactStore,
    app: Mapping[str, Handler] | MemoryTransport | Callable[[], MemoryTransport] | None = None,
    *,
    limits: Limits = LIMITS,
    **options: Any,
) -> AsyncIterator[Web]:
    """A server of ``store``; every target is an in-process app: made of handlers, this one, or a new one of a class."""
    names = ("host", "activity", "users", "signer", "runs", "ledger", "named")
    where = {name: options.pop(name) for name in names if name in options}

    def made(target: str, **more: Any) -> Session:
        more.pop("transport", None)
        return connect("memory:", transport=_transport(app), **more)

    chosen = Options(**{"token": TOKEN, "key": "k" * 32, **options})
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        serve(store, chosen, connect=made, limits=replace(limits, shutdown_timeout=0.2), **where) as served,
        aiohttp.ClientSession(connector=connector) as http,
    ):
        yield Web(served, store, http)


async def put_artifact(store: ArtifactStore, data: bytes = b"0123456789", **about: Any) -> ArtifactRef:
    """Store ten digits, or other data, as a text file."""
    return await store.put_bytes(data, **{"mime_type": "text/plain", "filename": "digits.txt", **about})
