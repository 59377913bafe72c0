"""The public contract suite over each of our own transports: the same app, the same results, another wire.

Known differences are data: :data:`DIFFERENCES`.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

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

#: ``playwright`` is recorded, and must show the same when the recording is replayed (``replay``) a moment later.
#: ``evaluate`` is Playwright's own API instead of CDP, in the same Chromium and not recorded; ``firefox`` has no other.
TRANSPORTS = ("memory", "playwright", "evaluate", "firefox", "websocket", "postmessage", "webmcp", "mcp")

#: What depends on the channel to the app. ``playwright`` shows everything in each run; what the others do not have of
#: their own is in `make slow`.
CHANNEL = {
    "a call under way fails when it is closed",
    "calls at once each get their own answer",
    "an exception of the app is a CapabilityError",
    "content above 256 KB arrives byte for byte",
    "content of 3 MB arrives byte for byte",
    "files in parameters arrive byte for byte",
    "download URLs get their credentials",
    "progress comes in order and each once",
    "a question is answered",
    "cancelling reaches the app",
    "after a timeout and a cancellation the next call works",
}
#: transport → the themes that it has code of its own for.
OWN_THEMES: Mapping[str, set[str]] = {
    "memory": {"messages"},
    "websocket": {"lifecycle", "messages"},
    "mcp": {"lifecycle", "messages", "binaries"},
}
#: What ``websocket`` shows in each run, and one session of ``playwright`` shows with many other behaviours.
SHOWN_ELSEWHERE = {
    "a call after the session closed raises DISCONNECTED",
    "content of 8 calls at once is not mixed up",
    "initialize is answered with the app",
    "it has a name, features and an address",
    "it sends shutdown",
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
#: They look at all that is stored, so they share a session with each other only.
REFUSALS = {
    "content of another size than declared is refused",
    "an invalid size is refused",
    "base64 with junk is refused",
    "base64 that is not canonical is refused",
}


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
    "replay": {"two connections know nothing of each other": "a recording keeps no session id"},
}


def in_each_run(name: str, behaviour: Behaviour) -> bool:
    if name == "firefox" or behaviour.name in DIFFERENCES.get(name, ()):
        return False
    if behaviour.name in CHANNEL:
        return True
    has_own_code = name == "playwright" or behaviour.theme in OWN_THEMES.get(name, ())
    return has_own_code and (name == "websocket" or behaviour.name not in SHOWN_ELSEWHERE)


def every_row() -> Iterator[Any]:
    """Every behaviour over every transport, but those that one recorded session of ``playwright`` shows."""
    for name, behaviour in itertools.product(TRANSPORTS, BEHAVIOURS):
        if name == "playwright" and shares_session(behaviour):
            continue
        slow = not in_each_run(name, behaviour)
        yield pytest.param(name, behaviour, id=f"{name}-{behaviour}", marks=pytest.mark.slow if slow else ())


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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def opened() -> AsyncIterator[dict[tuple[str, str], Session | Transport]]:
    """What behaviours share, by the name of the transport and the kind."""
    shared: dict[tuple[str, str], Session | Transport] = {}
    yield shared
    for opened in shared.values():
        await opened.aclose()


async def test_differences_table_is_short_and_names_existing_behaviours() -> None:
    assert sum(map(len, DIFFERENCES.values())) <= 30
    assert set(DIFFERENCES) <= {*TRANSPORTS, "replay"}
    assert {behaviour.name for behaviour in BEHAVIOURS} > CHANNEL | SHOWN_ELSEWHERE


@pytest.mark.requirement("R5-2a", "R5-2b")
@pytest.mark.fault(5, 17, 18, 19, 21, 22, 24, 25, 27, 28, 33, 37, 38, 42)
@pytest.mark.requirement("R1-1b", "R1-11c", "R1-14d")
@pytest.mark.parametrize(("name", "behaviour"), list(every_row()))
async def test_behaviour(
    name: str,
    behaviour: Behaviour,
    make: Callable[[], Transport],
    target: str,
    opened: dict[tuple[str, str], Any],
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if shares_session(behaviour):
        kind = "refusals" if behaviour.name in REFUSALS else "session"
        folder = tmp_path_factory.getbasetemp() / f"shared-{name}-{kind}"
        folder.mkdir(exist_ok=True)
        if (name, kind) not in opened:
            opening = connect(target, transport=make(), store=folder / "out", timeout=30)
            opened[name, kind] = await opening.__aenter__()
        shared_transport = None
        if behaviour.theme == "messages" and name != "websocket":  # which takes each id once
            if (name, "transport") not in opened:
                opened[name, "transport"] = await make().__aenter__()
            shared_transport = opened[name, "transport"]
        subject = Subject(make, folder, target, answer_timeout=30)
        try:
            await verify(behaviour, sharing(subject, opened[name, kind], shared_transport), DIFFERENCES.get(name))
        except AssertionError:
            for key in ((name, kind), (name, "transport")):
                if key in opened:
                    await opened.pop(key).aclose()
            raise
    elif name == "playwright":
        await verify_recorded([behaviour], make, target, tmp_path, monkeypatch)
    else:
        await verify(behaviour, Subject(make, tmp_path, target, answer_timeout=30), DIFFERENCES.get(name))


@pytest.mark.parametrize("name", ["playwright"])
async def test_behaviours_hold_in_a_recorded_session_and_when_it_is_replayed(
    make: Callable[[], Transport], target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    behaviours = [behaviour for behaviour in BEHAVIOURS if shares_session(behaviour)]
    await verify_recorded(behaviours, make, target, tmp_path, monkeypatch)


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


async def verify_recorded(
    behaviours: Sequence[Behaviour],
    make: Callable[[], Transport],
    target: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Verify ``behaviours``, in one session if there are many, and verify them again with the recordings."""

    async def verify_all(subject: Subject, differences: Mapping[str, str]) -> list[str]:
        with outcomes(monkeypatch, subject.folder) as seen:
            if len(behaviours) == 1:
                await verify(behaviours[0], subject, differences)
                return seen
            async with subject.connect() as session, subject.transport() as transport:
                for behaviour in behaviours:
                    shared_transport = transport if behaviour.theme == "messages" else None
                    await verify(behaviour, sharing(subject, session, shared_transport), differences)
        return seen

    recorded, played = itertools.count(), itertools.count()

    def record() -> Transport:
        return Recorder(make(), Recording(folder / f"{next(recorded)}.jsonl"))

    def replay() -> Transport:
        return ReplayTransport(folder / f"{next(played)}.jsonl")

    live = Subject(record, folder / "live", target, answer_timeout=30)
    first = await verify_all(live, DIFFERENCES.get("playwright", {}))
    second = await verify_all(Subject(replay, folder / "replayed"), DIFFERENCES["replay"])
    assert second == first


@contextmanager
def outcomes(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[list[str]]:
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
