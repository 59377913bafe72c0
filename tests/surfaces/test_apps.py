"""Connected apps of a server: whose call gets a question, and what ends with an app."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from tests.support.web_client import running
from transports.artifacts import MemoryStore
from transports.memory import Call


async def hold(params: Mapping[str, object], call: Call) -> object:
    await asyncio.Event().wait()
    raise AssertionError


async def ask(params: Mapping[str, object], call: Call) -> object:
    return dict(await call.elicit("elicitation/input", {"message": "Name?", "default": "Ada"}))


async def test_question_is_attributed_to_latest_call() -> None:
    async with running(MemoryStore(), {"hold": hold, "ask": ask}) as web, web.listen() as events, asyncio.timeout(30):
        session = (await web.post("/apps", {"url": "ws://app.test/"})).json["session"]
        await web.post(f"/apps/{session}/calls", {"capability": "hold"})
        await events.until("call_started", capability="hold")
        latest = (await web.post(f"/apps/{session}/calls", {"capability": "ask"})).json["id"]
        assert (await events.until("call_asked"))[2]["id"] == latest


async def test_disconnecting_one_app_leaves_others_connected() -> None:
    async with running(MemoryStore(), {"ask": ask}) as web, asyncio.timeout(30):
        first, second = [
            (await web.post("/apps", {"url": f"ws://{name}.test/"})).json["session"] for name in ("a", "b")
        ]
        assert (await web.ask("DELETE", f"/apps/{first}")).status == 204
        assert [app["session"] for app in (await web.get("/apps")).json["apps"]] == [second]
