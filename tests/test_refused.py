"""A connection that is refused has one name, whichever library says so."""

import errno
import socket
from collections.abc import Iterator

import aiohttp
import pytest

from transports.adapters.websocket._transport import open_error
from transports.browser import require_listener
from transports.errors import ConnectFailed, connection_failure, is_refused
from transports.http._request import failure_reason

REFUSED = "[Errno 111] Connect call failed ('127.0.0.1', 1)"


@pytest.mark.parametrize(
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
def test_a_refusal_is_told_from_other_failures(error: OSError, expected: bool) -> None:
    assert is_refused(error) is expected
    key = aiohttp.client_reqrep.ConnectionKey("app", 1, False, True, None, None, None)
    said = [connection_failure(error), failure_reason(aiohttp.ClientConnectorError(key, error))]
    if not isinstance(error, TimeoutError):
        said.append(open_error("ws://app/", error, timeout=1).message)
    assert ["nothing listens there" in text for text in said] == [expected] * len(said)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port of this machine at which nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        yield one.getsockname()[1]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_browser_is_not_started_for_a_silent_port(host: str, silent_port: int) -> None:
    with pytest.raises(ConnectFailed, match="nothing listens there; start the app"):
        await require_listener(f"http://{host}:{silent_port}/")


async def test_a_listener_and_a_host_elsewhere_pass(silent_port: int) -> None:
    await require_listener(f"http://192.0.2.1:{silent_port}/")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        await require_listener(f"http://localhost:{one.getsockname()[1]}/")
