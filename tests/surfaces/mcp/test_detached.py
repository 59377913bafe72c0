"""Detached calls of the MCP bridge, and connections that are opened again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp_types import CallToolResult, ElicitResult

from tests.support.apps import hang
from tests.support.eventually import eventually
from tests.support.mcp_clients import URL, Apps, Serve, called, newer_era, refuse, shout, words
from tests.support.mcp_detached import Gate, gate, serve
from transports.protocol._payloads import ElicitationRequest
from transports.routing import Result
from transports.session._app_tables import AppEntry
from transports.surfaces.shared._activity import Activity, call_record
from transports.surfaces.shared._detached import DetachedCalls
from transports.testing import Call

__all__ = ["gate", "serve"]


async def result_of(client: Client, call: str, **arguments: Any) -> CallToolResult:
    """The first answer of abp_result that is not about a call under way."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.call_tool("abp_result", {"call": call, **arguments})
            if (answer.structured_content or {}).get("status") not in ("working", "input_required"):
                return answer


@newer_era
async def test_detached_call_is_started_polled_and_read(serve: Serve, gate: Gate) -> None:
    async with serve() as client:
        session = (await called(client, "abp_connect", url=URL))["session"]
        begun = await called(client, "abp_call", capability="gate.wait", detach=True)
        call = begun["call"]
        assert (begun["status"], begun["session"], begun["capability"]) == ("working", session, "gate.wait")
        await eventually(lambda: gate.calls == 1)
        waiting = await client.call_tool("abp_result", {"call": call, "wait": 0.05})
        assert waiting.structured_content and waiting.structured_content["status"] == "working"
        assert waiting.structured_content["progress"] == {"value": 1, "total": 2, "text": "waiting"}
        listed = (await called(client, "abp_status"))["calls"]
        assert [(one["call"], one["status"]) for one in listed] == [(call, "working")]
        with anyio.move_on_after(0.1):  # a request that is cancelled cancels no call
            await client.call_tool("abp_result", {"call": call, "wait": 60})
        gate.opened.set()
        first, second = await result_of(client, call), await result_of(client, call)
        assert gate.calls == 1
        plain = await client.call_tool("abp_call", {"capability": "gate.wait"})
        assert first == second and first.structured_content and plain.structured_content
        assert first.structured_content["data"] == plain.structured_content["data"] == {"text": "open"}
        assert set(first.structured_content) == set(plain.structured_content)
        assert [type(block) for block in first.content] == [type(block) for block in plain.content]
        assert (await called(client, "abp_status"))["calls"][0]["status"] == "completed"
        unknown = await client.call_tool("abp_result", {"call": "nothing"})
        assert unknown.is_error and "[CALL_NOT_FOUND]" in words(unknown)


async def test_detached_call_fails_and_is_cancelled_like_any_other(serve: Serve) -> None:
    apps = Apps({"print.page": refuse, "job.hold": hang})
    async with serve(apps) as client:
        await called(client, "abp_connect", url=URL)
        call = (await called(client, "abp_call", capability="print.page", detach=True))["call"]
        failed = await result_of(client, call)
        assert failed.is_error and "no paper" in words(failed) and "[PRINTER_EMPTY]" in words(failed)
        call = (await called(client, "abp_call", capability="job.hold", detach=True))["call"]
        assert (await called(client, "abp_cancel", call=call))["status"] == "cancelled"
        assert (await called(client, "abp_cancel", call=call))["status"] == "cancelled"
        cancelled = await result_of(client, call)
        assert cancelled.is_error and "[CANCELLED]" in words(cancelled)
        assert list(apps.transports[0].cancelled.values()) == ["cancelled by the client"]


@newer_era
async def test_detached_call_questions_are_asked_when_result_is_fetched(serve: Serve) -> None:
    asked: list[str] = []

    async def answer(_: object, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"value": f"answer {len(asked)}"})

    async with serve(elicitation_callback=answer) as client:
        await called(client, "abp_connect", url=URL)
        call = (await called(client, "abp_call", capability="job.ask", detach=True))["call"]
        async with asyncio.timeout(15):
            while (await called(client, "abp_status"))["calls"][0]["status"] != "input_required":
                await asyncio.sleep(0.01)
        assert asked == []
        document = (await result_of(client, call)).structured_content
        assert document and document["data"] == {"name": "answer 1", "colour": "answer 2"}
        assert asked == ["Name?", "Colour?"]
    async with serve() as client:  # one that cannot be asked
        await called(client, "abp_connect", url=URL)
        call = (await called(client, "abp_call", capability="job.ask", detach=True))["call"]
        assert (await result_of(client, call)).is_error  # the first question has no default, so it is declined


async def test_calls_and_connections_survive_restart(serve: Serve, gate: Gate) -> None:
    options = {"apps": ["memory:configured"]}
    async with serve(options=options) as client:
        configured = (await called(client, "abp_status"))["sessions"][0]["session"]
        named = (await called(client, "abp_connect", url=URL))["session"]
        gone = (await called(client, "abp_connect", url=URL, new=True))["session"]
        await called(client, "abp_disconnect", session=gone)
        done = (await called(client, "abp_call", session=named, capability="text.shout", detach=True))["call"]
        first = await result_of(client, done)
        begun = (await called(client, "abp_call", session=named, capability="gate.wait", detach=True))["call"]
        await eventually(lambda: gate.calls == 1)
    apps = Apps(gate.app)
    async with serve(apps, options=options) as client:
        status = await called(client, "abp_status")
        assert {one["session"]: one["connected"] for one in status["sessions"]} == {configured: True, named: False}
        assert {one["call"]: one["status"] for one in status["calls"]} == {begun: "cancelled", done: "completed"}
        assert await result_of(client, done) == first
        (artifact,) = (first.structured_content or {})["artifacts"]
        assert (await called(client, "abp_artifacts", session=named))["artifacts"][0]["id"] == artifact["id"]
        assert not (await client.call_tool("abp_read_artifact", {"id": artifact["id"]})).is_error
        assert len(apps.transports) == 1  # nothing was opened for that
        calls = [
            client.call_tool("abp_call", {"session": named, "capability": "text.shout", "params": {"text": text}})
            for text in "ab"
        ]
        both = [answer.structured_content for answer in await asyncio.gather(*calls)]
        assert [one["data"]["text"] for one in both if one] == ["A", "B"] and len(apps.transports) == 2
        assert sorted("opened again" in str(one.get("warnings")) for one in both if one) == [False, True]
        assert {one["session"] for one in (await called(client, "abp_status"))["sessions"]} == {configured, named}
        missing = await client.call_tool("abp_call", {"session": gone, "capability": "text.shout"})
        assert missing.is_error and "[SESSION_INVALID]" in words(missing)
    async with serve() as client:  # the only one that is kept needs no name
        assert (await called(client, "abp_call", capability="text.shout"))["session"] == named
    async with serve(options={"blocked_hosts": "app.test"}) as client:  # the rules of now
        refused = await client.call_tool("abp_call", {"session": named, "capability": "text.shout"})
        assert refused.is_error and "app.test" in words(refused)
        await called(client, "abp_disconnect", session=named)
        assert (await called(client, "abp_status"))["sessions"] == []
    async with serve() as client:
        assert (await called(client, "abp_status"))["sessions"] == []


async def test_hidden_capability_stays_hidden_for_reopened_app(serve: Serve) -> None:
    async with serve(Apps({"call": shout})) as client:
        session = (await called(client, "abp_connect", url=URL))["session"]
    async with serve(Apps({"call": shout}), options={"hide_tools": "abp_call_2"}) as client:  # its tool's name
        refused = await client.call_tool("abp_call", {"session": session, "capability": "call"})
        assert refused.is_error and "hide_tools" in words(refused)


async def test_closed_app_is_reopened_only_with_required_scopes(serve: Serve) -> None:
    named = {"crm": AppEntry(url=URL, scopes=("crm",))}
    options = {"tool_scopes": {"abp_connect": ["open"]}}
    async with serve(user="ann", scopes=["crm", "open"], named=named, options=options) as client:
        session = (await called(client, "abp_connect", name="crm"))["session"]
    for scopes in ([], ["open"], ["crm"]):
        apps = Apps()
        async with serve(apps, user="ann", scopes=scopes, named=named, options=options) as client:
            for tool, arguments in (
                ("abp_call", {"capability": "text.shout"}),
                ("abp_screenshot", {"session": session}),
                ("abp_status", {"session": session}),
            ):
                refused = (await client.call_tool(tool, arguments)).structured_content
                assert refused and refused["error"]["code"] == "INSUFFICIENT_SCOPE", refused
            assert not apps.transports
    async with serve(user="ann", scopes=["crm", "open"], named=named, options=options) as client:
        assert (await called(client, "abp_call", capability="text.shout"))["session"] == session


class Gallery:
    """A call that the web server makes in an app of the bridge."""

    async def ask(self, request: ElicitationRequest) -> Mapping[str, object]:
        raise AssertionError(request)

    async def aclose(self) -> None:
        """Its calls end it."""


@pytest.mark.parametrize("era", ["legacy"])  # newer clients get no messages between calls
async def test_gallery_calls_are_awaited_without_muting_app_messages(serve: Serve) -> None:
    calls, activity, apps, said = DetachedCalls(), Activity(), Apps(), asyncio.Queue[Any]()
    async with serve(apps, calls=calls, activity=activity, logging_callback=said.put) as client:
        session = (await called(client, "abp_connect", url=URL))["session"]
        app, done = activity.apps[session], asyncio.Event()
        record = call_record(app, "made-there", "job.hold", detached=True)

        async def work() -> Result:
            await done.wait()
            return Result("job.hold", "held", {})

        pending = Gallery()
        app.pending_calls.append(pending)
        await calls.start(record, pending, work())
        calls.question_changed(record.id, ElicitationRequest(method="elicitation/input"))
        asking = await called(client, "abp_result", call=record.id, wait=0)
        assert asking["status"] == "input_required"
        await Call("", "", apps.transports[0]).notify("notifications/state/changed", 1)
        async with asyncio.timeout(15):
            assert (await said.get()).data == {"event": "notifications/state/changed", "data": 1}
        asyncio.get_running_loop().call_later(0.1, done.set)
        ended = await called(client, "abp_result", call=record.id, wait=15)
        assert (ended["status"], ended["data"]) == ("completed", "held")
        app.pending_calls.remove(pending)
