"""A session is opened once and closed in every case; what the handshake accepts."""

import asyncio
import importlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import transports
import transports.sync
from tests.conftest import Connect
from tests.support.apps import FOREVER, NotingTransport, answering, ask, hang
from tests.support.cancelling import cancel_after_turns
from transports import (
    ABPError,
    CallTimeout,
    Disconnected,
    ElicitationRequest,
    Message,
    ProtocolError,
    TransportError,
    UsageError,
)
from transports.errors import ConnectFailed
from transports.session._session import load_modules

# --- opening ----------------------------------------------------------------------------------------------------------


async def test_handshake_fills_app_info_and_capabilities(app_of: Connect) -> None:
    async with app_of({"hang": hang, "other": answering(1)}) as app:
        assert app.info.name == "In-process app"
        assert list(app.capabilities) == ["hang", "other"]
        assert app.capabilities["hang"].description == "Never answers."
        assert app.session_id
        assert repr(app) == "<open Session with 'In-process app' over memory>"
    assert repr(app) == "<closed Session over memory>"


INITIALIZED = {
    "sessionId": "s",
    "protocolVersion": "0.1",
    "app": {"id": "a", "name": "A", "version": 2},
    "capabilities": [{"name": "one", "available": False, "experimental": True}],
}


@pytest.mark.requirement("R6-3d")
@pytest.mark.parametrize(
    "listed",
    [
        [{"name": "one"}, {"name": "two"}],
        {"success": True, "data": {"capabilities": [{"name": "one"}, 42, {"name": "two"}]}},
    ],
    ids=["plain", "wrapped, with an invalid entry"],
)
async def test_every_capability_list_form_is_accepted(app_of: Connect, listed: object) -> None:
    async with app_of(NotingTransport(initialize=INITIALIZED, list=listed)) as app:
        assert sorted(app.capabilities) == ["one", "two"]
        assert app.info.version == "2"
        # what initialize said stands where the list says nothing
        assert not app.capabilities["one"].available
        assert app.capabilities["one"].experimental


@pytest.mark.parametrize("listed", [[], None, {"success": False}, ProtocolError("no such method")])
@pytest.mark.parametrize("initialized", [INITIALIZED, {"success": True, "data": INITIALIZED}], ids=["plain", "wrapped"])
async def test_empty_list_keeps_capabilities_of_initialize(
    app_of: Connect, initialized: object, listed: object
) -> None:
    async with app_of(NotingTransport(initialize=initialized, list=listed)) as app:
        assert list(app.capabilities) == ["one"] and app.info.name == "A"


class Unopenable(NotingTransport):
    async def open(self) -> None:
        await super().open()
        raise ConnectFailed("nothing answers")


REFUSAL = {"success": False, "error": {"code": "PERMISSION_DENIED", "message": "no"}}


@pytest.mark.requirement("R6-3j")
@pytest.mark.parametrize(
    ("transport", "error"),
    [
        (Unopenable(), ConnectFailed),
        (NotingTransport(initialize=None), ProtocolError),
        (NotingTransport(initialize="hello"), ProtocolError),
        (NotingTransport(initialize={"capabilities": "all"}), ProtocolError),
        (NotingTransport(initialize=REFUSAL), ABPError),
        (NotingTransport(initialize=CallTimeout("no answer")), CallTimeout),
        (NotingTransport(list=CallTimeout("no answer")), CallTimeout),
        (NotingTransport(initialize=asyncio.Event()), TimeoutError),
    ],
    ids=["open", "null", "text", "wrong type", "refusal", "silence", "silent list", "cancelled"],
)
async def test_failed_session_open_closes_everything(
    app_of: Connect, transport: NotingTransport, error: type[Exception]
) -> None:
    before = asyncio.all_tasks()
    session = app_of(transport)
    with pytest.raises(error):
        async with asyncio.timeout(0.02 if error is TimeoutError else FOREVER), session:
            pytest.fail("it opened")
    assert transport.closed
    assert asyncio.all_tasks() == before
    assert "shutdown" not in transport.types()  # there was no session to shut down
    with pytest.raises(Disconnected):
        await session.call("x")


# --- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R6-3e")
@pytest.mark.parametrize("way", ["aclose", "await", "exception", "unsendable"])
async def test_session_opens_once_and_closing_sends_shutdown_once_and_leaves_no_task(app_of: Connect, way: str) -> None:
    class Unsendable(NotingTransport):
        async def notify(self, message: Message) -> None:
            await super().notify(message)
            raise TransportError("gone")

    transport_class = Unsendable if way == "unsendable" else NotingTransport
    before, transport = asyncio.all_tasks(), transport_class({"good": answering(1), "hang": hang})
    session = app_of(transport, on_progress=print)
    with pytest.raises(UsageError, match="async with"):
        await session.call("good")
    if way == "await":
        app = await session
        assert (await app.call("good")).data == 1
        with pytest.raises(UsageError, match="once"):
            await app
        await app.aclose()
    else:
        with suppress(KeyError):
            async with session as app:
                assert (await app.call("good")).data == 1
                with pytest.raises(UsageError, match="once"):
                    await app.__aenter__()
                with pytest.raises(CallTimeout):
                    await app.call("hang", timeout=0.01)
                if way == "exception":
                    raise KeyError("mine")
                await app.aclose()
    await session.aclose()
    assert transport.types().count("shutdown") == transport.closed == 1
    assert asyncio.all_tasks() == before
    sent = len(transport.sent)
    with pytest.raises(Disconnected, match="connect again"):
        await session.call("good")
    with pytest.raises(UsageError, match="once"):
        async with session:
            pass
    assert len(transport.sent) == sent


async def test_closing_ends_calls_and_handlers_even_if_it_is_cancelled_at_any_step(app_of: Connect) -> None:
    """A call gets a typed error, handlers are cancelled, and all are gone when ``aclose`` ends."""
    before = asyncio.all_tasks()

    async def never(value: object) -> Mapping[str, object]:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(0)
        return {}

    async def cancelled_after(steps: int) -> bool:
        app = app_of({"ask": ask}, on_elicitation=never, on_notification=never)
        async with asyncio.timeout(20), app, app.events() as events:
            handle = await app.start("ask")
            while not isinstance(await anext(events), ElicitationRequest):
                pass
            closing = await cancel_after_turns(steps, app.aclose())
            assert [event async for event in events]
            with pytest.raises(Disconnected):
                await handle.result()
            assert asyncio.all_tasks() == before
            return closing.cancelled()

    steps = 1
    while await cancelled_after(steps):
        steps += 1
    assert steps > 4


@pytest.mark.parametrize("target", [None, 8000, Path("app"), b"http://a/", ["http://a/"]])
async def test_non_text_address_is_named_by_its_type(target: Any) -> None:
    for connecting in (transports.connect, transports.sync.connect):
        with pytest.raises(UsageError, match=rf"target must be text, .* not {type(target).__name__}"):
            connecting(target)
    with pytest.raises(UsageError, match=rf"url must be text, not {type(target).__name__}"):
        await transports.discover(target)


async def test_modules_are_imported_once_transport_has_begun_to_open(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(importlib, "import_module", imported.append)
    for is_open in (True, False):
        opened = asyncio.Event()
        loading = asyncio.ensure_future(load_modules(["transports.is_not_there"], opened))
        await asyncio.sleep(0)
        assert not imported
        if is_open:
            opened.set()
        await loading
        assert imported == ["transports.is_not_there"]
        imported.clear()
