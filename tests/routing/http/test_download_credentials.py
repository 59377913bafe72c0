"""Credentials of downloads go to their own origin and into no message; URLs expire."""

import logging
from collections.abc import Callable, Mapping

import pytest

from tests.support.downloads import NOW, TOKEN, Get, clean, with_auth
from tests.support.raw_server import BODY, Answer, Serve, cut, hang, moved, reply, rest
from tests.support.rows import each_row
from transports.errors import ABPError, DownloadFailed, UrlExpired
from transports.protocol.binary import Download

# --- 36: credentials -----------------------------------------------------------------------------------------------


async def jar(url: str) -> Mapping[str, str]:
    return {"sid": "c00kie-value", "bad": "a\r\nb"}


async def test_credentials_are_resent_on_same_origin_redirect(get: Get, serve: Serve) -> None:
    server = await serve(moved("/next"), reply(BODY))
    await get(with_auth(server.url + "/f?a=1"), base_url=server.url, cookies=jar)
    assert [seen.target for seen in server.seen] == [f"/f?a=1&token={TOKEN}", f"/next?token={TOKEN}"]
    assert server.sent("Authorization") == [f"Bearer {TOKEN}"] * 2
    assert server.sent("X-API-Key") == [TOKEN] * 2
    assert server.sent("Cookie") == ["sid=c00kie-value"] * 2


@pytest.mark.fault(36)
async def test_no_credentials_are_sent_after_cross_origin_redirect(get: Get, serve: Serve) -> None:
    first, second = await serve(), await serve()
    first.answers[:] = [moved(second.url + "/there"), reply(BODY)]
    second.answers[:] = [moved(first.url + "/f")]  # back to the very same URL
    await get(with_auth(first.url + "/f"), base_url=first.url, cookies=jar)
    assert [seen.target for seen in [*second.seen, first.seen[1]]] == ["/there", "/f"]
    for connection in [*second.seen, first.seen[1]]:
        assert not {"Authorization", "X-API-Key", "Cookie", "Referer"} & set(connection.headers)


@pytest.mark.fault(36)
async def test_credentials_are_resent_to_first_origin_on_retry(get: Get, serve: Serve) -> None:
    second = await serve(cut(ETag='"v1"'), rest())
    first = await serve(moved(second.url))
    assert (await get(with_auth(first.url))).data == BODY
    assert first.sent("Authorization") == [f"Bearer {TOKEN}"] * 2
    assert second.sent("Authorization") == [None] * 2


@pytest.mark.fault(36)
async def test_cookies_are_requested_only_for_app_origin(get: Get, serve: Serve) -> None:
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


async def test_url_user_info_becomes_origin_bound_header(get: Get, serve: Serve) -> None:
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


async def test_cookie_jar_errors_propagate_unchanged(get: Get, serve: Serve) -> None:
    async def broken(url: str) -> Mapping[str, str]:
        raise TimeoutError("the browser is stuck")

    server = await serve()
    with pytest.raises(TimeoutError, match="the browser is stuck"):
        await get(server.url, base_url=server.url, cookies=broken)


@each_row(
    "auth",
    [
        *({"Host": "inside"}, {"range": "bytes=0-1"}, {"X\r\nY": "1"}, {"X": f"{TOKEN}\r\nHost: x"}),
        *({"Transfer-Encoding": "x"}, {"Metadata-Flavor": "Google"}, {"X-aws-ec2-metadata-token": TOKEN}),
        *({"Metadata": "true"}, {"X-Forwarded-For": "127.0.0.1"}),
    ],
)
async def test_forbidden_download_headers_are_rejected(get: Get, serve: Serve, auth: dict[str, str]) -> None:
    server = await serve()
    with pytest.raises(DownloadFailed, match="header") as caught:
        await get(Download(server.url, headers=auth))
    clean(caught.value, TOKEN)
    assert server.connects == 0


@pytest.mark.requirement("R1-5g")
async def test_credential_query_is_appended_to_existing_query(get: Get, serve: Serve) -> None:
    server = await serve(moved("/b?token=new"), reply(BODY))
    await get(Download(f"{server.url}/?token=a&x", query={"token": "b c&"}))
    await get(Download(server.url + "/?token=a", query={"token": "a"}))
    targets = [seen.target for seen in server.seen]
    assert targets == ["/?token=a&x&token=b%20c%26", "/b?token=new", "/?token=a"]


@pytest.mark.fault(36)
@pytest.mark.requirement("R4-15d")
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
)
async def test_download_secrets_are_never_shown(
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
    retried = [record for record in caplog.records if record.name == "transports.routing.http"]
    assert bool(retried) == (server.connects > 1)


async def test_credentials_are_removed_from_quoted_server_error(get: Get, serve: Serve) -> None:
    quoted = b"no: qu3ry-s3cret h3ader-s3cret p4th-s3cret c4me-later c00kie-value"
    server = await serve(moved("/there?sig=c4me-later"), reply(quoted, "403 x"))
    url = server.url + "/?sig=p4th-s3cret"
    reference = Download(url, headers={"X-Token": "h3ader-s3cret"}, query={"token": "qu3ry-s3cret"})
    with pytest.raises(DownloadFailed) as caught:
        await get(reference, base_url=server.url, cookies=jar)
    assert caught.value.details["body"] == "no: … … … … …"


# --- 37: expiry ----------------------------------------------------------------------------------------------------


@pytest.mark.fault(37)
@pytest.mark.requirement("R1-5e")
@pytest.mark.parametrize("late", [0.0, 1.5, 300.0])
async def test_expired_url_raises_without_connecting(get: Get, serve: Serve, late: float) -> None:
    server = await serve()
    assert (await get(Download(server.url, expires_at=(NOW + 0.5) * 1000))).data == BODY
    with pytest.raises(UrlExpired, match=f"expired {late:.1f} s ago; .* compare the clocks") as caught:
        await get(Download(server.url, expires_at=(NOW - late) * 1000))
    assert (server.connects, caught.value.code) == (1, "REFERENCE_EXPIRED")
    assert caught.value.details["expired_seconds_ago"] == late


def passing(*times: float) -> Callable[[], float]:
    """A clock that shows ``times`` in turn, and the last one for ever."""
    left = list(times)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


@pytest.mark.fault(37)
async def test_expiry_during_download_does_not_abort_it(get: Get, serve: Serve) -> None:
    server = await serve(cut(ETag='"v1"'), rest())
    reference = Download(server.url, expires_at=NOW * 1000)
    assert (await get(reference, clock=passing(NOW - 1, NOW + 60))).data == BODY


@pytest.mark.fault(37)
@pytest.mark.parametrize("status", [401, 403, 404, 410])
async def test_resuming_after_expiry_raises_url_expired(get: Get, serve: Serve, status: int) -> None:
    server = await serve(cut(ETag='"v1"'), reply(b"", f"{status} x"))
    with pytest.raises(UrlExpired, match=rf"expired 60\.0 s ago \(the server answers {status}\)"):
        await get(Download(server.url, expires_at=NOW * 1000), clock=passing(NOW - 1, NOW + 60))
    assert server.connects == 2


@pytest.mark.fault(37)
async def test_status_410_raises_url_expired(get: Get, serve: Serve) -> None:
    server = await serve(reply(b"", "410 Gone"))
    with pytest.raises(UrlExpired, match="call the capability again") as caught:
        await get(server.url)
    assert caught.value.details == {"url": server.url + "/", "status": 410}
