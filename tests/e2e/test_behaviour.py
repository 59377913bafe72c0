"""One behaviour suite, run over every transport: the same session, the same content, the same results, another wire.

Known differences are data: :data:`DIFFERENCES`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from transports import (
    Browser,
    CallTimeout,
    CapabilityError,
    MemoryTransport,
    PlaywrightTransport,
    PostMessageTransport,
    Progress,
    Session,
    Transport,
    WebSocketTransport,
    connect,
)
from transports.adapters.memory import Call
from transports.browser import transport as transport_module
from transports.browser.channel import Channel, PlaywrightChannel
from transports.envelope import encode_envelope
from transports.errors import BinaryError
from transports.events import CapabilitiesChanged
from transports.messages import Message
from transports.params import outgoing
from webapp_fixture import Fixture, digest
from webapp_fixture.answers import fault_handlers
from webapp_fixture.calls import Capability, Context, Record
from webapp_fixture.handlers import app_handlers, with_definitions
from webapp_fixture.problems import AbpError, Cancelled
from webapp_fixture.records import State

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: ``evaluate`` is Playwright's own API instead of CDP, in the same Chromium; ``firefox`` has no other.
TRANSPORTS = ("memory", "playwright", "evaluate", "firefox", "websocket", "postmessage")
CALLED = {"evaluate": "playwright", "firefox": "playwright"}

#: (behaviour, transport) → why it does not hold there.
DIFFERENCES = {
    ("download URLs are followed", "memory"): "an app in the same process has no address",
    ("content in parameters is a buffer", "websocket"): "binary input travels as base64 (seed 001)",
    ("content in parameters is a buffer", "memory"): "the reference app's Python side reads base64",
    ("capabilities come and go", "memory"): "the reference app's changes belong to its connections",
    ("capabilities come with their schemas", "memory"): "handlers are plain functions without a schema",
}

Connected = Callable[..., AbstractAsyncContextManager[Session]]


def in_process() -> MemoryTransport:
    """The reference app's Python capabilities behind the in-process transport."""
    record, state = Record(), State()
    known = with_definitions(app_handlers(state, record)) | with_definitions(fault_handlers(state), faults=True)

    def handler(capability: Capability) -> Any:
        async def run(params: Mapping[str, object], call: Call) -> object:
            prepared, content = outgoing(dict(params))
            message = Message("capabilities/call", {"params": prepared}, content=content)
            plain = json.loads(encode_envelope(message))["payload"]["params"]

            async def elicit(request: dict[str, Any]) -> Any:
                return await call.elicit(request["method"], request.get("params", {}))

            try:
                return await capability.handler(plain, Context(call.id, call.progress, call.notify, elicit))
            except Cancelled:
                error = CapabilityError("cancelled", code="CANCELLED")
                error.cancelled = True
                raise error from None
            except AbpError as error:
                described = error.as_json()
                raise CapabilityError(described["message"], code=described["code"]) from error

        return run

    return MemoryTransport({name: handler(capability) for name, capability in known.items()})


@pytest.fixture(params=TRANSPORTS)
def name(request: pytest.FixtureRequest) -> str:
    assert isinstance(request.param, str)
    return request.param


@pytest.fixture
def app(
    name: str,
    fixture: Fixture,
    browser: Browser,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> Connected:
    if name == "evaluate":
        monkeypatch.setattr(transport_module, "open_channel", evaluating)
    shared = request.getfixturevalue("firefox") if name == "firefox" else browser
    makers: dict[str, Callable[[], Transport]] = {
        "memory": in_process,
        "playwright": lambda: PlaywrightTransport(fixture.url, browser=shared),
        "websocket": lambda: WebSocketTransport(fixture.ws_url),
        "postmessage": lambda: PostMessageTransport(fixture.embed_url, browser=browser),
    }

    def connected(**options: Any) -> Session:
        options.setdefault("store", tmp_path / "out")
        targets = {"websocket": fixture.ws_url, "postmessage": fixture.embed_url, "memory": "memory:"}
        made = CALLED.get(name, name)
        return connect(targets.get(name, fixture.url), transport=makers[made](), **options)

    return connected


async def evaluating(page: Page) -> Channel:
    return PlaywrightChannel(page)


def holds(behaviour: str, name: str) -> bool:
    return (behaviour, name) not in DIFFERENCES


def value(tree: object, *path: str | int) -> Any:
    for step in path:
        tree = tree[step]  # type: ignore[index]
    return tree


async def test_the_table_of_differences_is_short_and_names_what_exists() -> None:
    assert len(DIFFERENCES) < 10
    assert {transport for _, transport in DIFFERENCES} <= set(TRANSPORTS)


async def test_the_session_knows_the_app(app: Connected, name: str) -> None:
    async with app() as session:
        assert {"data.csv", "export.pdf", "file.generate", "job.run"} <= set(session.capabilities)
        assert session.transport.name == CALLED.get(name, name)
        if holds("capabilities come with their schemas", name):
            assert session.info.name == "Workbench"
            assert session.capabilities["data.csv"].input_schema


async def test_a_hundred_thousand_capabilities(fixture: Fixture, browser: Browser, tmp_path: Path) -> None:
    """FAULTS 22, over each transport that has an address."""
    query = "?capabilities=100000"
    for url, transport in (
        (fixture.url + query, PlaywrightTransport(fixture.url + query, browser=browser)),
        (fixture.embed_url + query, PostMessageTransport(fixture.embed_url + query, browser=browser)),
        (fixture.ws_url + query, WebSocketTransport(fixture.ws_url + query)),
    ):
        async with connect(url, transport=transport, store=tmp_path, timeout=60) as session:
            assert len(session.capabilities) > 100_000
            assert "bulk.099999" in session.capabilities
            assert value((await session.call("bulk.099999", {"value": "x"})).data, "value") == "x"
            with pytest.raises(CapabilityError, match="no capability"):
                await session.call("bulk.1000000")


async def test_json_results_become_files(app: Connected, name: str) -> None:
    async with app() as session:
        result = await session.call("convert.markdownToHtml", {"markdown": "# Hi"})
        assert "<h1>Hi</h1>" in value(result.data, "html")
        assert json.loads(Path(str(result.artifacts[""].path)).read_text()) == result.data
        assert result.transport == CALLED.get(name, name)


async def test_one_capabilitys_bytes_are_the_same_over_all_of_them(app: Connected) -> None:
    async with app() as session:
        rows = [{"product": "tea", "sold": 12}, {"product": "cöffee, black", "sold": 30}]
        ref = (await session.call("data.csv", {"rows": rows})).artifacts["file"]
        assert ref.mime_type == "text/csv"
        content = Path(str(ref.path)).read_bytes()
        assert ref.sha256 == hashlib.sha256(content).hexdigest()
        assert content.decode() == 'product,sold\r\ntea,12\r\n"cöffee, black",30\r\n'


@pytest.mark.parametrize("size", [0, 1000, 256 * 1024 + 1, 3 << 20])
async def test_content_arrives_byte_for_byte(app: Connected, name: str, size: int) -> None:
    async with app() as session:
        ref = (await session.call("file.generate", {"bytes": size, "seed": 3})).artifacts["file"]
        assert (ref.size_bytes, ref.sha256) == (size, digest(size, 3))


async def test_download_urls_are_followed(app: Connected, name: str) -> None:
    if not holds("download URLs are followed", name):
        pytest.skip(DIFFERENCES["download URLs are followed", name])
    async with app() as session:
        for auth in ("none", "bearer", "query"):
            params = {"bytes": 50_000, "as": "url", "auth": auth}
            assert (await session.call("file.generate", params)).artifacts["file"].sha256 == digest(50_000, 0)


async def test_content_in_parameters_arrives_byte_for_byte(app: Connected, name: str, tmp_path: Path) -> None:
    async with app() as session:
        for size in (0, 10, 300_000):
            data = bytes(i % 251 for i in range(size))
            (tmp_path / "in.bin").write_bytes(data)
            for way in (data, tmp_path / "in.bin"):
                received = (await session.call("file.digest", {"file": way})).data
                assert value(received, "sha256") == hashlib.sha256(data).hexdigest()
                buffer = holds("content in parameters is a buffer", name)
                assert value(received, "received") == ("ArrayBuffer" if buffer else "base64")


async def test_places_and_siblings(app: Connected) -> None:
    async with app() as session:
        deep = await session.call("shape", {"shape": "deep"})
        (place,) = deep.artifacts
        assert place.count(".") >= 4
        flat = await session.call("shape", {"shape": "flat"})
        assert next(iter(flat.artifacts.values())).size_bytes == 1024
        assert value(flat.data, "size") == 1024


@pytest.mark.parametrize("fault", ["wrong_size", "bad_size", "bad_base64", "noncanonical_base64"])
async def test_content_that_lies_is_refused_and_the_session_goes_on(
    app: Connected, name: str, tmp_path: Path, fault: str
) -> None:
    async with app() as session:
        with pytest.raises(BinaryError):
            await session.call(f"fault.{fault}", {"value": -1} if fault == "bad_size" else {})
        assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
        assert (await session.call("file.list")).artifacts


async def test_errors_of_the_app_are_typed(app: Connected) -> None:
    async with app() as session:
        with pytest.raises(CapabilityError) as unknown:
            await session.call("export.pfd")
        assert unknown.value.code == "UNKNOWN_CAPABILITY"
        with pytest.raises(CapabilityError) as thrown:
            await session.call("fault.throws")
        assert thrown.value.code == "OPERATION_FAILED"


async def test_progress_comes_in_order_and_each_once(app: Connected) -> None:
    seen: list[Progress] = []
    async with app() as session:
        await session.call("job.run", {"steps": 5, "delay": 1}, on_progress=seen.append)
    assert [item.progress for item in seen] == [1, 2, 3, 4, 5]


async def test_notifications_reach_the_session(app: Connected) -> None:
    events: list[str] = []
    async with app(on_notification=lambda notification: events.append(notification.event)) as session:
        await session.call("job.run", {"steps": 1, "delay": 1})
        async with asyncio.timeout(2):
            while len(events) < 2:
                await asyncio.sleep(0.01)
    assert events == ["notifications/operation/started", "notifications/operation/completed"]


async def test_capabilities_come_and_go(app: Connected, name: str) -> None:
    if not holds("capabilities come and go", name):
        pytest.skip(DIFFERENCES["capabilities come and go", name])
    told: list[str] = []
    async with app(on_notification=lambda notification: told.append(notification.event)) as session:
        events: Any = session.events()
        for wanted in (True, False):
            assert value((await session.call("app.toggle")).data, "available") is wanted
            async with asyncio.timeout(5):
                while not isinstance(change := await anext(events), CapabilitiesChanged):
                    pass
            assert change == CapabilitiesChanged(**{"added" if wanted else "removed": ("extra.hello",)})
            assert ("extra.hello" in session.capabilities) is wanted
            if wanted:
                assert (await session.call("extra.hello")).artifacts
    assert told == ["notifications/capabilities/list_changed"] * 2


async def test_elicitation_is_answered_or_declined(app: Connected) -> None:
    async def answer(request: object) -> Mapping[str, object]:
        return {"success": True, "data": {"value": "blue"}}

    question = {"method": "elicitation/input", "params": {"message": "Colour?"}}
    async with app(on_elicitation=answer) as session:
        answered = value((await session.call("form.ask", question)).data, "response")
        assert answered["data"] == {"value": "blue"}
    async with app() as session:
        with pytest.raises(CapabilityError) as caught:
            await session.call("files.clear")
        assert caught.value.cancelled


async def test_timeout_and_cancellation_reach_the_app_and_the_next_call_works(app: Connected, name: str) -> None:
    async with app() as session:
        with pytest.raises(CallTimeout):
            await session.call("job.wait", timeout=0.2)
        waiting = asyncio.ensure_future(session.call("job.wait"))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if isinstance(session.transport, MemoryTransport):
            reasons = list(session.transport.cancelled.values())
        else:
            record = (await session.call("app.record")).data
            reasons = [entry["reason"] for entry in value(record, "cancelled")]
        assert list(dict.fromkeys(reasons)) == ["timeout", "cancelled by the client"]


async def test_calls_at_once_each_get_their_own(app: Connected) -> None:
    async with app() as session:
        calls = [session.call("file.digest", {"file": str(n).encode()}) for n in range(40)]
        sums = [value(result.data, "sha256") for result in await asyncio.gather(*calls)]
        assert sums == [hashlib.sha256(str(n).encode()).hexdigest() for n in range(40)]


async def test_closing_twice_is_harmless_and_leaves_no_task(app: Connected) -> None:
    def tasks() -> int:
        """Those of the server are its own affair: a browser keeps connections to it."""
        return sum("RequestHandler" not in str(task.get_coro()) for task in asyncio.all_tasks())

    before = tasks()
    session = app()
    async with session as opened:
        await opened.call("file.list")
    await opened.aclose()
    await asyncio.sleep(0.1)
    assert tasks() <= before
