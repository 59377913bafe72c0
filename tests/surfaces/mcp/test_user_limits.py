"""Limits for each user of the bridge over HTTP: at the limit, one beyond it, and another user beside."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from tests.support.mcp_clients import URL, Apps, called
from tests.surfaces.mcp.test_http import ANN, BOB, client_of, served
from transports.surfaces.mcp import _http as user_limits, _users as users
from transports.surfaces.mcp._users import User
from transports.surfaces.shared import _listening as connections

LIMIT = 3
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Raw:
    """A client that does what it likes with sessions."""

    def __init__(self, http: aiohttp.ClientSession, url: str, token: str) -> None:
        self._http, self._url = http, url
        self._headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}

    async def open(self) -> tuple[int, str, Any]:
        """The status, the id of the session, and what the answer says if it is an error."""
        async with self._http.post(self._url, json=HELLO, headers=self._headers) as answer:
            said = await answer.json() if answer.status >= 400 else None
            return answer.status, answer.headers.get("mcp-session-id", ""), said

    async def ask(self, session: str, method: str = "tools/list", **more: str) -> int:
        body = {"jsonrpc": "2.0", "id": 2, "method": method, "params": {}}
        headers = {**self._headers, "mcp-session-id": session, **more}
        async with self._http.post(self._url, json=body, headers=headers) as answer:
            await answer.read()
            return answer.status

    async def listen(self, stack: AsyncExitStack, session: str) -> int:
        headers = {**self._headers, "mcp-session-id": session}
        return (await stack.enter_async_context(self._http.get(self._url, headers=headers))).status


@pytest.mark.load
async def test_one_user_s_sessions_leave_others_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_limits, "MAX_SESSIONS", LIMIT)
    async with served(tmp_path) as url, aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        ann, bob = Raw(http, url, ANN), Raw(http, url, BOB)
        opened = [(await ann.open())[1] for _ in range(LIMIT)]
        assert [await ann.ask(one) for one in opened] == [200] * LIMIT  # at the limit
        assert await ann.ask(opened[0]) == 200  # the second is the one that was used longest ago now
        status, another, _ = await ann.open()
        assert status == 200
        assert [await ann.ask(one) for one in (*opened, another)] == [200, 404, 200, 200]
        in_use = [opened[0], opened[2], another]
        assert [await ann.listen(stack, one) for one in in_use] == [200] * LIMIT
        status, _, said = await ann.open()
        assert status == 429 and said["error"]["data"] == {"code": "LIMIT_REACHED", "retryable": True}
        assert "end one of them first" in said["error"]["message"]
        assert [await ann.ask(one) for one in in_use] == [200] * LIMIT
        assert (await bob.open())[0] == 200  # for Bob it is as if Ann were not there
    async with served(tmp_path) as url, client_of(url, BOB, "legacy") as other:
        await called(other, "abp_connect", url=URL)


async def test_a_session_that_ended_counts_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_limits, "MAX_SESSIONS", 1)
    async with served(tmp_path) as url, aiohttp.ClientSession() as http:
        ann = Raw(http, url, ANN)
        for _ in range(3):
            session = (await ann.open())[1]
            headers = {"Authorization": f"Bearer {ANN}", "mcp-session-id": session}
            async with http.delete(url, headers=headers) as answer:
                assert answer.status == 200
        assert (await ann.open())[0] == 200


async def test_one_user_s_requests_leave_others_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: 4 * 8)
    async with served(tmp_path) as url, aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        ann, bob = Raw(http, url, ANN), Raw(http, url, BOB)
        opened = [(await ann.open())[1] for _ in range(9)]
        assert [await ann.listen(stack, one) for one in opened[:8]] == [200] * 8  # as many as may be under way
        status, _, said = await ann.open()
        assert status == 429 and said["error"]["data"]["code"] == "LIMIT_REACHED"
        assert await ann.ask(opened[8]) == 429
        assert (await bob.open())[0] == 200


@pytest.mark.load
async def test_sessions_that_are_apart_share_the_apps_of_their_user(tmp_path: Path) -> None:
    async with (
        served(tmp_path, isolate_sessions=True, max_sessions=2) as url,
        client_of(url, ANN, "legacy") as first,
        client_of(url, ANN, "legacy") as second,
        client_of(url, BOB, "legacy") as bob,
    ):
        await called(first, "abp_connect", url=URL)
        session = (await called(second, "abp_connect", url=URL))["session"]
        for client in (first, second):
            refused = await client.call_tool("abp_connect", {"url": URL, "new": True})
            assert refused.is_error and refused.structured_content["error"]["code"] == "LIMIT_REACHED"
        await called(bob, "abp_connect", url=URL)
        await called(second, "abp_disconnect", session=session)
        await called(first, "abp_connect", url=URL, new=True)


@pytest.mark.load
async def test_no_header_makes_a_user_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[User] = []

    class Counted(User):
        def __init__(self, *args: Any, **more: Any) -> None:
            made.append(self)
            super().__init__(*args, **more)

    monkeypatch.setattr(users, "User", Counted)
    monkeypatch.setattr(user_limits, "MAX_SESSIONS", LIMIT)
    monkeypatch.setattr(users, "MAX_SESSIONS", LIMIT)
    apps = Apps()
    async with served(tmp_path, apps, isolate_sessions=True) as url, aiohttp.ClientSession() as http:
        ann = Raw(http, url, ANN)
        modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
        await asyncio.gather(*(ann.ask(f"guess{number}", **modern) for number in range(10)))
        assert len(made) <= 1
        for _ in range(LIMIT + 3):
            assert await ann.ask((await ann.open())[1]) == 200
        kept = [one for one in made if not one._closing]
        assert len(kept) <= LIMIT + 1
