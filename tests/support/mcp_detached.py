"""What the tests of detached calls and of tasks share: bridges with one state, and an app that waits for its test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from tests.support.apps import hang
from tests.support.mcp_clients import Apps, Serve, refuse, shout
from transports.memory import Handler
from transports.surfaces.shared._detached import CallLedger, DetachedCalls
from transports.testing import Call


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
        return {"gate.wait": self.wait, "text.shout": shout, "print.page": refuse, "job.hold": hang, "job.ask": ask}


async def ask(params: Mapping[str, object], call: Call) -> object:
    first = await call.elicit("elicitation/input", {"message": "Name?"})
    second = await call.elicit("elicitation/input", {"message": "Colour?", "default": "red"})
    return {"name": first["data"]["value"], "colour": second["data"]["value"]}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def serve(tmp_path: Path, gate: Gate, serve: Serve) -> Serve:
    """``async with serve(…) as client``: a client of a new bridge with the state of all before it, and no app yet."""

    @asynccontextmanager
    async def make(
        apps: Apps | None = None,
        *,
        user: str | None = None,
        scopes: Sequence[str] = (),
        calls: DetachedCalls | None = None,
        **more: Any,
    ) -> AsyncIterator[Client]:
        calls = calls or DetachedCalls(CallLedger(tmp_path / "state"))
        async with AsyncExitStack() as stack:
            stack.push_async_callback(calls.aclose)
            if user:
                token = AccessToken(token="t", client_id=user, scopes=[*scopes], subject=user)
                stack.callback(auth_context_var.reset, auth_context_var.set(AuthenticatedUser(token)))
            client = serve(apps or Apps(gate.app), connected=False, calls=calls, **more)
            yield await stack.enter_async_context(client)

    return make
