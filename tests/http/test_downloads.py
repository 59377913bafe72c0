"""Downloads against servers that misbehave, on real sockets. The numbers are rows of the fault matrix."""

import asyncio
import gzip
import logging
import os
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from transports.artifacts import ArtifactRef, LocalStore, Staged
from transports.binary import Download
from transports.errors import (
    ABPError,
    AddressBlocked,
    DownloadFailed,
    EncodingRefused,
    RedirectRefused,
    SizeMismatch,
    StoreFull,
    TooLarge,
    Truncated,
    UrlExpired,
)
from transports.http import MAX_REDIRECTS, RETRIES, Cookies, Fetched, addresses, download, downloads, headers, urls

BODY = bytes(range(256)) * 40
HALF = len(BODY) // 2
REQUESTS = RETRIES + 1
NOW = 1_760_000_000.0
LIMIT = 1 << 20
TOKEN = "s3cr3t-t0ken"


# --- servers -------------------------------------------------------------------------------------------------------


@dataclass
class Connection:
    """One request and the way to answer it, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    target: str
    headers: Mapping[str, str]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        with suppress(ConnectionError):
            await self.writer.drain()

    async def pause(self) -> None:
        """Let the client read what came before the next thing happens."""
        await asyncio.sleep(0.03)

    async def hang(self) -> None:
        """Say nothing until the client goes."""
        with suppress(ConnectionError):
            await self.reader.read()

    def reset(self) -> None:
        sock: socket.socket = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Answer: TypeAlias = bytes | Callable[[Connection], Awaitable[None]]


@dataclass
class Raw:
    """A server that gives each connection the next answer, and the last one for ever."""

    answers: list[Answer]
    connects: int = 0
    seen: list[Connection] = field(default_factory=list)
    handlers: set[asyncio.Task[None]] = field(default_factory=set)
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.add(task)
        self.connects += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            request, *lines = head.strip().split("\r\n")
            pairs = (line.partition(": ")[::2] for line in lines)
            connection = Connection(reader, writer, request.split()[1], dict(pairs))
            self.seen.append(connection)
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if isinstance(answer, bytes):
                await connection.send(answer)
            else:
                await answer(connection)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.handlers.discard(task)
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    def sent(self, name: str) -> list[str | None]:
        """A header of every request so far."""
        return [connection.headers.get(name) for connection in self.seen]


Serve: TypeAlias = Callable[..., Awaitable[Raw]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    started: list[tuple[asyncio.Server, Raw]] = []

    async def start(*answers: Answer, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Raw:
        raw = Raw(list(answers) or [reply(BODY)])
        server = await asyncio.start_server(raw.serve, host, 0, ssl=tls)
        scheme, port = "https" if tls else "http", server.sockets[0].getsockname()[1]
        raw.url = f"{scheme}://{host}:{port}"
        started.append((server, raw))
        return raw

    yield start
    for server, raw in started:
        server.close()
        if raw.handlers:  # a connection that the client left open would keep its handler waiting
            _, open_ = await asyncio.wait(raw.handlers, timeout=1)
            assert not open_, "the client left a connection open"


def reply(body: bytes = b"", status: str = "200 OK", length: int | None = None, /, **more: str) -> bytes:
    """A whole answer; ``Content_Length=""`` leaves a header out."""
    fields = {"Content-Type": "application/pdf", "Content-Length": str(len(body) if length is None else length)}
    fields |= {name.replace("_", "-"): value for name, value in more.items()}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body


def cut(reset: bool = False, /, **more: str) -> Answer:
    """Half of a body that is announced whole."""

    async def answer(connection: Connection) -> None:
        await connection.send(reply(BODY[:HALF], "200 OK", len(BODY), **more))
        await connection.pause()
        if reset:
            connection.reset()

    return answer


def rest(body: bytes = BODY, start: int = HALF, /, span: str | None = None, **more: str) -> bytes:
    """What a range request from ``start`` asks for."""
    span = f"bytes {start}-{len(body) - 1}/{len(body)}" if span is None else span
    return reply(body[start:], "206 Partial Content", Content_Range=span, **{"ETag": '"v1"', **more})


def moved(to: str, status: str = "302 Found") -> bytes:
    return reply(b"", status, Location=to)


def chunked(*chunks: bytes, end: bool = True) -> bytes:
    body = b"".join(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" for chunk in chunks)
    return reply(body + (b"0\r\n\r\n" if end else b""), Content_Length="", Transfer_Encoding="chunked", ETag='"v1"')


def then(answer: bytes) -> Answer:
    """``answer``, read by the client before the connection ends."""

    async def answering(connection: Connection) -> None:
        await connection.send(answer)
        await connection.pause()

    return answering


async def hang(connection: Connection) -> None:
    await connection.hang()


def stall(part: bytes) -> Answer:
    async def answer(connection: Connection) -> None:
        await connection.send(part)
        await connection.hang()

    return answer


def drip(data: bytes, every: float = 0.05) -> Answer:
    async def answer(connection: Connection) -> None:
        for byte in data:
            if connection.writer.transport.is_closing():
                return
            await connection.send(bytes([byte]))
            await asyncio.sleep(every)

    return answer


class Dns(AbstractResolver):
    """Answers the next list of addresses, and the last one for ever."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers, self.asked = list(answers), 0

    async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
        self.asked += 1
        found = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        kind = {True: socket.AF_INET6, False: socket.AF_INET}
        return [
            ResolveResult(hostname=host, host=ip, port=port, family=kind[":" in ip], proto=0, flags=0) for ip in found
        ]

    async def close(self) -> None:
        pass


# --- the download under test ------------------------------------------------------------------------------------


@dataclass
class Got:
    fetched: Fetched
    data: bytes
    resets: int


class Counting(Staged):
    """The real staged file, with its restarts counted."""

    def __init__(self, inner: Staged) -> None:
        self.inner, self.resets = inner, 0

    @property
    def path(self) -> Path:
        return self.inner.path

    @property
    def size(self) -> int:
        return self.inner.size

    async def write(self, chunk: bytes | memoryview) -> None:
        await self.inner.write(chunk)

    async def reset(self) -> None:
        self.resets += 1
        await self.inner.reset()

    async def commit(
        self,
        *,
        size: int | None = None,
        mime_type: str | None = None,
        filename: str | None = None,
        namespace: str | None = None,
        meta: Mapping[str, object] | None = None,
    ) -> ArtifactRef:
        return await self.inner.commit(size=size)


class Get:
    """``download`` into the real store; what was staged is committed, as its caller would."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(folder)
        self.staged: Staged | None = None
        self.received = 0

    async def __call__(
        self,
        reference: str | Download,
        *,
        timeout: float = 5.0,
        size: int | None = None,
        limit: int = LIMIT,
        base_url: str | None = None,
        cookies: Cookies | None = None,
        allow_private: bool = True,
        stall_timeout: float = 2.0,
        now: float = NOW,
        clock: Callable[[], float] | None = None,
        on_progress: Callable[[int, int | None], None] | None = None,
        resolver: AbstractResolver | None = None,
    ) -> Got:
        reference = Download(reference) if isinstance(reference, str) else reference
        async with self.store.stage() as inner:
            staged = Counting(inner)
            try:
                fetched = await download(
                    reference,
                    staged,
                    timeout=timeout,
                    size=size,
                    limit=limit,
                    base_url=base_url,
                    cookies=cookies,
                    allow_private=allow_private,
                    stall_timeout=stall_timeout,
                    clock=clock or (lambda: now),
                    on_progress=on_progress,
                    resolver=resolver,
                )
            finally:
                self.received = staged.size
            ref = await staged.commit(size=size)
        return Got(fetched, await self.store.get(ref.id), staged.resets)


@pytest.fixture
async def get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Get]:
    monkeypatch.setattr(downloads, "backoff_delay", lambda request: 0.0025 * 2**request)
    before = asyncio.all_tasks()
    yield Get(tmp_path / "store")
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    assert not [task for task in left if "Raw.serve" not in repr(task)]


def clean(error: ABPError, *secrets: str) -> None:
    """No secret in anything an error shows, also not in the traceback that a log would hold."""
    import traceback

    text = "".join(traceback.format_exception(error)) + repr(error.as_dict())
    assert not [secret for secret in secrets if secret in text], text


# --- what goes well ------------------------------------------------------------------------------------------------


async def test_whole_file(get: Get, serve: Serve) -> None:
    server = await serve(
        reply(BODY, Content_Type="Application/PDF; x=y", Content_Disposition='attachment; filename="a b.pdf"')
    )
    steps: list[tuple[int, int | None]] = []
    got = await get(server.url + "/f", size=len(BODY), on_progress=lambda *step: steps.append(step))
    assert got.data == BODY
    assert got.fetched == Fetched("application/pdf", "a b.pdf", True)
    assert steps[-1] == (len(BODY), len(BODY))
    assert server.sent("Accept-Encoding") == ["identity"]
    assert server.connects == 1


async def test_large_file_from_aiohttp_server(get: Get) -> None:
    body = os.urandom(6 << 20)

    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="video/mp4")

    app = web.Application()
    app.router.add_get("/v", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        got = await get(f"http://127.0.0.1:{port}/v", limit=len(body))
        assert got.data == body and got.fetched.complete
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("answer", "size", "complete"),
    [
        (reply(b""), None, True),
        (chunked(BODY[:7], BODY[7:]), None, True),
        (reply(BODY, Content_Length=""), None, False),  # 29
        (reply(BODY, Content_Length=""), len(BODY), True),
        (chunked(BODY, end=False), len(BODY), True),
    ],
    ids=["empty", "chunked", "close-delimited", "close-delimited-declared", "declared-without-last-chunk"],
)
async def test_framing(get: Get, serve: Serve, answer: bytes, size: int | None, complete: bool) -> None:
    server = await serve(then(answer))
    got = await get(server.url, size=size)
    assert got.data == (b"" if complete and answer == reply(b"") else BODY)
    assert got.fetched.complete is complete
    assert server.connects == 1


@pytest.mark.parametrize(
    ("url", "base", "target"),
    [
        ("files/a.pdf", "/app/index.html", "/app/files/a.pdf"),
        ("/f?sig=a%2Fb+c%41&x", "/app/", "/f?sig=a%2Fb+c%41&x"),
        ("/a%2Fb;v=1:c@d", "/", "/a%2Fb;v=1:c@d"),
        ("/ä b#part", "/", "/%C3%A4%20b"),
        (" /tab\there\n", "/", "/tabhere"),
        ("?v=1", "/app/x", "/app/x?v=1"),
    ],
)
async def test_relative_url_and_spelling(get: Get, serve: Serve, url: str, base: str, target: str) -> None:
    server = await serve()
    await get(url, base_url=server.url + base)
    assert server.seen[0].target == target


@pytest.mark.parametrize(
    ("url", "base", "word"),
    [
        ("blob:https://app.example/1-2", "https://app.example/", "scheme is blob:"),
        ("data:text/plain,secret-content", None, "scheme is data:"),
        ("file:///etc/passwd", None, "scheme is file:"),
        ("ftp://host/x", None, "scheme is ftp:"),
        ("a.pdf", None, "relative"),
        ("a.pdf", "chrome-extension://abc/x.html", "chrome-extension:"),
        ("http://[::1/", None, "valid"),
        ("http://host:99999/", None, "valid"),
        ("http://u:s3cr3t-t0ken@ex ample/", None, "valid"),
        ("http:/u:s3cr3t-t0ken@elsewhere/", None, "no host"),
        ("http://u:s3cr3t-t0ken/x@host/", None, "valid"),
        ("http://u:s3cr3t-t0ken?x@host/", None, "valid"),
        ("http://host:99999/?mail=a@b&token=s3cr3t-t0ken", None, "valid"),
        ("//u:s3cr3t-t0ken@host/", None, "relative"),
        ("http://127%2e0.0.1/", None, "its host is not valid"),
    ],
)
async def test_what_is_no_url(get: Get, url: str, base: str | None, word: str) -> None:
    with pytest.raises(DownloadFailed, match=word) as caught:
        await get(url, base_url=base)
    clean(caught.value, TOKEN, "secret-content")
    assert not caught.value.retryable


# --- 28, 33: broken bodies -----------------------------------------------------------------------------------------


def dated(age: float = 3600) -> dict[str, str]:
    return {"Last_Modified": formatdate(NOW - age, usegmt=True), "Date": formatdate(NOW, usegmt=True)}


@pytest.mark.parametrize(
    ("broken", "if_range"),
    [
        (cut(ETag='"v1"'), '"v1"'),
        (cut(True, ETag='"v1"'), '"v1"'),
        (cut(**dated()), dated()["Last_Modified"]),
        (then(chunked(BODY[:HALF], end=False)), '"v1"'),
    ],
    ids=["etag", "reset", "last-modified", "chunked"],
)
async def test_resumes(get: Get, serve: Serve, broken: Answer, if_range: str) -> None:
    server = await serve(broken, rest())
    steps: list[int] = []
    got = await get(server.url, on_progress=lambda received, _: steps.append(received))
    assert got.data == BODY and got.fetched == Fetched("application/pdf", None, True)
    assert server.sent("Range") == [None, f"bytes={HALF}-"]
    assert server.sent("If-Range") == [None, if_range]
    assert (steps, got.resets) == ([HALF, len(BODY)], 0)


@pytest.mark.parametrize("first", [cut(ETag='"v1"'), then(chunked(BODY[:HALF], end=False))], ids=["length", "chunked"])
async def test_resumes_again_where_the_rest_breaks_too(get: Get, serve: Serve, first: Answer) -> None:
    more = HALF + 100
    part = then(reply(BODY[HALF:more], "206 Partial Content", Content_Range=f"bytes {HALF}-{more - 1}/{len(BODY)}",
                      ETag='"v1"'))  # fmt: skip
    server = await serve(first, part, rest(BODY, more))
    assert (await get(server.url)).data == BODY
    assert server.sent("Range") == [None, f"bytes={HALF}-", f"bytes={more}-"]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ETag": 'W/"v1"'},
        {"ETag": "v1"},
        {"ETag": 'W/"v1"', **dated()},
        dated(30),
        {"Last_Modified": "yesterday", "Date": "today"},
        {"ETag": '"v1"', "Accept_Ranges": "none"},
    ],
    ids=["nothing", "weak", "unquoted", "weak-and-date", "too-young", "no-date", "no-ranges"],
)
async def test_without_a_strong_validator_all_comes_again(get: Get, serve: Serve, more: dict[str, str]) -> None:
    server = await serve(cut(**more), reply(BODY))
    got = await get(server.url)
    assert (got.data, got.resets) == (BODY, 1)
    assert server.sent("Range") == [None, None]


OTHER = bytes(reversed(BODY))


@pytest.mark.parametrize(
    ("second", "requests"),
    [
        (reply(OTHER, ETag='"v2"'), 2),  # 200 for a range, changed
        (reply(OTHER, ETag='"v1"'), 2),
        (rest(OTHER, ETag='"v2"'), 3),
        (rest(OTHER, ETag=""), 3),
        (rest(OTHER, ETag='W/"v1"'), 3),
        (rest(OTHER, HALF - 1), 3),
        (rest(OTHER, HALF + 1), 3),
        (rest(OTHER, span=f"bytes {HALF}-{len(BODY) - 1}/{len(BODY) + 1}"), 3),
        (rest(OTHER, span=f"bytes {HALF}-{len(BODY) - 1}/*"), 3),
        (rest(OTHER, span=f"items {HALF}-{len(BODY) - 1}/{len(BODY)}"), 3),
        (rest(OTHER, span=f"bytes {HALF}-{len(BODY)}/{len(BODY)}"), 3),
        (rest(OTHER, span=f"bytes {HALF}-{HALF - 1}/{len(BODY)}"), 3),
        (rest(OTHER, span=""), 3),
        (reply(b"", "416 Range Not Satisfiable", Content_Range=f"bytes */{HALF - 1}"), 3),
        (reply(OTHER[HALF:] + b"more", "206 Partial Content", ETag='"v1"',
               Content_Range=f"bytes {HALF}-{len(BODY) - 1}/{len(BODY)}"), 3),
    ],
    ids=["200-changed", "200", "etag", "no-etag", "weak", "early", "late", "total", "star", "unit", "beyond",
        "backwards", "none",
         "416", "overlong"],
)  # fmt: skip
async def test_never_spliced(get: Get, serve: Serve, second: bytes, requests: int) -> None:
    server = await serve(cut(ETag='"v1"'), then(second), reply(OTHER))
    got = await get(server.url)
    assert got.data == OTHER
    assert got.resets == 1
    assert server.sent("Range") == [None, f"bytes={HALF}-", None][:requests]


async def test_last_modified_of_the_rest_must_be_the_same(get: Get, serve: Serve) -> None:
    server = await serve(cut(**dated()), rest(OTHER, **dated(1800)), reply(OTHER))
    assert (await get(server.url)).data == OTHER


async def test_total_learnt_from_the_rest_is_checked(get: Get, serve: Serve) -> None:
    broken = then(chunked(BODY[:HALF], end=False))
    server = await serve(broken, rest())
    with pytest.raises(SizeMismatch, match=f"announces {len(BODY)}"):
        await get(server.url, size=len(BODY) + 1)
    server = await serve(broken, rest())
    with pytest.raises(TooLarge):
        await get(server.url, limit=len(BODY) - 1)


@pytest.mark.parametrize(
    ("broken", "size", "of"),
    [
        (cut(), None, f"{HALF} of {len(BODY)} bytes"),
        (then(reply(BODY[:HALF], Content_Length="")), len(BODY), f"{HALF} of {len(BODY)} bytes"),  # 29
        (then(chunked(BODY[:HALF], end=False)), None, f"{HALF} of an unknown number of bytes"),
    ],
    ids=["length", "close-delimited", "chunked"],
)
async def test_truncated_in_the_end(get: Get, serve: Serve, broken: Answer, size: int | None, of: str) -> None:
    server = await serve(broken)
    with pytest.raises(Truncated, match=of) as caught:
        await get(server.url + "?q=1", size=size)
    assert server.connects == REQUESTS
    assert caught.value.retryable and caught.value.details["received"] == HALF
    assert caught.value.details["attempts"] == REQUESTS


async def test_connection_refused_is_tried_again(get: Get, unused_port: int) -> None:
    with pytest.raises(DownloadFailed, match="no connection") as caught:
        await get(f"http://127.0.0.1:{unused_port}/?token={TOKEN}")
    assert caught.value.retryable and caught.value.code == "DOWNLOAD_FAILED"
    clean(caught.value, TOKEN)


@pytest.fixture
def unused_port() -> Iterator[int]:
    with socket.socket() as sock:  # bound and not listening
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\nContent-Le"], ids=["no-answer", "half-a-head"])
async def test_connection_that_ends_before_an_answer(get: Get, serve: Serve, first: bytes) -> None:
    server = await serve(then(first), reply(BODY))
    assert (await get(server.url)).data == BODY


async def test_what_is_no_http(get: Get, serve: Serve) -> None:
    server = await serve(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
    with pytest.raises(DownloadFailed, match="no valid HTTP") as caught:
        await get(f"{server.url}/?token={TOKEN}")
    clean(caught.value, TOKEN)
    assert server.connects == 1


async def test_host_that_is_not_found(get: Get) -> None:
    class Nowhere(Dns):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
            self.asked += 1
            raise OSError(-2, "Name or service not known")

    dns = Nowhere([])
    with pytest.raises(DownloadFailed, match="host name was not found"):
        await get("http://nowhere.invalid/", resolver=dns)
    assert dns.asked == REQUESTS


# --- 30: sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [len(BODY) - 1, len(BODY) + 1])
async def test_length_that_is_not_the_declared_size(get: Get, serve: Serve, size: int) -> None:
    server = await serve(stall(reply(b"", "200 OK", len(BODY))))  # no body comes: the length decides
    with pytest.raises(SizeMismatch, match=f"declared {size} bytes and the server announces {len(BODY)}"):
        await get(server.url, size=size)
    assert server.connects == 1


async def endless(connection: Connection) -> None:
    await connection.send(reply(b"", Content_Length=""))
    while not connection.writer.transport.is_closing():
        await connection.send(b"x" * 10_000)
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    "answer", [chunked(BODY), reply(BODY, Content_Length=""), endless], ids=["chunked", "close-delimited", "endless"]
)
async def test_longer_than_declared(get: Get, serve: Serve, answer: Answer) -> None:
    server = await serve(answer)
    with pytest.raises(SizeMismatch, match="more than 1000 came") as caught:
        await get(server.url, size=1000)
    assert caught.value.details["declared"] == 1000
    assert get.received <= 1000 and server.connects == 1


async def test_shorter_than_declared_and_proven_whole(get: Get, serve: Serve) -> None:
    server = await serve(chunked(BODY))
    with pytest.raises(SizeMismatch, match=f"declared {len(BODY) + 1} bytes and {len(BODY)} came"):
        await get(server.url, size=len(BODY) + 1)
    assert server.connects == 1


@pytest.mark.parametrize(
    "answer",
    [stall(reply(b"", "200 OK", 5001)), chunked(b"x" * 5001), endless],
    ids=["announced", "chunked", "endless"],
)
async def test_over_the_limit(get: Get, serve: Serve, answer: Answer) -> None:
    server = await serve(answer)
    with pytest.raises(TooLarge, match="the limit is 5000 bytes"):
        await get(server.url, limit=5000)
    assert get.received <= 5000 and server.connects == 1


async def test_at_the_limit(get: Get, serve: Serve) -> None:
    server = await serve(chunked(b"x" * 5000))
    assert len((await get(server.url, limit=5000)).data) == 5000


async def test_declared_over_the_limit_is_not_asked_for(get: Get, serve: Serve) -> None:
    server = await serve()
    with pytest.raises(TooLarge, match="declared 5001 bytes"):
        await get(server.url, size=5001, limit=5000)
    assert server.connects == 0


@pytest.mark.parametrize("error", [StoreFull("no space left"), TooLarge("over the store's limit"), OSError("io")])
async def test_errors_of_the_store_come_out_as_they_are(
    get: Get, serve: Serve, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(self: Counting, chunk: bytes | memoryview) -> None:
        raise error

    monkeypatch.setattr(Counting, "write", write)
    server = await serve()
    with pytest.raises(type(error)) as caught:
        await get(server.url)
    assert caught.value is error
    assert server.connects == 1


# --- 31: encodings -------------------------------------------------------------------------------------------------

PACKED = gzip.compress(BODY)


@pytest.mark.parametrize(
    "answer",
    [
        reply(PACKED, Content_Encoding="gzip"),
        reply(PACKED[:20], Content_Encoding="gzip"),
        reply(gzip.compress(b"\0" * (20 << 20)), Content_Encoding="GZIP"),
        reply(BODY, Content_Encoding="br"),
        reply(b"5\r\nhello\r\n0\r\n\r\n", Content_Length="", Transfer_Encoding="gzip, chunked"),
    ],
    ids=["gzip", "truncated", "bomb", "br", "transfer"],
)
async def test_encoding_refused(get: Get, serve: Serve, answer: bytes) -> None:
    server = await serve(answer)
    with pytest.raises(EncodingRefused):
        await get(server.url)
    assert get.received == 0 and server.connects == 1


async def test_gzip_file_and_identity_are_no_encodings(get: Get, serve: Serve) -> None:
    server = await serve(reply(PACKED, Content_Type="application/gzip", Content_Encoding="Identity"))
    assert (await get(server.url)).data == PACKED


# --- 32: slow servers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [drip(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000), drip(reply(BODY))],
    ids=["headers", "body"],
)
async def test_slowloris_meets_the_deadline(get: Get, serve: Serve, answer: Answer) -> None:
    server = await serve(answer)
    started = time.monotonic()
    with pytest.raises(DownloadFailed, match=r"within 0\.4 s") as caught:
        await get(server.url, timeout=0.4, stall_timeout=0.2)
    assert time.monotonic() - started < 0.7
    assert (caught.value.code, caught.value.retryable) == ("TIMEOUT", True)
    assert server.connects == 1


async def test_silence_before_an_answer(get: Get, serve: Serve) -> None:
    server = await serve(hang)
    with pytest.raises(DownloadFailed, match=r"no answer within 0\.1 s") as caught:
        await get(server.url, stall_timeout=0.1)
    assert (caught.value.code, caught.value.retryable) == ("TIMEOUT", True)
    assert server.connects == REQUESTS


async def test_silence_within_the_body_is_a_break(get: Get, serve: Serve) -> None:
    server = await serve(stall(reply(BODY[:HALF], "200 OK", len(BODY), ETag='"v1"')), rest())
    assert (await get(server.url, stall_timeout=0.1)).data == BODY
    server = await serve(stall(reply(BODY[:HALF], "200 OK", len(BODY))))
    with pytest.raises(Truncated, match=f"stalled.*{HALF} of {len(BODY)}"):
        await get(server.url, stall_timeout=0.1)


# --- 34: redirects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
async def test_redirect_followed(get: Get, serve: Serve, status: str) -> None:
    server = await serve(moved("../b?x=%2F#f", status), reply(BODY))
    assert (await get(server.url + "/a/c")).data == BODY
    assert [seen.target for seen in server.seen] == ["/a/c", "/b?x=%2F"]


async def test_five_redirects_and_no_more(get: Get, serve: Serve) -> None:
    hops: list[Answer] = [moved(f"/{number}") for number in range(MAX_REDIRECTS)]
    server = await serve(*hops, reply(BODY))
    assert (await get(server.url)).data == BODY
    server = await serve(*hops, moved("/last"), reply(BODY))
    with pytest.raises(RedirectRefused, match="more than 5 redirects"):
        await get(server.url)
    assert server.connects == MAX_REDIRECTS + 1


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("/loop", "circle"),
        ("file:///etc/passwd", "file:"),
        ("data:text/plain,x", "data:"),
        ("javascript:alert(1)", "javascript:"),
        ("http://u:s3cr3t-t0ken@127.0.0.1/", "user info"),
        ("http://[::1/", "valid"),
        ("", "without a Location"),
    ],
)
async def test_redirect_refused(get: Get, serve: Serve, to: str, why: str) -> None:
    server = await serve(moved(to))
    with pytest.raises(RedirectRefused, match=why) as caught:
        await get(f"{server.url}/loop?token={TOKEN}")
    clean(caught.value, TOKEN)
    assert server.connects == (2 if to == "/loop" else 1)


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test"
    try:
        subprocess.run(
            [*command.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-out", cert, "-keyout", key],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the openssl program")
    return cert, key


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture
def trusted(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.create_default_context(cafile=certificate[0])
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", context)


@pytest.mark.usefixtures("trusted")
async def test_no_redirect_from_https_to_http(get: Get, serve: Serve, tls: ssl.SSLContext) -> None:
    plain = await serve()
    server = await serve(moved(plain.url), tls=tls)
    with pytest.raises(RedirectRefused, match="from https: to http:"):
        await get(server.url)
    assert plain.connects == 0


@pytest.mark.usefixtures("trusted")
async def test_https_resumes_and_http_may_lead_to_it(get: Get, serve: Serve, tls: ssl.SSLContext) -> None:
    server = await serve(cut(ETag='"v1"'), rest(), tls=tls)
    plain = await serve(moved(server.url))
    assert (await get(plain.url)).data == BODY
    assert server.sent("Range") == [None, f"bytes={HALF}-"]


async def test_certificate_that_nobody_trusts(get: Get, serve: Serve, tls: ssl.SSLContext) -> None:
    server = await serve(tls=tls)
    with pytest.raises(DownloadFailed, match="certificate") as caught:
        await get(server.url)
    assert not caught.value.retryable and not server.seen


# --- 35: addresses -------------------------------------------------------------------------------------------------

PRIVATE = """127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1
198.18.0.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::ffff:a9fe:a9fe 64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::1 2002:a00:1::1
2001:0:1::1 2001:db8::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 localhost 127.1 2130706433"""
PUBLIC = "8.8.8.8 1.1.1.1 172.32.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"


@pytest.mark.parametrize("address", PRIVATE.split())
def test_private_address(address: str) -> None:
    assert not addresses.is_public(address)


@pytest.mark.parametrize("address", PUBLIC.split())
def test_public_address(address: str) -> None:
    assert addresses.is_public(address)


LITERALS = ["127.0.0.1", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1.",
            "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "１２７.0.0.1", "localhost", "LOCALHOST", "[::1]", "[::]",
            "[64:ff9b::7f00:1]", "169.254.169.254", "[fe80::1%25lo]"]  # fmt: skip


@pytest.mark.parametrize("host", LITERALS)
async def test_literal_blocked(get: Get, serve: Serve, host: str) -> None:
    server = await serve()
    port = server.url.rpartition(":")[2]
    with pytest.raises(AddressBlocked, match="ABP_ALLOW_PRIVATE_ADDRESSES=1") as caught:
        await get(f"http://{host}:{port}/?token={TOKEN}", allow_private=False)
    assert server.connects == 0
    assert caught.value.code == "BLOCKED_ADDRESS" and not caught.value.retryable
    clean(caught.value, TOKEN)


@pytest.fixture
def fake_public(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address that counts as public and is ours."""
    real = addresses.is_public
    monkeypatch.setattr(addresses, "is_public", lambda address: address == "127.0.0.2" or real(address))
    return "127.0.0.2"


async def test_redirect_to_private_blocked(get: Get, serve: Serve, fake_public: str) -> None:
    inside = await serve()
    outside = await serve(moved(inside.url), host=fake_public)
    with pytest.raises(AddressBlocked):
        await get(outside.url, allow_private=False)
    assert (outside.connects, inside.connects) == (1, 0)


async def test_rebinding_blocked(get: Get, serve: Serve, fake_public: str) -> None:
    inside = await serve()
    outside = await serve(cut(ETag='"v1"'), host=fake_public)
    port = outside.url.rpartition(":")[2]
    dns = Dns([fake_public], ["127.0.0.1"])
    with pytest.raises(AddressBlocked, match=r"127\.0\.0\.1"):
        await get(f"http://files.example:{port}/", allow_private=False, resolver=dns)
    assert (dns.asked, outside.connects, inside.connects) == (2, 1, 0)


@pytest.mark.parametrize("found", [["127.0.0.1", "127.0.0.2"], ["::1", "127.0.0.1", "127.0.0.2"]])
async def test_happy_eyeballs_meet_the_public_address_only(
    get: Get, serve: Serve, fake_public: str, found: list[str]
) -> None:
    outside = await serve(host=fake_public)
    port = int(outside.url.rpartition(":")[2])
    connects = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connects
        connects += 1
        writer.close()

    async with await asyncio.start_server(count, "127.0.0.1", port):
        got = await get(f"http://files.example:{port}/", allow_private=False, resolver=Dns(found))
    assert (got.data, outside.connects, connects) == (BODY, 1, 0)


async def test_public_address_that_fails_is_the_reason_beside_a_blocked_one(
    get: Get, fake_public: str, unused_port: int
) -> None:
    dns = Dns(["127.0.0.1", fake_public])
    with pytest.raises(DownloadFailed, match="no connection"):
        await get(f"http://files.example:{unused_port}/", allow_private=False, resolver=dns)


async def test_all_of_several_addresses_blocked(get: Get) -> None:
    dns = Dns(["127.0.0.1", "::1", "10.0.0.1"])
    with pytest.raises(AddressBlocked):
        await get("http://files.example/", allow_private=False, resolver=dns)
    assert dns.asked == 1


async def test_own_origin_may_be_private_and_nothing_else(get: Get, serve: Serve) -> None:
    app, other = await serve(reply(BODY)), await serve()
    port = app.url.rpartition(":")[2]
    base = app.url + "/index.html"
    assert (await get("/f", base_url=base, allow_private=False)).data == BODY
    assert (await get(f"http://2130706433:{port}/", base_url=base, allow_private=False)).data == BODY  # the same host
    app.answers[:] = [moved(other.url)]
    for url in [other.url, f"http://localhost:{port}/", f"http://[::ffff:127.0.0.1]:{port}/", "/redirected"]:
        with pytest.raises(AddressBlocked):
            await get(url, base_url=base, allow_private=False)
    assert other.connects == 0


async def test_redirect_back_to_the_own_origin(get: Get, serve: Serve, fake_public: str) -> None:
    app = await serve()
    outside = await serve(moved(app.url), host=fake_public)
    assert (await get(outside.url, base_url=app.url, allow_private=False)).data == BODY


async def test_proxy_settings_are_not_used(get: Get, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server, proxy = await serve(), await serve()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await get(server.url)).data == BODY
    assert proxy.connects == 0


# --- 36: credentials -----------------------------------------------------------------------------------------------


async def jar(url: str) -> Mapping[str, str]:
    return {"sid": "c00kie-value", "bad": "a\r\nb"}


def with_auth(url: str) -> Download:
    return Download(url, headers={"Authorization": f"Bearer {TOKEN}", "X-API-Key": TOKEN}, query={"token": TOKEN})


async def test_credentials_for_the_own_origin(get: Get, serve: Serve) -> None:
    server = await serve(moved("/next"), reply(BODY))
    await get(with_auth(server.url + "/f?a=1"), base_url=server.url, cookies=jar)
    assert [seen.target for seen in server.seen] == [f"/f?a=1&token={TOKEN}", f"/next?token={TOKEN}"]
    assert server.sent("Authorization") == [f"Bearer {TOKEN}"] * 2
    assert server.sent("X-API-Key") == [TOKEN] * 2
    assert server.sent("Cookie") == ["sid=c00kie-value"] * 2


async def test_no_credentials_after_another_origin(get: Get, serve: Serve) -> None:
    first, second = await serve(), await serve()
    first.answers[:] = [moved(second.url + "/there"), reply(BODY)]
    second.answers[:] = [moved(first.url + "/f")]  # back to the very same URL
    await get(with_auth(first.url + "/f"), base_url=first.url, cookies=jar)
    assert [seen.target for seen in [*second.seen, first.seen[1]]] == ["/there", "/f"]
    for connection in [*second.seen, first.seen[1]]:
        assert not {"Authorization", "X-API-Key", "Cookie", "Referer"} & set(connection.headers)


async def test_credentials_return_for_the_next_attempt(get: Get, serve: Serve) -> None:
    second = await serve(cut(ETag='"v1"'), rest())
    first = await serve(moved(second.url))
    assert (await get(with_auth(first.url))).data == BODY
    assert first.sent("Authorization") == [f"Bearer {TOKEN}"] * 2
    assert second.sent("Authorization") == [None] * 2


async def test_cookies_are_asked_for_the_apps_own_origin_only(get: Get, serve: Serve) -> None:
    asked: list[str] = []

    async def spy(url: str) -> Mapping[str, str]:
        asked.append(url)
        return {"sid": "1"}

    app, other = await serve(), await serve()
    await get(other.url + "/a", base_url=app.url, cookies=spy)
    other.answers[:] = [moved(app.url + "/b")]
    await get(other.url + "/a", base_url=app.url, cookies=spy)
    await get(other.url + "/a", cookies=spy)
    assert asked == [] and app.sent("Cookie") == [None, None]
    await get(Download("/c?d=1", headers={"cookie": "own=2"}), base_url=app.url, cookies=spy)
    assert asked == [app.url + "/c?d=1"]
    assert app.sent("Cookie")[-1] == "sid=1; own=2"


async def test_user_info_becomes_a_header_for_its_origin(get: Get, serve: Serve) -> None:
    other = await serve()
    server = await serve(moved(other.url))
    url = server.url.replace("//", "//us%40er:s3cr3t-t0ken@")
    await get(url)
    assert server.sent("Authorization") == ["Basic dXNAZXI6czNjcjN0LXQwa2Vu"]
    assert other.sent("Authorization") == [None]
    server.answers[:] = [reply(b"dXNAZXI6czNjcjN0LXQwa2Vu s3cr3t-t0ken", "403 x")]
    with pytest.raises(DownloadFailed) as caught:
        await get(url)
    clean(caught.value, TOKEN, "dXNAZXI6czNjcjN0LXQwa2Vu", "us%40er")


async def test_errors_of_the_cookie_jar_come_out_as_they_are(get: Get, serve: Serve) -> None:
    async def broken(url: str) -> Mapping[str, str]:
        raise TimeoutError("the browser is stuck")

    server = await serve()
    with pytest.raises(TimeoutError, match="the browser is stuck"):
        await get(server.url, base_url=server.url, cookies=broken)


async def test_cookie_that_a_server_quotes(get: Get, serve: Serve) -> None:
    server = await serve(reply(b"bad sid c00kie-value", "403 x"))
    with pytest.raises(DownloadFailed) as caught:
        await get(server.url, base_url=server.url, cookies=jar)
    assert caught.value.details["body"] == "bad sid …"


@pytest.mark.parametrize(
    "auth",
    [
        {"Host": "inside"},
        {"range": "bytes=0-1"},
        {"X\r\nY": "1"},
        {"X": f"{TOKEN}\r\nHost: x"},
        {"Transfer-Encoding": "x"},
    ],
)
async def test_headers_that_an_app_may_not_set(get: Get, serve: Serve, auth: dict[str, str]) -> None:
    server = await serve()
    with pytest.raises(DownloadFailed, match="header") as caught:
        await get(Download(server.url, headers=auth))
    clean(caught.value, TOKEN)
    assert server.connects == 0


async def test_query_that_is_there_already(get: Get, serve: Serve) -> None:
    server = await serve(moved("/b?token=new"), reply(BODY))
    await get(Download(f"{server.url}/?token=a&x", query={"token": "b c&"}))
    assert [seen.target for seen in server.seen] == ["/?token=a&x&token=b%20c%26", "/b?token=new"]


async def test_query_is_not_repeated(get: Get, serve: Serve) -> None:
    server = await serve()
    await get(Download(server.url + "/?token=a", query={"token": "a"}))
    assert server.seen[0].target == "/?token=a"


@pytest.mark.parametrize(
    "outcome",
    [
        cut(),
        moved("ftp://x"),
        reply(BODY, Content_Encoding="gzip"),
        reply(b"", "404 Not Found"),
        reply(b"", "503 x"),
        b"nonsense\r\n\r\n",
        hang,
        reply(BODY),
    ],
    ids=["cut", "redirect", "gzip", "404", "503", "nonsense", "hang", "whole"],
)
async def test_no_secret_is_ever_shown(
    get: Get, serve: Serve, outcome: Answer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = await serve(outcome)
    reference = with_auth(server.url.replace("//", "//user:passw0rd@") + "/f?sig=signature")
    assert TOKEN not in repr(reference)
    try:
        await get(reference, size=len(BODY) + (outcome == reply(BODY)), base_url=server.url, cookies=jar,
                  stall_timeout=0.05)  # fmt: skip
    except ABPError as error:
        clean(error, TOKEN, "passw0rd", "signature", "c00kie-value")
        assert "/f?…" in error.message
    else:
        pytest.fail("nothing went wrong")
    logged = [record.getMessage() for record in caplog.records if record.name != "asyncio"]
    assert not [line for line in logged for word in (TOKEN, "passw0rd", "signature", "c00kie") if word in line]
    retried = [record for record in caplog.records if record.name == "transports.http"]
    assert bool(retried) == (server.connects > 1)


# --- 37: expiry ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [0.0, 1.5, 300.0])
async def test_expired_before_any_connection(get: Get, serve: Serve, late: float) -> None:
    server = await serve()
    with pytest.raises(UrlExpired, match=f"expired {late:.1f} s ago") as caught:
        await get(Download(server.url, expires_at=(NOW - late) * 1000))
    assert (server.connects, caught.value.code) == (0, "REFERENCE_EXPIRED")
    assert caught.value.details["expired_seconds_ago"] == late


async def test_not_yet_expired(get: Get, serve: Serve) -> None:
    server = await serve()
    assert (await get(Download(server.url, expires_at=(NOW + 0.5) * 1000))).data == BODY


def passing(*times: float) -> Callable[[], float]:
    """A clock that shows ``times`` in turn, and the last one for ever."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


async def test_expiry_during_the_download_does_not_end_it(get: Get, serve: Serve) -> None:
    server = await serve(cut(ETag='"v1"'), rest())
    reference = Download(server.url, expires_at=NOW * 1000)
    assert (await get(reference, clock=passing(NOW - 1, NOW + 60))).data == BODY


@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_resuming_after_expiry(get: Get, serve: Serve, status: int) -> None:
    server = await serve(cut(ETag='"v1"'), reply(b"", f"{status} x"))
    with pytest.raises(UrlExpired, match=rf"expired 60\.0 s ago \(the server answers {status}\)"):
        await get(Download(server.url, expires_at=NOW * 1000), clock=passing(NOW - 1, NOW + 60))
    assert server.connects == 2


async def test_gone_is_expired_without_a_date(get: Get, serve: Serve) -> None:
    server = await serve(reply(b"", "410 Gone"))
    with pytest.raises(UrlExpired, match="call the capability again"):
        await get(server.url)


# --- 38: statuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (401, "credentials"),
        (403, "credentials"),
        (404, "no such file"),
        (400, "Bad Request"),
        (416, "416"),
        (204, "no content"),
        (206, "a part"),
        (300, "300"),
        (304, "304"),
        (299, "299"),
    ],
)
async def test_status_that_is_final(get: Get, serve: Serve, status: int, word: str) -> None:
    server = await serve(reply(b"x" * 10 * (status not in (204, 304)), f"{status} x", Content_Range="bytes 0-9/10"))
    with pytest.raises(DownloadFailed, match=rf"answered {status}.*{word}|{word}") as caught:
        await get(Download(server.url, expires_at=(NOW + 60) * 1000))
    assert type(caught.value) is DownloadFailed and not caught.value.retryable
    assert caught.value.details["status"] == status
    assert server.connects == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_status_that_is_tried_again(get: Get, serve: Serve, status: int) -> None:
    server = await serve(reply(b"wait", f"{status} x"), reply(BODY))
    assert (await get(server.url)).data == BODY
    server = await serve(reply(b"wait", f"{status} x"))
    with pytest.raises(DownloadFailed, match=f"answered {status}") as caught:
        await get(server.url)
    assert caught.value.retryable and caught.value.details == {
        "url": server.url + "/",
        "status": status,
        "body": "wait",
    }
    assert server.connects == REQUESTS


async def test_retry_after_is_honoured(get: Get, serve: Serve) -> None:
    server = await serve(reply(b"", "503 x", Retry_After="1"), reply(BODY))
    started = time.monotonic()
    await get(server.url)
    assert 0.95 < time.monotonic() - started < 2


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("86400", 86400.0), ("9" * 400, 1e9), (formatdate(NOW + 7200, usegmt=True), 7200.0), ("6", 6.0)],
)
async def test_retry_after_past_the_deadline_is_not_waited_for(
    get: Get, serve: Serve, value: str, seconds: float
) -> None:
    server = await serve(reply(b"", "429 x", Retry_After=value))
    started = time.monotonic()
    with pytest.raises(DownloadFailed, match="answered 429") as caught:
        await get(server.url, timeout=5)
    assert time.monotonic() - started < 1
    assert (caught.value.retry_after, caught.value.retryable, server.connects) == (seconds, True, 1)


@pytest.mark.parametrize("value", ["-5", "soon", "", formatdate(NOW - 99, usegmt=True)])
async def test_retry_after_that_means_nothing(get: Get, serve: Serve, value: str) -> None:
    server = await serve(reply(b"", "503 x", Retry_After=value), reply(BODY))
    assert (await get(server.url)).data == BODY


async def excerpt_of(get: Get, serve: Serve, answer: Answer) -> object:
    server = await serve(answer)
    with pytest.raises(DownloadFailed) as caught:
        await get(with_auth(server.url))
    clean(caught.value, TOKEN)
    return caught.value.details.get("body")


async def test_excerpt_of_an_error(get: Get, serve: Serve) -> None:
    text = "\x1b[31mno\0\r\n\tsuch \u202efile\x7f " + "ä" * 5000
    excerpt = await excerpt_of(get, serve, reply(text.encode(), "404 x"))
    assert excerpt == ("[31mno such file " + "ä" * 200)[:200]
    assert await excerpt_of(get, serve, reply(gzip.compress(b"no"), "404 x", Content_Encoding="gzip")) is None
    assert await excerpt_of(get, serve, then(reply(b"half", "404 x", 100))) in ("half", None)
    quoted = f"bad {TOKEN}, Bearer {TOKEN} s3cr3t\0-t0ken {quote('Bearer ' + TOKEN)}!"
    assert await excerpt_of(get, serve, reply(quoted.encode(), "403 x")) == "bad …, … … …!"
    long = (TOKEN * 1000).encode()
    assert await excerpt_of(get, serve, reply(long, "403 x")) is not None


async def test_excerpt_that_does_not_come(get: Get, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.http.request._EXCERPT_SECONDS", 0.1)
    started = time.monotonic()
    assert await excerpt_of(get, serve, drip(reply(b"x" * 1000, "404 x"), 0.002)) is not None
    assert await excerpt_of(get, serve, stall(reply(b"", "404 x", 100))) is None
    assert time.monotonic() - started < 1.5


# --- cancellation ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "answer",
    [hang, stall(reply(BODY[:HALF], "200 OK", len(BODY))), reply(b"", "503 x", Retry_After="4")],
    ids=["waiting", "reading", "pausing"],
)
async def test_cancellation_closes_the_connection(get: Get, serve: Serve, answer: Answer) -> None:
    server = await serve(answer)
    before = asyncio.all_tasks()
    task = asyncio.create_task(get(server.url))
    while not server.seen:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if server.handlers:
        await asyncio.wait(server.handlers, timeout=1)
    assert not server.handlers
    assert server.connects == 1
    await asyncio.sleep(0.01)
    assert not {other for other in asyncio.all_tasks() - before if "serve" not in repr(other)}


async def test_nothing_is_left_open(get: Get, serve: Serve) -> None:
    server = await serve(cut(ETag='"v1"'), rest(), reply(b"", "404 x"), moved("file:///x"), chunked(BODY))
    fds = Path("/proc/self/fd") if Path("/proc/self/fd").exists() else Path("/dev/fd")

    async def settled() -> int:
        await asyncio.sleep(0.05)
        return len(list(fds.iterdir()))

    before = await settled()
    for _ in range(5):
        with suppress(DownloadFailed):
            await get(server.url)
    assert await settled() <= before


# --- headers without a server ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, None),
        ("inline", None),
        ("attachment; filename=plain.pdf", "plain.pdf"),
        ('attachment; filename="a;b \\"c\\".pdf"; x=y', 'a;b "c".pdf'),
        ("attachment; filename=\"EURO.pdf\"; filename*=UTF-8''%e2%82%ac%20rates.pdf", "€ rates.pdf"),
        ("attachment; FILENAME*=utf-8'en'a%2Fb; filename=c", "a/b"),
        ("attachment; filename*=iso-8859-1''%A3.txt", "£.txt"),
        ("attachment; filename*=UTF-8''%ff; filename=safe.txt", "safe.txt"),
        ("attachment; filename*=utf-7''x; filename=safe.txt", "safe.txt"),
        ("attachment; filename*=broken; filename=safe.txt", "safe.txt"),
        ('attachment; filename="../../etc/passwd"', "../../etc/passwd"),
        ("attachment; filename=\udce4.txt", "ä.txt"),
        ('attachment; filename="open', "open"),
        ("attachment; filename=", None),
        ("attachment;;; filename = x ;", "x"),
    ],
)
def test_filename(value: str | None, name: str | None) -> None:
    assert headers.filename_of(value) == name


@pytest.mark.parametrize("value", ["a" * 8000, ";" * 8000, '; filename="' + "\\" * 8000, "; filename=" * 700])
def test_filename_takes_no_time(value: str) -> None:
    started = time.perf_counter()
    headers.filename_of(value)
    assert time.perf_counter() - started < 0.2


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("HTTP://App.Example/x", ("http", "app.example", 80)),
        ("https://app.example:443/", ("https", "app.example", 443)),
        ("http://münchen.example:8080", ("http", "xn--mnchen-3ya.example", 8080)),
        ("http://[::1]:3000/", ("http", "::1", 3000)),
        ("http://0x7f.1:3000/", ("http", "127.0.0.1", 3000)),
        ("file:///app/index.html", None),
        ("chrome-extension://abc/x.html", None),
        ("about:blank", None),
        (None, None),
    ],
)
def test_origin(url: str | None, origin: urls.Origin | None) -> None:
    assert urls.origin_of(url) == origin


@pytest.mark.parametrize(
    "url", ["ht\ttp://app.example/a", "\x01 http://app.example/a\x1f", "http://app.example:80/a#b"]
)
def test_url_cleaned_as_browsers_do(url: str) -> None:
    assert str(urls.parse(url).url) == "http://app.example/a"


def test_chunks_outrank_a_length() -> None:
    head = headers.Representation.from_headers({"Transfer-Encoding": "chunked", "Content-Length": "5"})
    assert (head.total, head.framed) == (None, True)


def test_retry_after() -> None:
    assert headers.retry_after(formatdate(NOW - 99, usegmt=True), NOW) == 0
    assert headers.retry_after(formatdate(NOW + 90, usegmt=True), NOW) == 90
    assert headers.retry_after(" 7 ", NOW) == 7
    assert headers.retry_after("-7", NOW) is None
