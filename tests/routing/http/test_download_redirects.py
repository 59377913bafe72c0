"""Redirects of downloads, and which addresses may be connected to."""

import ssl
from collections.abc import Mapping

import pytest

from tests.support.downloads import TOKEN, Get, clean
from tests.support.raw_server import BODY, HALF, Answer, Dns, Serve, cut, moved, reply, rest, sockets_on_same_port
from tests.support.rows import each_row
from transports.errors import AddressBlocked, DownloadFailed, RedirectRefused
from transports.routing.http import _addresses as addresses
from transports.routing.http._request import MAX_REDIRECTS

# --- 34: redirects -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["301 x", "302 x", "303 x", "307 x", "308 x"])
async def test_redirect_is_followed(get: Get, serve: Serve, status: str) -> None:
    server = await serve(moved("../b?x=%2F#f", status), reply(BODY))
    assert (await get(server.url + "/a/c")).data == BODY
    assert [seen.target for seen in server.seen] == ["/a/c", "/b?x=%2F"]


@pytest.mark.fault(34)
async def test_download_follows_at_most_5_redirects(get: Get, serve: Serve) -> None:
    hops: list[Answer] = [moved(f"/{number}") for number in range(MAX_REDIRECTS)]
    server = await serve(*hops, reply(BODY))
    assert (await get(server.url)).data == BODY
    server = await serve(*hops, moved("/last"), reply(BODY))
    with pytest.raises(RedirectRefused, match="more than 5 redirects"):
        await get(server.url)
    assert server.connects == MAX_REDIRECTS + 1


async def test_cookie_of_redirect_is_sent_within_its_origin(get: Get, serve: Serve) -> None:
    async def jar(url: str) -> Mapping[str, str]:
        return {"sid": "1"}

    gate = reply(b"", "302 Found", Location="/f", Set_Cookie=f"gate={TOKEN}; Path=/; HttpOnly")
    server = await serve(gate, reply(BODY))
    assert (await get(server.url + "/f", base_url=server.url, cookies=jar)).data == BODY
    assert server.sent("Cookie") == ["sid=1", f"sid=1; gate={TOKEN}"]

    elsewhere = await serve()
    server = await serve(reply(b"", "302 Found", Location=elsewhere.url, Set_Cookie=f"gate={TOKEN}"))
    assert (await get(server.url)).data == BODY
    assert elsewhere.sent("Cookie") == [None]

    server = await serve(gate, reply(TOKEN.encode(), "403 Forbidden"))
    with pytest.raises(DownloadFailed, match="403") as caught:
        await get(server.url + "/f")
    clean(caught.value, TOKEN)
    server = await serve(gate)
    with pytest.raises(RedirectRefused, match="circle"):
        await get(server.url + "/f")
    assert server.connects == 2


@pytest.mark.fault(34)
@each_row(
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
async def test_invalid_redirect_is_rejected(get: Get, serve: Serve, to: str, why: str) -> None:
    server = await serve(moved(to))
    with pytest.raises(RedirectRefused, match=why) as caught:
        await get(f"{server.url}/loop?token={TOKEN}")
    clean(caught.value, TOKEN)
    assert caught.value.details == {"url": f"{server.url}/loop?…" if to != "/loop" else f"{server.url}/loop"}
    assert server.connects == (2 if to == "/loop" else 1)


@pytest.mark.fault(34)
@pytest.mark.usefixtures("trusted")
async def test_redirect_from_https_to_http_is_rejected_and_reverse_is_followed(
    get: Get, serve: Serve, tls: ssl.SSLContext
) -> None:
    plain = await serve()
    server = await serve(moved(plain.url), tls=tls)
    with pytest.raises(RedirectRefused, match="from https: to http:"):
        await get(server.url)
    assert plain.connects == 0
    server = await serve(cut(ETag='"v1"'), rest(), tls=tls)
    plain = await serve(moved(server.url))
    assert (await get(plain.url)).data == BODY
    assert server.sent("Range") == [None, f"bytes={HALF}-"]


async def test_untrusted_certificate_fails_download(get: Get, serve: Serve, tls: ssl.SSLContext) -> None:
    server = await serve(tls=tls)
    with pytest.raises(DownloadFailed, match=r"not valid \(self.signed.*SSL_CERT_FILE") as caught:
        await get(server.url)
    assert not caught.value.retryable and not server.seen


# --- 35: addresses -------------------------------------------------------------------------------------------------

PRIVATE = """127.0.0.1 127.9.9.9 0.0.0.0 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 192.0.2.1
198.18.0.1 203.0.113.1 224.0.0.1 239.1.1.1 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1
::ffff:10.0.0.1 ::ffff:a9fe:a9fe 64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b:1::1 2002:7f00:1::1 2002:a00:1::1
2001:0:1::1 2001:db8::1 fc00::1 fd00:ec2::254 fe80::1 fe80::1%eth0 fec0::1 ff02::1 localhost 127.1 2130706433"""
PUBLIC = "8.8.8.8 1.1.1.1 172.32.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 2002:808:808::1"


@pytest.mark.fault(35)
@each_row(
    ("address", "public"),
    [*((address, False) for address in PRIVATE.split()), *((address, True) for address in PUBLIC.split())],
)
def test_private_address_is_not_public(address: str, public: bool) -> None:
    assert addresses.is_public(address) is public


LITERALS = ["127.0.0.1", "0.0.0.0", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "0x7f.1", "127.0.0.1.",
            "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "１２７.0.0.1", "localhost", "LOCALHOST", "[::1]", "[::]",
            "[64:ff9b::7f00:1]", "169.254.169.254", "[fe80::1%25lo]"]  # fmt: skip


@pytest.mark.fault(35)
@each_row("host", LITERALS)
async def test_private_literal_address_is_blocked(get: Get, serve: Serve, host: str) -> None:
    server = await serve()
    port = server.url.rpartition(":")[2]
    with pytest.raises(AddressBlocked, match="ABP_ALLOW_PRIVATE_ADDRESSES=1") as caught:
        await get(f"http://{host}:{port}/?token={TOKEN}", allow_private=False)
    assert server.connects == 0
    assert caught.value.code == "BLOCKED_ADDRESS" and not caught.value.retryable
    clean(caught.value, TOKEN)


@pytest.mark.fault(35)
async def test_redirect_to_private_address_is_blocked(get: Get, serve: Serve, fake_public: str) -> None:
    inside = await serve()
    outside = await serve(moved(inside.url), host=fake_public)
    with pytest.raises(AddressBlocked):
        await get(outside.url, allow_private=False)
    assert (outside.connects, inside.connects) == (1, 0)


@pytest.mark.fault(35)
async def test_dns_rebinding_is_blocked(get: Get, serve: Serve, fake_public: str) -> None:
    inside = await serve()
    outside = await serve(cut(ETag='"v1"'), host=fake_public)
    port = outside.url.rpartition(":")[2]
    dns = Dns([fake_public], ["127.0.0.1"])
    with pytest.raises(AddressBlocked, match=r"127\.0\.0\.1"):
        await get(f"http://files.example:{port}/", allow_private=False, resolver=dns)
    assert (dns.asked, outside.connects, inside.connects) == (2, 1, 0)


@pytest.mark.parametrize("found", [["127.0.0.1", "127.0.0.2"], ["::1", "127.0.0.1", "127.0.0.2"]])
async def test_happy_eyeballs_connects_only_to_public_address(
    get: Get, serve: Serve, fake_public: str, found: list[str]
) -> None:
    (public_socket, private_socket), port = sockets_on_same_port(fake_public, "127.0.0.1")
    outside, inside = await serve(sock=public_socket), await serve(sock=private_socket)
    got = await get(f"http://files.example:{port}/", allow_private=False, resolver=Dns(found))
    assert (got.data, outside.connects, inside.connects) == (BODY, 1, 0)


async def test_failing_public_address_is_reported_over_blocked_one(
    get: Get, fake_public: str, unused_port: int
) -> None:
    dns = Dns(["127.0.0.1", fake_public])
    with pytest.raises(DownloadFailed, match="no connection"):
        await get(f"http://files.example:{unused_port}/", allow_private=False, resolver=dns)


@pytest.mark.fault(35)
async def test_host_with_only_private_addresses_is_blocked(get: Get) -> None:
    dns = Dns(["127.0.0.1", "::1", "10.0.0.1"])
    with pytest.raises(AddressBlocked):
        await get("http://files.example/", allow_private=False, resolver=dns)
    assert dns.asked == 1


@pytest.mark.fault(35)
async def test_only_own_origin_may_be_private(get: Get, serve: Serve, fake_public: str) -> None:
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
    own, outside = await serve(), await serve(host=fake_public)
    outside.answers[:] = [moved(own.url)]
    assert (await get(outside.url, base_url=own.url, allow_private=False)).data == BODY
    local = own.url.replace("127.0.0.1", "app.localhost")  # reaches only this machine
    assert (await get("/f", base_url=local, allow_private=False, resolver=Dns(["127.0.0.1"]))).data == BODY
    with pytest.raises(AddressBlocked):
        await get("/f", base_url=local, allow_private=False, resolver=Dns(["169.254.169.254"]))


@pytest.mark.fault(35)
async def test_own_name_is_pinned_to_address_of_app(get: Get, serve: Serve) -> None:
    inside = await serve()
    port = int(inside.url.rpartition(":")[2])
    base = f"http://app.example:{port}/index.html"
    # unknown; another machine; a proxy, whose port is not the app's
    for reached in (None, ("10.0.0.9", port), ("127.0.0.1", port + 1)):
        with pytest.raises(AddressBlocked, match=r"127\.0\.0\.1"):
            await get("/f", base_url=base, server_address=reached, allow_private=False, resolver=Dns(["127.0.0.1"]))
    assert inside.connects == 0
    for address, dns in (("127.0.0.1", Dns(["10.0.0.9", "127.0.0.1"])), ("::ffff:127.0.0.1", Dns(["127.0.0.1"]))):
        got = await get("/f", base_url=base, server_address=(address, port), allow_private=False, resolver=dns)
        assert got.data == BODY
    inside.answers[:] = [moved("/again"), reply(BODY)]
    with pytest.raises(AddressBlocked, match=r"127\.0\.0\.2"):  # by a redirect to itself
        rebinding = Dns(["127.0.0.1"], ["127.0.0.2"])
        await get("/f", base_url=base, server_address=("127.0.0.1", port), allow_private=False, resolver=rebinding)


async def test_proxy_settings_are_ignored(get: Get, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    server, proxy = await serve(), await serve()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert (await get(server.url)).data == BODY
    assert proxy.connects == 0
