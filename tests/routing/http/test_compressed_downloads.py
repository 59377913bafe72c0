"""Downloads that a server may compress: decoded while they arrive, with bounds on what comes out."""

import gzip
import hashlib
import random
import threading
import tracemalloc
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import brotli
import pytest

from tests.conftest import Connect
from tests.support.apps import answering
from tests.support.downloads import REQUESTS, Get
from tests.support.raw_server import BODY, Serve, reply, then
from tests.support.rows import each_row
from transports.errors import EncodingRefused, SizeMismatch, TooLarge, Truncated
from transports.routing.http import _decoding, _downloads
from transports.routing.http._decoding import LIMITS, BadBody, BodyDecoder, accept_encoding, can_decode

zstd = pytest.importorskip("compression.zstd" if _decoding._ZSTD.startswith("comp") else "backports.zstd")

#: Some of it can be made smaller, and some cannot.
CONTENT = random.Random(1).randbytes(40_000) + b"hello " * 30_000 + random.Random(2).randbytes(60_000)
ALL = "zstd, br, gzip, deflate"


def chunks(body: bytes) -> bytes:
    """``body`` in chunks of HTTP/1.1."""
    parts = [body[at : at + 5000] for at in range(0, len(body), 5000)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in [*parts, b""])


def bare_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "deflate without its header": bare_deflate,
    "br": partial(brotli.compress, quality=5),
    "zstd": zstd.compress,
}
codings = pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])


@pytest.mark.requirement("R1-3c", "R1-14b")
@each_row("coding", [*PACKERS])
@each_row("framing", ["length", "chunks", "none"])
async def test_size_and_hash_describe_decompressed_content(get: Get, serve: Serve, coding: str, framing: str) -> None:
    body, coding = PACKERS[coding](CONTENT), coding.partition(" ")[0]
    assert len(body) < len(CONTENT) // 2
    answer = reply(body, Content_Encoding=coding)
    if framing == "chunks":
        answer = reply(chunks(body), Content_Encoding=coding, Content_Length="", Transfer_Encoding="chunked")
    if framing == "none":  # the end of the compressed content shows that it is complete
        answer = reply(body, Content_Encoding=coding, Content_Length="", Connection="close")
    server = await serve(answer)
    steps: list[tuple[int, int | None]] = []
    got = await get(
        server.url, size=len(CONTENT), accept_compression=True, on_progress=lambda *step: steps.append(step)
    )
    assert hashlib.sha256(got.data).digest() == hashlib.sha256(CONTENT).digest() and not got.fetched.warnings
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert server.sent("Accept-Encoding") == [ALL] and server.connects == 1
    server = await serve(reply(BODY, Content_Encoding="identity"))
    assert (await get(server.url, accept_compression=True, size=len(BODY))).data == BODY


@each_row(
    "headers",
    [
        {"Content_Encoding": "compress"},
        {"Content_Encoding": "gzip, br"},
        {"Content_Encoding": "gzip\r\nContent-Encoding: gzip"},
        {"Content_Length": "", "Transfer_Encoding": "gzip, chunked"},
        {"Content_Length": "", "Content_Encoding": "gzip", "Transfer_Encoding": "gzip, chunked"},
        {"Content_Encoding": "gzip", "Content_Range": "bytes 0-9/20"},
    ],
)
async def test_unsupported_codings_are_rejected_despite_accept_compression(
    get: Get, serve: Serve, headers: dict[str, str]
) -> None:
    body = gzip.compress(BODY)
    server = await serve(reply(chunks(body) if "Transfer_Encoding" in headers else body, **headers))
    with pytest.raises(EncodingRefused, match="which was not asked for"):
        await get(server.url, accept_compression=True)
    assert get.received == 0 and server.connects == 1


@codings
async def test_interrupted_compressed_body_is_downloaded_from_start(get: Get, serve: Serve, coding: str) -> None:
    body = PACKERS[coding](CONTENT)
    headers = {"ETag": '"1"', "Accept_Ranges": "bytes", "Content_Encoding": coding}
    half = reply(body[: len(body) // 2], "200 OK", len(body), **headers)
    server = await serve(then(half), reply(body, **headers))
    got = await get(server.url, accept_compression=True, size=len(CONTENT))
    assert got.data == CONTENT and got.resets == 1
    assert server.sent("Range") == [None, None]  # a part of it cannot be decoded


@pytest.mark.fault(31)
@codings
async def test_truncated_compressed_body_is_rejected_despite_valid_framing(get: Get, serve: Serve, coding: str) -> None:
    server = await serve(*[reply(PACKERS[coding](CONTENT)[:-5], Content_Encoding=coding)] * REQUESTS)
    with pytest.raises(Truncated, match="the compressed body ended early"):
        await get(server.url, accept_compression=True, timeout=30)
    assert server.connects == REQUESTS


@codings
async def test_undecodable_body_is_rejected_without_retry(get: Get, serve: Serve, coding: str) -> None:
    for body in (b"nonsense, really, and more of it", PACKERS[coding](BODY) + b"nonsense"):
        server = await serve(reply(body, Content_Encoding=coding))
        with pytest.raises(
            EncodingRefused, match=r"which (cannot be decoded|goes on after its end); nothing was stored"
        ):
            await get(server.url, accept_compression=True)
        assert server.connects == 1 and await get.store.list() == []


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.fault(31)
@codings
async def test_decompression_bomb_is_rejected_with_little_memory(get: Get, serve: Serve, coding: str) -> None:
    bomb = PACKERS[coding](bytes(256 << 20))
    server = await serve(reply(bomb, Content_Encoding=coding))
    tracemalloc.start()
    try:
        with pytest.raises(EncodingRefused, match="which comes out more than 200 times larger than it arrived"):
            await get(server.url, accept_compression=True, limit=1 << 30)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20 and get.received < 8 << 20
    assert await get.store.list() == [] and server.connects == 1


@codings
async def test_limit_and_declared_size_apply_to_decompressed_content(get: Get, serve: Serve, coding: str) -> None:
    server = await serve(*[reply(PACKERS[coding](CONTENT), Content_Encoding=coding)] * 2)
    assert (await get(server.url, accept_compression=True, limit=len(CONTENT))).data == CONTENT
    with pytest.raises(TooLarge) as caught:
        await get(server.url, accept_compression=True, limit=len(CONTENT) - 1)
    assert caught.value.details["limit"] == len(CONTENT) - 1 and get.received < len(CONTENT)
    for size in (len(BODY) - 1, len(BODY) + 1):
        server = await serve(reply(PACKERS[coding](BODY), Content_Encoding=coding))
        with pytest.raises(SizeMismatch) as mismatch:
            await get(server.url, accept_compression=True, size=size)
        assert mismatch.value.details["declared"] == size and server.connects == 1


def test_first_megabyte_may_exceed_compression_ratio() -> None:
    """At the bound, and one byte beyond it."""
    zeros = gzip.compress(bytes(1 << 20), 9, mtime=0)
    assert len(zeros) * LIMITS.ratio < 1 << 20
    assert sum(map(len, BodyDecoder("gzip").decode(zeros))) == 1 << 20
    with pytest.raises(BadBody):
        list(BodyDecoder("gzip").decode(gzip.compress(bytes((1 << 20) + 1), 9, mtime=0)))


@pytest.mark.parametrize("more", [0, 1])
def test_decompression_ratio_is_limited_to_200(monkeypatch: pytest.MonkeyPatch, more: int) -> None:
    """At the bound, and one byte beyond it, which no real compressor meets."""

    class Stream:
        finished = False

        def decode(self, data: bytes) -> tuple[bytes, bytes]:
            return (bytes(LIMITS.ratio * len(data) + more) if data else b""), b""

    monkeypatch.setitem(_decoding._STREAMS, "gzip", lambda head: Stream())
    parts = BodyDecoder("gzip").decode(bytes(100_000))
    if more:
        with pytest.raises(BadBody, match="more than 200 times"):
            list(parts)
    else:
        assert sum(map(len, parts)) == LIMITS.ratio * 100_000


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_body_with_many_tiny_compressed_streams_is_rejected(coding: str) -> None:
    pack = PACKERS[coding]
    parts = b"".join(pack(CONTENT[at : at + 60_000]) for at in range(0, len(CONTENT), 60_000))
    for piece in (1000, len(parts)):
        decoder = BodyDecoder(coding)
        out = [data for at in range(0, len(parts), piece) for data in decoder.decode(parts[at : at + piece])]
        assert b"".join(out) == CONTENT and decoder.finished
    empty = pack(b"")
    most = next(n for n in range(100, 200) if n + 1 > 100 + len(empty) * (n + 1) // 1024)
    few = BodyDecoder(coding)
    assert list(few.decode(empty * most)) == [] and few.finished
    with pytest.raises(BadBody, match="too many parts"):
        list(BodyDecoder(coding).decode(empty * (most + 1)))


async def test_compressed_body_is_decoded_in_threads(get: Get, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of brotli fills its window of 16 MB, which takes a tenth of a second."""
    threads: set[int] = set()

    class Noting(BodyDecoder):
        def decode(self, data: bytes) -> Iterator[bytes]:
            for part in super().decode(data):
                threads.add(threading.get_ident())
                yield part

    monkeypatch.setattr(_downloads, "BodyDecoder", Noting)
    server = await serve(reply(PACKERS["br"](CONTENT), Content_Encoding="br"))
    assert (await get(server.url, accept_compression=True)).data == CONTENT
    assert threads and threading.get_ident() not in threads


# --- which codings, and who says so -----------------------------------------------------------------------------------


def test_accept_encoding_lists_only_available_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    assert accept_encoding() == ALL and can_decode("br") and not can_decode("compress")
    monkeypatch.setattr(_decoding, "find_spec", lambda name: name == "zlib" or None)
    _decoding._is_installed.cache_clear()
    try:
        assert accept_encoding() == "gzip, deflate" and not can_decode("br") and can_decode("x-gzip")
    finally:
        _decoding._is_installed.cache_clear()


@pytest.mark.requirement("R1-3c")
@pytest.mark.parametrize("way", ["argument", "variable", "neither"])
async def test_session_accepts_compressed_downloads_if_enabled(
    serve: Serve, app_of: Connect, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    server = await serve(reply(PACKERS["zstd"](CONTENT), Content_Encoding="zstd"))
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
    if way == "variable":
        monkeypatch.setenv("ABP_ACCEPT_COMPRESSION", "1")
    reference = {"downloadUrl": server.url + "/f.bin", "mimeType": "application/x-thing", "size": len(CONTENT)}
    answer = answering({"file": reference})
    async with app_of({"take": answer}, accept_compression=True if way == "argument" else None) as app:
        if way == "neither":
            with pytest.raises(EncodingRefused):
                await app.call("take")
        else:
            ref = (await app.call("take")).artifacts["file"]
            assert (ref.sha256, ref.size_bytes) == (hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))
    assert server.sent("Accept-Encoding") == ["identity" if way == "neither" else ALL]
