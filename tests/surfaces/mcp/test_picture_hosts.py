"""The rules for what a page in a picture may connect, by host, port and address."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.rows import each_row
from transports.errors import UsageError
from transports.surfaces.mcp._hosts import PictureHosts

Names = Callable[..., None]
PUBLIC, PRIVATE, METADATA = "93.184.216.34", "10.0.0.5", "169.254.169.254"


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    """Gives ``app.example`` these addresses, one set for each time that it is looked up; the last set stays."""

    def given(*answers: list[str]) -> None:
        left = list(answers)

        async def lookup(self: Any, host: str, port: int, **_: Any) -> list[Any]:
            addresses = [host] if host != "app.example" else left.pop(0) if len(left) > 1 else left[0]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", lookup)

    return given


def hosts(allowed: tuple[str, ...] = ("*",), blocked: tuple[str, ...] = (), **more: Any) -> PictureHosts:
    return PictureHosts(allowed, blocked, **{"private": allowed, "apps": (), "any_address": False, **more})


async def test_address_is_rechecked_after_dns_change(names: Names) -> None:
    names([PUBLIC], [PRIVATE])
    rules = hosts()
    await rules.check("http://app.example/")
    with pytest.raises(UsageError, match="not on the public Internet"):
        await rules.addresses("app.example", 80)
    names([PUBLIC, PRIVATE])
    with pytest.raises(UsageError, match="not on the public Internet"):
        await rules.addresses("app.example", 80)


async def test_only_checked_addresses_are_connected(names: Names) -> None:
    names(["93.184.216.35", PUBLIC, PUBLIC])
    assert await hosts().addresses("APP.example.", 80) == ["93.184.216.35", PUBLIC]


async def test_blocked_address_is_rejected_under_any_name(names: Names) -> None:
    names([METADATA], [PUBLIC, METADATA])
    rules = hosts(blocked=(METADATA,), any_address=True)
    for _ in range(2):
        with pytest.raises(UsageError, match="may not be connected"):
            await rules.addresses("app.example", 80)


async def test_connected_app_is_allowed_only_at_its_address_and_port(names: Names) -> None:
    apps = [("http://app.example:8000/", (PRIVATE, 8000))]
    names([METADATA])
    assert await hosts(apps=apps).addresses("app.example", 8000) == [PRIVATE]
    with pytest.raises(UsageError, match="not on the public Internet"):
        await hosts(apps=apps).addresses("app.example", 80)  # another port
    with pytest.raises(UsageError, match="not on the public Internet"):
        await hosts(apps=[("http://app.example:8000/", None)]).addresses("app.example", 8000)
    assert await hosts(apps=[("ws://10.0.0.5:8000/", None)]).addresses(PRIVATE, 8000) == [PRIVATE]


@each_row("host", ["127.1", "0x7f.1", "2130706433", "::1", "::ffff:127.0.0.1", "a b", "", "a@b", "%31"])
async def test_host_spellings_do_not_bypass_rules(host: str) -> None:
    with pytest.raises(UsageError):
        await hosts(("*",), ("127.0.0.1", "::1")).addresses(host, 80)
