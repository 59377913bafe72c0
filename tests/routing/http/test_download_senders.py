"""Downloads on behalf of a document: the server is told who asks, as by a browser's fetch from there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from yarl import URL

from tests.support.downloads import Get
from tests.support.raw_server import BODY, Serve, moved, reply
from tests.support.rows import each_row
from transports.errors import AddressBlocked, DownloadFailed
from transports.protocol.messages import Sender
from transports.routing.http._downloads import metadata_headers
from transports.routing.http._urls import Target

FETCH = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}
APP = Sender("https://app.example/page", "https://app.example", "app.example")
SUB = Sender("https://a.app.example/page", "https://a.app.example", "app.example")


@each_row(
    ("sender", "hops", "site", "origin", "refers"),
    [
        (APP, ["https://app.example/f"], "same-origin", None, True),
        (APP, ["https://app.example:444/f"], "same-site", "https://app.example", True),
        (APP, ["https://cdn.app.example/f"], "same-site", "https://app.example", True),
        (SUB, ["https://app.example/f"], "same-site", "https://a.app.example", True),
        (APP, ["http://app.example/f"], "cross-site", "https://app.example", False),  # a site has a scheme
        (APP, ["https://notapp.example/f"], "cross-site", "https://app.example", True),
        (APP, ["https://app.example/f", "https://cdn.app.example/f"], "same-site", "https://app.example", True),
        (APP, ["https://app.example/f", "https://other.example/f"], "cross-site", "https://app.example", True),
        # an answer that somebody else redirected is nobody's any more
        (APP, ["https://other.example/f", "https://app.example/f"], "cross-site", "null", False),
        (APP, ["https://other.example/f", "https://third.example/f"], "cross-site", "null", False),
        (APP, ["https://other.example/f", "https://other.example/g"], "cross-site", "https://app.example", True),
        (Sender("https://app.example/", "null"), ["https://app.example/f"], "cross-site", "null", False),
        # without a browser that knows where a site ends, it is the host
        (Sender("https://a.app.example/", "https://a.app.example"), ["https://b.app.example/"], "cross-site",
         "https://a.app.example", True),
        (Sender("http://127.0.0.1:1/", "http://127.0.0.1:1"), ["http://127.0.0.1:2/"], "same-site",
         "http://127.0.0.1:1", True),
    ],
)  # fmt: skip
def test_fetch_metadata_headers_match_those_of_browser(
    sender: Sender, hops: list[str], site: str, origin: str | None, refers: bool
) -> None:
    expected = FETCH | {"Sec-Fetch-Site": site} | ({"Origin": origin} if origin else {})
    if refers:
        expected["Referer"] = f"{sender.origin}/"
    assert metadata_headers(sender, [Target(URL(hop)) for hop in hops]) == expected


async def jar(url: str) -> Mapping[str, str]:
    return {"sid": "1"}


async def test_sender_origin_counts_as_own_origin_for_download(get: Get, serve: Serve) -> None:
    app, page = await serve(), await serve()
    sender = Sender(app.url + "/deep/page", app.url)
    # relative to the document that answered; the page around it is somebody else
    await get("file?x=1", sender=sender, base_url=page.url, server_address=("127.0.0.1", 1), cookies=jar)
    assert [seen.target for seen in app.seen] == ["/deep/file?x=1"] and page.seen == []
    assert (app.sent("Cookie"), app.sent("Sec-Fetch-Site"), app.sent("Origin")) == (["sid=1"], ["same-origin"], [None])
    await get(page.url + "/other", sender=sender, base_url=page.url, cookies=jar)
    assert (page.sent("Cookie"), page.sent("Sec-Fetch-Site")) == ([None], ["same-site"])
    assert page.sent("Origin") == [app.url]


async def test_opaque_origin_sender_gets_no_cookies_or_base_url(get: Get, serve: Serve) -> None:
    app = await serve()
    sender = Sender(app.url + "/", "null")
    await get("/f", sender=sender, cookies=jar)
    assert (app.sent("Cookie"), app.sent("Origin")) == ([None], ["null"])
    with pytest.raises(AddressBlocked):
        await get("/f", sender=sender, base_url=app.url, allow_private=False)
    with pytest.raises(DownloadFailed, match="about:"):
        await get("/f", sender=Sender("about:srcdoc", "null"), base_url=app.url)


async def test_redirects_send_sender_headers_for_each_step(get: Get, serve: Serve) -> None:
    other = await serve()
    app = await serve(moved(other.url + "/there"))
    other.answers[:] = [moved(app.url + "/back")]
    app.answers.append(reply(BODY))
    assert (await get("/f", sender=Sender(app.url + "/", app.url), cookies=jar)).data == BODY
    assert app.sent("Sec-Fetch-Site") == ["same-origin", "same-site"] and other.sent("Sec-Fetch-Site") == ["same-site"]
    assert app.sent("Origin") == [None, "null"] and other.sent("Origin") == [app.url]
