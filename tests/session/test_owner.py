"""A session belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.conftest import Connect
from tests.support.apps import answering
from transports import Browser, Features, MemoryTransport, Session, UsageError, connect, sync
from transports.batch import Pool
from transports.sync.batch import Pool as BlockingPool


async def _first_event(app: Session) -> object:
    async with app.events() as events:
        return await anext(events)


USES: dict[str, Callable[[Session], Awaitable[object]]] = {
    "call": lambda app: app.call("quick"),
    "start": lambda app: app.start("quick"),
    "events": _first_event,
    "screenshot": lambda app: app.screenshot(),
    "aclose": lambda app: app.aclose(),
}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.mark.parametrize("use", USES)
def test_session_is_rejected_in_other_loop_and_continues_in_its_loop(
    app_of: Connect, loop: asyncio.AbstractEventLoop, use: str
) -> None:
    class Page(MemoryTransport):
        features = Features(listing=True, page=True)

    async def elsewhere() -> None:
        await USES[use](app)

    app = loop.run_until_complete(app_of(Page({"quick": answering({"ok": True})})).__aenter__())
    with pytest.raises(UsageError, match="this session belongs to another event loop"):
        asyncio.run(elsewhere())
    waiting = asyncio.wait_for(app.call("quick"), 30)  # an awaitable may be made outside of the loop
    assert loop.run_until_complete(waiting).data == {"ok": True}
    handle = loop.run_until_complete(app.start("quick"))
    for use_handle in (handle.result, handle.cancel):
        with pytest.raises(UsageError, match="another event loop"):
            asyncio.run(use_handle())
    assert loop.run_until_complete(handle.result()).data == {"ok": True}
    loop.run_until_complete(app.aclose())
    asyncio.run(app.aclose())  # a closed session belongs to none


@pytest.mark.parametrize("make", [lambda: connect("ws://127.0.0.1:9/"), Browser])
def test_other_event_loops_are_rejected(make: Callable[[], Any]) -> None:
    # As in Trio, no loop of asyncio runs.
    opening = make().__aenter__()
    with pytest.raises(UsageError, match=r"needs an event loop of asyncio; open it in asyncio\.run"):
        opening.send(None)


ASYNCHRONOUS: Sequence[Callable[[], Any]] = (lambda: connect("ws://127.0.0.1:9/"), Browser, Pool)
BLOCKING: Sequence[Callable[[], Any]] = (lambda: sync.connect("ws://127.0.0.1:9/"), sync.Browser, BlockingPool)


@pytest.mark.parametrize(("make", "blocking"), [*zip(ASYNCHRONOUS, BLOCKING, strict=True)])
async def test_session_objects_reject_with_of_other_kind_and_pickling(
    make: Callable[[], Any], blocking: Callable[[], Any]
) -> None:
    with pytest.raises(UsageError, match=r"is opened with `async with`; .*transports\.sync"), make():
        pass
    with pytest.raises(UsageError, match=r"is opened with `with`; .*transports without sync"):
        async with blocking():
            pass
    for made in (make(), blocking()):
        with pytest.raises(UsageError, match=r"cannot go to another process; open one there"):
            pickle.dumps(made)
