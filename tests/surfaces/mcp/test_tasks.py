"""Tasks of the MCP bridge (SEP-2663), for the official client with the client's side of the extension."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

import pytest
from mcp import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, ElicitResult, Request, RequestParams, Result
from pydantic import ConfigDict

from tests.support.eventually import eventually
from tests.support.mcp_clients import URL, Apps, Serve, called, newer_era
from tests.support.mcp_detached import Gate, ask, gate, serve
from transports.testing import Call

__all__ = ["gate", "serve"]


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
    monkeypatch.setattr("transports.surfaces.mcp._tools.TASK_AFTER", 0.05)


@newer_era
async def test_long_call_becomes_task_if_client_supports_tasks(
    serve: Serve, gate: Gate, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    polling = Polling()
    async with serve(extensions=[polling]) as client:
        await called(client, "abp_connect", url=URL)
        monkeypatch.setattr("transports.surfaces.mcp._tools.TASK_AFTER", 60.0)
        assert (await called(client, "abp_text_shout", text="hi"))["data"] == {"text": "HI"}
        assert polling.seen == []  # it was over at once
        monkeypatch.setattr("transports.surfaces.mcp._tools.TASK_AFTER", 0.05)
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
                with pytest.raises(MCPError, match="no call has the id 'nothing'"):
                    await client.session.send_request(request, Anything)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("era", ["2026-07-28"])
async def test_task_is_cancelled_and_found_after_restart_by_owner_only(serve: Serve, gate: Gate) -> None:
    polling = Polling()
    async with serve(extensions=[polling], user="ann") as client:
        await called(client, "abp_connect", url=URL)
        waiting = asyncio.ensure_future(client.call_tool("abp_gate_wait", {}))
        await eventually(lambda: polling.seen)
        task = polling.seen[0]["taskId"]
        async with serve(extensions=[Polling()], user="bob") as other:
            for method in ("tasks/get", "tasks/cancel"):
                with pytest.raises(MCPError, match="no call has the id"):
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


@pytest.mark.parametrize("era", ["2026-07-28"])
async def test_questions_are_asked_directly_until_call_becomes_task(
    serve: Serve, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(params: Mapping[str, object], call: Call) -> object:
        await gate.opened.wait()
        return await ask(params, call)

    async def answer(_: object, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": "Bob"})

    polling = Polling()
    apps = Apps({"job.late": late, "job.ask": ask})
    async with serve(apps, extensions=[polling], elicitation_callback=answer) as client:
        await called(client, "abp_connect", url=URL)
        monkeypatch.setattr("transports.surfaces.mcp._tools.TASK_AFTER", 60.0)  # on however busy a machine
        assert (await called(client, "abp_job_ask"))["data"] == {"name": "Bob", "colour": "Bob"}
        assert polling.seen == []
        monkeypatch.setattr("transports.surfaces.mcp._tools.TASK_AFTER", 0.05)
        asking = asyncio.ensure_future(called(client, "abp_job_late"))
        await eventually(lambda: polling.seen)
        gate.opened.set()
        assert (await asking)["data"] == {"name": "Ann", "colour": "Ann"}
        keys = [key for state in polling.seen for key in state.get("inputRequests", {})]
        assert len(set(keys)) == 2


async def ask_of(client: Client | ClaimContext, method: str, **params: object) -> dict[str, Any]:
    request = TaskRequest(method=method, params=TaskParams.model_validate(params))
    return (await client.session.send_request(request, Anything)).model_dump(by_alias=True)
