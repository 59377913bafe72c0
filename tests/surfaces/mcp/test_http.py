"""The MCP bridge over HTTP: access, users apart from each other, limits, its end."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import anyio
import pytest
from mcp.shared.exceptions import MCPError

from tests.support.eventually import eventually
from tests.support.mcp_clients import ERAS, URL, Apps, Notifications, called, files_of, read_as_resource
from tests.support.mcp_detached import Gate
from tests.support.mcp_http import ANN, BOB, client_of, served
from tests.support.processor import BOUND, longest_turn
from tests.support.rows import each_row
from tests.support.slow import slow_but
from tests.support.slow_client import drip, half_sent, is_closed
from transports.artifacts import open_store
from transports.errors import UsageError
from transports.surfaces.mcp import _http as user_limits, _users as users
from transports.surfaces.mcp._http import parse_tokens
from transports.surfaces.mcp._options import Options
from transports.surfaces.mcp._users import User
from transports.surfaces.shared import _listening as connections
from transports.surfaces.shared._listening import parse_address

pytestmark = pytest.mark.load


@pytest.mark.requirement("R4-3b", "R4-4e", "R4-5e", "R4-7f", "R4-8b", "R4-9b", "R4-9c", "R4-11e", "R4-11f", "R4-13c")
@pytest.mark.requirement("R4-14d", "R4-15b")
@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_bridge_users_are_isolated_from_each_other(tmp_path: Path, era: str) -> None:
    async with served(tmp_path) as url, client_of(url, ANN, era) as ann, client_of(url, BOB, era) as bob:
        session = (await called(ann, "abp_connect", url=URL))["session"]
        document = await called(ann, "abp_text_shout", text="secret")
        (artifact,) = files_of(document)
        uri = artifact["uri"]
        assert json.loads(await read_as_resource(ann, uri)) == {"text": "SECRET"}

        assert (await called(bob, "abp_status"))["sessions"] == []
        assert (await called(bob, "abp_artifacts"))["total"] == 0
        assert (await bob.list_resources()).resources == []
        assert "abp_text_shout" not in {tool.name for tool in (await bob.list_tools()).tools}
        with pytest.raises(MCPError):
            await bob.read_resource(uri)
        done = (await called(ann, "abp_call", capability="text.shout", detach=True))["call"]
        await called(ann, "abp_result", call=done)
        call = (await called(ann, "abp_call", capability="job.hold", detach=True))["call"]
        assert (await called(bob, "abp_status"))["calls"] == []
        known = {"session": session, "id": artifact["id"], "call": call, "done": done}
        for tool, guess, arguments in (
            ("abp_call", "session", {"capability": "text.shout"}),
            ("abp_status", "session", {}),
            ("abp_status", "session", {"capability": "text.shout"}),
            ("abp_screenshot", "session", {}),
            ("abp_render_to_pdf", "session", {"html": "<p>"}),
            ("abp_disconnect", "session", {}),
            ("abp_result", "call", {}),
            ("abp_result", "done", {}),
            ("abp_cancel", "call", {}),
            ("abp_read_artifact", "id", {}),
            ("abp_read_artifact", "id", {"path": str(tmp_path / "a")}),
        ):
            name = "call" if guess == "done" else guess
            right, wrong = [await bob.call_tool(tool, {**arguments, name: one}) for one in (known[guess], "0" * 8)]
            assert right.is_error and wrong.is_error
            codes = [answer.structured_content["error"]["code"] for answer in (right, wrong)]
            assert codes[0] == codes[1]  # a guess that is right tells nothing
        assert (await called(bob, "abp_artifacts", session=session))["total"] == 0
        await called(bob, "abp_connect", url=URL)
        stolen = {"files": [{"param": "file", "artifact": uri}]}
        assert (await bob.call_tool("abp_file_digest", stolen)).is_error
        status = await called(ann, "abp_status")
        assert len(status["sessions"]) == 1 and status["calls"][0]["status"] == "working"


@pytest.mark.slow
async def test_answers_do_not_wait_for_delayed_acknowledgements(tmp_path: Path) -> None:
    durations = []
    headers = {"Authorization": f"Bearer {ANN}"}
    async with served(tmp_path) as url, aiohttp.ClientSession(headers=headers) as http:
        for _ in range(30):
            started = time.monotonic()
            async with http.put(url) as answer:
                await answer.read()
            durations.append(time.monotonic() - started)
    # A delayed acknowledgement takes 40 ms. A busy machine may delay most answers, but not all.
    assert sorted(durations)[7] < 0.035


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_progress_keeps_impatient_client_waiting_for_long_call(tmp_path: Path, era: str) -> None:
    told: list[tuple[float, float | None, str]] = []
    gate = Gate()
    async with (
        served(tmp_path, Apps(gate.app), heartbeat_seconds=0.2) as url,
        client_of(url, ANN, era) as client,
    ):
        await called(client, "abp_connect", url=URL)
        patience = anyio.CancelScope(deadline=anyio.current_time() + 15)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            told.append((progress, total, message or ""))
            patience.deadline = anyio.current_time() + 15
            if len(told) == 5:
                gate.opened.set()

        with patience:
            answer = await client.call_tool("abp_call", {"capability": "gate.wait"}, progress_callback=on_progress)
            assert not answer.is_error
    assert not patience.cancelled_caught
    values = [value for value, _, _ in told]
    assert values == sorted(set(values)) and all(total is None or value <= total for value, total, _ in told)
    assert [text for *_, text in told].count("waiting") == 1
    assert sum(text.startswith("still working after ") for *_, text in told) >= 3


@pytest.mark.requirement("R4-9d", "R4-14d", "R4-7f")
@pytest.mark.parametrize("isolated", slow_but([True, False], True))
async def test_isolated_sessions_of_one_user_are_separate(tmp_path: Path, isolated: bool) -> None:
    async with (
        served(tmp_path, isolate_sessions=isolated) as url,
        client_of(url, ANN, "legacy") as one,
        client_of(url, ANN, "legacy") as two,
    ):
        await called(one, "abp_connect", url=URL)
        made = files_of(await called(one, "abp_text_shout", text="secret"))[0]
        assert json.loads(await read_as_resource(one, made["uri"])) == {"text": "SECRET"}
        assert (await called(two, "abp_artifacts"))["total"] == (0 if isolated else 1)
        assert len((await called(two, "abp_status"))["sessions"]) == (0 if isolated else 1)
        assert (await two.call_tool("abp_read_artifact", {"id": made["id"]})).is_error is isolated
    async with (  # another run of the bridge, and clients without sessions
        served(tmp_path, isolate_sessions=isolated) as url,
        client_of(url, ANN, "2026-07-28") as later,
        client_of(url, ANN, "2026-07-28") as beside,
    ):
        assert (await called(later, "abp_artifacts"))["total"] == (0 if isolated else 1)
        await called(later, "abp_connect", url=URL)
        await called(later, "abp_text_shout", text="of this run")
        assert (await called(beside, "abp_artifacts"))["total"] == (1 if isolated else 2)


@pytest.mark.requirement("R4-11e", "R4-15a")
async def test_requests_need_token_and_local_host_and_origin(tmp_path: Path) -> None:
    refused = [
        ({}, 401),
        ({"Authorization": "Bearer nonsense"}, 401),
        ({"Authorization": f"Basic {ANN}"}, 401),
        ({"Authorization": f"Bearer {ANN}", "Host": "evil.test"}, 421),
        ({"Authorization": f"Bearer {ANN}", "Origin": "http://evil.test"}, 403),
    ]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    async with served(tmp_path) as url, aiohttp.ClientSession() as http:
        for version, (headers, status) in product(["2025-11-25", "2026-07-28"], refused):
            accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version}
            async with http.post(url, json=body, headers={**accept, **headers}) as response:
                assert response.status == status, (version, headers)


async def in_chunks(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), 1 << 16):
        yield body[start : start + (1 << 16)]


@pytest.mark.requirement("R4-10a", "R4-9e", "R4-12a", "R4-14e", "R4-15c")
async def test_oversized_request_is_drained_and_answered_with_typed_error(tmp_path: Path) -> None:
    limit = 2 << 20
    async with served(tmp_path, max_file_bytes=limit) as url, client_of(url, ANN, ERAS[0]) as client:
        await called(client, "abp_connect", url=URL)

        def files(size: int) -> dict[str, Any]:
            return {"files": [{"param": "file", "content": base64.b64encode(bytes(size)).decode()}]}

        assert (await called(client, "abp_file_digest", **files(limit)))["success"]
        refused = await client.call_tool("abp_file_digest", files(limit + 1))
        assert refused.structured_content["error"]["code"] == "TOO_LARGE"
        with pytest.raises(MCPError, match=r"files in it may have 2,097,152 together \(max_file_bytes\)") as caught:
            await client.call_tool("abp_file_digest", files(3 * limit))  # the client is told, and not cut off
        assert caught.value.error.data == {"code": "TOO_LARGE", "limit": limit}
        assert (await called(client, "abp_file_digest", **files(1)))["success"]
        headers = {"Authorization": f"Bearer {ANN}", "Content-Type": "application/json"}
        async with aiohttp.request("POST", url, data=in_chunks(bytes(3 * limit)), headers=headers) as response:
            assert response.status == 413 and (await response.json())["error"]["data"]["code"] == "TOO_LARGE"
    defaults = Options()
    assert defaults.max_request_bytes > defaults.max_file_bytes * 4 / 3  # a file of the largest size fits


async def test_server_stops_during_running_call(tmp_path: Path) -> None:
    apps = Apps()
    async with served(tmp_path, apps) as url:
        stack = AsyncExitStack()
        client = await stack.enter_async_context(client_of(url, ANN, "2026-07-28"))
        await called(client, "abp_connect", url=URL)
        holding = asyncio.ensure_future(client.call_tool("abp_job_hold", {}))
        await asyncio.sleep(0.2)
    assert apps.transports[0].cancelled
    holding.cancel()
    await asyncio.wait((holding,))
    with contextlib.suppress(Exception):
        await stack.aclose()


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_apps_of_an_idle_user_are_disconnected(tmp_path: Path, era: str) -> None:
    apps = Apps()
    async with (
        served(tmp_path, apps, idle_minutes=0.01) as url,
        client_of(url, ANN, era) as ann,
        client_of(url, BOB, era) as bob,
    ):
        await called(bob, "abp_connect", url=URL)
        holding = asyncio.ensure_future(bob.call_tool("abp_job_hold", {}))
        await eventually(lambda: apps.transports and apps.transports[0]._running)
        for at in (1, 2):  # twice as long as Bob's patience, if it were counted
            await called(ann, "abp_connect", url=URL)
            uri = files_of(await called(ann, "abp_text_shout", text="hi"))[0]["uri"]
            assert (await ann.call_tool("abp_print_page", {})).is_error  # has ended, too
            await eventually(lambda: apps.transports[at]._closed)  # noqa: B023
            sessions = (await called(ann, "abp_status"))["sessions"]
            assert [one["connected"] for one in sessions] == [False] * at  # the next call that names one opens it
            assert json.loads(await read_as_resource(ann, uri)) == {"text": "HI"}
        assert not apps.transports[0]._closed and not holding.done()  # who waits for an app does something
        holding.cancel()
        await asyncio.wait((holding,))


@pytest.mark.parametrize("era", slow_but(ERAS, "2026-07-28"))
async def test_listening_client_is_notified_while_user_is_idle(tmp_path: Path, era: str) -> None:
    apps, notifications = Apps(), Notifications()
    async with (
        served(tmp_path, apps, idle_minutes=0.005) as url,
        client_of(url, ANN, era, message_handler=notifications.message) as ann,
    ):
        await called(ann, "abp_connect", url=URL)
        uri = files_of(await called(ann, "abp_text_shout", text="hi"))[0]["uri"]
        async with notifications.subscribed(ann, era, uri):
            await eventually(lambda: apps.transports[0]._closed)
            await open_store(tmp_path).delete(uri.removeprefix("artifact://"))
            await notifications.until(uri)


def test_http_address_must_be_local_unless_public_url_is_set() -> None:
    for text in ("0.0.0.0:80", "8000", "127.0.0.1:", "127.0.0.1:99999", "example.com:80"):
        with pytest.raises(UsageError, match="--http"):
            parse_address(text, "--http")
    assert parse_address("127.0.0.1:80", "--http") == ("127.0.0.1", 80)
    assert parse_address("[::1]:0", "--http") == ("::1", 0)
    with pytest.raises(UsageError, match="public_url"):
        parse_address("0.0.0.0:8765", "--http")
    assert parse_address("0.0.0.0:8765", "--http", "https://abp.example") == ("0.0.0.0", 8765)
    with pytest.raises(UsageError, match="HOST:PORT"):
        parse_address(":8765", "--http", "https://abp.example")


@each_row("tokens", ["short", "", "=0123456789abcdefgh", f"a={ANN},b={ANN}"])
def test_invalid_token_config_raises_usage_error(tokens: str) -> None:
    with pytest.raises(UsageError, match="token"):
        parse_tokens(tokens)


def body_of(rows: bytes) -> bytes:
    """A request that calls a tool with rows, in the older protocol."""
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"abp_call","arguments":{"params":{"rows":['
    return head + rows + b"1]}}}}"


async def test_request_with_very_many_values_does_not_delay_other_users(tmp_path: Path) -> None:
    headers = {
        "Authorization": f"Bearer {ANN}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
    }

    async def status(body: bytes) -> int:
        async with http.post(url, data=in_chunks(body), headers=headers) as response:
            if response.status == 413:
                error = (await response.json())["error"]
                assert "more than 50,000 values and names" in error["message"]
                assert error["data"] == {"code": "TOO_LARGE", "limit": 50_000}
            return response.status

    async with served(tmp_path) as url, aiohttp.ClientSession() as http, client_of(url, BOB, "2026-07-28") as bob:
        await called(bob, "abp_status")
        fits, beyond, huge = (body_of(rows) for rows in (b"1," * 49_900, b"1," * 50_000, b"[]," * (4 << 20)))
        assert await status(fits) != 413
        with longest_turn() as turn:
            assert await status(fits) != 413
            assert await status(beyond) == 413
            refusing = asyncio.ensure_future(status(huge))
            while not refusing.done():
                await called(bob, "abp_status")
            assert await refusing == 413
        assert turn.seconds < BOUND


# --- slow clients, limits of a user -----------------------------------------------------------------------------------


@pytest.mark.fault(49)
async def test_slow_request_head_and_body_time_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_HEAD_TIMEOUT", 0.2)
    monkeypatch.setattr(connections, "_PIECE_TIMEOUT", 0.2)
    async with served(tmp_path) as url, client_of(url, ANN, "legacy") as client:
        netloc = urlsplit(url).netloc
        assert await drip(netloc, "GET /mcp HTTP/1.1\nHost: HOST\nX: ") == b""
        body = "Content-Type: application/json\nAccept: application/json, text/event-stream\nContent-Length: 9999\n\n"
        allowed = f"POST /mcp HTTP/1.1\nHost: HOST\nAuthorization: Bearer {ANN}\n{body}"
        assert (await drip(netloc, allowed)).startswith(b"HTTP/1.1 408 ")
        without_token = allowed.replace(f"Authorization: Bearer {ANN}\n", "")
        assert (await drip(netloc, without_token)).startswith(b"HTTP/1.1 401 ")  # its body is not read
        async with AsyncExitStack() as stack:
            first, second = await half_sent(stack, netloc, "/mcp", 2)
            assert await is_closed(first) and await is_closed(second)  # after a whole request, too
        await called(client, "abp_connect", url=URL)


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

    async def listen(self, stack: AsyncExitStack, session: str, **more: str) -> int:
        headers = {**self._headers, "mcp-session-id": session, **more}
        answer = await stack.enter_async_context(self._http.get(self._url, headers=headers))
        assert answer.status != 200 or answer.content_type == "text/event-stream"
        return answer.status


async def test_client_that_names_its_last_event_gets_a_new_stream(tmp_path: Path) -> None:
    async with served(tmp_path) as url, aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        ann = Raw(http, url, ANN)
        assert await ann.listen(stack, (await ann.open())[1], **{"Last-Event-ID": "7"}) == 200


async def test_one_users_sessions_do_not_exhaust_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_refused_requests_and_ended_sessions_do_not_count_towards_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to requests without a session bear the id of a new one, even if they are refused."""
    monkeypatch.setattr(user_limits, "MAX_SESSIONS", 2)
    request = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    headers = {"Authorization": f"Bearer {ANN}", "Accept": "application/json, text/event-stream"}
    async with served(tmp_path) as url, aiohttp.ClientSession(headers=headers) as http:
        ann = Raw(http, url, ANN)
        for _ in range(3):
            status, session, _ = await ann.open()
            assert status == 200
            for address in (url, f"{url}/", url):  # with a redirect there would be a status of its own
                async with http.post(address, json=request, allow_redirects=False) as answer:
                    assert answer.status == 400 and "Missing session ID" in await answer.text()
            assert await ann.ask(session) == 200
            async with http.delete(url, headers={"mcp-session-id": session}) as answer:
                assert answer.status == 200


async def test_id_of_a_running_request_is_refused(tmp_path: Path) -> None:
    apps = Apps()
    headers = {"Authorization": f"Bearer {ANN}", "Accept": "application/json, text/event-stream"}

    def call(number: int | str, name: str, **arguments: object) -> dict[str, object]:
        params = {"name": name, "arguments": arguments}
        return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}

    async with served(tmp_path, apps) as url, aiohttp.ClientSession() as http, asyncio.timeout(20):
        headers["mcp-session-id"] = (await Raw(http, url, ANN).open())[1]
        async with http.post(url, json=call(1, "abp_connect", url=URL), headers=headers) as answer:
            assert answer.status == 200 and await answer.read()
        async with http.post(url, json=call(2, "abp_job_hold"), headers=headers):
            numbers = (2, "2")
            repeated = (http.post(url, json=call(number, "abp_status"), headers=headers) for number in numbers)
            for number, answer in zip(numbers, await asyncio.gather(*repeated), strict=True):
                refusal = await answer.json()
                assert (answer.status, refusal["id"]) == (400, number)
                assert "still running; use another id" in refusal["error"]["message"]
            async with http.post(url, json=call(3, "abp_status"), headers=headers) as answer:
                assert answer.status == 200 and "job.hold" in await answer.text()

        async with AsyncExitStack() as responses:
            for _ in range(10):
                answer = await responses.enter_async_context(
                    http.post(url, json=call(4, "abp_status"), headers=headers)
                )
                assert answer.status == 200
                # The response has its answer, and has not ended yet.
                assert b'"id":4' in await answer.content.readuntil(b"}\r\n\r\n")


async def test_one_users_requests_do_not_exhaust_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_connection_limit", lambda: 4 * 8)
    async with served(tmp_path) as url, aiohttp.ClientSession() as http, AsyncExitStack() as stack:
        ann, bob = Raw(http, url, ANN), Raw(http, url, BOB)
        opened = [(await ann.open())[1] for _ in range(9)]
        assert [await ann.listen(stack, one) for one in opened[:8]] == [200] * 8  # as many as may be under way
        status, _, said = await ann.open()
        assert status == 429 and said["error"]["data"]["code"] == "LIMIT_REACHED"
        assert await ann.ask(opened[8]) == 429
        assert (await bob.open())[0] == 200


async def test_isolated_sessions_share_their_users_app_limit(tmp_path: Path) -> None:
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


async def test_varying_headers_do_not_create_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
