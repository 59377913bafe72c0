"""Downloads whose body breaks off: resumed where the server proves that it is the same content, else begun again."""

from email.utils import formatdate
from pathlib import Path
from unittest.mock import Mock

import pytest
from aiohttp.abc import ResolveResult

from tests.support.downloads import NOW, REQUESTS, TOKEN, Get, clean
from tests.support.raw_server import BODY, HALF, Answer, Dns, Serve, chunked, cut, reply, rest, then
from tests.support.rows import each_row
from transports import LocalStore, Router
from transports._internal.masking import KNOWN_SECRETS
from transports.base import Fetched
from transports.errors import DownloadFailed, SizeMismatch, TooLarge, Truncated
from transports.routing import Fetcher

# --- 28, 33: broken bodies -----------------------------------------------------------------------------------------


def dated(age: float = 3600) -> dict[str, str]:
    return {"Last_Modified": formatdate(NOW - age, usegmt=True), "Date": formatdate(NOW, usegmt=True)}


@pytest.mark.fault(28)
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
async def test_broken_download_resumes_also_after_a_second_break(
    get: Get, serve: Serve, broken: Answer, if_range: str
) -> None:
    more = HALF + 100
    broken_again = then(part(HALF, more - 1, status="206 Partial Content"))
    server = await serve(broken, broken_again, rest(BODY, more))
    steps: list[int] = []
    got = await get(server.url, on_progress=lambda received, _: steps.append(received))
    assert got.data == BODY and got.fetched == Fetched("application/pdf", None) and got.fetched.attempts == 3
    assert server.sent("Range") == [None, f"bytes={HALF}-", f"bytes={more}-"]
    assert server.sent("If-Range") == [None, if_range, if_range]
    assert (steps, got.resets) == ([HALF, more, len(BODY)], 0)


@pytest.mark.fault(28)
@each_row(
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
)
async def test_download_restarts_without_strong_validator(get: Get, serve: Serve, more: dict[str, str]) -> None:
    server = await serve(cut(**more), reply(BODY))
    got = await get(server.url)
    assert (got.data, got.resets) == (BODY, 1)
    assert server.sent("Range") == [None, None]


async def test_restarted_download_is_masked_completely(serve: Serve, tmp_path: Path) -> None:
    body = b"a value-of-a and more, " * 100
    server = await serve(then(reply(body[:500], "200 OK", len(body))), reply(body))
    store = LocalStore(tmp_path)
    KNOWN_SECRETS.add("A", "value-of-a")
    try:
        router = Router(store, fetcher=Fetcher(allow_private=True))
        answer = {"file": {"downloadUrl": server.url, "mimeType": "text/plain", "size": len(body)}}
        result = await router.route(answer, capability="x")
    finally:
        KNOWN_SECRETS.forget()
    assert await store.get(result.artifact()) == body.replace(b"value-of-a", b"*" * 10)
    assert server.connects == 2


OTHER = bytes(reversed(BODY))


@pytest.mark.fault(33)
@each_row(
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
)  # fmt: skip
async def test_resumed_download_never_splices_versions(get: Get, serve: Serve, second: bytes, requests: int) -> None:
    server = await serve(cut(ETag='"v1"'), then(second), reply(OTHER))
    got = await get(server.url)
    assert got.data == OTHER
    assert got.resets == 1
    assert server.sent("Range") == [None, f"bytes={HALF}-", None][:requests]


def part(first: int, last: int, total: object = len(BODY), /, status: str = "200 OK", **more: str) -> bytes:
    """A part of the body, with the status of a whole one."""
    body = BODY[first : last + 1]
    return reply(body, status, **{"Content_Range": f"bytes {first}-{last}/{total}", "ETag": '"v1"', **more})


LAST = len(BODY) - 1


@pytest.mark.fault(33)
@each_row(
    ("second", "requests"),
    [
        (part(HALF, LAST), 2),
        (part(HALF, LAST, Content_Range=f"{HALF}-{LAST}/{len(BODY)}"), 2),
        (part(0, HALF - 1), 3),
        (part(HALF, LAST, Content_Range=f"bytes={HALF}-{LAST}/{len(BODY)}"), 3),
        (part(HALF, LAST, Content_Range=f"rows {HALF}-{LAST}/{len(BODY)}"), 3),
        (part(HALF, LAST).replace(b"ETag", b"Content-Range: bytes 0-9/10\r\nETag"), 3),
        (part(HALF, LAST, Content_Range=f"bytes {HALF}-{LAST - 1}/{len(BODY)}"), 3),
        (part(HALF, LAST, Content_Range=""), 3),
        (part(HALF, LAST, Content_Type="multipart/byteranges; boundary=x", Content_Range=""), 3),
        (part(HALF, LAST, status="206 Partial Content", Content_Type="multipart/byteranges; boundary=x"), 3),
        (chunked(BODY[HALF:]), 3),
        (reply(BODY[HALF:], ETag='"v1"', Content_Length="", Connection="close"), 3),
        (reply(BODY[HALF:] + b"more", "206 Partial Content", ETag='"v1"', Content_Length="", Connection="close",
               Content_Range=f"bytes {HALF}-{LAST}/{len(BODY)}"), 3),
        (reply(BODY[HALF : HALF + 99] + b"more", "206 Partial Content", ETag='"v1"', Content_Length="",
               Connection="close", Content_Range=f"bytes {HALF}-{HALF + 98}/{len(BODY)}"), 3),
        (reply(BODY, ETag='"v1"'), 2),
        (reply(BODY, "200 OK", ETag='"v2"'), 2),
    ],
)  # fmt: skip
async def test_resumed_download_is_complete_for_any_response_status(
    get: Get, serve: Serve, second: bytes, requests: int
) -> None:
    server = await serve(cut(ETag='"v1"'), then(second), reply(BODY))
    assert (await get(server.url)).data == BODY
    assert server.sent("Range") == [None, f"bytes={HALF}-", None][:requests]


@pytest.mark.fault(33)
@each_row("status", ["200 OK", "206 Partial Content"])
@each_row(("last", "requests"), [(LAST, 1), (HALF - 1, 2)])
async def test_unrequested_first_part_is_accepted_and_completed(
    get: Get, serve: Serve, status: str, last: int, requests: int
) -> None:
    server = await serve(then(part(0, last, status=status)), rest())
    assert (await get(server.url)).data == BODY
    assert server.sent("Range") == [None, f"bytes={HALF}-"][:requests]


@pytest.mark.fault(33)
@each_row(
    "answer",
    [
        part(HALF, LAST),
        part(0, HALF - 1, "*"),
        part(0, HALF - 1, 10),
        part(0, LAST, Content_Range="bytes */10240"),
        part(0, LAST, Content_Range="bytes"),
        part(HALF, LAST, Content_Range=f"{HALF}-{LAST}/{len(BODY)}"),
        part(0, LAST, Content_Range="", Content_Type="multipart/byteranges; boundary=x"),
        part(0, LAST, status="206 Partial Content", Content_Range=""),
        part(0, LAST, status="206 Partial Content", Content_Range=f"rows 0-{LAST}/{len(BODY)}"),
    ],
)
async def test_unrequested_part_is_rejected(get: Get, serve: Serve, answer: bytes) -> None:
    server = await serve(answer)
    with pytest.raises(DownloadFailed, match=r"answered 20\d \w.* with a part of the file") as caught:
        await get(server.url)
    assert (type(caught.value), server.connects, get.received) == (DownloadFailed, 1, 0)


@each_row(
    "answers",
    [
        *([reply(BODY, Content_Range=given)] for given in ("rows 0-14/*", "items 0-14/3573", "0-14/*", "0-14/3573")),
        *([then(broken), reply(BODY)] for broken in (b"", b"HTTP/1.1 200 OK\r\nContent-Le")),
        [cut(**dated()), rest(BODY, **dated(1800)), reply(BODY)],
    ],
)
async def test_download_is_whole_despite_odd_range_or_broken_head(
    get: Get, serve: Serve, answers: list[Answer]
) -> None:
    server = await serve(*answers)
    assert (await get(server.url)).data == BODY


async def test_mismatched_range_is_retried_without_delay(
    get: Get, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    delay = Mock(return_value=0.0)
    monkeypatch.setattr("transports.routing.http._downloads.backoff_delay", delay)
    server = await serve(cut(ETag='"v1"'), rest(span="bytes 0-9/10"), reply(BODY))
    got = await get(server.url)
    assert got.fetched.attempts == 3
    delay.assert_called_once_with(1)  # after the body that broke off


@pytest.mark.fault(33)
async def test_total_size_learned_on_resume_is_checked(get: Get, serve: Serve) -> None:
    broken = then(chunked(BODY[:HALF], end=False))
    server = await serve(broken, rest())
    with pytest.raises(SizeMismatch, match=f"announces {len(BODY)}"):
        await get(server.url, size=len(BODY) + 1)
    server = await serve(broken, rest())
    with pytest.raises(TooLarge):
        await get(server.url, limit=len(BODY) - 1)


@pytest.mark.fault(28, 29)
@pytest.mark.parametrize(
    ("broken", "size", "of"),
    [
        (cut(), None, f"{HALF} of {len(BODY)} bytes"),
        (then(reply(BODY[:HALF], Content_Length="")), len(BODY), f"{HALF} of {len(BODY)} bytes"),  # 29
        (then(chunked(BODY[:HALF], end=False)), None, f"{HALF} of an unknown number of bytes"),
    ],
    ids=["length", "close-delimited", "chunked"],
)
async def test_repeatedly_truncated_download_raises_truncated(
    get: Get, serve: Serve, broken: Answer, size: int | None, of: str
) -> None:
    server = await serve(broken)
    with pytest.raises(Truncated, match=of) as caught:
        await get(server.url + "?q=1", size=size)
    assert server.connects == REQUESTS
    assert caught.value.retryable and caught.value.details["received"] == HALF
    assert caught.value.details["attempts"] == REQUESTS


async def test_unreachable_server_raises_download_failed(get: Get, serve: Serve, unused_port: int) -> None:
    """Nothing listens, it speaks another protocol, or its name is unknown."""

    class Nowhere(Dns):
        async def resolve(self, host: str, port: int = 0, family: int = 0) -> list[ResolveResult]:
            self.asked += 1
            raise OSError(-2, "Name or service not known")

    server, dns = await serve(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), Nowhere([])
    for url, message, retryable in (
        (f"http://127.0.0.1:{unused_port}", "no connection", True),
        (server.url, "not valid HTTP", False),
        ("http://nowhere.invalid", "host name was not found", True),
    ):
        with pytest.raises(DownloadFailed, match=message) as caught:
            await get(f"{url}/?token={TOKEN}", resolver=dns)
        assert (caught.value.retryable, caught.value.code) == (retryable, "DOWNLOAD_FAILED")
        clean(caught.value, TOKEN)
    assert (server.connects, dns.asked) == (1, REQUESTS)
