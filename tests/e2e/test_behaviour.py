"""The public contract suite over each of our own transports: the same app, the same results, another wire.

Known differences are data: :data:`DIFFERENCES`.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.in_process import in_process
from tests.support.mcp_servers.warm import warm_target
from tests.support.pages import reach_without_cdp
from tests.support.processor import measuring, peak_memory, slowness
from transports import (
    ABPError,
    Browser,
    CapabilityError,
    PlaywrightTransport,
    PostMessageTransport,
    Result,
    Session,
    Transport,
    WebMcpTransport,
    WebSocketTransport,
    connect,
)
from transports.mcp._transport import MCPTransport
from transports.recording._file import Recording
from transports.recording._recorder import Recorder
from transports.recording._replay import ReplayTransport
from transports.testing.contract import BEHAVIOURS, Behaviour, Subject, verify
from webapp_fixture import Fixture

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

#: ``evaluate`` is Playwright's own API instead of CDP, in the same Chromium and not recorded; ``firefox`` has no other.
TRANSPORTS = ("memory", "playwright", "evaluate", "firefox", "websocket", "postmessage", "webmcp", "mcp")

#: What depends on the channel to the app, and is shown over each in every run.
CHANNEL = {
    "an exception of the app is a CapabilityError",
    "content of 3 MB arrives byte for byte",
    "files in parameters arrive byte for byte",
    "progress comes in order and each once",
    "cancelling reaches the app",
}
#: What a recorded session of ``playwright`` shows in every run, and its replay too.
RECORDED = CHANNEL | {"calls at once each get their own answer", "a question is answered"}
#: transport → the themes that it has code of its own for. ``playwright`` shows the others.
OWN_THEMES: Mapping[str, set[str]] = {
    "websocket": {"lifecycle", "messages"},
    "mcp": {"lifecycle", "messages", "binaries"},
}
#: What is the session's, or costs another page: only ``websocket`` shows it in every run.
OVER_WEBSOCKET = {
    "a call after the session closed raises DISCONNECTED",
    "a handler that raises declines",
    "a request after closing fails",
    "a question is answered",
    "closing twice is harmless",
    "content of 8 calls at once is not mixed up",
    "events() yields the events of a session",
    "initialize is answered with the app",
    "it has a name, features and an address",
    "it sends shutdown",
    "notifications reach the session",
    "progress names its call",
    "several questions at once each get their own answer",
    "two connections know nothing of each other",
}

#: Themes and names of behaviours that close what they open, have callbacks, or count since the start. The others share
#: an open session, and those of the theme "messages" an open transport.
OWN_SESSION = {
    "lifecycle",
    "events() yields the events of a session",
    "initialize is answered with the app",
    "its events come in order, each once",
    "progress names its call",
}
#: A recording keeps no session id.
NOT_REPLAYED = {"two connections know nothing of each other"}


def shares_session(behaviour: Behaviour) -> bool:
    has_own = not OWN_SESSION.isdisjoint({behaviour.theme, behaviour.name})
    return behaviour.name == "it has all the tools of a page or none" or not has_own


_NO_ADDRESS = "an app in the same process has no address"
_NO_SERVER_ADDRESS = "an MCP server over stdio has no address"
_NO_NAMES = "MCP has no notifications with an app's own names: they travel as log messages"
_NO_REASON = "the app is told; the reason is the SDK's own"
_NO_SCHEMA = "handlers are plain functions without a schema"
#: transport → behaviour → why it does not hold there.
DIFFERENCES: Mapping[str, Mapping[str, str]] = {
    "memory": {
        "download URLs are followed": _NO_ADDRESS,
        "download URLs get their credentials": _NO_ADDRESS,
        "a download that was cut is resumed": _NO_ADDRESS,
        "a download that is not there is refused": _NO_ADDRESS,
        "a download that has expired is refused": _NO_ADDRESS,
        "a download of another size is refused": _NO_ADDRESS,
        "content in parameters is a buffer": "the reference app's Python side reads base64",
        "capabilities come and go": "the reference app's changes belong to its connections",
        "capabilities come with their schemas": _NO_SCHEMA,
        "the session knows the app": "the in-process app has a name of its own",
        "an invalid answer fails alone": "handlers return data, and the transport makes the answer of it",
        "parameters are checked before they travel": _NO_SCHEMA,
    },
    "mcp": {
        "download URLs are followed": _NO_SERVER_ADDRESS,
        "download URLs get their credentials": _NO_SERVER_ADDRESS,
        "a download that was cut is resumed": _NO_SERVER_ADDRESS,
        "a download that is not there is refused": _NO_SERVER_ADDRESS,
        "a download that has expired is refused": _NO_SERVER_ADDRESS,
        "a download of another size is refused": _NO_SERVER_ADDRESS,
        "content in parameters is a buffer": "MCP has no binary input: it travels as base64",
        "an answer without data is a success": "a tool's result always has content (MCP tools/call)",
        "an invalid answer fails alone": "the SDK's server sends no result that is none",
        "notifications reach the session": _NO_NAMES,
        "its events come in order, each once": _NO_NAMES,
        "events() yields the events of a session": _NO_NAMES,
        "a timeout reaches the app": _NO_REASON,
        "cancelling reaches the app": _NO_REASON,
    },
    "websocket": {"content in parameters is a buffer": "binary input travels as base64 (docs/protocol.md 9.13)"},
    "webmcp": {
        "an invalid answer fails alone": "whatever a tool returns is its answer",
    },
}


def in_each_run(name: str, behaviour: Behaviour) -> bool:
    if name == "firefox" or behaviour.name in DIFFERENCES.get(name, ()):
        return False
    if name == "playwright":
        return behaviour.name not in RECORDED | OVER_WEBSOCKET
    if behaviour.name in OVER_WEBSOCKET:
        return name == "websocket"
    return behaviour.name in CHANNEL or behaviour.theme in OWN_THEMES.get(name, ())


def each_transport() -> Iterator[Any]:
    """Each transport with the behaviours of each run, and with those that are slow."""
    for name in TRANSPORTS:
        quick = [behaviour for behaviour in BEHAVIOURS if in_each_run(name, behaviour)]
        others = [behaviour for behaviour in BEHAVIOURS if behaviour not in quick]
        if quick:
            yield pytest.param(name, quick, id=name)
        yield pytest.param(name, others, id=f"{name}-others", marks=pytest.mark.slow)


@pytest.fixture(scope="session")
def mcp_target() -> Iterator[str]:
    with warm_target("reference") as target:
        yield target


@pytest.fixture
def make(
    name: str, fixture: Fixture, browser: Browser, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], Transport]:
    if name == "evaluate":
        reach_without_cdp(monkeypatch)
    shared = request.getfixturevalue("firefox") if name == "firefox" else browser
    makers: dict[str, Callable[[], Transport]] = {
        "memory": in_process,
        "mcp": lambda: MCPTransport(request.getfixturevalue("mcp_target")),
        "websocket": lambda: WebSocketTransport(fixture.ws_url),
        "postmessage": lambda: PostMessageTransport(fixture.embed_url, browser=browser),
        "webmcp": lambda: WebMcpTransport(fixture.webmcp_url + "?faults", browser=browser),
    }
    return makers.get(name, lambda: PlaywrightTransport(fixture.url, browser=shared))


@pytest.fixture
def target(name: str, fixture: Fixture) -> str:
    targets = {
        "memory": "memory:",
        "mcp": "mcp:",
        "websocket": fixture.ws_url,
        "postmessage": fixture.embed_url,
        "webmcp": fixture.webmcp_url + "?faults",
    }
    return targets.get(name, fixture.url)


async def test_differences_table_is_short_and_names_existing_behaviours() -> None:
    assert sum(map(len, DIFFERENCES.values())) <= 30
    assert set(DIFFERENCES) <= set(TRANSPORTS)
    assert {behaviour.name for behaviour in BEHAVIOURS} > RECORDED | OVER_WEBSOCKET


@pytest.mark.requirement("R5-2a", "R5-2b")
@pytest.mark.fault(5, 17, 18, 19, 21, 22, 24, 25, 27, 28, 33, 37, 38, 42)
@pytest.mark.requirement("R1-1b", "R1-11c", "R1-14d")
@pytest.mark.parametrize(("name", "behaviours"), list(each_transport()))
async def test_transport_keeps_the_contract(
    name: str, behaviours: Sequence[Behaviour], make: Callable[[], Transport], target: str, tmp_path: Path
) -> None:
    await verify_all(behaviours, Subject(make, tmp_path, target, answer_timeout=30), name)


@pytest.mark.parametrize("name", ["playwright"])
@pytest.mark.parametrize(
    "behaviours",
    [
        pytest.param([behaviour for behaviour in BEHAVIOURS if behaviour.name in RECORDED], id=""),
        pytest.param(
            [behaviour for behaviour in BEHAVIOURS if behaviour.name not in RECORDED | NOT_REPLAYED],
            id="others",
            marks=pytest.mark.slow,
        ),
    ],
)
async def test_recorded_session_keeps_the_contract_and_so_does_its_replay(
    behaviours: Sequence[Behaviour],
    make: Callable[[], Transport],
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded, played = itertools.count(), itertools.count()

    def record() -> Transport:
        return Recorder(make(), Recording(tmp_path / f"{next(recorded)}.jsonl"))

    def replay() -> Transport:
        return ReplayTransport(tmp_path / f"{next(played)}.jsonl")

    outcomes: list[list[str]] = []
    for subject in (
        Subject(record, tmp_path / "live", target, answer_timeout=30),
        Subject(replay, tmp_path / "replayed"),
    ):
        with seeing_outcomes(monkeypatch, subject.folder) as seen:
            await verify_all(behaviours, subject, "playwright")
        outcomes.append(seen)
    assert outcomes[0] == outcomes[1]


async def verify_all(behaviours: Sequence[Behaviour], subject: Subject, name: str) -> None:
    """Verify them one after the other, first those that share a session."""
    differences = DIFFERENCES.get(name)
    async with subject.connect() as session, subject.transport() as transport:
        for behaviour in filter(shares_session, behaviours):
            # A WebSocket takes the id of each message once.
            shares_transport = behaviour.theme == "messages" and name != "websocket"
            sharing_subject = sharing(subject, session, transport if shares_transport else None)
            with suppress(pytest.xfail.Exception):
                await verify(behaviour, sharing_subject, differences)
    for behaviour in itertools.filterfalse(shares_session, behaviours):
        with suppress(pytest.xfail.Exception):
            await verify(behaviour, subject, differences)


@dataclass(frozen=True, kw_only=True)
class SharingSubject(Subject):
    """Connects to an open session."""

    session: Session

    def connect(self, **callbacks: Any) -> Any:
        if any(callbacks.values()):
            return Subject.connect(self, **callbacks)
        return nullcontext(self.session)


def sharing(subject: Subject, session: Session, transport: Transport | None) -> SharingSubject:
    """Return a subject that connects to the open ``session``, and gets the open ``transport`` if there is one."""

    def share() -> Any:
        return nullcontext(transport)

    make = share if transport else subject.transport
    return SharingSubject(make, subject.folder, subject.target, answer_timeout=subject.answer_timeout, session=session)


@contextmanager
def seeing_outcomes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[list[str]]:
    """What comes of each call, in the order of the calls: the whole result or the whole error, without what belongs to
    one run: ids of calls, folders, names made of the time."""
    folder.mkdir()
    seen: list[str] = []
    call = Session.call

    def shown(outcome: dict[str, Any]) -> str:
        text = json.dumps({**outcome, "transport": "", "duration_ms": 0}, sort_keys=True)
        text = text.replace(str(folder), "FOLDER")
        text = re.sub(r"(_\d{13})?(-\d+)?(\.\w+\")", r"\3", text)  # names that the store made, by time and number
        if text != (text := re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "ID", text)):
            text = re.sub(r"\b[0-9a-f]{64}\b|_[0-9a-f]{12}\b", "SHA", text)  # of an answer with ids of this run
        return text

    async def spying(self: Session, *args: Any, **options: Any) -> Result:
        place = len(seen)
        seen.append("cancelled")
        try:
            result = await call(self, *args, **options)
        except ABPError as error:
            seen[place] = shown({"error": type(error).__name__, **error.as_dict()})
            raise
        seen[place] = shown(result.as_dict())
        return result

    with monkeypatch.context() as patch:
        patch.setattr(Session, "call", spying)
        yield seen


@pytest.mark.fault(22)
@pytest.mark.slow
async def test_100_000_capabilities_are_listed_over_each_transport(
    fixture: Fixture, browser: Browser, tmp_path: Path
) -> None:
    """docs/faults.md 22, over each transport that has an address."""
    query = "?capabilities=100000"
    for url, transport in (
        (fixture.url + query, PlaywrightTransport(fixture.url + query, browser=browser)),
        (fixture.embed_url + query, PostMessageTransport(fixture.embed_url + query, browser=browser)),
        (fixture.ws_url + query, WebSocketTransport(fixture.ws_url + query, timeout=60)),
    ):
        with peak_memory() as grown:
            began = time.process_time()
            async with connect(url, transport=transport, store=tmp_path, timeout=60) as session:
                assert len(session.capabilities) > 100_000
                took = time.process_time() - began  # of all threads, and as much again of the reference app's server
                assert took / slowness() < 4 * measuring(), transport.name
                assert grown() < 400 << 20, transport.name
                assert "bulk.099999" in session.capabilities
                answer = await session.call("bulk.099999", {"value": "x"})
                assert answer.data == {"name": "bulk.099999", "value": "x"}
                with pytest.raises(CapabilityError, match="unknown capability"):
                    await session.call("bulk.1000000")
