"""The transport that ``docs/write-a-transport.md`` begins with, copied from there, under the contract suite."""

from __future__ import annotations

import asyncio
import json
import re
import types
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from transports import Transport, connect
from transports.errors import TransportError
from transports.protocol.binary import Handle
from transports.protocol.messages import Message
from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
from webapp_fixture import Conversation

GUIDE = Path(__file__).parents[1] / "docs" / "write-a-transport.md"
#: Behaviours that the guide does not claim for it: nothing comes from the app without a request, its address is
#: ``None``, and content in parameters travels as base64.
NOT_CLAIMED = {
    "capabilities come and go",
    "its events come in order, each once",
    "progress names its call",
    "progress comes in order and each once",
    "progress belongs to its call",
    "progress stops with its call",
    "notifications reach the session",
    "events() yields the events of a session",
    "a question is answered",
    "a handler that raises declines",
    "several questions at once each get their own answer",
    "a question without a handler is declined",
    "the app's default answers a question without a handler",
    "text arrives as it was sent",  # asks a question
    "content in parameters is a buffer",
    "download URLs are followed",
    "download URLs get their credentials",
    "a download that was cut is resumed",
    "a download that is not there is refused",
    "a download that has expired is refused",
    "a download of another size is refused",
}


def source() -> str:
    """The first Python code of the guide."""
    found = re.search(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def made() -> Callable[[str], Transport]:
    module = types.ModuleType("post_transport")
    exec(compile(source(), str(GUIDE), "exec"), module.__dict__)
    transport: Callable[[str], Transport] = module.PostTransport
    return transport


class Talk:
    """The reference app for one client: each envelope is answered by its reply, and everything else is dropped."""

    def __init__(self) -> None:
        self._replies: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self.app = Conversation(self._deliver)

    async def _deliver(self, envelope: dict[str, Any]) -> None:
        reply = self._replies.get(envelope.get("id") or "")
        if reply is not None and not reply.done():
            reply.set_result(envelope)

    async def answer(self, envelope: dict[str, Any]) -> dict[str, Any]:
        key = envelope.setdefault("id", str(uuid.uuid4()))
        self._replies[key] = asyncio.get_running_loop().create_future()
        try:
            await self.app.receive(envelope)
            return await self._replies[key]
        finally:
            del self._replies[key]


@pytest.fixture
async def target() -> AsyncIterator[str]:
    talks: dict[str, Talk] = {}

    async def post(request: web.Request) -> web.Response:
        key = request.cookies.get("session") or str(uuid.uuid4())
        talk = talks.setdefault(key, Talk())
        response = web.json_response(await talk.answer(json.loads(await request.read())))
        response.set_cookie("session", key)
        return response

    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/abp", post)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "localhost", 0).start()
    yield f"abp+http://localhost:{runner.addresses[0][1]}/abp"
    for talk in talks.values():
        await talk.app.aclose()
    await runner.cleanup()


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", [one for one in BEHAVIOURS if one.name not in NOT_CLAIMED], ids=str)
async def test_minimal_transport_passes_claimed_contract_parts(
    behaviour: Behaviour, made: Callable[[str], Transport], target: str, tmp_path: Path
) -> None:
    await verify(behaviour, Subject(lambda: made(target), tmp_path))


async def test_session_over_minimal_transport_stores_files(made: Callable[[str], Transport], target: str) -> None:
    async with connect(target, transport=made(target), store="memory:") as app:
        result = await app.call("data.csv", {"rows": [{"a": 1}]})
    assert (result.transport, result.artifacts["file"].mime_type) == ("post", "text/csv")


async def test_optional_transport_methods_have_defaults(made: Callable[[str], Transport], tmp_path: Path) -> None:
    transport = made("abp+http://localhost:1/abp")
    assert transport.url is None
    assert await transport.cookies("http://localhost:1/") == {}
    assert [event async for event in transport.events()] == []
    await transport.notify(Message("shutdown"))
    await transport.release(Handle("anything", 1))
    with pytest.raises(TransportError, match="over post no content stays with the app"):
        await transport.save(Handle("anything", 1), tmp_path / "file", timeout=1)
    assert not [*tmp_path.iterdir()]
