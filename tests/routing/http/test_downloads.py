"""Downloads from servers that misbehave, on real sockets: framing, sizes, encodings, stalls, statuses, cancellation."""

import asyncio
import gzip
import time
from contextlib import suppress
from email.utils import formatdate
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.conftest import Connect
from tests.support.apps import answering
from tests.support.downloads import NOW, REQUESTS, TOKEN, Counting, Get, clean, with_auth
from tests.support.raw_server import (
    BODY,
    HALF,
    Answer,
    Connection,
    Serve,
    chunked,
    cut,
    drip,
    hang,
    moved,
    reply,
    rest,
    stall,
    then,
)
from tests.support.rows import each_row
from transports.base import Fetched
from transports.errors import DownloadFailed, EncodingRefused, SizeMismatch, StoreFull, TooLarge, Truncated
from transports.protocol.binary import Download

# --- what goes well ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R0-8a", "R1-6b")
async def test_whole_file_is_downloaded_with_metadata(get: Get, serve: Serve) -> None:
    server = await serve(
        reply(BODY, Content_Type="Application/PDF; x=y", Content_Disposition='attachment; filename="a b.pdf"')
    )
    steps: list[tuple[int, int | None]] = []
    got = await get(server.url + "/f", size=len(BODY), on_progress=lambda *step: steps.append(step))
    assert got.data == BODY
    assert got.fetched == Fetched("application/pdf", "a b.pdf")
    assert steps[-1] == (len(BODY), len(BODY))
    assert server.sent("Accept-Encoding") == ["identity"]
    assert server.connects == 1


@pytest.mark.fault(29)
@each_row(
    ("answer", "size", "complete"),
    [
        (reply(b""), None, True),
        (chunked(BODY[:7], BODY[7:]), None, True),
        (reply(BODY, Content_Length=""), None, False),  # 29
        (reply(BODY, Content_Length=""), len(BODY), True),
        (chunked(BODY, end=False), len(BODY), True),
    ],
)
async def test_response_framing_determines_completeness(
    get: Get, serve: Serve, answer: bytes, size: int | None, complete: bool
) -> None:
    server = await serve(then(answer))
    got = await get(server.url, size=size)
    assert got.data == (b"" if complete and answer == reply(b"") else BODY)
    assert [w.partition(" that ")[0] for w in got.fetched.warnings] == ([] if complete else ["nothing proves"])
    assert server.connects == 1


@pytest.mark.parametrize("field", ["Content_Security_Policy", "Set_Cookie"])
async def test_large_headers_are_accepted_up_to_limit(get: Get, serve: Serve, field: str) -> None:
    server = await serve(then(reply(BODY, **{field: "a=" + "b" * 100_000})))
    assert (await get(server.url)).data == BODY
    server = await serve(then(reply(BODY, **{field: "b" * 300_000})))
    with pytest.raises(DownloadFailed, match="headers are too large"):
        await get(server.url)


@each_row(
    ("url", "base", "target"),
    [
        ("files/a.pdf", "/app/index.html", "/app/files/a.pdf"),
        ("/f?sig=a%2Fb+c%41&x", "/app/", "/f?sig=a%2Fb+c%41&x"),
        ("/a%2Fb;v=1:c@d", "/", "/a%2Fb;v=1:c@d"),
        ("/ä b#part", "/", "/%C3%A4%20b"),
        (" /tab\there\n", "/", "/tabhere"),
        ("?v=1", "/app/x", "/app/x?v=1"),
        ("a//b", "/app//", "/app//a//b"),
        (r"sub\a.pdf?p=\b", "/app/", "/app/sub/a.pdf?p=%5Cb"),
    ],
)
async def test_relative_urls_and_spellings_are_resolved(
    get: Get, serve: Serve, url: str, base: str, target: str
) -> None:
    server = await serve()
    await get(url, base_url=server.url + base)
    assert server.seen[0].target == target
    assert not {"Origin", "Referer", "Sec-Fetch-Site", "Sec-Fetch-Mode"} & set(
        server.seen[0].headers
    )  # no document asks


@each_row(
    ("url", "base", "word"),
    [
        ("blob:https://app.example/1-2", "https://app.example/", "scheme is blob:"),
        ("data:text/plain,secret-content", None, "scheme is data:"),
        ("file:///etc/passwd", None, "scheme is file:"),
        ("a.pdf", None, "relative"),
        ("a.pdf", "chrome-extension://abc/x.html", "chrome-extension:"),
        ("http://[::1/", None, "valid"),
        ("http://host:99999/", None, "valid"),
        ("http://u:s3cr3t-t0ken@ex ample/", None, "valid"),
        ("http:/u:s3cr3t-t0ken@elsewhere/", None, "no host"),
        ("http://u:s3cr3t-t0ken?x@host/", None, "valid"),
        ("http://host:99999/?mail=a@b&token=s3cr3t-t0ken", None, "valid"),
        ("//u:s3cr3t-t0ken@host/", None, "relative"),
        ("http://127%2e0.0.1/", None, "its host is not valid"),
    ],
)
async def test_invalid_download_url_is_rejected(get: Get, url: str, base: str | None, word: str) -> None:
    with pytest.raises(DownloadFailed, match=word) as caught:
        await get(url, base_url=base)
    clean(caught.value, TOKEN, "secret-content")
    assert not caught.value.retryable


# --- 30: sizes -----------------------------------------------------------------------------------------------------

LENGTH = len(BODY)


async def endless(connection: Connection) -> None:
    await connection.send(reply(b"", Content_Length=""))
    while not connection.writer.transport.is_closing():
        await connection.send(b"x" * 10_000)
        await asyncio.sleep(0)


@pytest.mark.fault(30)
@each_row(
    ("answer", "options", "error", "message"),
    [
        *(  # no body comes: the length decides
            (
                stall(reply(b"", "200 OK", LENGTH)),
                {"size": size},
                SizeMismatch,
                f"{size} bytes and the server announces {LENGTH}",
            )
            for size in (LENGTH - 1, LENGTH + 1)
        ),
        *(
            (answer, {"size": 1000}, SizeMismatch, "more than 1000 came")
            for answer in (chunked(BODY), reply(BODY, Content_Length=""), endless)
        ),
        (chunked(BODY), {"size": LENGTH + 1}, SizeMismatch, f"declared {LENGTH + 1} bytes and {LENGTH} came"),
        *(
            (answer, {"limit": 5000}, TooLarge, "the limit is 5000 bytes")
            for answer in (stall(reply(b"", "200 OK", 5001)), chunked(b"x" * 5001), endless)
        ),
        (reply(BODY), {"size": 5001, "limit": 5000}, TooLarge, "declared 5001 bytes"),
    ],
)
async def test_download_of_other_size_or_over_limit_is_rejected(
    get: Get, serve: Serve, answer: Answer, options: dict[str, int], error: type[TooLarge | SizeMismatch], message: str
) -> None:
    server = await serve(answer)
    with pytest.raises(error, match=message) as caught:
        await get(server.url, **options)
    assert caught.value.details["url"] == server.url + "/" and caught.value.message.startswith(f"{server.url}/: ")
    assert get.received <= max(options.values()) and server.connects == (len(options) == 1)
    if error is SizeMismatch:
        assert caught.value.details["declared"] == options["size"]
    server = await serve(chunked(b"x" * 5000))
    assert len((await get(server.url, limit=5000)).data) == 5000


@pytest.mark.parametrize("error", [StoreFull("no space left"), TooLarge("over the store's limit"), OSError("io")])
async def test_store_errors_propagate_unchanged(
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


@pytest.mark.fault(31)
@pytest.mark.requirement("R1-3c")
@each_row(
    "answer",
    [
        reply(PACKED, Content_Encoding="gzip"),
        reply(gzip.compress(b"\0" * (20 << 20)), Content_Encoding="GZIP"),
        reply(BODY, Content_Encoding="br"),
        reply(b"5\r\nhello\r\n0\r\n\r\n", Content_Length="", Transfer_Encoding="gzip, chunked"),
        reply(b"5\r\nhello\r\n0\r\n\r\n", Content_Length="", Transfer_Encoding="odd, chunked"),
        reply(BODY, Content_Encoding="utf-8", Content_Length="", Connection="close"),
        reply(BODY, Content_Encoding="utf-8, gzip"),
        reply(BODY, Content_Encoding="aes128gcm"),
        reply(PACKED, Content_Encoding="identity, gzip"),
        reply(PACKED, Content_Encoding="identity\r\nContent-Encoding: gzip"),
    ],
)
async def test_unsupported_content_encoding_is_rejected(get: Get, serve: Serve, answer: bytes) -> None:
    server = await serve(answer)
    with pytest.raises(EncodingRefused) as caught:
        await get(server.url)
    assert get.received == 0 and server.connects == 1
    decodable = [b"encoding: gzip\r", b"identity, gzip"]
    if find_spec("brotli"):
        decodable.append(b"encoding: br\r")
    is_decodable = any(coding in answer.lower() for coding in decodable)
    assert caught.value.message.endswith("accept_compression=True decodes it") is is_decodable


@pytest.mark.fault(31)
@pytest.mark.requirement("R1-3c")
@each_row("accept_compression", [False, True])
@each_row(
    ("content", "headers"),
    [
        (PACKED, {"Content_Type": "application/gzip", "Content_Encoding": "Identity"}),
        (b"", {"Content_Encoding": "gzip"}),
    ],
)
async def test_gzip_file_with_identity_encoding_and_empty_body_are_not_decoded(
    get: Get, serve: Serve, content: bytes, headers: dict[str, str], accept_compression: bool
) -> None:
    server = await serve(reply(content, **headers))
    got = await get(server.url, accept_compression=accept_compression)
    assert got.data == content and not got.fetched.warnings and server.connects == 1


@pytest.mark.parametrize(
    ("answer", "size"),
    [
        (reply(BODY, Content_Encoding="aws-chunked"), None),
        (reply(BODY, Content_Encoding="aws-chunked", Content_Length="", Connection="close"), len(BODY)),
        (chunked(BODY).replace(b"\r\n", b"\r\nContent-Encoding: aws-chunked\r\n", 1), None),
    ],
    ids=["length", "declared", "chunked"],
)
async def test_unknown_encoding_is_kept_with_warning(get: Get, serve: Serve, answer: bytes, size: int | None) -> None:
    server = await serve(answer)
    got = await get(server.url, size=size)
    assert got.data == BODY
    (warning,) = got.fetched.warnings
    assert "unknown Content-Encoding 'aws-chunked'" in warning and server.url in warning


@each_row(
    ("headers", "declared", "warning"),
    [
        ({"Content_Type": "application/json"}, "application/pdf", ", but the content is JSON"),
        ({"Content_Type": "application/problem+json; charset=utf-8"}, "Image/PNG", ", but the content is JSON"),
        ({"Content_Type": "text/plain"}, "application/x-tar", ", but the content is JSON"),
        ({"Content_Type": "application/json"}, "application/geo+json", ""),
        ({"Content_Type": "application/json"}, "text/csv", ""),
        ({"Content_Type": "application/json"}, None, ""),
        ({"Content_Encoding": "binary"}, "application/geo+json", "unknown Content-Encoding 'binary'"),
    ],
)
async def test_odd_headers_of_a_file_are_a_warning(
    serve: Serve,
    app_of: Connect,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    declared: str | None,
    warning: str,
) -> None:
    monkeypatch.setenv("ABP_ALLOW_PRIVATE_ADDRESSES", "1")
    server = await serve(reply(b'{"error":{"code":404}}', **headers))
    async with app_of({"take": answering({"file": {"downloadUrl": server.url + "/f", "mimeType": declared}})}) as app:
        warnings = (await app.call("take")).warnings
    assert [warning in text for text in warnings] == [True] * bool(warning), warnings


# --- 32: slow servers ----------------------------------------------------------------------------------------------


@pytest.mark.load
@pytest.mark.fault(32)
@pytest.mark.requirement("R4-15e")
@pytest.mark.parametrize(
    "answer", [drip(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000), drip(reply(BODY))], ids=["headers", "body"]
)
async def test_slowloris_response_hits_deadline(get: Get, serve: Serve, answer: Answer) -> None:
    server = await serve(answer)
    started = time.monotonic()
    with pytest.raises(DownloadFailed, match=r"within 0\.4 s") as caught:
        await get(server.url, timeout=0.4, stall_timeout=0.2)
    assert time.monotonic() - started < 5  # the response takes at least 20
    assert (caught.value.code, caught.value.retryable) == ("TIMEOUT", True)
    assert caught.value.details.keys() == {"url", "received", "timeout_seconds"}
    assert server.connects == 1


@pytest.mark.load
@pytest.mark.fault(32)
async def test_silence_before_response_times_out(get: Get, serve: Serve) -> None:
    server = await serve(hang)
    with pytest.raises(DownloadFailed, match=r"no answer within 0\.1 s") as caught:
        await get(server.url, stall_timeout=0.1)
    assert (caught.value.code, caught.value.retryable) == ("TIMEOUT", True)
    assert server.connects == REQUESTS


@pytest.mark.load
@pytest.mark.fault(32)
async def test_stalled_body_is_treated_as_broken(get: Get, serve: Serve) -> None:
    server = await serve(stall(reply(BODY[:HALF], "200 OK", len(BODY), ETag='"v1"')), rest())
    assert (await get(server.url, stall_timeout=0.1)).data == BODY
    server = await serve(stall(reply(BODY[:HALF], "200 OK", len(BODY))))
    with pytest.raises(Truncated, match=f"stalled.*{HALF} of {len(BODY)}"):
        await get(server.url, stall_timeout=0.1)


# --- 38: statuses --------------------------------------------------------------------------------------------------


@pytest.mark.fault(38)
@each_row(
    ("status", "word"),
    [
        (401, "Unauthorized"),
        (404, "Not Found"),
        (400, "Bad Request"),
        (416, "416"),
        (204, "No Content"),
        (206, "a part"),
        (300, "300"),
        (304, "304"),
        (299, "299"),
    ],
)
async def test_final_status_is_not_retried(get: Get, serve: Serve, status: int, word: str) -> None:
    server = await serve(reply(b"x" * 10 * (status not in (204, 304)), f"{status} x", Content_Range="bytes 5-14/15"))
    with pytest.raises(DownloadFailed, match=rf"answered {status}.*{word}|{word}") as caught:
        await get(Download(server.url, expires_at=(NOW + 60) * 1000))
    assert type(caught.value) is DownloadFailed and not caught.value.retryable
    assert caught.value.details["status"] == status
    assert server.connects == 1


@pytest.mark.fault(38)
@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_transient_status_is_retried(get: Get, serve: Serve, status: int) -> None:
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


@pytest.mark.load
@pytest.mark.fault(38)
async def test_retry_after_is_honoured(get: Get, serve: Serve) -> None:
    server = await serve(reply(b"", "503 x", Retry_After="1"), reply(BODY))
    started = time.monotonic()
    await get(server.url)
    assert time.monotonic() - started > 0.95


@pytest.mark.fault(38)
@pytest.mark.parametrize(
    ("value", "seconds"),
    [("86400", 86400.0), ("9" * 400, 1e9), (formatdate(NOW + 7200, usegmt=True), 7200.0), ("6", 6.0)],
)
async def test_retry_after_beyond_deadline_is_not_awaited(get: Get, serve: Serve, value: str, seconds: float) -> None:
    server = await serve(reply(b"", "429 x", Retry_After=value))
    started = time.monotonic()
    with pytest.raises(DownloadFailed, match="answered 429") as caught:
        await get(server.url, timeout=5)
    assert time.monotonic() - started < 4
    assert (caught.value.retry_after, caught.value.retryable, server.connects) == (seconds, True, 1)


async def excerpt_of(get: Get, serve: Serve, answer: Answer, **options: float) -> object:
    server = await serve(answer)
    with pytest.raises(DownloadFailed) as caught:
        await get(with_auth(server.url), **options)
    clean(caught.value, TOKEN)
    return caught.value.details.get("body")


@pytest.mark.fault(38)
async def test_http_error_excerpt_is_cleaned_and_truncated(get: Get, serve: Serve) -> None:
    text = "\x1b[31mno\0\r\n\tsuch \u202efile\x7f " + "ä" * 5000
    excerpt = await excerpt_of(get, serve, reply(text.encode(), "404 x"))
    assert excerpt == ("[31mno such file " + "ä" * 200)[:200]
    assert await excerpt_of(get, serve, reply(gzip.compress(b"no"), "404 x", Content_Encoding="gzip")) is None
    assert await excerpt_of(get, serve, then(reply(b"half", "404 x", 100))) in ("half", None)
    quoted = f"bad {TOKEN}, Bearer {TOKEN} s3cr3t\0-t0ken {quote('Bearer ' + TOKEN)}!"
    assert await excerpt_of(get, serve, reply(quoted.encode(), "403 x")) == "bad …, … … …!"
    long = (TOKEN * 1000).encode()
    assert await excerpt_of(get, serve, reply(long, "403 x")) is not None


@pytest.mark.load
async def test_stalled_error_body_does_not_delay_failure(get: Get, serve: Serve) -> None:
    started = time.monotonic()
    assert await excerpt_of(get, serve, drip(reply(b"x" * 1000, "404 x"), 0.001), stall_timeout=0.4) is not None
    assert await excerpt_of(get, serve, stall(reply(b"", "404 x", 100)), stall_timeout=0.1) is None
    assert time.monotonic() - started < 5


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


async def test_downloads_leave_no_open_descriptors(get: Get, serve: Serve) -> None:
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
