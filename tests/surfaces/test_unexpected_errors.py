"""A client, a listener or an answer causes what nobody expects: calls and events go on, and each call has an end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="pip install 'abp-transports[mcp]'")

from mcp.client.session import ClientRequestContext
from mcp.server.session import ServerSession
from mcp_types import ElicitRequestParams, ElicitResult

from tests.support.apps import ask_name
from tests.support.eventually import eventually
from tests.support.mcp_clients import Apps as InProcess, Serve, called, serve
from tests.support.web_client import running
from tests.surfaces.web.test_runs import make_run
from transports import CapabilityError, MemoryTransport, Message, Notification, connect
from transports.artifacts import MemoryStore
from transports.session._events import Event
from transports.surfaces.shared._apps import App, Apps
from transports.surfaces.web._access import Limits
from transports.surfaces.web._runs import ServedRuns
from transports.testing import Call

__all__ = ["serve"]


async def refuse(params: Mapping[str, object], call: Call) -> object:
    tray = "half of a pair: \ud800" if "text" in params else object()  # which has no JSON
    raise CapabilityError("no paper", details={"tray": tray})


async def test_call_with_unserializable_outcome_is_failed() -> None:
    async with running(MemoryStore(), {"refuse": refuse}) as web, asyncio.timeout(20):
        session = (await web.post("/apps", {"url": "ws://app.test/"})).json["session"]
        errors = []
        for params in ({}, {"text": True}):
            call = (await web.post(f"/apps/{session}/calls", {"capability": "refuse", "params": params})).json["id"]
            ended = (await web.get(f"/calls/{call}?wait=15")).json
            assert ended["status"] == "failed", ended
            errors.append(ended["result"]["error"])
    assert "the outcome cannot be shown" in errors[0]["message"]
    assert errors[1]["details"] == {"tray": "half of a pair: \ud800"}


@pytest.mark.parametrize("era", ["legacy"])
async def test_client_failing_elicitation_is_asked_once(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    async def failing(session: ServerSession, *request: object, **options: object) -> object:
        asked.append(request)
        raise KeyError("no answer")

    async def accept(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"value": "Ann"})

    async with serve(InProcess({"form.ask": ask_name}), elicitation_callback=accept) as client, asyncio.timeout(20):
        monkeypatch.setattr(ServerSession, "send_request", failing)
        answer = await called(client, "abp_form_ask")
    assert answer["data"]["data"] == {"value": "Ada"}
    assert len(asked) == 1


class FailingListener:
    def __init__(self) -> None:
        self.events: list[str] = []

    def on_connected(self, app: App) -> None: ...

    def on_disconnected(self, app: App) -> None: ...

    def on_event(self, app: App, event: Event) -> None:
        if isinstance(event, Notification):
            self.events.append(event.event)
            raise KeyError(event.event)


async def test_app_events_continue_after_listener_error() -> None:
    listener, transport = FailingListener(), MemoryTransport({})
    apps = Apps(
        MemoryStore(), lambda target, **more: connect("memory:", transport=transport, **more), listener, limit=1
    )
    await apps.connect("ws://app.test/", {})
    for name in ("first", "second"):
        transport.emit(Message("notification", {"event": name, "data": None}))
    await eventually(lambda: listener.events == ["first", "second"])
    await apps.aclose()


async def test_run_watching_continues_after_listener_error(tmp_path: Path) -> None:
    told: list[str] = []

    def failing(run: Mapping[str, object]) -> None:
        told.append(str(run["id"]))
        raise KeyError(run["id"])

    ledger = await make_run(tmp_path / "run")
    served = ServedRuns([str(tmp_path / "run")], failing, Limits(run_interval=0.01))
    try:
        (place,) = await served.places()
        assert await served.get(place.id)
        await eventually(lambda: len(told) == 1)
        await ledger.lease(1, 600)
        await eventually(lambda: len(told) == 2)
    finally:
        await served.aclose()
        await ledger.aclose()


_READ = """
import asyncio, os
from transports.mcp._stdio import Stdin

async def main():
    stdin, read = Stdin(), os.read
    os.read = lambda *given: [][0]
    async for _ in stdin: pass
    os.read = read
    print("ended")

asyncio.run(main())
"""


@pytest.mark.load
def test_server_with_unreadable_stdin_exits(tmp_path: Path) -> None:
    file = tmp_path / "stdin"
    file.write_bytes(b"{}\n")
    with file.open("rb") as stdin:
        ended = subprocess.run([sys.executable, "-c", _READ], stdin=stdin, capture_output=True, timeout=20, check=True)
    assert ended.stdout == b"ended\n"
