"""A connection that is refused has one name, whichever library says so."""

import asyncio
import errno
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.rows import each_row
from tests.support.slow import slow_but
from transports import connect
from transports.errors import ConnectFailed, connection_failure, is_refused
from transports.playwright._find import require_listener
from transports.routing.http._request import failure_reason
from transports.websocket._transport import open_error

REFUSED = "[Errno 111] Connect call failed ('127.0.0.1', 1)"


@each_row(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (OSError(f"Multiple exceptions: {REFUSED}, {REFUSED}"), True),
        (OSError(f"Multiple exceptions: [Errno 99] Cannot assign requested address, {REFUSED}"), True),
        (OSError(f"Multiple exceptions: [Errno 110] Connect call failed ('10.0.0.1', 1), {REFUSED}"), False),
        (OSError("Multiple exceptions: [Errno 101] Network is unreachable"), False),
        (OSError(errno.ETIMEDOUT, "Connection timed out"), False),
        (TimeoutError(), False),
    ],
)
def test_connection_refused_is_distinguished_from_other_failures(error: OSError, expected: bool) -> None:
    assert is_refused(error) is expected
    key = aiohttp.client_reqrep.ConnectionKey("app", 1, False, True, None, None, None)
    said = [connection_failure(error), failure_reason(aiohttp.ClientConnectorError(key, error))]
    if not isinstance(error, TimeoutError):
        said.append(open_error("ws://app/", error, timeout=1, headers={}).message)
    assert ["nothing listens there" in text for text in said] == [expected] * len(said)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_closed_port_does_not_start_browser(host: str, silent_port: int) -> None:
    with pytest.raises(ConnectFailed, match="nothing listens there; start the app"):
        await require_listener(f"http://{host}:{silent_port}/")


async def test_listening_port_and_remote_host_pass_check(silent_port: int) -> None:
    await require_listener(f"http://192.0.2.1:{silent_port}/")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        await require_listener(f"http://localhost:{one.getsockname()[1]}/")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a proxy or a desktop."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "XDG_CURRENT_DESKTOP"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def unknown_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a host that no name server knows."""

    def look_up(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return "http://nosuch.invalid/"


@pytest.mark.skipif(sys.platform != "linux", reason="the system may have a proxy that cannot be seen")
async def test_unresolvable_host_does_not_start_browser(
    unknown_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = tmp_path / "browser"
    browser.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 60\n")
    browser.chmod(0o700)
    monkeypatch.setenv("ABP_BROWSER", str(browser))
    with pytest.raises(ConnectFailed, match=r"nosuch\.invalid/: unknown host name; correct the address"):
        async with connect(unknown_host, store="memory:", timeout=20):
            pass
    assert not (tmp_path / "started").exists()


async def test_a_websocket_of_an_unknown_host_is_told_apart_from_an_app_that_is_not_running(unknown_host: str) -> None:
    address = unknown_host.replace("http", "ws")
    with pytest.raises(ConnectFailed) as failed:
        async with connect(address, store="memory:", timeout=20):
            pass
    assert failed.value.message == f"cannot connect to {address}: unknown host name; correct the address"


async def test_dns_is_not_checked_if_browser_may_use_proxy(unknown_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    await require_listener(unknown_host)
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("XDG_CURRENT_DESKTOP", "GNOME")
    await require_listener(unknown_host)


async def test_slow_dns_lookup_is_left_to_browser(unknown_host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def look_up(*_: object, **__: object) -> object:
        answered.wait(30)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    try:
        async with asyncio.timeout(20):
            await require_listener(unknown_host)
    finally:
        answered.set()


@pytest.mark.parametrize(
    "address", slow_but(["mcp+http://127.0.0.1:9/mcp", "ws://127.0.0.1:9/abp"], "ws://127.0.0.1:9/abp")
)
@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("http_proxy", "socks5://me:my-secret@127.0.0.1:9", "SOCKS"),
        ("http_proxy", "ftp://me:my-secret@127.0.0.1:9", "the address of (a|the) proxy is not valid"),
        (
            "http_proxy",
            "http://me:my-secret@127.0.0.1:many",
            "the address of a proxy is not valid|cannot connect to ws",
        ),
        ("SSL_CERT_FILE", "/nosuch/bundle.pem", "No such file or directory|nothing listens there"),
    ],
)
async def test_unusable_setting_of_environment_is_named(
    address: str, name: str, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConnectFailed, match=reason) as failed:
        async with connect(address, store="memory:", timeout=20):
            pass
    assert "my-secret" not in failed.value.message


@pytest.mark.parametrize(
    ("address", "setting"),
    [
        pytest.param("mcp+http://localhost:9/mcp", "http_proxy", marks=pytest.mark.slow),
        ("ws://localhost:9/abp", "http_proxy"),
        pytest.param("ws://localhost:9/abp", "https_proxy", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("direct", ["", "localhost"])
async def test_failed_connection_through_proxy_names_its_setting(
    address: str, setting: str, direct: str, silent_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(setting, f"http://me:my-secret@127.0.0.1:{silent_port}")
    monkeypatch.setenv("no_proxy", direct)
    with pytest.raises(ConnectFailed) as failed:
        async with connect(address, store="memory:", timeout=20):
            pass
    has_advice = "the environment has a proxy for it: add localhost to NO_PROXY" in failed.value.message
    assert has_advice == (not direct) and "my-secret" not in failed.value.message
