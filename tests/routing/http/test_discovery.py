"""Discovery against real servers on 127.0.0.1: pages, links, redirects, limits, hostile answers, the cache."""

import asyncio
import inspect
import json
import logging
import re
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import formatdate
from typing import TypeAlias

import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from tests.support.raw_server import (
    Answer,
    Connection,
    Dns,
    RawServer,
    Serve,
    drip,
    hang,
    moved,
    reply,
    sockets_on_same_port,
    stall,
)
from tests.support.rows import each_row
from transports.errors import DiscoveryFailed, UsageError
from transports.protocol._capabilities import Capabilities, Discovery
from transports.protocol._declarations import Capability
from transports.routing.http._request import MAX_REDIRECTS
from transports.session._manifest import ManifestCache, discover, missing_capabilities, read_manifest

#: Of docs/protocol.md 7.1 and 1.3.
HEAD_BYTES, MANIFEST_BYTES = 51_200, 1_048_576
SECRET = "s3cr3t-w0rd"
LINK = '<link rel="abp-manifest" href="/m.json">'
APP = {"id": "a", "name": "App", "version": "2"}


def page(head: str = LINK, **headers: str) -> bytes:
    body = f"<!doctype html><html><head><title>The app</title>{head}</head><body>text</body></html>".encode()
    return reply(body, **{"Content_Type": "text/html; charset=utf-8", **headers})


def manifest(*capabilities: object, **other: object) -> bytes:
    listed = capabilities or ({"name": "export.pdf", "description": "A PDF"},)
    return json.dumps({"abp": "0.1", "app": APP, "capabilities": listed, **other}).encode()


def json_reply(body: bytes | None = None, /, **headers: str) -> bytes:
    return reply(manifest() if body is None else body, Content_Type="application/json", **headers)


def site(paths: Mapping[str, Answer | list[Answer]]) -> Answer:
    """An answer for each path; of a list the next one, and the last one for ever. What is not there is 404."""
    left = {path: list(answers) if isinstance(answers, list) else [answers] for path, answers in paths.items()}

    async def answer(connection: Connection) -> None:
        queue = left.get(connection.target, [reply(b"", "404 Not Found")])
        chosen = queue.pop(0) if len(queue) > 1 else queue[0]
        if isinstance(chosen, bytes):
            await connection.send(chosen)
        else:
            await chosen(connection)

    return answer


def asked(server: RawServer) -> list[str]:
    return [connection.target for connection in server.seen]


Find: TypeAlias = Callable[..., Awaitable[Discovery]]


@pytest.fixture
def find() -> Find:
    """``discover`` with a cache of its own, and what must hold of every answer."""

    async def find(url: str, **options: object) -> Discovery:
        found = await discover(url, **{"cache": ManifestCache(), "timeout": 5.0, **options})  # type: ignore[arg-type]
        assert (found.manifest is None) is (found.reason is not None)
        if found.reason is not None:
            text = json.dumps(found.reason.as_dict(), ensure_ascii=False)
            assert SECRET not in text and found.reason.message.startswith(("the page http", "the manifest http"))
        return found

    return find


def why(found: Discovery) -> DiscoveryFailed:
    assert found.reason is not None
    return found.reason


# --- what is found ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-1n")
@each_row(
    ("kind", "is_odd"),
    [
        *(("application/json; charset=utf-8", False), ("application/manifest+json", False)),
        *(("text/plain", True), ("text/html; charset=utf-8", True), ("application/octet-stream", True)),
    ],
)
async def test_manifest_with_wrong_content_type_warns(find: Find, serve: Serve, kind: str, is_odd: bool) -> None:
    served = reply(manifest(), Content_Type=kind, Cache_Control="max-age=9")
    server = await serve(site({"/": page(), "/m.json": [served]}))
    warning = f"the manifest is served as {kind.partition(';')[0]}, not as application/json"
    for _ in range(2):  # from the server, and from the cache
        found = await find(server.url)
        assert found.manifest is not None and found.warnings == (warning,) * is_odd


@pytest.mark.requirement("R6-1a")
async def test_manifest_is_found_by_page_link(find: Find, serve: Serve) -> None:
    server = await serve(site({"/app?x=1": page(), "/m.json": json_reply()}))
    found = await find(f"{server.url}/app?x=1#part")
    assert found.manifest is not None
    assert (found.page_url, found.manifest_url) == (f"{server.url}/app?x=1", f"{server.url}/m.json")
    assert (found.title, found.warnings, found.manifest.abp) == ("The app", (), "0.1")
    assert found.manifest.app.model_dump(exclude_none=True) == APP
    assert [(c.name, c.description) for c in found.manifest.capabilities] == [("export.pdf", "A PDF")]
    assert asked(server) == ["/app?x=1", "/m.json"]
    assert server.sent("Accept-Encoding") == ["identity"] * 2
    assert server.sent("Cookie") == server.sent("Authorization") == [None] * 2


@pytest.mark.requirement("R6-1b")
@each_row(
    ("head", "path"),
    [
        ('<link rel=abp-manifest href="m.json">', "/dir/m.json"),
        ('<link rel=abp-manifest href="../m.json?a=b&amp;c">', "/m.json?a=b&c"),
        ('<base href="/other/"><link rel=abp-manifest href="m.json">', "/other/m.json"),
        ('<link rel=abp-manifest href="m.json"><base href="sub/"><base href="/no/">', "/dir/sub/m.json"),
        ('<base href="data:text/plain,x"><link rel=abp-manifest href="m.json">', "/dir/m.json"),
        ('<base href="http://[/"><link rel=abp-manifest href="m.json">', "/dir/m.json"),
        ('<link rel=abp-manifest href=" \n/m m.json ">', "/m%20m.json"),
        ('<link rel=abp-manifest href="/ä.json">', "/%C3%A4.json"),
        ('<link rel=abp-manifest href="?m">', "/dir/app?m"),
    ],
)
async def test_manifest_link_is_resolved_against_page(find: Find, serve: Serve, head: str, path: str) -> None:
    server = await serve(site({"/dir/app": page(head), path: json_reply()}))
    found = await find(f"{server.url}/dir/app")
    assert found.manifest is not None and found.manifest_url == server.url + path, found.reason


async def test_manifest_link_is_resolved_against_redirect_target(find: Find, serve: Serve) -> None:
    paths = {"/a": moved("/b/", "301 x"), "/b/": moved("/b/c", "302 x"), "/b/c": moved("/b/c/app", "303 x")}
    manifests = {"/b/c/m": moved("/d", "307 x"), "/d": moved("/e", "308 x"), "/e": json_reply()}
    server = await serve(site({**paths, "/b/c/app": page("<link rel=abp-manifest href=m>"), **manifests}))
    found = await find(f"{server.url}/a")
    assert (found.page_url, found.manifest_url) == (f"{server.url}/b/c/app", f"{server.url}/e")
    assert asked(server) == ["/a", "/b/", "/b/c", "/b/c/app", "/b/c/m", "/d", "/e"]


async def test_page_is_decoded_with_header_charset(find: Find, serve: Serve) -> None:
    body = "<title>Grüße</title><link rel=abp-manifest href='/ü'>".encode("cp1252")
    server = await serve(
        site({"/": reply(body, Content_Type="text/html; Charset=ISO-8859-1"), "/%C3%BC": json_reply()})
    )
    found = await find(server.url)
    assert found.manifest is not None and found.title == "Grüße"


# --- no manifest ------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-1i")
@each_row(
    ("answer", "reason"),
    [
        (page(""), r"has no <link rel=\"abp-manifest\" href=\"…\"> in its head \(\d\d bytes\)"),
        (reply(b"<p>Hi", Content_Type="text/html"), r"in its head \(5 bytes\);"),
        (reply(b""), r"in its head \(0 bytes\)"),
        (reply(b"", "404 Not Found"), "answered 404 Not Found"),
        (reply(LINK.encode(), "500 Internal Server Error"), "answered 500 Internal Server Error"),
        (reply(b"", "304 Not Modified"), "answered 304 Not Modified"),
        (reply(b"x", Content_Encoding="gzip"), "came in the coding 'gzip'"),
        (reply(b"<p>Hi", Content_Encoding="UTF-8"), r"in its head \(5 bytes\)"),
        (reply(b"<title>", "200 OK", 100), "was not read to its end: the body ended early"),
        (b"HTTP/1.1 nonsense\r\n\r\n", "the answer is not valid HTTP"),
        (b"", "the connection broke"),
        (page('<link rel=abp-manifest href="file:///etc/passwd">'), "link that is not followed: its scheme is file:"),
        (page(f'<link rel=abp-manifest href="http://u:{SECRET}@127.0.0.1/">'), "not followed: it holds user info"),
        (page('<link rel=abp-manifest href="http://[::1">'), "manifest link that is not"),
    ],
)
async def test_page_without_manifest_is_reported(find: Find, serve: Serve, answer: bytes, reason: str) -> None:
    server = await serve(answer)
    found = await find(f"{server.url}/?token={SECRET}")
    assert found.manifest_url is None
    failure = why(found)
    assert failure.code == "DISCOVERY_FAILED" and f"{server.url}/?…" in failure.message
    assert re.search(reason, failure.message), failure.message
    assert failure.retryable is any(word in failure.message for word in ("500 Internal", "early", "broke"))
    assert server.connects == (1 if answer else 2)  # aiohttp asks once more where a connection just ends


@pytest.mark.requirement("R6-1e")
@each_row(
    ("body", "reason"),
    [
        (b"", "JSON that cannot be read"),
        (b"<!doctype html>", "JSON is malformed: invalid character (byte 0)"),
        (b'{"abp": "0.1", "app": {oops}}', "(byte 23)"),
        (b'{"abp": "\xff"}', "utf-8"),
        (b"[1,\n2]", "it is JSON but not an object: it begins with '[1, 2]'"),
        (b"{}", "has none of abp, app and capabilities"),
        (('"a' + "ä" * 19 + '"').encode(), "begins with '\"a" + "ä" * 19 + "'"),
        (('"ab' + "ä" * 30 + '"').encode(), "begins with '\"ab" + "ä" * 18 + "\ufffd'"),
    ],
)
async def test_invalid_manifest_is_rejected(find: Find, serve: Serve, body: bytes, reason: str) -> None:
    server = await serve(site({"/": page(), "/m.json": json_reply(body)}))
    found = await find(server.url)
    assert (found.manifest_url, found.title) == (f"{server.url}/m.json", "The app")
    assert why(found).code == "DISCOVERY_FAILED"
    assert why(found).message.startswith(f"the manifest {server.url}/m.json cannot be used: ")
    assert reason.lower() in why(found).message.lower()


@pytest.mark.requirement("R6-1e")
@each_row(
    ("status", "retryable"),
    [*((304, False), (404, False), (428, False), (429, True), (430, False), (499, False), (500, True), (599, True))],
)
async def test_manifest_error_is_retryable_if_server_is_busy(
    find: Find, serve: Serve, status: int, retryable: bool
) -> None:
    server = await serve(
        site(
            {
                "/": page(f"<link rel=abp-manifest href='/m?key={SECRET}'>"),
                f"/m?key={SECRET}": reply(b"", f"{status} x"),
            }
        )
    )
    failure = why(await find(server.url))
    assert failure.message.startswith(f"the manifest {server.url}/m?… answered {status}")
    assert (failure.details, failure.retryable) == ({"url": f"{server.url}/m?…", "status": status}, retryable)


@pytest.mark.requirement("R6-1i")
@each_row("url", ["", "nonsense", "ftp://x/", "ws://127.0.0.1/", "http://", f"http://u:{SECRET}@[/"])
async def test_non_web_url_is_rejected_by_discovery(url: str) -> None:
    with pytest.raises(UsageError, match=r"such as http://127\.0\.0\.1:8000/") as caught:
        await discover(url)
    assert SECRET not in caught.value.message


# --- redirects, addresses, credentials --------------------------------------------------------------------------------


@pytest.mark.requirement("R6-1h")
async def test_discovery_limits_number_of_redirects(find: Find, serve: Serve) -> None:
    assert MAX_REDIRECTS == 5
    chain = {f"/{n}": moved(f"/{n + 1}") for n in range(MAX_REDIRECTS)}
    server = await serve(site({**chain, f"/{MAX_REDIRECTS}": page("<link rel=abp-manifest href=/0>")}))
    found = await find(f"{server.url}/0")
    assert len(server.seen) == 2 * (MAX_REDIRECTS + 1)  # the manifest's five are its own
    assert "cannot be used" in why(found).message

    server = await serve(site({"/": moved("/0"), **chain, f"/{MAX_REDIRECTS}": page()}))
    assert f"more than {MAX_REDIRECTS} redirects" in why(await find(server.url)).message
    assert len(server.seen) == MAX_REDIRECTS + 1


async def test_cookie_of_redirect_is_sent_in_discovery(find: Find, serve: Serve) -> None:
    gate = reply(b"", "302 Found", Location="/", Set_Cookie="gate=open; Path=/")
    server = await serve(site({"/": [gate, page()], "/m.json": json_reply()}))
    found = await find(f"{server.url}/")
    assert found.manifest is not None and server.sent("Cookie")[:2] == [None, "gate=open"]


@pytest.mark.fault(34)
@each_row(
    ("to", "reason"),
    [
        ("/", "redirects lead in a circle"),
        (f"http://u:{SECRET}@127.0.0.1/", "it holds user info"),
        ("", "without a Location"),
    ],
)
async def test_invalid_redirects_are_not_followed(find: Find, serve: Serve, to: str, reason: str) -> None:
    paths = {"/": moved(to)}
    server = await serve(site(paths))
    assert reason in why(await find(f"{server.url}/")).message
    assert len(server.seen) == 1
    server = await serve(site({"/x": page("<link rel=abp-manifest href=/>"), **paths}))
    failure = why(await find(f"{server.url}/x"))
    assert reason in failure.message and failure.message.startswith("the manifest ")


@pytest.mark.requirement("R6-1k")
@pytest.mark.usefixtures("trusted")
async def test_discovery_does_not_downgrade_https_to_http(find: Find, serve: Serve, tls: ssl.SSLContext) -> None:
    plain = await serve(site({"/": page(), "/m.json": json_reply()}))
    for paths in (
        {"/": moved(plain.url)},
        {"/": page(f"<link rel=abp-manifest href={plain.url}/m.json>")},
        {"/": page(f"<base href={plain.url}/><link rel=abp-manifest href=m.json>")},
        {"/": page(), "/m.json": moved(f"{plain.url}/m.json")},
    ):
        secure = await serve(site(paths), tls=tls)
        assert "it leads from https: to http:" in why(await find(secure.url)).message
    assert plain.connects == 0
    secure = await serve(site({"/": page(), "/m.json": json_reply()}), tls=tls)
    upgrade = await serve(moved(secure.url))
    found = await find(upgrade.url)
    assert found.manifest is not None and found.page_url == f"{secure.url}/"


@pytest.mark.requirement("R6-1j")
@pytest.mark.fault(35)
async def test_private_addresses_except_typed_host_are_rejected(find: Find, serve: Serve) -> None:
    other = await serve(site({"/": page(), "/m.json": json_reply()}), host="127.0.0.2")
    linking = await serve(site({"/": page(f"<link rel=abp-manifest href={other.url}/m.json>")}))
    leading = await serve(moved(f"{other.url}/"))
    for url in (linking.url, leading.url):
        failure = why(await find(url))
        assert failure.code == "BLOCKED_ADDRESS" and not failure.retryable
        assert "127.0.0.2" in failure.message and "ABP_ALLOW_PRIVATE_ADDRESSES" in failure.message
        assert failure.details["address"] == "127.0.0.2"
    assert other.connects == 0
    for url in (linking.url, leading.url):
        assert (await find(url, allow_private=True)).manifest is not None
    assert other.connects == 3


@pytest.mark.fault(35)
async def test_typed_host_is_pinned_to_address_it_was_reached_at(find: Find, serve: Serve) -> None:
    (inside_socket, outside_socket), port = sockets_on_same_port("127.0.0.2", "127.0.0.1")
    inside = await serve(site({"/": page(), "/m.json": json_reply()}), sock=inside_socket)
    outside = await serve(page(), sock=outside_socket)
    failure = why(await find(f"http://app.example:{port}/", resolver=Dns(["127.0.0.1"], ["127.0.0.2"])))
    assert failure.code == "BLOCKED_ADDRESS" and failure.details["address"] == "127.0.0.2"
    assert (outside.connects, inside.connects) == (1, 0)
    found = await find(f"http://app.example:{port}/", resolver=Dns(["127.0.0.2"]))
    assert found.manifest is not None


@pytest.mark.fault(36)
async def test_discovery_sends_credentials_only_to_their_origin(
    find: Find, serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    other = await serve(site({"/m.json": json_reply(), "/back": moved("/m.json")}))
    own = await serve(site({"/": page(), "/m.json": moved(f"{other.url}/back")}))
    found = await find(own.url.replace("//", f"//user:{SECRET}@"))
    assert found.manifest is not None
    assert all(value and value.startswith("Basic ") for value in own.sent("Authorization")) and len(own.seen) == 2
    assert other.sent("Authorization") == [None, None]
    assert SECRET not in caplog.text + repr(found) and "user" not in found.page_url

    own = await serve(site({"/": moved(f"{other.url}/m.json")}))
    assert why(await find(own.url.replace("//", f"//user:{SECRET}@")))
    assert other.sent("Authorization")[2:] == [None]

    own = await serve(site({"/": page(f"<link rel=abp-manifest href={other.url}/m.json>")}))
    assert (await find(own.url.replace("//", f"//user:{SECRET}@"))).manifest is not None
    assert other.sent("Authorization")[3:] == [None] and own.sent("Authorization") != [None]


async def test_manifest_fetched_with_credentials_is_not_cached(serve: Serve) -> None:
    cache = ManifestCache()
    server = await serve(site({"/": page(), "/m.json": json_reply(Cache_Control="max-age=60")}))
    for url in (server.url.replace("//", "//user:word@"), server.url, server.url.replace("//", "//user:word@")):
        assert (await discover(url, cache=cache)).manifest is not None
    assert asked(server) == ["/", "/m.json"] * 3


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spare", "found"), [(0, True), (-1, False)])
async def test_discovery_reads_first_50_kb_of_page(find: Find, serve: Serve, spare: int, found: bool) -> None:
    padding = b"<!--" + b"x" * (HEAD_BYTES - len(LINK) - 7 - spare) + b"-->"
    body = padding + LINK.encode() + b"<p>" * 100_000
    server = await serve(site({"/": reply(body, Content_Type="text/html"), "/m.json": json_reply()}))
    answer = await find(server.url)
    assert (answer.manifest is not None) is found
    if not found:
        assert f"in its head ({HEAD_BYTES} bytes)" in why(answer).message


@pytest.mark.requirement("R6-1d")
async def test_endless_page_is_abandoned_at_limit(find: Find, serve: Serve) -> None:
    sent = 0

    async def endless(connection: Connection) -> None:
        nonlocal sent
        await connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while not connection.writer.transport.is_closing():
            await connection.send(b" " * 65536)
            sent += 65536

    server = await serve(endless)
    assert f"in its head ({HEAD_BYTES} bytes)" in why(await find(server.url)).message
    assert sent < 50_000_000


async def test_discovery_does_not_read_past_head(find: Find, serve: Serve) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<link rel=abp-manifest href=/m.json></head>"
    server = await serve(site({"/": stall(head), "/m.json": json_reply()}))
    assert (await find(server.url)).manifest is not None


@pytest.mark.requirement("R6-1g")
@pytest.mark.parametrize(("size", "fits"), [(MANIFEST_BYTES, True), (MANIFEST_BYTES + 1, False)])
async def test_manifest_over_one_megabyte_is_rejected(find: Find, serve: Serve, size: int, fits: bool) -> None:
    body = manifest()
    server = await serve(site({"/": page(), "/m.json": json_reply(body + b" " * (size - len(body)))}))
    found = await find(server.url)
    assert (found.manifest is not None) is fits
    if not fits:
        assert f"is larger than {MANIFEST_BYTES} bytes" in why(found).message


SLOW: list[tuple[Answer, Answer]] = [
    (hang, b""),
    (drip(page()), b""),
    (drip(b"HTTP/1.1 200 OK\r\n\r\n" + b"<p>" * 1000, 0.01), b""),
    (moved("/slow"), b""),
    (page(), hang),
    (page(), stall(json_reply()[:-5])),
    (page(), drip(json_reply())),
]


@pytest.mark.requirement("R6-1f")
@pytest.mark.load
@pytest.mark.parametrize(("first", "second"), SLOW)
async def test_slow_servers_time_out_in_discovery(find: Find, serve: Serve, first: Answer, second: Answer) -> None:
    server = await serve(site({"/": first, "/slow": hang, "/m.json": second}))
    started = time.monotonic()
    failure = why(await find(server.url, timeout=0.2))
    assert time.monotonic() - started < 5
    assert failure.code == "TIMEOUT" and failure.retryable, failure.message
    assert inspect.signature(discover).parameters["timeout"].default == 10.0


async def test_discovery_can_be_cancelled(find: Find, serve: Serve) -> None:
    server = await serve(hang)
    task = asyncio.ensure_future(find(server.url))
    while not server.seen:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- what a manifest says ---------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-1m")
@each_row(
    ("version", "warning"),
    [
        ("0.1", None),
        ("0.9.3", None),
        ("0", None),
        ("v0.2-beta", None),
        (0.1, None),
        ("1.0", "newer than 0.1; parts of it may not work"),
        ("2", "for ABP 2, newer"),
        (1, "newer than 0.1"),
        ("latest", "version 'latest' cannot be read"),
        ("1x", "cannot be read"),
        ("٣.0", "cannot be read"),
        ("9" * 5000, "cannot be read"),
        ("", "names no ABP version"),
        (None, "names no ABP version"),
        ({"major": 1}, "its abp version"),
    ],
)
def test_unsupported_or_missing_manifest_version_warns(
    version: object, warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, warnings = read_manifest(manifest(abp=version))
    assert len(read.capabilities) == 1
    if warning is None:
        assert warnings == []
    else:
        assert len(warnings) == 1 and warning in warnings[0] and len(warnings[0]) < 400
    with monkeypatch.context() as newer:
        newer.setattr("transports.session._manifest.PROTOCOL_VERSION", "2.3")
        assert read_manifest(manifest(abp="1.9"))[1] == read_manifest(manifest(abp="2.9"))[1] == []
        assert "newer than 2.3" in read_manifest(manifest(abp="3.0"))[1][0]


@pytest.mark.requirement("R6-1p")
@pytest.mark.parametrize(
    ("other", "warning"),
    [
        ({"app": [1]}, "its app"),
        ({"app": {"name": "App", "version": "2"}}, "the manifest names no app.id"),
        ({"app": {"id": {}}}, "its app"),
        ({"capabilities": {"a": 1}}, "no list of capabilities"),
        ({"capabilities": None}, "no list of capabilities"),
    ],
)
def test_manifest_parts_of_wrong_type_are_skipped_with_warning(other: dict[str, object], warning: str) -> None:
    read, warnings = read_manifest(manifest(**other))
    assert len(warnings) == 1 and warning in warnings[0]
    assert (read.app.name == "App") is ("its app" not in warning)
    assert len(read.capabilities) == ("capabilities" not in other)


def test_manifest_parsing_is_lenient() -> None:
    body = b"\xef\xbb\xbf" + manifest("plain", {"name": 7}, {"name": "x", "inputSchema": 3}, app="Name", more=[1])
    read, warnings = read_manifest(body)
    assert warnings == ["the manifest names no app.id, app.version"] and read.app.name == "Name"
    assert [(c.name, c.input_schema) for c in read.capabilities] == [("plain", {}), ("7", {}), ("x", {})]


def nested(levels: int) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"properties": value}
    return value


@each_row(
    ("bad", "warning"),
    [
        (3, "capability 1 of the manifest is left out"),
        (None, "capability 1 of the manifest is left out"),
        ({}, "name: it is missing"),
        ({"name": ""}, "it has no name"),
        ({"name": " "}, "it has no name"),
        ({"name": ["x"]}, "name"),
        ({"name": "x", "deprecated": "perhaps"}, "deprecated"),
        ({"name": "good", "description": "again"}, "there is a 'good' already"),
        ({"name": "x", "inputSchema": nested(64)}, "nested deeper than 64"),
    ],
)
def test_one_bad_capability_does_not_drop_others(bad: object, warning: str) -> None:
    good = [{"name": "good", "description": "first"}, {"name": "deep", "inputSchema": nested(63)}]
    read, warnings = read_manifest(manifest(good[0], bad, good[1]))
    assert [(c.name, c.description) for c in read.capabilities] == [("good", "first"), ("deep", "")]
    assert len(warnings) == 1 and warning in warnings[0]


@pytest.mark.requirement("R6-1o")
def test_manifest_is_cut_to_1000_capabilities() -> None:
    listed = [{"name": f"c{number}"} for number in range(1001)]
    read, warnings = read_manifest(manifest(*listed[:1000]))
    assert len(read.capabilities) == 1000 and warnings == []
    read, warnings = read_manifest(manifest(*listed))
    assert [c.name for c in read.capabilities] == [f"c{number}" for number in range(1000)]
    assert warnings == ["the manifest lists 1001 capabilities; the first 1000 are taken"]


def test_manifest_warnings_are_limited_and_printable() -> None:
    read, warnings = read_manifest(manifest(*[{"name": "x\n\x1b[31m" + "y" * 999}] * 500, abp="\x1b[31m\n"))
    assert len(read.capabilities) == 1 and len(warnings) == 7
    assert warnings[-1] == "494 more capabilities of the manifest are left out"
    assert all(warning.isprintable() and len(warning) < 400 for warning in warnings)


def capability(name: str, **fields: object) -> Capability:
    return Capability.model_validate({"name": name, **fields})


@pytest.mark.requirement("R6-1r")
def test_capabilities_that_running_app_lacks_are_warned_of() -> None:
    declared = [capability("both", deprecated=True), capability("gone"), capability("full")]
    running = Capabilities().merge(["full", "both", "new"])
    assert list(running.with_manifest(declared)) == ["full", "both", "new"]
    assert missing_capabilities(declared, running) == ["the manifest names gone, which the running app does not have"]
    assert missing_capabilities(declared[:1], running) == []
    many = missing_capabilities([capability(f"c{n}\n") for n in range(8)], {})
    assert many == ["the manifest names c0, c1, c2, c3, c4 and 3 more, which the running app does not have"]


# --- the cache --------------------------------------------------------------------------------------------------------


NOW = 1_760_000_000.0
CHANGED = formatdate(1_700_000_000, usegmt=True)


def dated(ago: float) -> str:
    return formatdate(NOW - ago, usegmt=True)


@pytest.mark.requirement("R6-1l")
@each_row(
    ("headers", "seconds"),
    [
        ({}, 0),
        ({"Cache_Control": "max-age=60"}, 60),
        ({"Cache_Control": 'public , MAX-AGE="60"'}, 60),
        ({"Cache_Control": "max-age=60, must-revalidate"}, 60),
        ({"Cache_Control": "max-age=60, max-age=9"}, 60),
        ({"Cache_Control": "s-maxage=999, max-age=60"}, 60),
        ({"Cache_Control": "max-age=60", "Age": "20"}, 40),
        ({"Cache_Control": "max-age=60", "Age": "nonsense"}, 60),
        ({"Cache_Control": "max-age=60", "Age": "61"}, 0),
        ({"Cache_Control": "max-age=60", "Date": dated(30)}, 30),
        ({"Cache_Control": "max-age=60", "Vary": "Accept, Accept-Encoding"}, 60),
        ({"Cache_Control": "max-age=60", "Vary": "*"}, 0),
        ({"Cache_Control": "max-age=60, no-cache"}, 0),
        ({"Cache_Control": "max-age=60, no-store"}, 0),
        ({"Cache_Control": 'max-age=60, no-cache="Set-Cookie"'}, 0),
        ({"Cache_Control": "max-age=soon"}, 0),
        ({"Cache_Control": "max-age=-1"}, 0),
        ({"Cache_Control": "max-age=" + "9" * 5000}, 0),
        ({"Cache_Control": f"max-age={2**31 - 1}"}, 2**31 - 1),
        ({"Cache_Control": f"max-age={2**31 + 1}"}, 2**31),
        ({"Cache_Control": "max-age=" + "9" * 18}, 2**31),
        ({"Cache_Control": "max-age=" + "9" * 19, "ETag": "1"}, 0),
        (CIMultiDict([("Cache_Control", "max-age=5"), ("Cache_Control", "no-cache"), ("ETag", "1")]), 0),
        ({"Date": dated(0), "Expires": dated(-60)}, 60),
        ({"Date": dated(0), "Expires": dated(-60), "Cache_Control": "max-age=5"}, 5),
        ({"Date": dated(0), "Expires": "0"}, 0),
        ({"Last_Modified": CHANGED}, 0),
    ],
)
def test_manifest_cache_follows_response_headers(headers: Mapping[str, str], seconds: int) -> None:
    cache, url = ManifestCache(clock=lambda: NOW), URL("http://a.test/")
    sent = CIMultiDict((name.replace("_", "-"), value) for name, value in headers.items())
    cache.put(url, b"", CIMultiDictProxy(sent), NOW)
    cached = cache.get(url)
    if cached is None:
        assert seconds == 0
    else:
        assert (cached.fresh_from, max(cached.fresh_until, NOW)) == (NOW, NOW + seconds)


@pytest.mark.parametrize("jump", [86400.0, -86400.0])
async def test_clock_jump_does_not_keep_manifest_past_max_age(serve: Serve, jump: float) -> None:
    clock = [NOW]
    cache = ManifestCache(clock=lambda: clock[0])
    server = await serve(site({"/": page(), "/m.json": json_reply(Cache_Control="max-age=60")}))
    assert await _requests(server, cache) == 1
    clock[0] += jump
    assert await _requests(server, cache) == 1  # how old it is nobody knows
    assert await _requests(server, cache) == 0


async def _requests(server: RawServer, cache: ManifestCache) -> int:
    """How often a discovery asks for the manifest. Its page is asked for each time."""
    before = len(server.seen)
    assert (await discover(server.url, cache=cache)).manifest is not None
    assert asked(server)[before] == "/"
    return len(server.seen) - before - 1


@each_row(
    ("validators", "conditions"),
    [
        ({"ETag": '"v1"'}, ('"v1"', None)),
        ({"ETag": 'W/"v1"'}, ('W/"v1"', None)),
        ({"Last_Modified": CHANGED}, (None, CHANGED)),
        ({"ETag": '"v1"', "Last_Modified": CHANGED}, ('"v1"', CHANGED)),
    ],
)
@each_row("control", ["no-cache", "max-age=0, must-revalidate", ""])
async def test_stale_manifest_is_revalidated(
    serve: Serve, validators: dict[str, str], conditions: tuple[str | None, str | None], control: str
) -> None:
    cache = ManifestCache()
    first = json_reply(Cache_Control=control, **validators)
    same = reply(b"", "304 Not Modified", Content_Length="")
    other = json_reply(manifest("new"), Cache_Control=control)
    server = await serve(site({"/": page(), "/m.json": [first, same, other, other]}))
    names = []
    for _ in range(4):
        found = await discover(server.url, cache=cache)
        assert found.manifest is not None
        names.append(found.manifest.capabilities[0].name)
    assert names == ["export.pdf", "export.pdf", "new", "new"]
    sent = zip(server.sent("If-None-Match"), server.sent("If-Modified-Since"), asked(server), strict=True)
    none = (None, None)
    assert [(tag, date) for tag, date, path in sent if path != "/"] == [none, conditions, conditions, none]


async def test_not_modified_response_refreshes_cached_manifest(serve: Serve) -> None:
    clock = [NOW]
    cache = ManifestCache(clock=lambda: clock[0])
    first = json_reply(Cache_Control="max-age=10", ETag='"v1"', Age="5", Date=dated(5))
    same = reply(b"", "304 Not Modified", Content_Length="", Cache_Control="max-age=60", ETag='"v2"')
    server = await serve(site({"/": page(), "/m.json": [first, same]}))
    requests = []
    for later in (0, 20, 30, 29, 2):
        clock[0] += later
        requests.append(await _requests(server, cache))
    assert requests == [1, 1, 0, 0, 1]
    tags = [connection.headers.get("If-None-Match") for connection in server.seen if connection.target != "/"]
    assert tags == [None, '"v1"', '"v2"']


async def test_no_store_header_clears_cached_manifest(serve: Serve) -> None:
    cache = ManifestCache()
    first, then = json_reply(Cache_Control="no-cache", ETag='"v1"'), json_reply(Cache_Control="no-store", ETag='"v2"')
    server = await serve(site({"/": page(), "/m.json": [first, then]}))
    for _ in range(3):
        await _requests(server, cache)
    tags = [connection.headers.get("If-None-Match") for connection in server.seen if connection.target != "/"]
    assert tags == [None, '"v1"', None]


async def test_manifest_cache_skips_errors_and_redirects(serve: Serve) -> None:
    cache = ManifestCache()
    lasting = {"Cache_Control": "max-age=60"}
    moved_on = reply(b"", "302 Found", Location="/n.json", **lasting)
    paths: dict[str, Answer | list[Answer]] = {
        "/": page(),
        "/m.json": [reply(b"", "404 Not Found", **lasting), moved_on],
    }
    server = await serve(site({**paths, "/n.json": json_reply(**lasting)}))
    assert why(await discover(server.url, cache=cache)).details["status"] == 404
    for _ in range(2):
        found = await discover(server.url, cache=cache)
        assert found.manifest_url == f"{server.url}/n.json" and found.manifest is not None
    assert asked(server) == ["/", "/m.json", "/", "/m.json", "/n.json", "/", "/m.json"]


async def test_manifest_cache_is_bounded_and_evicts_unused(serve: Serve) -> None:
    cache = ManifestCache(2)
    paths = {f"/{n}": page(f"<link rel=abp-manifest href=/m{n}>") for n in range(3)}
    manifests = {f"/m{n}": json_reply(Cache_Control="max-age=60") for n in range(3)}
    server = await serve(site({**paths, **manifests}))
    for n in (0, 1, 0, 2, 0, 1):
        await discover(f"{server.url}/{n}", cache=cache)
    assert [path for path in asked(server) if path.startswith("/m")] == ["/m0", "/m1", "/m2", "/m1"]


async def test_manifest_cache_is_process_wide_by_default(serve: Serve) -> None:
    server = await serve(site({"/": page(), "/m.json": json_reply(Cache_Control="max-age=60")}))
    for _ in range(2):
        assert (await discover(server.url)).manifest is not None
    assert asked(server) == ["/", "/m.json", "/"]
    await discover(server.url, cache=ManifestCache())
    assert asked(server)[3:] == ["/", "/m.json"]
