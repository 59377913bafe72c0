"""A session belongs to the event loop that opened it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import pytest

from tests.conftest import Connect
from transports import MemoryTransport, Session, UsageError
from transports.testing import Call


async def quick(params: Mapping[str, object], call: Call) -> object:
    return {"ok": True}


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


@pytest.mark.parametrize("use", USES)
def test_a_session_is_refused_in_another_loop_and_goes_on_in_its_own(app_of: Connect, use: str) -> None:
    class Page(MemoryTransport):
        async def screenshot(self, options: object, *, timeout: float) -> object: ...

        async def render_to_pdf(self, html: str, options: object, *, timeout: float, fetch: object) -> object: ...

    async def elsewhere() -> None:
        await USES[use](app)

    loop = asyncio.new_event_loop()
    try:
        app = loop.run_until_complete(app_of(Page({"quick": quick})).__aenter__())
        with pytest.raises(UsageError, match="this session belongs to another event loop"):
            asyncio.run(elsewhere())
        assert loop.run_until_complete(app.call("quick")).data == {"ok": True}
        loop.run_until_complete(app.aclose())
        asyncio.run(app.aclose())  # a closed session belongs to none
    finally:
        loop.close()


def test_the_handle_of_a_call_is_refused_in_another_loop(app_of: Connect) -> None:
    loop = asyncio.new_event_loop()
    try:
        app = loop.run_until_complete(app_of({"quick": quick}).__aenter__())
        handle = loop.run_until_complete(app.start("quick"))
        for use in (handle.result, handle.cancel):
            with pytest.raises(UsageError, match="another event loop"):
                asyncio.run(use())
        assert loop.run_until_complete(handle.result()).data == {"ok": True}
        loop.run_until_complete(app.aclose())
    finally:
        loop.close()


def test_an_awaitable_of_a_call_may_be_made_outside_of_the_loop(app_of: Connect) -> None:
    loop = asyncio.new_event_loop()
    try:
        app = loop.run_until_complete(app_of({"quick": quick}).__aenter__())
        assert loop.run_until_complete(asyncio.wait_for(app.call("quick"), 30)).data == {"ok": True}
        loop.run_until_complete(app.aclose())
    finally:
        loop.close()
