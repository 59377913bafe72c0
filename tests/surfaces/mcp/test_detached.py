"""Detached calls and tasks of the MCP bridge; connections that are opened again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

import anyio
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict

from tests.support.mcp_clients import URL, Apps, called, era, hold, refuse, shout, words
from tests.support.web_client import eventually
from transports.adapters.memory import Handler
from transports.artifacts import open_store
from transports.surfaces.mcp import Bridge, Options
from transports.surfaces.shared.call_ledger import CallLedger
from transports.surfaces.shared.detached import DetachedCalls
from transports.testing import Call

__all__ = ["era"]


class Gate:
    """An app whose calls wait until the test lets them go on."""

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.calls = 0

    async def wait(self, params: Mapping[str, object], call: Call) -> object:
        self.calls += 1
        await call.progress(progress=1, total=2, stage="waiting")
        await self.opened.wait()
        return {"text": "open"}

    @property
    def app(self) -> Mapping[str, Handler]:
        return {"gate.wait": self.wait, "text.shout": shout, "print.page": refuse, "job.hold": hold, "job.ask": ask}


async def ask(params: Mapping[str, object], call: Call) -> object:
    first = await call.elicit("elicitation/input", {"message": "Name?"})
    second = await call.elicit("elicitation/input", {"message": "Colour?", "default": "red"})
    return {"name": first["data"]["value"], "colour": second["data"]["value"]}


Serve = Callable[..., Any]


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def serve(tmp_path: Path, era: str, gate: Gate) -> Serve:
    """``async with serve(…) as client``: a client of a new bridge with the state of all before it."""

    @asynccontextmanager
    async def make(
        apps: Apps | None = None, *, options: Mapping[str, Any] | None = None, user: str | None = None, **more: Any
    ) -> AsyncIterator[Client]:
        calls = DetachedCalls(CallLedger(tmp_path / "state"))
        apps = apps or Apps(gate.app)
        bridge = Bridge(Options(**(options or {})), open_store(tmp_path / "out"), connect=apps, calls=calls)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(calls.aclose)
            if user:
                token = AccessToken(token="t", client_id=user, scopes=[], subject=user)
                stack.callback(auth_context_var.reset, auth_context_var.set(AuthenticatedUser(token)))
            yield await stack.enter_async_context(Client(bridge.server, mode=era, **more))

    return make


async def result_of(client: Client, call: str, **arguments: Any) -> CallToolResult:
    """The first answer of abp_result that is not about a call under way."""
    async with asyncio.timeout(20):
        while True:
            answer = await client.call_tool("abp_result", {"call": call, **arguments})
            if (answer.structured_content or {}).get("status") not in ("working", "input_required"):
                return answer


async def test_a_detached_call_is_started_asked_for_and_read(serve: Serve, gate: Gate) -> None:
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
        gate.opened.set()
        first, second = await result_of(client, call), await result_of(client, call)
        plain = await client.call_tool("abp_call", {"capability": "gate.wait"})
        assert first == second and first.structured_content and plain.structured_content
        assert first.structured_content["data"] == plain.structured_content["data"] == {"text": "open"}
        assert set(first.structured_content) == set(plain.structured_content)
        assert [type(block) for block in first.content] == [type(block) for block in plain.content]
        assert (await called(client, "abp_status"))["calls"][0]["status"] == "completed"
        unknown = await client.call_tool("abp_result", {"call": "nothing"})
        assert unknown.is_error and "[CALL_NOT_FOUND]" in words(unknown)


async def test_a_detached_call_fails_and_is_cancelled_as_any_other(serve: Serve) -> None:
    apps = Apps({"print.page": refuse, "job.hold": hold})
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


async def test_a_request_that_is_given_up_leaves_a_detached_call_alone(serve: Serve, gate: Gate) -> None:
    async with serve() as client:
        await called(client, "abp_connect", url=URL)
        call = (await called(client, "abp_call", capability="gate.wait", detach=True))["call"]
        with anyio.move_on_after(0.1):
            await client.call_tool("abp_result", {"call": call, "wait": 60})
        gate.opened.set()
        assert not (await result_of(client, call)).is_error
        assert gate.calls == 1


async def test_questions_of_a_detached_call_are_asked_when_its_result_is(serve: Serve) -> None:
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


async def test_calls_and_connections_are_found_after_a_restart(serve: Serve, gate: Gate) -> None:
    options = {"apps": ["memory:configured"]}
    async with serve(options=options) as client:
        configured = (await called(client, "abp_status"))["sessions"][0]["session"]
        named = (await called(client, "abp_connect", url=URL))["session"]
        gone = (await called(client, "abp_connect", url=URL))["session"]
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
        assert sorted("opened anew" in str(one["warnings"]) for one in both if one) == [False, True]
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


async def test_users_see_neither_the_calls_nor_the_connections_nor_the_files_of_others(serve: Serve) -> None:
    async with serve(user="ann") as ann:
        session = (await called(ann, "abp_connect", url=URL))["session"]
        call = (await called(ann, "abp_call", capability="text.shout", detach=True))["call"]
        (artifact,) = ((await result_of(ann, call)).structured_content or {})["artifacts"]
        running = (await called(ann, "abp_call", capability="job.hold", detach=True))["call"]
        async with serve(user="bob") as bob:
            status = await called(bob, "abp_status")
            assert (status["sessions"], status["calls"]) == ([], [])
            for name, arguments, code in (
                ("abp_result", {"call": call}, "CALL_NOT_FOUND"),
                ("abp_result", {"call": running}, "CALL_NOT_FOUND"),
                ("abp_cancel", {"call": running}, "CALL_NOT_FOUND"),
                ("abp_call", {"session": session, "capability": "text.shout"}, "SESSION_INVALID"),
                ("abp_read_artifact", {"id": artifact["id"]}, "ARTIFACT_NOT_FOUND"),
            ):
                answer = await bob.call_tool(name, arguments)
                assert answer.is_error and f"[{code}]" in words(answer), words(answer)
            assert (await called(bob, "abp_artifacts"))["total"] == 0
        assert [one["status"] for one in (await called(ann, "abp_status"))["calls"]] == ["working", "completed"]


# --- tasks ------------------------------------------------------------------------------------------------------------


class Task(Result):
    result_type: Literal["task"] = "task"
    task_id: str


class TaskParams(RequestParams):
    model_config = ConfigDict(extra="allow")


class TaskRequest(Request[TaskParams, str]):
    method: str
    params: TaskParams


class Polling(ClientExtension):
    """The client's side of the extension, on the official client: it asks until the task has ended."""

    identifier = "io.modelcontextprotocol/tasks"

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answers: Mapping[str, object] = {}

    def claims(self) -> list[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Task, resolve=self.resolve)]

    async def resolve(self, task: Any, ctx: ClaimContext) -> CallToolResult:
        async with asyncio.timeout(20):
            while True:
                state = await ask_of(ctx, "tasks/get", taskId=task.task_id)
                if not self.seen or state != {**self.seen[-1], "lastUpdatedAt": state["lastUpdatedAt"]}:
                    self.seen.append(state)
                if state["status"] == "input_required":
                    given = {key: {"action": "accept", "content": {"value": "Ann"}} for key in state["inputRequests"]}
                    await ask_of(ctx, "tasks/update", taskId=task.task_id, inputResponses=given)
                elif state["status"] == "cancelled":
                    return CallToolResult(content=[], is_error=True)
                elif state["status"] == "completed":
                    return CallToolResult.model_validate(state["result"])
                await asyncio.sleep(0.01)


class Anything(Result):
    model_config = ConfigDict(extra="allow")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transports.surfaces.mcp.tools.TASK_AFTER", 0.05)


@pytest.mark.usefixtures("soon")
async def test_a_call_that_takes_long_is_a_task_of_a_client_that_has_tasks(serve: Serve, gate: Gate, era: str) -> None:
    polling = Polling()
    async with serve(extensions=[polling]) as client:
        await called(client, "abp_connect", url=URL)
        assert (await called(client, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}
        assert polling.seen == []  # it was over at once
        long = asyncio.ensure_future(client.call_tool("abp_gate_wait", {}))
        if era == "legacy":  # there is no such extension
            await eventually(lambda: gate.calls == 1)
        else:
            await eventually(lambda: polling.seen)
            assert polling.seen[0]["status"] == "working"
            ((call, status),) = [(one["call"], one["status"]) for one in (await called(client, "abp_status"))["calls"]]
            assert (call, status) == (polling.seen[0]["taskId"], "working")
        gate.opened.set()
        answer = await long
        assert answer.structured_content and answer.structured_content["data"] == {"text": "open"}
        if era != "legacy":
            assert [state["status"] for state in polling.seen] == ["working", "completed"]
            assert polling.seen[0]["ttlMs"] == 86_400_000 and polling.seen[0]["pollIntervalMs"] == 2000
            for method in ("tasks/get", "tasks/cancel", "tasks/update"):
                request = TaskRequest(
                    method=method, params=TaskParams.model_validate({"taskId": "nothing", "inputResponses": {}})
                )
                with pytest.raises(MCPError, match="there is no call 'nothing'"):
                    await client.session.send_request(request, Anything)


@pytest.mark.usefixtures("soon")
async def test_a_task_is_cancelled_and_found_after_a_restart_by_its_owner_alone(
    serve: Serve, gate: Gate, era: str
) -> None:
    if era == "legacy":
        return
    polling = Polling()
    async with serve(extensions=[polling], user="ann") as client:
        await called(client, "abp_connect", url=URL)
        waiting = asyncio.ensure_future(client.call_tool("abp_gate_wait", {}))
        await eventually(lambda: polling.seen)
        task = polling.seen[0]["taskId"]
        async with serve(extensions=[Polling()], user="bob") as other:
            for method in ("tasks/get", "tasks/cancel"):
                with pytest.raises(MCPError, match="there is no call"):
                    await ask_of(other, method, taskId=task)
        await ask_of(client, "tasks/cancel", taskId=task)
        assert (await waiting).is_error and polling.seen[-1]["status"] == "cancelled"
        done = asyncio.ensure_future(client.call_tool("abp_gate_wait", {}))
        await eventually(lambda: polling.seen[-1]["status"] == "working")
        gate.opened.set()
        answer, task = await done, polling.seen[-1]["taskId"]
    async with serve(extensions=[Polling()], user="ann") as client:
        found = await ask_of(client, "tasks/get", taskId=task)
        assert CallToolResult.model_validate(found["result"]).structured_content == answer.structured_content


@pytest.mark.usefixtures("soon")
async def test_a_question_before_a_call_is_a_task_is_asked_at_once_and_later_ones_by_the_task(
    serve: Serve, gate: Gate, era: str
) -> None:
    if era == "legacy":
        return

    async def late(params: Mapping[str, object], call: Call) -> object:
        await gate.opened.wait()
        return await ask(params, call)

    async def answer(_: object, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": "Bob"})

    polling = Polling()
    apps = Apps({"job.late": late, "job.ask": ask})
    async with serve(apps, extensions=[polling], elicitation_callback=answer) as client:
        await called(client, "abp_connect", url=URL)
        assert (await called(client, "abp_job_ask"))["data"] == {"name": "Bob", "colour": "Bob"}
        assert polling.seen == []
        asking = asyncio.ensure_future(called(client, "abp_job_late"))
        await eventually(lambda: polling.seen)
        gate.opened.set()
        assert (await asking)["data"] == {"name": "Ann", "colour": "Ann"}
        keys = [key for state in polling.seen for key in state.get("inputRequests", {})]
        assert len(set(keys)) == 2


async def ask_of(client: Client | ClaimContext, method: str, **params: object) -> dict[str, Any]:
    request = TaskRequest(method=method, params=TaskParams.model_validate(params))
    return (await client.session.send_request(request, Anything)).model_dump(by_alias=True)
